"""Convolutions of bytes with packed weights: every kernel gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_conv import CASES, name

import intaglio
from intaglio import native, ops
from intaglio.compiler import trace
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu import qconv as cpu_qconv
from intaglio.targets.cpu import qconv_packing

RNG = np.random.default_rng(8)
RANGES: list[dict[str, Any]] = [
    {"x_zero": 0, "y_zero": 131, "lo": 0, "hi": 255, "dtype": "u8"},
    {"x_zero": 119, "y_zero": 0, "lo": 0, "hi": 255, "dtype": "u8"},
    {"x_zero": 3, "y_zero": 20, "lo": 20, "hi": 200, "dtype": "u8"},
    {"x_zero": 255, "y_zero": -7, "lo": -128, "hi": 127, "dtype": "i8"},
]


def image(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def per_channel(channels: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    bias = RNG.integers(-3000, 3000, channels).astype(np.int32)
    scale = RNG.uniform(0.1, 2, channels) * 2 / (74 * 74 * np.sqrt(depth))
    return bias, scale.astype(np.float32)


def ranges(dtype: Any) -> list[dict[str, Any]]:
    if dtype == np.uint8:
        return RANGES
    return [{**r, "x_zero": r["x_zero"] - 128} for r in RANGES]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_qconv(case, dtype):
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
    }
    x = image(*shape, dtype=dtype)
    w = image(groups, channels // groups, deep, *kernel, dtype=np.int8)
    whole = groups == 1 and attrs["dilation"][-1] == 1
    runs = ["tap", "line", "window"] if whole else ["tap"]
    for run in runs[: 2 if deep * kernel[-1] > qconv_packing.MAX_GATHERED_LINE else 3]:
        packed = qconv_packing.packed(w, run)
        neutral = qconv_packing.unpacked(packed, deep, channels // groups, kernel, run)
        np.testing.assert_array_equal(neutral, w.reshape(channels, deep, *kernel))
        for r in ranges(dtype):
            check("cpu.qconv", x, packed, *per_channel(channels, deep), run=run, **attrs, **r)


@pytest.mark.parametrize("deep", [1, 3, 4, 58, 130])
@pytest.mark.parametrize("channels", [1, 15, 16, 24, 48, 58, 64, 130])
def test_products(deep, channels):
    x, w = image(1, 13, deep), image(1, channels, deep, 1, dtype=np.int8)
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    for r in RANGES:
        check(
            "cpu.qconv",
            x,
            qconv_packing.packed(w, "tap"),
            *per_channel(channels, deep),
            **attrs,
            **r,
        )


EPILOGUE_SHAPES = [
    ((1, 5, 7, 20), 33, (1, 1)),
    ((2, 6, 5, 16), 64, (3, 3)),
    ((1, 9, 8, 3), 24, (3, 3)),
    ((1, 7, 7, 64), 130, (3, 3)),
    ((1, 4, 3, 12), 16, (1, 1)),
]


@pytest.mark.parametrize("case", EPILOGUE_SHAPES, ids=str)
def test_epilogues(case):
    """Floats, sums, residuals, tables and zeros of the weights, alone and together."""
    shape, channels, kernel = case
    deep = shape[-1]
    run = qconv_packing.best_run(deep, kernel, (1, 1), 1)
    w = qconv_packing.packed(image(1, channels, deep, *kernel, dtype=np.int8), run)
    attrs = {
        "channels": channels,
        "kernel": kernel,
        "stride": (1, 1),
        "dilation": (1, 1),
        "pad": (kernel[0] // 2,) * 4,
        "run": run,
    }
    out = (*shape[:-1], channels)
    zeros = RNG.integers(-50, 50, channels).astype(np.int32)
    for dtype in (np.uint8, np.int8):
        x, (bias, scale) = image(*shape, dtype=dtype), per_channel(channels, deep)
        x_zero = int(np.iinfo(dtype).min) + 100
        real = RNG.uniform(-3, 3, out).astype(np.float32)
        for w_zero in (None, zeros):
            check(
                "cpu.qconv",
                x,
                w,
                bias,
                None,
                None,
                None,
                w_zero,
                **attrs,
                x_zero=x_zero,
                dtype="i32",
            )
            for residual in (None, real):
                check(
                    "cpu.qconv",
                    x,
                    w,
                    bias,
                    scale,
                    residual,
                    None,
                    w_zero,
                    **attrs,
                    x_zero=x_zero,
                    dtype="f32",
                    tolerance=0,
                )
            for r in ranges(dtype):
                for kind in (np.uint8, np.int8):
                    low = int(np.iinfo(kind).min)
                    check(
                        "cpu.qconv",
                        x,
                        w,
                        bias,
                        scale,
                        image(*out, dtype=kind),
                        None,
                        w_zero,
                        **attrs,
                        **r,
                        r_zero=low + 77,
                        r_scale=0.37,
                    )


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64])
def test_floats_of_few_channels(channels):
    """A store of fewer floats than a vector holds does not change the memory after them."""
    x, w = image(1, 11, 13, 20), image(1, channels, 20, 1, 1, dtype=np.int8)
    run = qconv_packing.best_run(20, (1, 1), (1, 1), 1)
    check(
        "cpu.qconv",
        x,
        qconv_packing.packed(w, run),
        *per_channel(channels, 20),
        channels=channels,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pad=(0,) * 4,
        run=run,
        x_zero=3,
        dtype="f32",
        tolerance=0,
    )


@pytest.mark.parametrize("channels", [9, 16, 24, 32, 48, 64, 130])
@pytest.mark.parametrize("entries", [1, 90, 256, 257, 1000, 4096])
def test_tables(channels, entries):
    x, w = image(1, 21, 12), qconv_packing.packed(image(1, channels, 12, 1, dtype=np.int8), "tap")
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    bias, scale = per_channel(channels, 12)
    for dtype, lo in (("u8", 0), ("i8", -128), ("u8", 300)):
        table = image(entries, dtype=np.uint8 if dtype == "u8" else np.int8)
        for residual in (None, image(1, 21, channels)):
            check(
                "cpu.qconv",
                x,
                w,
                bias,
                scale * np.float32(entries / 256),
                residual,
                table,
                **attrs,
                x_zero=7,
                y_zero=lo + entries // 3,
                lo=lo,
                hi=lo + entries - 1,
                dtype=dtype,
                r_zero=128,
                r_scale=0.5,
            )


def test_sums_wrap_and_scales_may_be_large():
    x, w = image(1, 7, 64), image(1, 20, 64, 1, dtype=np.int8)
    attrs = {"channels": 20, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    bias = np.resize(np.array([2**31 - 1, -(2**31), 0, 5], np.int32), 20)
    scale = np.resize(np.array([3e38, -3e38, 1e-30, 1.0, 2.0, 1e5], np.float32), 20)
    for r in RANGES:
        check("cpu.qconv", x, qconv_packing.packed(w, "tap"), bias, scale, **attrs, **r)


def test_ties_go_to_even():
    """Sums halfway between two integers round to even, also with an odd zero point."""
    x = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)
    w = np.ones((1, 5, 1, 1), np.int8)
    attrs = {"channels": 5, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    halves = np.full(5, 0.5, np.float32)
    for y_zero in (0, 1, 77):
        (y,) = check(
            "cpu.qconv",
            x,
            qconv_packing.packed(w, "tap"),
            np.full(5, -100, np.int32),
            halves,
            **attrs,
            x_zero=0,
            y_zero=y_zero,
            lo=0,
            hi=255,
            dtype="u8",
        )
        want = np.clip(np.rint((x[..., 0] - 100.0) / 2) + y_zero, 0, 255)
        np.testing.assert_array_equal(y[..., 0], want)


@pytest.mark.parametrize("w_dtype", ["i8", "u8"])
@pytest.mark.parametrize("x_dtype", ["u8", "i8"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_lowering_keeps_the_bits(groups, x_dtype, w_dtype):
    """Packed kernels, and the others for unsupported cases, give the bits of qlinear_conv."""
    x = Value(Type(x_dtype, (2, 6, 9, 9)), "x")
    w = constant(RNG.integers(0, 100, (6, 6 // groups, 3, 3)), dtype=w_dtype)
    zero = constant(np.int64(0 if w_dtype == "i8" else 50), dtype=w_dtype)
    ws = constant(RNG.uniform(0.001, 0.01, 6).astype(np.float32))
    b = constant(RNG.integers(-900, 900, 6).astype(np.int32))
    y = ops.qlinear_conv(
        x,
        constant(np.float32(0.02)),
        constant(9, dtype=x_dtype),
        w,
        ws,
        zero,
        constant(np.float32(0.03)),
        constant(4, dtype="u8"),
        b,
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
    )
    compiled_as(Graph([x], [y], ["y"]), True)


@pytest.mark.parametrize(("channels", "groups"), [(32, 8), (32, 4), (24, 6)])
@pytest.mark.parametrize("w_dtype", ["i8", "u8"])
def test_groups_of_few_channels_share_panels(channels, groups, w_dtype):
    """Merged groups get zero weights for each other's channels, so sums do not change."""
    x = Value(Type("u8", (1, channels, 7, 8)), "x")
    shape = (channels, channels // groups, 3, 3)
    y = ops.qlinear_conv(
        x,
        constant(np.float32(0.02)),
        constant(3, dtype="u8"),
        constant(RNG.integers(0, 100, shape), dtype=w_dtype),
        constant(RNG.uniform(0.001, 0.01, channels).astype(np.float32)),
        constant(np.int64(0 if w_dtype == "i8" else 50), dtype=w_dtype),
        constant(np.float32(0.05)),
        constant(100, dtype="u8"),
        constant(RNG.integers(-900, 900, channels).astype(np.int32)),
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
    )
    graph = Graph([x], [y], ["y"])
    compiled_as(graph, True)
    merged = next(s for s in trace(graph).plan.steps if s.op == "cpu.qconv").attrs["groups"]
    assert merged < groups


@pytest.mark.parametrize("kernel", [3, 7])
def test_depthwise_with_a_channel_multiplier_keeps_the_bits(kernel):
    """The input channels are repeated, so that each output channel has its own."""
    x = Value(Type("u8", (1, 6, 12, 13)), "x")
    y = ops.qlinear_conv(
        x,
        constant(np.float32(0.02)),
        constant(3, dtype="u8"),
        constant(RNG.integers(-100, 100, (12, 1, kernel, kernel)).astype(np.int8)),
        constant(RNG.uniform(0.001, 0.01, 12).astype(np.float32)),
        constant(0, dtype="i8"),
        constant(np.float32(0.05)),
        constant(100, dtype="u8"),
        constant(RNG.integers(-900, 900, 12).astype(np.int32)),
        stride=(2, 2),
        pad=(kernel // 2,) * 4,
        dilation=(1, 1),
        groups=6,
    )
    graph = Graph([x], [y], ["y"])
    compiled_as(graph, True)
    assert "cpu.qdepthwise" in [s.op for s in trace(graph).plan.steps]


def test_a_product_with_constant_columns_is_packed():
    a = Value(Type("u8", (2, 3, 20)), "a")
    b = constant(RNG.integers(-100, 100, (20, 33)).astype(np.int8))
    one = [constant(np.float32(s)) for s in (0.02, 0.01, 0.05)]
    y = ops.qlinear_matmul(
        a,
        one[0],
        constant(7, dtype="u8"),
        b,
        one[1],
        constant(0, dtype="i8"),
        one[2],
        constant(100, dtype="u8"),
    )
    compiled_as(Graph([a], [y], ["y"]), True)


def compiled_as(graph: Graph, packed: bool) -> None:
    (v,) = graph.inputs
    x = image(*v.shape, dtype=np.uint8 if v.dtype == "u8" else np.int8)
    want = intaglio.interpret(graph, {v.name: x})["y"]
    with intaglio.open(intaglio.compile(graph), threads=1, profile=True) as session:
        np.testing.assert_array_equal(session.run({v.name: x})["y"], want)
        names = {s.op for s in session.profile()}
    assert bool(names & {"cpu.qconv", "cpu.qdepthwise"}) == packed


def test_refusals():
    x, w = image(1, 4, 4, 8), qconv_packing.packed(image(1, 16, 8, 1, 1, dtype=np.int8), "tap")
    bias, scale = per_channel(16, 8)
    kernel = next(k for k in native.kernels() if k.op.name == "cpu.qconv" and k.isa == "scalar")
    good = {
        "channels": 16,
        "kernel": (1, 1),
        "stride": (1, 1),
        "pad": (0,) * 4,
        "groups": 1,
        "dilation": (1, 1),
        "run": "tap",
        "r_zero": 0,
        "r_scale": 0.0,
        **RANGES[0],
    }
    for change, words in (
        ({"x_zero": 256}, "x_zero"),
        ({"y_zero": -1}, "y_zero"),
        ({"lo": 9, "hi": 8}, "bounds"),
        ({"groups": 3}, "groups"),
        ({"kernel": (2, 1)}, "packed"),
    ):
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, [x, w, bias, scale], {**good, **change}, 1, 1)
        with pytest.raises(BadInput):
            cpu_qconv.qconv(*map(constant, (x, w, bias, scale)), **{**good, **change})


@pytest.mark.parametrize("run", qconv_packing.RUNS)
def test_layout_of_packed_weights(run):
    """[groups, m, c, window] = [2, 19, 5, 2, 3]: each run is padded to groups of four bytes."""
    w = np.random.default_rng(4).integers(-128, 128, (2, 19, 5, 2, 3)).astype(np.int8)
    size = {"tap": 5, "line": 15, "window": 30}[run]
    packed_weights = qconv_packing.packed(w, run)
    by_run = packed_weights.reshape(2, 2, 30 // size, -(-size // 4), 16, 4)
    assert packed_weights.shape == (2, 2, 30 // size * -(-size // 4), 64)
    for group, m, c, y, x in np.ndindex(w.shape):
        at, byte = divmod((y * 3 + x) * 5 + c, size)
        place = (group, m // 16, at, byte // 4, m % 16, byte % 4)
        assert by_run[place] == w[group, m, c, y, x]
    assert np.count_nonzero(packed_weights) == np.count_nonzero(w)
    np.testing.assert_array_equal(
        qconv_packing.unpacked(packed_weights, 5, 19, (2, 3), run), w.reshape(38, 5, 2, 3)
    )
