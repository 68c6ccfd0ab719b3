"""Packages keep the scales of integer outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.tflite_build import T, model, op

import intaglio
from intaglio import ops, vision
from intaglio.ir import Graph, Quant, Type, Value, constant

HALF = Quant((0.5,), (3,))


def quantized(x: Value, scale: object = 0.5, zero: object = 3, axis: int = 0) -> Value:
    numbers = constant(np.asarray(scale, np.float32)), constant(np.asarray(zero, np.uint8))
    result: Value = ops.quantize_linear(x, *numbers, axis=axis, dtype="u8")
    return result


def real(x: Value, scale: float = 0.1) -> Value:
    numbers = constant(np.float32(scale)), constant(np.uint8(9))
    result: Value = ops.dequantize_linear(x, *numbers, axis=0, dtype="f32")
    return result


def kept(graph: Graph, **options: object) -> list[Quant | None]:
    """The scales of the outputs of the package, read from its bytes."""
    with intaglio.open(intaglio.compile(graph, **options).bytes) as session:
        return [t.quant for t in session.outputs.values()]


@pytest.mark.parametrize("level", [0, 1, 3])
def test_scales_of_outputs_are_kept(level: int) -> None:
    x = Value(Type("u8", (1, 4, 5, 5)), "x")
    f = ops.relu(real(x))
    y = quantized(f)
    moved = ops.reshape(ops.transpose(y, perm=(0, 2, 3, 1)), shape=(25, 4))
    channels = quantized(f, [0.5, 1, 2, 4], [1, 2, 3, 4], axis=1)
    flat = ops.reshape(channels, shape=(4, 25))
    most = ops.argmax(y, axis=1, keepdims=True, select_last_index=False)
    outs = [y, moved, channels, flat, most, f]
    graph = Graph([x], outs, ["y", "moved", "channels", "flat", "most", "f"])
    each = Quant((0.5, 1.0, 2.0, 4.0), (1, 2, 3, 4), 1)
    assert kept(graph, level=level) == [HALF, HALF, each, None, None, None]


def test_scales_of_integer_ops_and_inputs_are_kept() -> None:
    a, b = (Value(Type("u8", (2, 8)), n) for n in "ab")
    one = [constant(np.float32(0.1)), constant(np.uint8(9))]
    total = ops.qlinear_add(a, *one, b, *one, constant(np.float32(0.5)), constant(np.uint8(3)))
    stored = Value(Type("u8", (2, 8), Quant((0.25,), (7,))), "stored")
    graph = Graph([a, b, stored], [total, ops.clip(stored, lo=8, hi=90)], ["sum", "clipped"])
    assert kept(graph) == [HALF, Quant((0.25,), (7,))]


def test_scales_known_only_at_run_time_are_not() -> None:
    x, scale = Value(Type("f32", (4,)), "x"), Value(Type("f32", ()), "scale")
    y = ops.quantize_linear(x, scale, constant(np.uint8(0)), axis=0, dtype="u8")
    assert kept(Graph([x, scale], [y], ["y"])) == [None]


def test_run_shows_probabilities_of_a_quantised_classifier(tmp_path: Path) -> None:
    """Means of the three channels, then softmax, in bytes from the file's input to its output."""
    tensors = [
        T((1, 8, 8, 3), np.uint8, scale=1 / 16, zero=0),
        T(data=np.array([1, 2], np.int32)),
        T((1, 3), np.uint8, scale=1 / 16, zero=0),
        T((1, 3), np.uint8, scale=1 / 256, zero=0),
    ]
    steps = [
        op("MEAN", [0, 1], [2], "ReducerOptions", KeepDims=False),
        op("SOFTMAX", [2], [3], "SoftmaxOptions", Beta=1.0),
    ]
    path = tmp_path / "classifier.tflite"
    path.write_bytes(model(tensors, steps, [0], [3]))
    with intaglio.open(intaglio.compile(path)) as session:
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[..., 1] = 16  # one above the others: e / (e + 2)
        found = vision.predict(session, picture)
    assert "(probabilities)" in str(found)
    best = found.classes[0]
    assert (best.label, best.score) == (1, pytest.approx(np.e / (np.e + 2), abs=1 / 256))
