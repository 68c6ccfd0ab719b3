"""Convolutions of signs: every kernel has the bits of the int8 convolution of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import cpu_isa, native, ops
from intaglio.compiler import trace
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu import xnor_conv

RNG = np.random.default_rng(27)
# image, channels made, kernel, and the window where it is not plain
CASES = [
    ((1, 5, 7, 20), 33, (1, 1), {}),
    ((2, 6, 5, 16), 24, (3, 3), {"pad": (1, 1, 1, 1)}),
    ((1, 9, 8, 64), 48, (3, 3), {"pad": (1, 1, 1, 1), "stride": (2, 2)}),
    ((1, 11, 9, 40), 130, (3, 3), {"pad": (2, 1, 0, 2), "dilation": (2, 2)}),
    ((1, 3, 2, 3), 5, (5, 7), {"pad": (2, 3, 2, 3)}),
    ((1, 2, 80, 300), 16, (2, 3), {"stride": (1, 3), "pad": (1, 0, 1, 2)}),
]


def isas() -> list[int]:
    """The instruction sets of this CPU: none, the first, the first two, and so on."""
    found = [0]
    for bits in cpu_isa.BITS.values():
        if bits & native.machine():
            found.append(found[-1] | bits)
    return found


def window(kernel: tuple[int, int], given: dict[str, tuple[int, ...]]) -> dict[str, object]:
    plain = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
    return {"kernel": kernel, **plain, **given}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels(case):
    shape, channels, kernel, given = case
    attrs = {**window(kernel, given), "channels": channels}
    signs = RNG.integers(0, 2, (channels, shape[-1], *kernel)).astype(bool)
    w = xnor_conv.packed_signs(signs, attrs["dilation"])
    back = xnor_conv.unpacked_signs(w, channels, shape[-1], kernel, attrs["dilation"])
    np.testing.assert_array_equal(back, signs)
    bias = RNG.integers(-900, 900, channels).astype(np.int32)
    scale = RNG.uniform(1e-4, 4e-4, channels).astype(np.float32)
    padding = RNG.integers(-(1 << 14), 1 << 14, (int(np.prod(kernel)), channels)).astype(np.int32)
    for dtype, above in ((np.int8, -3), (np.uint8, 130)):
        x = RNG.integers(*(-128, 128) if dtype == np.int8 else (0, 256), shape).astype(dtype)
        plain = {**attrs, "above": above, "step": 127 * 255}
        (sums,) = check(
            "cpu.xnor_conv", x, w, bias, None, None, None, padding, dtype="i32", **plain
        )
        check("cpu.xnor_conv", x, w, bias, dtype="i32", **{**plain, "step": -1})
        real = RNG.uniform(-2, 2, sums.shape).astype(np.float32)
        check(
            "cpu.xnor_conv",
            x,
            w,
            bias,
            scale,
            real,
            None,
            padding,
            dtype="f32",
            tolerance=0,
            **plain,
        )
        residual = RNG.integers(-128, 128, sums.shape).astype(np.int8)
        table = RNG.integers(0, 256, 200).astype(np.uint8)
        tables = [(None, "i8", -128, 127), (None, "u8", 3, 200), (table, "u8", -100, 99)]
        for other, made, lo, hi in tables:
            ends = {"y_zero": 9, "lo": lo, "hi": hi, "dtype": made, "r_zero": 4, "r_scale": 0.37}
            for r in (None, residual):
                check("cpu.xnor_conv", x, w, bias, scale, r, other, padding, **plain, **ends)


def binary_layer(shape, channels, kernel, given, *, falling=False, residual=False) -> Graph:
    """lookup, qlinear_conv: inputs are -128 or 127 with zero -1, weights -127 or 127."""
    x = Value(Type("i8", shape), "x")
    low, high = (127, -128) if falling else (-128, 127)
    table = np.where(np.arange(256).astype(np.uint8).view(np.int8) > -7, high, low).astype(np.int8)
    signs = ops.lookup(x, constant(table))
    w = np.where(RNG.random((channels, shape[1], *kernel)) < 0.5, -127, 127).astype(np.int8)
    more = []
    y = np.float32(0.05)
    if residual:
        out = ops.conv_integer(signs, constant(w), None, None, **given).shape
        more = [Value(Type("i8", out), "r"), constant(np.float32(0.04)), constant(np.int8(3))]
    made = ops.qlinear_conv(
        signs, constant(np.float32(2 / 255)), constant(np.int8(-1)), constant(w),
        constant(RNG.uniform(1e-4, 1e-3, channels).astype(np.float32)),
        constant(np.zeros(channels, np.int8)), constant(y), constant(np.int8(5)),
        constant(RNG.integers(-9000, 9000, channels).astype(np.int32)), *more, **given,
    )  # fmt: skip
    return Graph([x, *[v for v in more if v.data is None]], [made], ["y"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_have_the_bits_of_int8(case):
    (n, high, wide, deep), channels, kernel, given = case
    attrs = window(kernel, given)
    attrs.pop("kernel")
    for falling, residual in ((False, True), (True, False)):
        graph = binary_layer(
            (n, deep, high, wide), channels, kernel, attrs, falling=falling, residual=residual
        )
        feeds = {v.name: RNG.integers(-128, 128, v.shape).astype(np.int8) for v in graph.inputs}
        want = intaglio.interpret(graph, feeds)["y"]
        for isa in isas():
            lowered = trace(graph.copy(), isa=isa).graph
            if isa == cpu_isa.BITS["avx2"] and deep < 24:
                assert "cpu.qconv" in {n.op for n in lowered.nodes()}  # faster there
            else:
                assert "cpu.xnor_conv" in {n.op for n in lowered.nodes()}
            with intaglio.open(intaglio.compile(graph.copy(), isa=isa)) as session:
                np.testing.assert_array_equal(session.run(feeds)["y"], want)
