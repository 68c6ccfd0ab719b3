"""Winograd convolution of bytes: every kernel has the bits of the direct convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import image, per_channel, ranges
from tests.kernels.test_winograd import SHAPES

import intaglio
from intaglio import native, ops, passes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Node, Type, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.targets import cpu
from intaglio.targets.cpu import int8_arithmetic, qconv_packing, qwinograd
from intaglio.targets.cpu.qconv_choice import convolution

RNG = np.random.default_rng(5)
DTYPES = [np.uint8, np.int8]


def direct(x: Any, w: np.ndarray, *rest: Any, pad: tuple[int, ...], **attrs: Any) -> np.ndarray:
    """The same by direct convolution, cpu.qconv."""
    window = {"kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1), "pad": pad}
    ins = [x, qconv_packing.packed(w[None], "tap"), *rest]
    y: np.ndarray = REGISTRY["cpu.qconv"].body(*ins, **attrs, **window)
    return y


@pytest.mark.parametrize("shape", [(16, 8), (1, 1), (33, 5), (40, 19), (0, 4), (4, 0)])
def test_weights_equal_those_of_numpy(shape):
    """For weights with channels before or after the window in memory."""
    r = np.random.default_rng(3)
    w = r.integers(-128, 128, (*shape, 3, 3)).astype(np.int8)
    w.reshape(-1)[:: max(w.size // 7, 1)] = -128
    bias = r.integers(-1000, 1000, shape[0]).astype(np.int32)
    long = w.astype(np.int64)
    sums = [np.where(long * s > 0, long, 0).sum((1, 2, 3)) for s in (1, -1)]
    most = np.max([bias + 255 * sums[0], -bias - 255 * sums[1]]) if w.size else 0
    for v in (w, np.moveaxis(np.ascontiguousarray(np.moveaxis(w, 1, -1)), -1, 1), w[::-1][::-1]):
        for head in (False, True):
            got = qwinograd.tiled_weights(v, head)
            np.testing.assert_array_equal(got, qwinograd.at_points(w, head))
        np.testing.assert_array_equal(int8_arithmetic.signed_sums(v), sums)
        assert qwinograd.largest_sum(v, bias) == most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "channels", "pad"), SHAPES)
def test_bits_are_those_of_direct_convolution(shape, channels, pad, dtype):
    x, w = image(*shape, dtype=dtype), image(channels, shape[-1], 3, 3, dtype=np.int8)
    for r in ranges(dtype):
        attrs = {"channels": channels, "pad": pad, **r}
        ends = per_channel(channels, shape[-1])
        for head in (False, True):
            assert qwinograd.sums_fit(w, "u8")
            (y,) = check("cpu.qwinograd", x, qwinograd.tiled_weights(w, head), *ends, **attrs)
            np.testing.assert_array_equal(y, direct(x, w, *ends, **attrs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_do_not_overflow(sign, dtype):
    """Inputs and weights at their bounds, with sums just below 2^25."""
    limits = np.iinfo(dtype)
    for deep, edges in ((113, (127, 127)), (112, (-128, -128)), (64, (-128, 127))):
        x = RNG.choice([limits.min, limits.max], (1, 9, 9, deep)).astype(dtype)
        x[0, :6] = limits.max
        w = RNG.choice(edges, (20, deep, 3, 3)).astype(np.int8)
        w = w if sign > 0 or edges[0] == -128 else -w
        ends = np.zeros(20, np.int32), np.full(20, 2.0**-18, np.float32)
        assert qwinograd.largest_sum(w, ends[0]) < qwinograd.MAX_SUM
        attrs = {"channels": 20, "pad": (1,) * 4, "x_zero": limits.max, "dtype": "f32"}
        assert qwinograd.sums_fit(w, "i8")
        for head in (False, True)[: 1 + (dtype == np.int8)]:
            ins = x, qwinograd.tiled_weights(w, head), *ends
            (y,) = check("cpu.qwinograd", *ins, tolerance=0.0, **attrs)
            np.testing.assert_array_equal(y, direct(x, w, *ends, **attrs))


@pytest.mark.parametrize("sign", [1, -1])
def test_half_of_the_products_with_sums_at_16_bits(sign):
    """The largest sum of an input and a weight at a point is 32748; 32892 would not fit."""
    row = qwinograd.INPUT[1]
    tile = np.where(sign * np.outer(row, row) > 0, 255, 0).astype(np.uint8)
    x = np.tile(tile, (3, 2))[None, :, :, None].repeat(20, -1)
    w = np.full((32, 20, 3, 3), sign * 107, np.int8)
    w[::3] = RNG.integers(-107, 108, w[::3].shape)
    assert qwinograd.halved(w, "u8")
    w[5] = sign * 108
    assert not qwinograd.halved(w, "u8")
    assert qwinograd.halved(w, "i8")
    w[5] = sign * 107
    ends = np.arange(32, dtype=np.int32) * 1000 - 9999, np.full(32, 2.0**-18, np.float32)
    attrs = {"channels": 32, "pad": (0,) * 4, "x_zero": 0, "dtype": "f32"}
    ins = x, qwinograd.tiled_weights(w, head=True), *ends
    (y,) = check("cpu.qwinograd", *ins, tolerance=0.0, **attrs)
    np.testing.assert_array_equal(y, direct(x, w, *ends, **attrs))


@pytest.mark.parametrize(
    ("deep", "channels"),
    [(16, 1), (16, 9), (16, 16), (32, 9), (32, 16), (64, 5), (16, 33), (16, 64), (16, 100)],
)
def test_few_channels(deep, channels):
    """Few channels (qwinograd_few_channels.h) with fewer than 8 tiles, 8 to 11, several blocks."""
    for size in ((5, 9), (8, 16), (9, 12), (6, 18), (4, 41), (11, 35), (16, 28)):
        for dtype in DTYPES:
            x = image(2, *size, deep, dtype=dtype)[: 1 + (size[0] == 6)]
            w = image(channels, deep, 3, 3, dtype=np.int8)
            ends = per_channel(channels, deep)
            attrs = {"channels": channels, "pad": (1, 0, 1, 2), **ranges(dtype)[0]}
            (y,) = check("cpu.qwinograd", x, qwinograd.tiled_weights(w), *ends, **attrs)
            np.testing.assert_array_equal(y, direct(x, w, *ends, **attrs))


@pytest.mark.parametrize("deep", [1, 2, 3, 5, 8, 18, 24, 44, 64, 96])
def test_half_of_the_products_for_any_channels(deep):
    """Halves of a row that do not fill a vector, and images of fewer than 8 tiles."""
    for size, channels in ((5, 17), (13, 80)):
        x, w = image(1, size, size, deep, dtype=np.int8), image(channels, deep, 3, 3, dtype=np.int8)
        ends = per_channel(channels, deep)
        attrs = {"channels": channels, "pad": (1,) * 4, **ranges(np.int8)[0]}
        (y,) = check("cpu.qwinograd", x, qwinograd.tiled_weights(w, head=True), *ends, **attrs)
        np.testing.assert_array_equal(y, direct(x, w, *ends, **attrs))


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((2, 6, 5, 16), 64), ((1, 7, 9, 40), 33), ((2, 9, 14, 16), 12), ((1, 17, 9, 32), 16)],
)
def test_epilogues(shape, channels):
    """Floats, residuals, bounds and tables, alone and together."""
    x, w = image(*shape), image(channels, shape[-1], 3, 3, dtype=np.int8)
    bias, scale = per_channel(channels, shape[-1])
    out, common = (*shape[:3], channels), {"channels": channels, "pad": (1,) * 4, "x_zero": 7}
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        ([], {"dtype": "f32"}),
        ([RNG.standard_normal(out).astype(np.float32)], {"dtype": "f32"}),
    ]
    for kind, low in ((np.uint8, 0), (np.int8, -128)):
        dtype, residual = np.dtype(kind).name.replace("uint", "u").replace("int", "i"), image(*out)
        end = {"dtype": dtype, "y_zero": low + 100, "lo": low, "hi": low + 255}
        cases += [
            ([residual], {**end, "r_zero": 9, "r_scale": 0.31}),
            ([image(*out, dtype=np.int8)], {**end, "r_zero": -9, "r_scale": 0.31}),
            ([], {**end, "lo": low + 90, "hi": low + 180}),
            ([None, image(256, dtype=kind)], end),
            ([residual, image(91, dtype=kind)], {**end, "lo": low + 90, "hi": low + 180}),
        ]
        for entries in (300, 1024):
            wide = {"dtype": dtype, "y_zero": 17, "lo": -200, "hi": entries - 201}
            cases.append(([None, image(entries, dtype=kind)], wide))
    for more, attrs in cases:
        grown = scale * np.float32(4 if attrs["dtype"] != "f32" and attrs["hi"] > 300 else 1)
        ins = x, qwinograd.tiled_weights(w), bias, grown, *more
        given = {"tolerance": 0.0} if attrs["dtype"] == "f32" else {}
        (y,) = check("cpu.qwinograd", *ins, **common, **attrs, **given)
        np.testing.assert_array_equal(y, direct(x, w, bias, grown, *more, **common, **attrs))


def in_squares(x: np.ndarray) -> np.ndarray:
    """The image stored in squares of 2 x 2, as a transposed convolution writes it."""
    n, high, wide, deep = x.shape
    split = x.reshape(n, high // 2, 2, wide // 2, 2, deep).transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(split).reshape(n, high // 2, wide // 2, 4 * deep)


@pytest.mark.parametrize(("first", "second"), [(16, 16), (32, 5), (48, 32), (16, 40)])
def test_two_images_stored_in_lines_or_squares(first, second):
    """Two images joined along channels, each stored in lines or squares, with every padding."""
    for size, channels, pad in (
        ((1, 8, 12), 16, (1,) * 4),
        ((2, 6, 10), 33, (0, 2, 1, 0)),
        ((1, 10, 54), 17, (1,) * 4),
    ):
        for dtype in DTYPES:
            parts = [image(*size, deep, dtype=dtype) for deep in (first, second)]
            w = image(channels, first + second, 3, 3, dtype=np.int8)
            ends = per_channel(channels, first + second)
            attrs = {"channels": channels, "pad": pad, **ranges(dtype)[0]}
            want = direct(np.concatenate(parts, -1), w, *ends, **attrs)
            for square in ((1, 1), (1, 2), (2, 1), (2, 2)):
                x, more = (
                    p if k == 1 else in_squares(p) for p, k in zip(parts, square, strict=True)
                )
                ins = x, qwinograd.tiled_weights(w, square == (2, 2)), *ends, None, None, more
                (y,) = check("cpu.qwinograd", *ins, **attrs, square=square)
                np.testing.assert_array_equal(y, want)
            alone = in_squares(parts[1]), qwinograd.tiled_weights(w[:, first:]), *ends
            (y,) = check("cpu.qwinograd", *alone, **attrs, square=(2, 1))
            np.testing.assert_array_equal(y, direct(parts[1], w[:, first:], *ends, **attrs))


def lowered(y: Value, isa: str = "avx512vnni") -> Node:
    """The node that a packed convolution is lowered to."""
    assert y.producer is not None
    x = y.producer.inputs[0]
    assert x is not None
    graph = Graph([x], [y], ["y"])
    passes.run(graph, [p for p in passes.lowering(cpu.target(isa)) if p.name == "fuse blocks"])
    node = graph.outputs[0].producer
    assert node is not None
    return node


def test_half_of_the_products_is_chosen_if_faster():
    """Products are saved with VNNI, more than one panel, and sums that fit 16 bits."""
    for isa, deep, channels, weight, head in (
        ("avx512vnni", 32, 32, 50, True),
        ("avx512vbmi", 32, 32, 50, True),
        ("avx512", 32, 32, 50, False),
        ("avx2", 32, 32, 50, False),
        ("avx512vnni", 32, 16, 50, False),
        ("avx512vnni", 32, 32, 108, False),
        ("avx512vnni", 16, 32, 50, False),
        ("avx512vnni", 24, 32, 50, True),
    ):
        x = Value(Type("u8", (1, 64, 64, deep)), "x")
        ends = np.zeros(channels, np.int32), np.full(channels, 1e-4, np.float32)
        y = convolution(
            x,
            np.full((channels, deep, 3, 3), weight, np.int8),
            constant(ends[0]),
            constant(ends[1]),
            stride=(1, 1),
            dilation=(1, 1),
            pad=(1,) * 4,
            x_zero=0,
            lo=0,
            hi=255,
            dtype="u8",
            groups=1,
        )
        node = lowered(y, isa)
        assert node.op == "cpu.qwinograd"
        assert node.inputs[1] is not None
        want = qwinograd.headed(deep) if head else deep // 2
        assert node.inputs[1].shape[2] == want, (isa, channels, weight)


def test_large_sums_use_direct_convolution():
    x = Value(Type("u8", (1, 28, 28, 128)), "x")
    ends = constant(np.zeros(128, np.int32)), constant(np.full(128, 1e-4, np.float32))
    attrs: dict[str, Any] = {
        "stride": (1, 1),
        "dilation": (1, 1),
        "pad": (1,) * 4,
        "x_zero": 0,
        "lo": 0,
        "hi": 255,
        "dtype": "u8",
        "groups": 1,
    }
    for weight, name in ((114, "cpu.qwinograd"), (115, "cpu.qconv")):
        w = np.full((128, 128, 3, 3), weight, np.int8)
        assert lowered(convolution(x, w, *ends, **attrs)).op == name
    w = np.full((128, 128, 3, 3), 100, np.int8)  # sums up to 29376000 of 33554432
    scale = np.full(128, 1e-4, np.float32)
    for start, least, name in (
        (4_000_000, 1e-4, "cpu.qwinograd"),
        (5_000_000, 1e-4, "cpu.qconv"),
        (-40_000_000, 1e-4, "cpu.qconv"),
        (-30_000_000, 1e-38, "cpu.qconv"),
    ):
        ends = constant(np.full(128, start, np.int32)), constant(scale)
        scale[3] = least
        assert lowered(convolution(x, w, *ends, **attrs)).op == name
    ends = constant(np.zeros(128, np.int32)), constant(np.full(128, 1e-4, np.float32))
    for change in ({"stride": (2, 2)}, {"dilation": (2, 2)}):
        y = convolution(x, w // 8, *ends, **{**attrs, **change})
        assert lowered(y).op == "cpu.qconv"
    few = convolution(
        Value(Type("u8", (1, 28, 28, 3)), "x"),
        w[:16, :3] // 8,
        *(constant(np.asarray(v.data)[:16]) for v in ends),
        **attrs,
    )
    assert lowered(few).op == "cpu.qconv"


def test_the_choice_depends_on_the_instruction_set():
    """28x28 pixels of 8 channels: with VNNI direct convolution is faster, with AVX2 Winograd."""
    x = Value(Type("u8", (1, 28, 28, 8)), "x")
    w, scale = image(16, 8, 3, 3, dtype=np.int8), np.full(16, 1e-4, np.float32)
    y = convolution(
        x,
        w,
        constant(np.zeros(16, np.int32)),
        constant(scale),
        stride=(1, 1),
        dilation=(1, 1),
        pad=(1,) * 4,
        x_zero=0,
        lo=0,
        hi=255,
        dtype="u8",
        groups=1,
    )
    chosen = [lowered(y, isa).op for isa in ("avx512vnni", "avx2")]
    assert chosen == ["cpu.qconv", "cpu.qwinograd"]


def test_a_compiled_network_uses_winograd():
    x = Value(Type("f32", (1, 64, 28, 28)), "x")
    of = np.float32(0.02), np.int8(3)
    weights = constant(RNG.integers(-90, 90, (64, 64, 3, 3)).astype(np.int8))
    w = ops.dequantize_linear(weights, np.float32(0.01), None)
    q = ops.quantize_linear(x, *of, dtype="i8")
    y = ops.relu(
        ops.conv(
            ops.dequantize_linear(q, *of), w, None, pad=(1,) * 4, stride=(1, 1), dilation=(1, 1)
        )
    )
    y = ops.dequantize_linear(
        ops.quantize_linear(y, np.float32(0.5), np.int8(-128), dtype="i8"),
        np.float32(0.5),
        np.int8(-128),
    )
    graph = Graph([x], [y], ["y"])
    feeds = {"x": RNG.standard_normal(x.shape).astype(np.float32)}
    package = intaglio.compile(graph)
    assert "cpu.qwinograd" in {s.op for s in package.plan.steps}
    with intaglio.open(package.bytes) as session:
        got = session.run(feeds)["y"]
    want = intaglio.interpret(intaglio.optimize(graph, level=3), feeds)["y"]
    np.testing.assert_array_equal(got, want)


GOOD = {
    "channels": 8,
    "pad": (1, 1, 1, 1),
    "x_zero": 3,
    "y_zero": 0,
    "lo": 0,
    "hi": 255,
    "dtype": "u8",
    "r_zero": 0,
    "r_scale": 0.0,
    "square": (1, 1),
}


def test_refusals():
    kernel = native.find_kernel("cpu.qwinograd", "u8", native.machine())
    assert kernel is not None
    x, w = image(1, 5, 5, 4), qwinograd.tiled_weights(image(8, 4, 3, 3, dtype=np.int8))
    ends = np.zeros(8, np.int32), np.ones(8, np.float32)
    headed = qwinograd.tiled_weights(image(8, 4, 3, 3, dtype=np.int8), head=True)
    native.run_kernel(kernel, [x, w, *ends], GOOD)
    native.run_kernel(kernel, [x, headed, *ends], GOOD)
    bad: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("not packed", [x, w, np.zeros(17, np.int32), np.ones(17, np.float32)], {"channels": 17}),
        ("negative", [x, w, *ends], {"pad": (-1, 0, 0, 0)}),
        ("absurdly", [x, w, *ends], {"pad": (1 << 40, 0, 0, 0)}),
        ("two spatial axes", [x[0], w, *ends], {}),
        ("not packed", [image(1, 5, 5, 7), w, *ends], {}),
        ("not packed", [image(1, 5, 5, 9), headed, *ends], {}),
        ("not packed", [x, np.concatenate([headed, w], axis=2), *ends], {}),
        ("weights of i16", [x, w.astype(np.int8), *ends], {}),
        ("not kept", [x, w, ends[0]], {"dtype": "i32"}),
        ("two spatial axes", [x, w, *ends, None, None, ends[0]], {}),
        ("multiple of 16", [x, w, *ends, None, None, x], {}),
        ("lines or in squares", [x, w, *ends], {"square": (3, 1)}),
        ("lines or in squares", [x, w, *ends, None, None, x], {"square": (1, 0)}),
        ("whole squares", [image(1, 5, 5, 6), w, *ends], {"square": (2, 1)}),
        ("type and pixels", [x, w, *ends, None, None, image(1, 5, 5, 4, dtype=np.int8)], {}),
        ("type and pixels", [x, w, *ends, None, None, image(1, 5, 4, 4)], {}),
        ("type and pixels", [x, w, *ends, None, None, x], {"square": (1, 2)}),
        ("not packed", [image(1, 5, 5, 16), w, *ends, None, None, x], {}),
        ("residual has not", [x, w, *ends, image(1, 5, 5, 7)], {}),
        ("residual must be", [x, w, *ends, np.zeros((1, 5, 5, 8), np.float32)], {}),
        ("one i32 per", [x, w, ends[0][:7], ends[1]], {}),
    ]
    for words, ins, change in bad:
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, ins, {**GOOD, **change})


def test_refusals_of_the_op():
    x, w = constant(image(1, 5, 5, 4)), constant(np.zeros((36, 1, 2, 32), np.int16))
    ends = constant(np.zeros(8, np.int32)), constant(np.ones(8, np.float32))
    for words, change in {"not packed": {"channels": 8, "pad": (1,) * 4}}.items():
        with pytest.raises(BadInput, match=words):
            qwinograd.qwinograd(constant(image(1, 5, 5, 9)), w, *ends, **{**GOOD, **change})
    with pytest.raises(BadInput, match="not i32"):
        qwinograd.qwinograd(x, w, *ends, **{**GOOD, "dtype": "i32"})
    with pytest.raises(BadInput, match="with square 1 or 2"):
        qwinograd.qwinograd(x, w, *ends, **{**GOOD, "square": (3, 1)})
    with pytest.raises(BadInput, match="multiple of 16 channels"):
        qwinograd.qwinograd(x, w, *ends, None, None, x, **GOOD)
