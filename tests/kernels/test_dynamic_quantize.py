"""Quantisation at run time with a range for each slice, and the products that read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_conv import CASES, name
from tests.kernels.test_int8 import RNG, image

import intaglio
from intaglio import ops
from intaglio.compiler import trace
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.dynamic_quantize import quantized_slices
from intaglio.ops.registry import REGISTRY
from intaglio.targets.cpu import qconv_packing

SLICES: list[tuple[tuple[int, ...], int]] = [
    ((1, 1), 1),
    ((5, 64), 1),
    ((7, 33), 0),
    ((2, 5, 6, 7), 1),
    ((1, 40, 30, 3), 1),
    ((2, 3, 4, 19), 3),
    ((0, 4), 1),
    ((3, 0), 1),
]


def numbers(*shape: int) -> np.ndarray:
    x = RNG.standard_normal(shape).astype(np.float32) * np.float32(3)
    return x + np.float32(1)


@pytest.mark.parametrize(("shape", "axis"), SLICES, ids=str)
def test_slices(shape: tuple[int, ...], axis: int) -> None:
    for x in (numbers(*shape), np.abs(numbers(*shape)), -np.abs(numbers(*shape))):
        q, scale, zero = check("cpu.quantize_dynamic", x, axis=axis)
        (y,) = check("dynamic_fake_quantize", x, axis=axis, tolerance=0)
        if not x.size:
            continue
        assert np.abs(y - x).max() <= scale.max() * 0.51
        column = (..., *[None] * (len(shape) - axis))
        real = (q.astype(np.float32) - zero[column]) * scale[column]
        np.testing.assert_array_equal(y, real)


def test_zeros_constants_and_numbers_that_are_not_finite() -> None:
    x = np.zeros((9, 40), np.float32)
    x[1] = 5
    x[2] = -5
    x[3, 7] = np.inf
    x[4, 39] = -np.inf
    x[5, 3] = np.nan
    x[6, 20] = 1e-40
    x[7] = np.linspace(-3e38, 3e38, 40)
    x[8, :2] = 1e30, 1e-30
    with np.errstate(all="ignore"):
        _, scale, _ = check("cpu.quantize_dynamic", x, axis=1)
        (y,) = check("dynamic_fake_quantize", x, axis=1, tolerance=0)
    assert list(np.isnan(scale)) == [i in (3, 4, 5, 7) for i in range(9)]
    np.testing.assert_array_equal(y[:3], x[:3])
    assert np.isnan(y[3:6]).all()


def test_the_lowering_computes_the_same() -> None:
    x = Value(Type("f32", (2, 5, 6, 7)), "x")
    data = numbers(2, 5, 6, 7)
    data[1] = 0
    lower = REGISTRY["dynamic_fake_quantize"].lower
    assert lower is not None
    for axis in range(4):
        graph = Graph([x], [lower(x, axis=axis)], ["y"])
        want = ops.dynamic_fake_quantize.body(data, axis=axis)
        got = intaglio.interpret(graph, {"x": data})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_types_are_refused() -> None:
    x = constant(np.zeros((2, 3), np.float32))
    for bad, axis in ((x, 2), (x, -1), (constant(np.zeros((2, 3))), 1)):
        for op in ("dynamic_fake_quantize", "cpu.quantize_dynamic"):
            with pytest.raises(BadInput, match="f32 with axis"):
                REGISTRY[op].node(bad, axis=axis)


# ---- products ------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [(1,), (13,), (2, 5)])
@pytest.mark.parametrize(("k", "n"), [(4, 1), (64, 24), (20, 130)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_zero_for_each_row(rows: tuple[int, ...], k: int, n: int, dtype: Any) -> None:
    x, zero = image(*rows, k, dtype=dtype), image(*rows, dtype=dtype)
    w = image(1, n, k, 1, dtype=np.int8)
    whole = -(-n // 16) * 16
    sums = np.zeros(whole, np.int32)
    sums[:n] = w[0, :, :, 0].sum(1)
    scale = np.zeros(whole, np.float32)
    scale[:n] = RNG.uniform(0.1, 1, n)
    by = RNG.uniform(0.1, 1, rows).astype(np.float32)
    bias = numbers(n)
    packed = qconv_packing.packed(w)[0]
    for act in ("none", "relu"):
        ins = (x, packed, bias, None, None, scale, sums, by, zero)
        check("cpu.qgemm", *ins, n=n, act=act, tolerance=1e-6)
    right = (x.astype(int) - zero[..., None].astype(int)) @ w[0, :, :, 0].T.astype(int)
    (y,) = check("cpu.qgemm", x, packed, None, None, None, scale, sums, by, zero, n=n)
    np.testing.assert_allclose(y, right * (by[..., None] * scale[:n]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_convolutions_of_images_with_their_own_zeros(case: dict[str, Any], dtype: Any) -> None:
    shape, channels, kernel = case["image"], case["channels"], case["kernel"]
    axes, groups = len(kernel), case.get("groups", 1)
    deep = shape[-1] // groups
    attrs = {
        "channels": channels,
        "kernel": kernel,
        "groups": groups,
        "stride": case.get("stride") or (1,) * axes,
        "pad": case.get("pad") or (0,) * 2 * axes,
        "dilation": case.get("dilation") or (1,) * axes,
        "x_zero": 0,
        "dtype": "f32",
    }
    x, zero = image(*shape, dtype=dtype), image(shape[0], dtype=dtype)
    w = image(groups, channels // groups, deep, *kernel, dtype=np.int8)
    sums = w.reshape(channels, -1).sum(1, dtype=np.int32)
    scale, by = (RNG.uniform(0.1, 1, n).astype(np.float32) for n in (channels, shape[0]))
    whole = groups == 1 and attrs["dilation"][-1] == 1
    runs = ["tap", "line", "window"] if whole else ["tap"]
    for run in runs[: 2 if deep * kernel[-1] > qconv_packing.MAX_GATHERED_LINE else 3]:
        packed = qconv_packing.packed(w, run)
        ins = (x, packed, np.zeros(channels, np.int32), scale, *[None] * 4, zero, by, sums)
        (y,) = check("cpu.qconv", *ins, run=run, **attrs, tolerance=0)
        residual = numbers(*y.shape)
        ins = (*ins[:4], residual, *ins[5:])
        check("cpu.qconv", *ins, run=run, **attrs, tolerance=0)


def test_images_without_their_sums_are_refused() -> None:
    x, w = image(2, 4, 4, 8), qconv_packing.packed(image(1, 16, 8, 1, 1, dtype=np.int8))
    bias, scale, by = np.zeros(16, np.int32), np.ones(16, np.float32), np.ones(2, np.float32)
    zero, sums = np.zeros(2, np.uint8), np.zeros(16, np.int32)
    attrs = {"channels": 16, "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1)}
    attrs |= {"pad": (0,) * 4, "x_zero": 0, "dtype": "f32"}
    make = REGISTRY["cpu.qconv"].node
    given = [constant(a) for a in (x, w, bias, scale)]
    for ends, more in (
        ((zero, by, None), {}),
        ((zero, by, sums), {"dtype": "u8", "hi": 255}),
        ((zero[:1], by, sums), {}),
        ((zero.view(np.int8), by, sums), {}),
        ((zero, by, sums[:3]), {}),
    ):
        extra = [None if a is None else constant(a) for a in ends]
        with pytest.raises(BadInput, match=r"belong together|per image|per channel"):
            make(*given, *[None] * 4, *extra, **{**attrs, **more})


# ---- models --------------------------------------------------------------------------------------
def test_two_products_share_the_bytes_of_their_input() -> None:
    x = Value(Type("f32", (5, 12)), "x")
    rounded = ops.dynamic_fake_quantize(x, axis=1)
    outs = []
    for n in (3, 20):
        w = ops.dequantize_linear(
            constant(image(n, 12, dtype=np.int8)),
            constant(np.full(n, 0.1, np.float32)),
            None,
            axis=0,
        )
        outs.append(ops.gemm(rounded, w, constant(numbers(n)), trans_b=True))
    graph, data = Graph([x], outs, ["a", "b"]), numbers(5, 12)
    steps = [s.op for s in trace(graph).plan.steps]
    assert sorted(steps) == ["cpu.qgemm", "cpu.qgemm", "cpu.quantize_dynamic"]
    want = intaglio.interpret(graph, {"x": data})
    with intaglio.open(intaglio.compile(graph)) as session:
        got = session.run({"x": data})
    for k in "ab":
        np.testing.assert_allclose(got[k], want[k], rtol=1e-5, atol=1e-5)
    assert quantized_slices(data, 1)[0].dtype == np.uint8
