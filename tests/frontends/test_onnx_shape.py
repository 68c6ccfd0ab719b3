"""ONNX ops on shapes in the forms of all opsets, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_oracle import agree
from tests.frontends.onnx_text import model

from intaglio.errors import BadInput, RunError, Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret

R = np.random.default_rng(4)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def same(op: str, arrays: list[Any], outputs: int = 1, version: int = 17, **attrs: Any) -> None:
    """Every operand but the first is constant."""
    constant = attrs.pop("constant", tuple(range(1, len(arrays))))
    agree(op, arrays, outputs, domain="", version=version, constant=constant, **attrs)


def test_reshape() -> None:
    same("Reshape", [f(2, 3, 4), i(0, -1)])
    same("Reshape", [f(2, 3, 4), i(4, 0, 2)])
    same("Reshape", [f(0, 3), i(3, 0)], allowzero=1)
    same("Flatten", [f(2, 3, 4)], axis=-1)
    same("Flatten", [f(2, 3, 4)], axis=0)
    same("Squeeze", [f(1, 3, 1)], version=11, axes=[-1])
    same("Squeeze", [f(1, 3, 1)], version=13)
    same("Squeeze", [f(1, 3, 1), i(0)], version=13)
    same("Unsqueeze", [f(3, 4)], version=11, axes=[0, -1])
    same("Unsqueeze", [f(3, 4), i(3, 0)], version=13)
    same("Transpose", [f(2, 3, 4)])
    same("Transpose", [f(2, 3, 4)], perm=[1, 2, 0])


@pytest.mark.parametrize("step", [1, 2, -1, -3])
@pytest.mark.parametrize(("start", "end"), [(1, 4), (-3, 2**63 - 1), (9, -(2**63)), (-20, -2)])
def test_slice(start: int, end: int, step: int) -> None:
    if step < 0 and end > 2**62:
        pytest.skip('onnxruntime reads "backwards to the largest integer" as "to the beginning"')
    x = f(4, 6)
    same("Slice", [x, i(start), i(end), i(1), i(step)], version=13)
    same("Slice", [x, i(start, 1), i(end, 3), i(-1, 0), i(step, 1)], version=10)
    same("Slice", [x, i(start), i(end), i(1), i(step)], version=13, constant=(3,))
    if step == 1:
        same("Slice", [x], version=9, starts=[start], ends=[end], axes=[1])
        same("Slice", [x, i(start, 0), i(end, 9)], version=13)


def test_split_concat_tile_expand() -> None:
    same("Split", [f(6, 2)], 2, version=11, split=[4, 2])
    same("Split", [f(2, 6)], 2, version=11, axis=1)
    same("Split", [f(6, 2), i(1, 5)], 2, version=13)
    same("Split", [f(7, 2)], 2, version=18, num_outputs=2)
    same("Concat", [f(2, 3), f(2, 1), f(2, 0)], axis=-1, constant=(1,))
    same("Tile", [f(2, 3), i(2, 3)])
    same("Expand", [f(3, 1), i(2, 1, 4)])
    same("Expand", [f(2, 3, 4), i(3, 1)])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: str) -> None:
    x, version = f(4, 5), 19 if mode == "wrap" else 13
    same("Pad", [x, i(1, 2, 3, 0)], version=version, mode=mode)
    if mode != "wrap":
        same("Pad", [x], version=7, mode=mode, pads=[1, 2, 3, 0])
        same("Pad", [x, i(1, 3), np.array(2, np.float32), i(-1)], version=18, mode=mode)
        same("Pad", [x, i(-1, 0, 2, -2)], version=version, mode=mode)
    if mode == "constant":
        value = np.array(1.5, np.float32)
        same("Pad", [x, i(-1, 0, 2, 1), value], version=version, constant=(1,))
        same("Pad", [x], version=7, pads=[0, 1, 0, 1], value=7.0)


def test_shapes_as_tensors() -> None:
    same("Shape", [f(2, 3, 4)], types=(7,))
    same("Shape", [f(2, 3, 4)], types=(7,), start=-2, end=9)
    same("Size", [f(2, 3, 4)], types=(7,))
    same("ConstantOfShape", [i(2, 3)], constant=(0,), types=(1,))
    same("EyeLike", [f(3, 4)], k=-1)
    same("EyeLike", [f(3, 4)], dtype=7, types=(7,))
    same("Range", [i(7)[0:1].reshape(()), np.array(-1), np.array(-3)], constant=(0, 1, 2))
    two = np.array(2.0, np.float32)
    same("Range", [np.zeros((), np.float32), two, two / 7], constant=(0, 1, 2))


def test_gather_and_scatter() -> None:
    x, at = f(4, 5), np.array([[0, -1], [2, 1]])
    same("Gather", [x, at], axis=1, constant=())
    same("GatherElements", [x, at], axis=0, constant=())
    same("GatherND", [f(2, 3, 4), np.array([[1, 0], [0, -1]])], version=12, constant=())
    same("GatherND", [f(2, 3, 4), np.array([[1], [0]])], version=12, batch_dims=1, constant=())
    for op, version in (("Scatter", 9), ("ScatterElements", 13)):
        same(op, [x, at, f(2, 2)], version=version, axis=1, constant=())
    for reduction in ("add", "mul", "max", "min"):
        how = {"version": 18, "reduction": reduction, "constant": ()}
        same("ScatterElements", [x, np.array([[1, 1], [1, 0]]), f(2, 2)], axis=1, **how)
        same("ScatterND", [x, np.array([[1], [1], [3]]), f(3, 5)], **how)
    same("ScatterND", [x, np.array([[1, 2], [3, -1]]), f(2)], version=11, constant=())


def test_order() -> None:
    x = R.integers(0, 4, (3, 7)).astype(np.float32)
    same("TopK", [x], 2, version=7, k=3, types=(1, 7))
    same("TopK", [x, i(4)], 2, version=10, types=(1, 7))
    same("TopK", [x, i(2)], 2, version=11, axis=0, largest=0, types=(1, 7))
    for op in ("ArgMax", "ArgMin"):
        same(op, [x], axis=-1, keepdims=0, types=(7,))
        same(op, [x], version=12, axis=0, select_last_index=1, types=(7,))
    for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
        same("CumSum", [f(3, 4), np.array(-1, np.int64)], version=14, **flags)
    same("Trilu", [f(2, 4, 5), np.array(-1)], version=14, upper=0)
    same("ReverseSequence", [f(4, 3), i(1, 2, 4)], version=10)
    same(
        "OneHot", [np.array([0, -1, 9]), i(3), f(2)], version=11, axis=0, constant=(1,), types=(1,)
    )


def test_extents_from_data() -> None:
    x = np.array([[1, 0], [0, 2], [3, 0]], np.float32)
    same("NonZero", [x], types=(7,))
    same("Compress", [x, np.array([True, False, True])], axis=0, constant=())
    same("Compress", [x, np.array([True, False, True])])
    same("Unique", [np.array([3, 1, 1, 2, 3.0], np.float32)], version=11, sorted=0)
    same("Unique", [x[[0, 1, 0, 2]]], version=11, axis=0)


def test_run_time_shapes_follow_the_extent() -> None:
    """Results computed from the Shape of a dynamic tensor need no declared bound."""
    text = """(float[3,4] x) => (float[n,2] y) {
        at = NonZero(x)
        rows = Transpose(at)
        s = Shape(rows)
        zero = Constant<value_ints=[0]>()
        minus = Constant<value_ints=[-1]>()
        count = Gather(s, zero)
        shape = Concat<axis=0>(count, minus)
        r = Reshape(rows, shape)
        one = Cast<to=1>(r)
        fill = ConstantOfShape(s)
        y = Add(one, fill)
    }"""
    graph = load_onnx(model(text))
    assert str(graph.outputs[0].type) == "f32[<=12x2]"
    x = np.zeros((3, 4), np.float32)
    x[1, 2] = x[2, 0] = 1
    np.testing.assert_array_equal(interpret(graph, {"x": x})["y"], [[1, 2], [2, 0]])


def test_declared_bounds() -> None:
    text = "(float[2,6] x, int64[2] s) => (float[3,4] y) { y = Reshape(x, s) }"
    graph = load_onnx(model(text))
    y = interpret(graph, {"x": f(2, 6), "s": i(3, -1)})["y"]
    assert y.shape == (3, 4)
    with pytest.raises(RunError, match="exceeds the bound"):
        interpret(graph, {"x": f(2, 6), "s": i(-1, 3)})
    with pytest.raises(Unsupported, match=r'bind it with values=\{"s": ...\}'):
        load_onnx(model("(float[2,6] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }"))
    ranged = load_onnx(
        model(
            "(int64 n) => (int64[7] y) { z = Constant<value_int=0>() "
            "o = Constant<value_int=1>() y = Range(z, n, o) }"
        )
    )
    assert interpret(ranged, {"n": np.array(5)})["y"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y = Flatten<axis=5>(x)", "axis 5 is outside of"),
        ("y = Transpose<perm=[0, 0]>(x)", "is not a permutation"),
        ("y = Concat<axis=0>(x, z)", "cannot concat"),
        ("s = Constant<value_ints=[5, -1]>() y = Reshape(x, s)", "cannot reshape"),
        ("s = Constant<value_ints=[1]>() y = Squeeze(x, s)", "cannot be squeezed"),
        ("s = Constant<value_ints=[1, 1]>() a, y = Split(x, s)", "cannot be split"),
    ],
)
def test_refusals(body: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_onnx(model(f"(float[4,3] x, float[2,2] z) => (float[a,b] y) {{ {body} }}"))
