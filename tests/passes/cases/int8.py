"""Cases: quantised convolutions and matmuls on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import RNG, case, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant
from intaglio.targets.cpu import qconv as cpu_qconv
from intaglio.targets.cpu import qconv_packing
from intaglio.targets.cpu import qwinograd as cpu_qwinograd

BYTES = Type("u8", (1, 6, 7, 7))


def one(zero: int, dtype: str) -> Value:
    return constant(zero, dtype=dtype)


def weights(*shape: int) -> Value:
    return constant(RNG.integers(-90, 90, shape), dtype="i8")


def ending(x: Value, m: int, w: Value, zero: Value, *rest: Value | None) -> Value:
    """A convolution whose sums become floats, or more than bytes."""
    scales = scalar(0.02), one(9, x.dtype), w, constant(np.full(m, 0.01, np.float32)), zero
    bias = constant(np.arange(m, dtype=np.int32))
    y, z, *residual = rest
    made: Value = ops.qlinear_conv(
        x, *scales, y, z, bias, *residual, stride=(1, 1), pad=(1,) * 4, dilation=(1, 1)
    )
    return made


def real(x: Value, r: Value | None = None) -> Value:
    return ending(x, 5, weights(5, 6, 3, 3), one(0, "i8"), None, None, r)


def residual(x: Value, r: Value) -> Value:
    w = constant(RNG.integers(0, 255, (5, 6, 3, 3)), dtype="u8")
    return ending(
        x, 5, w, one(120, "u8"), scalar(0.05), one(100, "u8"), r, scalar(0.03), one(-4, "i8")
    )


def packed_conv(x: Value, table: Value | None = None, **attrs: Any) -> Value:
    w = np.ascontiguousarray(weights(1, 20, x.shape[-1], 1).data)  # type: ignore[arg-type]
    given = {
        "channels": 20,
        "kernel": (1,),
        "stride": (1,),
        "pad": (0, 0),
        "dilation": (1,),
        "x_zero": 9,
        "y_zero": 4,
        "lo": -128,
        "hi": 127,
        "dtype": "i8",
        **attrs,
    }
    bias, scale = np.arange(20, dtype=np.int32), np.full(20, 0.01, np.float32)
    made: Value = cpu_qconv.qconv(
        x,
        constant(qconv_packing.packed(w, "tap")),
        constant(bias),
        constant(scale),
        None,
        table,
        **given,
    )
    return made


def conv(x: Value, m: int = 5, k: int = 3, groups: int = 1, **attrs: Any) -> Value:
    w, b = weights(m, x.shape[1] // groups, k, k), constant(np.arange(m, dtype=np.int32))
    given = {"stride": (1, 1), "pad": (k // 2,) * 4, "dilation": (1, 1), **attrs}
    made: Value = ops.qlinear_conv(
        x,
        scalar(0.02),
        one(9, x.dtype),
        w,
        constant(np.full(m, 0.01, np.float32)),
        constant(np.zeros(m, np.int8)),
        scalar(0.05),
        one(100, "u8"),
        b,
        groups=groups,
        **given,
    )
    return made


case("qlinear_conv_packed", conv, BYTES)
case("qlinear_conv_packed", lambda x: conv(x, 6, groups=6, stride=(2, 2)), BYTES)
case("qlinear_conv_packed", lambda x: conv(x, 4, groups=2), Type("i8", (1, 6, 7, 7)))
case(
    "qlinear_matmul_packed",
    lambda a: ops.qlinear_matmul(
        a,
        scalar(0.02),
        one(9, "u8"),
        weights(6, 5),
        scalar(0.01),
        one(0, "i8"),
        scalar(0.05),
        one(100, "u8"),
    ),
    Type("u8", (2, 6)),
)
case("qlinear_conv_packed", real, BYTES)
case("qlinear_conv_packed", real, BYTES, Type("f32", (1, 5, 7, 7)))
case("qlinear_conv_packed", residual, BYTES, Type("i8", (1, 5, 7, 7)))
case(
    "qlinear_matmul_packed",
    lambda a: ops.qlinear_matmul(
        a, scalar(0.02), one(9, "u8"), weights(6, 5), scalar(0.01), one(3, "i8")
    ),
    Type("u8", (2, 6)),
)
case(
    "conv_integer_packed",
    lambda x: ops.conv_integer(
        x,
        weights(5, 6, 3, 3),
        one(9, "u8"),
        one(-3, "i8"),
        stride=(2, 2),
        pad=(1,) * 4,
        dilation=(1, 1),
    ),
    BYTES,
)
case(
    "matmul_integer_packed",
    lambda a: ops.matmul_integer(a, weights(6, 5), one(9, "u8"), one(-3, "i8")),
    Type("u8", (2, 6)),
)
LINE = Type("u8", (1, 7, 12))
case("clip_into_qconv", lambda x: ops.clip(packed_conv(x), lo=4.0, hi=90.0), LINE)
case(
    "table_into_qconv",
    lambda x: ops.lookup(packed_conv(x), constant(RNG.integers(0, 256, 256).astype(np.uint8))),
    LINE,
)
case(
    "table_into_qconv",
    lambda x: ops.lookup(packed_conv(x, lo=-3), constant(RNG.integers(-128, 128, 256), dtype="i8")),
    LINE,
)


def swish(low: int, high: int, step: float) -> Value:
    """A table of what lies between two numbers, in steps of 1/24."""
    real = np.arange(low, high + 1) * step
    made = np.rint(real / (1 + np.exp(-real)) * 24) - 100
    return constant(np.clip(made, -128, 127), dtype="i8")


def plain_conv(x: Value) -> Value:
    w = np.ascontiguousarray(weights(1, 64, x.shape[-1], 3, 3).data)  # type: ignore[arg-type]
    bias, scale = np.arange(64, dtype=np.int32), np.full(64, 0.001, np.float32)
    made: Value = cpu_qconv.qconv(
        x,
        constant(qconv_packing.packed(w, "line")),
        constant(bias),
        constant(scale),
        channels=64,
        kernel=(3, 3),
        stride=(1, 1),
        pad=(1,) * 4,
        dilation=(1, 1),
        run="line",
        x_zero=9,
        y_zero=4,
        lo=-128,
        hi=127,
        dtype="i8",
    )
    return made


case("qconv_as_winograd", plain_conv, Type("u8", (1, 12, 12, 16)))


def tiles(x: Value) -> Value:
    taps = np.ascontiguousarray(weights(8, x.shape[-1], 3, 3).data)  # type: ignore[arg-type]
    bias, scale = np.arange(8, dtype=np.int32), np.full(8, 0.001, np.float32)
    made: Value = cpu_qwinograd.qwinograd(
        x,
        constant(cpu_qwinograd.tiled_weights(taps)),
        constant(bias),
        constant(scale),
        channels=8,
        pad=(1,) * 4,
        x_zero=9,
        y_zero=4,
        lo=-128,
        hi=127,
        dtype="i8",
    )
    return made


def doubled(x: Value) -> Value:
    """Pixels as they move behind a transposed convolution."""
    n, high, wide, deep = x.shape
    apart = ops.reshape(x, shape=(n, high, wide, 2, 2, deep // 4))
    moved = ops.transpose(apart, perm=(0, 1, 3, 2, 4, 5))
    made: Value = ops.reshape(moved, shape=(n, 2 * high, 2 * wide, deep // 4))
    return made


case(
    "concat_into_qwinograd",
    lambda x, y: tiles(ops.concat(x, y, axis=3)),
    Type("u8", (1, 6, 6, 16)),
    Type("u8", (1, 6, 6, 4)),
)
case(
    "concat_into_qwinograd",
    lambda x, y: tiles(ops.concat(x, doubled(y), axis=3)),
    Type("u8", (1, 6, 6, 16)),
    Type("u8", (1, 3, 3, 16)),
)
case("concat_into_qwinograd", lambda x: tiles(doubled(x)), Type("u8", (1, 3, 3, 16)))
case(
    "table_as_piecewise_lines",
    lambda x: packed_conv(x, swish(-300, 599, 0.01), lo=-300, hi=599),
    LINE,
)
case(
    "table_as_piecewise_lines",
    lambda x: packed_conv(x, swish(-200, 57, 0.03), lo=-200, hi=57),
    LINE,
)
case(
    "int16_table_into_qconv",
    lambda x: ops.lookup_wide(
        ending(x, 5, weights(5, 6, 3, 3), one(0, "i8"), scalar(0.001), one(7, "i16")),
        constant(RNG.integers(-128, 128, 900), dtype="i8"),
        base=-300,
    ),
    BYTES,
)
case(
    "qlinear_avg_pool_channels_last",
    lambda x: ops.qlinear_avg_pool(
        x,
        scalar(0.02),
        one(9, "u8"),
        scalar(0.05),
        one(3, "i8"),
        kernel=(3, 3),
        stride=(2, 2),
        pad=(1,) * 4,
        dilation=(1, 1),
    ),
    BYTES,
)
