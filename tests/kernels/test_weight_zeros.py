"""Weights with zero points: two parts of i8, or zero points that the kernel subtracts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_conv import CASES, name
from tests.kernels.test_int8 import RNG, compiled_as, image, per_channel, ranges
from tests.kernels.test_int8_depthwise import packed_taps

from intaglio import native, ops
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.targets.cpu import qconv_packing
from intaglio.targets.cpu.weight_zeros import HIGHEST, LOWEST, byte_parts, differences, with_zeros


def nine_bits(*shape: int, share: float = 0.05) -> np.ndarray:
    """Weights of i8, of which some need nine bits."""
    w = RNG.integers(-128, 128, shape).astype(np.int16)
    large = RNG.choice([LOWEST, -200, -129, 128, 200, HIGHEST], shape)
    result: np.ndarray = np.where(RNG.random(shape) < share, large, w).astype(np.int16)
    result.reshape(-1)[0] = HIGHEST
    return result


def test_parts_and_zeros_restore_the_weights() -> None:
    w = image(5, 3, 3, 3)
    for zeros in (0, 1, 77, 128, 255, np.array([0, 60, 128, 200, 255])):
        zeros = np.atleast_1d(np.asarray(zeros, np.uint8))
        want = w.astype(int) - zeros.astype(int).reshape(-1, 1, 1, 1)
        d = differences(w, zeros)
        np.testing.assert_array_equal(d, want)
        assert d.dtype == (np.int8 if -128 <= want.min() <= want.max() <= 127 else np.int16)
        shifted, zero = with_zeros(d)
        np.testing.assert_array_equal(shifted - zero.reshape(-1, 1, 1, 1), want)
        if want.max() <= HIGHEST:
            first, second = byte_parts(d)
            np.testing.assert_array_equal(
                first.astype(int) + (0 if second is None else second), want
            )
    with pytest.raises(ValueError, match="weights exceed"):
        byte_parts(np.array([255], np.int16))


# ---- depthwise -----------------------------------------------------------------------------------
DEPTHWISE = [(3, 1, 1), (3, 2, 1), (5, 1, 1), (5, 2, 1), (7, 3, 1), (3, 1, 2), (3, 2, 3), (2, 1, 1)]


@pytest.mark.parametrize("channels", [1, 8, 24, 33, 58, 64, 130])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), DEPTHWISE)
def test_depthwise(channels: int, kernel: int, stride: int, dilation: int) -> None:
    """All blocks of channels have second parts, or only some."""
    pad = (kernel - 1) * dilation // 2
    attrs: dict[str, Any] = {
        "stride": (stride,) * 2,
        "pad": (pad, pad, pad + 1, 0),
        "dilation": (dilation,) * 2,
    }
    for some in (channels, channels // 2, 1):
        taps = nine_bits(kernel, kernel, channels)
        taps[..., some:] = np.clip(taps[..., some:], -128, 127)
        w = packed_taps(taps, attrs)
        for dtype, r in ((np.uint8, some % 4), (np.int8, (some + 1) % 4)):
            x = image(2, 9, 11, channels, dtype=dtype)
            depth = kernel * kernel
            check(
                "cpu.qdepthwise", x, w, *per_channel(channels, depth), **attrs, **ranges(dtype)[r]
            )


@pytest.mark.parametrize("size", [(1, 1), (2, 6), (14, 13), (71, 4), (6, 129)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_depthwise_of_other_sizes(size: tuple[int, int], kernel: int, stride: int) -> None:
    attrs: dict[str, Any] = {"stride": (stride,) * 2, "pad": (kernel // 2,) * 4, "dilation": (1, 1)}
    for channels in (8, 37):
        w = packed_taps(nine_bits(kernel, kernel, channels, share=0.01), attrs)
        x, table = image(1, *size, channels), image(256)
        ends = per_channel(channels, kernel * kernel)
        check("cpu.qdepthwise", x, w, *ends, **attrs, **ranges(np.uint8)[1])
        check("cpu.qdepthwise", x, w, *ends, table, **attrs, **ranges(np.uint8)[2])


# ---- other convolutions --------------------------------------------------------------------------
def packings(w: np.ndarray, run: str) -> list[tuple[np.ndarray, Any, Any]]:
    """The operands of cpu.qconv for weights of nine bits: with second parts, and with zeros."""
    made = qconv_packing.packed_differences(w, run)
    assert (made.w_zero is None) != (made.second_rows is None)
    shifted, zeros = with_zeros(w.reshape(-1, *w.shape[2:]))
    minus = (-zeros).astype(np.int32)
    whole = qconv_packing.packed(shifted.reshape(w.shape), run)
    return [(made.w, made.w_zero, made.second_rows), (whole, minus, None)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_convolutions(case: dict[str, Any], dtype: Any) -> None:
    """Second parts and zero points give the same result."""
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
    w = np.clip(nine_bits(groups, channels // groups, deep, *kernel, share=0.01), -150, 105)
    w.reshape(-1)[0] = -150
    whole = groups == 1 and attrs["dilation"][-1] == 1
    runs = ["tap", "line", "window"] if whole else ["tap"]
    ends, r = per_channel(channels, deep), ranges(dtype)[deep % 4]
    for run in runs[: 2 if deep * kernel[-1] > qconv_packing.MAX_GATHERED_LINE else 3]:
        made = []
        for packed, zeros, second in packings(w, run):
            ins = (x, packed, *ends, None, None, zeros, second)
            made += check("cpu.qconv", *ins, run=run, **attrs, **r)
        np.testing.assert_array_equal(made[0], made[1])


@pytest.mark.parametrize(("deep", "kernel", "stride"), [(3, 3, 1), (3, 3, 2), (1, 5, 1), (3, 5, 2)])
@pytest.mark.parametrize("channels", [3, 16, 72])
def test_first_layers(deep: int, kernel: int, stride: int, channels: int) -> None:
    run = qconv_packing.best_run(deep, (kernel,) * 2, (1, 1), 1)
    w = nine_bits(1, channels, deep, kernel, kernel, share=0)
    w[0, channels // 2, 0, kernel // 2, 1] = -140
    attrs = {
        "channels": channels,
        "kernel": (kernel,) * 2,
        "stride": (stride,) * 2,
        "dilation": (1, 1),
        "pad": (kernel // 2,) * 4,
        "run": run,
    }
    made = qconv_packing.packed_differences(w, run)
    assert made.second_rows is not None
    for width, r in ((17, 1), (40, 3)):
        x = image(2, 6, width, deep)
        ins = (x, made.w, *per_channel(channels, 27), None, None, None, made.second_rows)
        check("cpu.qconv", *ins, **attrs, **ranges(np.uint8)[r])


@pytest.mark.parametrize("channels", [5, 16, 24, 48, 64, 130])
@pytest.mark.parametrize("deep", [12, 16, 58, 130])
def test_products_of_many_rows(deep: int, channels: int) -> None:
    """Enough rows for the tiles that overlap products and rounding; all kinds of results."""
    w = nine_bits(1, channels, deep, 1, share=0)
    x, bias, scale = image(1, 90, deep), *per_channel(channels, deep)
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    table = image(256, dtype=np.int8)
    u8, i8 = ranges(np.uint8)[0], ranges(np.uint8)[3]
    wide = {"x_zero": 3, "y_zero": 0, "lo": 0, "hi": 0}
    tabled = {"x_zero": 3, "y_zero": 100, "lo": 0, "hi": 255, "dtype": "i8"}
    residual = image(1, 90, channels, dtype=np.int8)
    added = {"r_zero": -3, "r_scale": 0.7}
    for packed, zeros, second in packings(w, "tap"):
        for r in (u8, i8):
            check("cpu.qconv", x, packed, bias, scale, None, None, zeros, second, **attrs, **r)
        ins = (x, packed, bias, scale, None, None, zeros, second)
        check("cpu.qconv", *ins, **attrs, **wide, dtype="f32", tolerance=0)
        check("cpu.qconv", *ins[:3], None, *ins[4:], **attrs, **wide, dtype="i32")
        check("cpu.qconv", *ins[:5], table, *ins[6:], **attrs, **tabled)
        check("cpu.qconv", *ins[:4], residual, *ins[5:], **attrs, **i8, **added)


def test_few_second_rows_are_chosen_over_zeros() -> None:
    w = nine_bits(1, 40, 64, 1, share=0)
    made = qconv_packing.packed_differences(w)
    np.testing.assert_array_equal(made.second_rows, [0])
    restored = qconv_packing.unpacked(made.w, 64, 40, (1,), "tap", made.second_rows)
    np.testing.assert_array_equal(restored, w[0])
    dense = qconv_packing.packed_differences(nine_bits(1, 40, 64, 1, share=0.5))
    assert dense.second_rows is None
    assert dense.w_zero is not None
    narrow = qconv_packing.packed_differences(np.clip(w, -128, 127))
    assert (narrow.second_rows, narrow.w_zero) == (None, None)


# ---- lowering ------------------------------------------------------------------------------------
@pytest.mark.parametrize("zero", [0, 60, 128, 140, 255])
@pytest.mark.parametrize("x_dtype", ["u8", "i8"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_lowering_keeps_the_bits(groups: int, x_dtype: str, zero: int) -> None:
    x = Value(Type(x_dtype, (2, 6, 9, 9)), "x")
    w = image(6, 6 // groups, 3, 3)
    w.reshape(-1)[:2] = 0, 255
    y = ops.qlinear_conv(
        x,
        constant(np.float32(0.02)),
        constant(9, dtype=x_dtype),
        constant(w),
        constant(RNG.uniform(0.001, 0.01, 6).astype(np.float32)),
        constant(zero, dtype="u8"),
        constant(np.float32(0.5)),
        constant(4, dtype="u8"),
        constant(RNG.integers(-900, 900, 6).astype(np.int32)),
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
    )
    graph = Graph([x], [y], ["y"])
    packed = groups < 6 or zero > 0  # 255 above zero needs ten bits
    compiled_as(graph, packed)


@pytest.mark.parametrize("zeros", [[100], list(range(100, 120))])
def test_matmuls_keep_the_bits(zeros: list[int]) -> None:
    a = Value(Type("u8", (7, 33)), "a")
    b, zero = constant(image(33, 20)), constant(np.array(zeros, np.uint8))
    sums = ops.matmul_integer(a, b, constant(9, dtype="u8"), zero)
    compiled_as(Graph([a], [sums], ["y"]), True)


# ---- refusals ------------------------------------------------------------------------------------
def test_rows_outside_the_weights_are_refused() -> None:
    x, w = image(1, 4, 4, 8), image(1, 1, 3, 64, dtype=np.int8)
    ins = [x, w, *per_channel(16, 8), None, None, None]
    attrs = {"channels": 16, "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1)}
    attrs |= {"pad": (0,) * 4, "groups": 1, "run": "tap", **ranges(np.uint8)[0]}
    attrs |= {"r_zero": 0, "r_scale": 0.0}
    for kernel in native.kernels():
        if kernel.op.name != "cpu.qconv" or kernel.needs & ~native.machine():
            continue
        for row in (-1, 2, 2**31 - 1):
            rows = np.array([row], np.int32)
            with pytest.raises(RunError, match="no row of the weights"):
                native.run_kernel(kernel, [*ins, rows], attrs, 1, 1)


def test_second_rows_of_other_types_are_refused() -> None:
    x, w = image(1, 4, 4, 8), image(1, 1, 3, 64, dtype=np.int8)
    bias, scale = per_channel(16, 8)
    attrs = {"channels": 16, "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1)}
    attrs |= {"pad": (0,) * 4, "run": "tap", **ranges(np.uint8)[0]}
    given = [constant(a) for a in (x, w, bias, scale)]
    node = REGISTRY["cpu.qconv"].node
    rows = constant(np.zeros(1, np.int32))
    node(*given, None, None, None, rows, **attrs)
    for zeros, bad in (
        (None, constant(np.zeros(1, np.int64))),
        (None, constant(np.zeros((1, 1), np.int32))),
        (constant(np.zeros(16, np.int32)), rows),
    ):
        with pytest.raises(BadInput, match="a list of i32"):
            node(*given, None, None, zeros, bad, **attrs)
