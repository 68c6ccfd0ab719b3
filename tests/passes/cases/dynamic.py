"""Cases: matmuls with dynamically quantised rows, and weight-only matmuls."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import RNG, case, f32, num, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant


def bytes_of(*shape: int) -> Value:
    return constant(RNG.integers(-127, 128, shape), dtype="i8")


def onnx_way(x: Value, ws: Value) -> Value:
    """What onnxruntime's dynamic quantisation makes of a product."""
    q, s, z = ops.dynamic_quantize_linear(x)
    sums = ops.matmul_integer(q, bytes_of(6, 5), z, constant(np.int8(0)))
    made: Value = ops.mul(ops.cast(sums, dtype="f32"), ops.mul(s, ws))
    return made


case(
    "dynamic_matmul_packed",
    lambda x: ops.dynamic_matmul(x, bytes_of(6, 5), num(5), num(5)),
    f32(2, 6),
)
case("dynamic_matmul_packed", lambda x: ops.dynamic_matmul(x, bytes_of(8, 20), num(1)), f32(8))
case(
    "qlinear_matmul_to_floats",
    lambda x: ops.qlinear_matmul(
        x,
        scalar(0.02),
        constant(np.int8(-9)),
        bytes_of(6, 5),
        num(5),
        constant(np.zeros(5, np.int8)),
    ),
    Type("i8", (3, 2, 6)),
)


def linear(x: Value, *more: Value) -> Value:
    """A linear layer as a convolution of single pixels."""
    bias = constant(RNG.integers(-900, 900, 5), dtype="i32")
    made: Value = ops.qlinear_conv(
        x,
        scalar(0.02),
        constant(np.int8(-9)),
        bytes_of(5, 6, 1),
        num(5),
        constant(np.zeros(5, np.int8)),
        None,
        None,
        bias,
        *more,
        stride=(1,),
        pad=(0, 0),
        dilation=(1,),
    )
    return made


case("qlinear_conv_to_floats", linear, Type("i8", (3, 6, 1)))
case("qlinear_conv_to_floats", linear, Type("i8", (3, 6, 1)), f32(3, 5, 1))
case("scaled_matmul_integer", lambda x: onnx_way(x, num(1)), f32(2, 6))
case("scaled_matmul_integer", lambda x: onnx_way(x, num(5)), Type("f32", (3, 2, 6)))


def integer_conv(x: Value, w: Value, scales: Value, biased: bool, **window: Any) -> Value:
    """What onnxruntime's dynamic quantisation makes of a convolution; its weights are u8."""
    q, s, z = ops.dynamic_quantize_linear(x)
    sums = ops.conv_integer(q, w, z, constant(np.uint8(119)), **window)
    s = ops.mul(s, scales)
    if biased:
        bias = ops.div(num(len(w.data)), ops.dynamic_quantize_linear(x)[1])
        bias = ops.cast(ops.floor(bias), dtype="i32")
        sums = ops.add(sums, ops.reshape(bias, shape=(1, len(w.data), *[1] * (x.type.rank - 2))))
    made: Value = ops.mul(ops.cast(sums, dtype="f32"), s)
    return made


def unsigned(*shape: int) -> Value:
    return constant(RNG.integers(0, 256, shape), dtype="u8")


def integer_matmul(x: Value, scales: Value) -> Value:
    q, s, z = ops.dynamic_quantize_linear(x)
    sums = ops.matmul_integer(q, unsigned(6, 5), z, constant(np.uint8(119)))
    made: Value = ops.mul(ops.cast(sums, dtype="f32"), ops.mul(s, scales))
    return made


SAME = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
HALF = {"stride": (2, 2), "pad": (0, 1, 1, 0), "dilation": (1, 1), "groups": 2}
case(
    "scaled_conv_integer",
    lambda x: integer_conv(x, unsigned(5, 3, 3, 3), num(1), True, **SAME),
    f32(2, 3, 6, 7),
)
case(
    "scaled_conv_integer",
    lambda x: integer_conv(x, unsigned(6, 4, 3, 2), num(6, 1, 1), False, **HALF),
    f32(1, 8, 6, 7),
)
case("scaled_matmul_with_zeros", lambda x: integer_matmul(x, num(1)), f32(2, 6))
case("scaled_matmul_with_zeros", lambda x: integer_matmul(x, num(5)), Type("f32", (3, 2, 6)))


def layer(x: Value, name: str, gates: int, hidden: int = 6) -> list[Value]:
    w, r = bytes_of(1, gates * hidden, x.shape[2]), bytes_of(1, gates * hidden, hidden)
    scales = [
        constant(RNG.uniform(0.001, 0.005, (1, gates * hidden)).astype(np.float32)) for _ in "wr"
    ]
    made: list[Value] = ops.REGISTRY[name](
        x, w, scales[0], r, scales[1], num(1, 2 * gates * hidden), hidden_size=hidden
    )
    return made


case("dynamic_lstm_as_steps", lambda x: layer(x, "dynamic_lstm", 4), f32(3, 2, 5))
case("dynamic_gru_as_steps", lambda x: layer(x, "dynamic_gru", 3), f32(3, 2, 5))


def small(k: int, n: int, block: int = 0, dtype: str = "i8", axis: int = 1) -> Value:
    """Dequantised weights [k, n], with scales per column or per block of rows."""
    w = constant(RNG.integers(-7, 8, (k, n)), dtype=dtype)
    scale = num(-(-k // block), n) if block else num((k, n)[axis])
    made: Value = ops.dequantize_linear(w, scale, axis=0 if block else axis, block_size=block)
    return made


case("weight_only_matmul", lambda x: ops.matmul(x, small(6, 5)), f32(2, 6))
case("weight_only_matmul", lambda x: ops.matmul(x, small(6, 5, 2, "i4")), f32(2, 6))
case(
    "weight_only_gemm", lambda x: ops.gemm(x, small(5, 6, axis=0), num(5), trans_b=True), f32(2, 6)
)
case(
    "quantized_embedding",
    lambda at: ops.gather(small(6, 5, axis=0), at, axis=0),
    Type("i64", (2, 2)),
)


# ---- inputs of products that are rounded at run time (TFLite's dynamic range models) -------------
def stored(*shape: int, axis: int = 0) -> Value:
    made: Value = ops.dequantize_linear(bytes_of(*shape), num(shape[axis]), None, axis=axis)
    return made


def rounded_conv(x: Value, *kernel: int, axis: int, **more: object) -> Value:
    """A convolution of a channels-last image, as TFLite's importer makes it."""
    image = ops.channels_first(ops.dynamic_fake_quantize(x, axis=axis))
    attrs = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1), "groups": 1, **more}
    made: Value = ops.conv(image, stored(5, 6, *kernel), num(5), **attrs)
    return made


case(
    "dynamic_range_gemm",
    lambda x: ops.gemm(ops.dynamic_fake_quantize(x, axis=1), stored(5, 6), num(5), trans_b=True),
    f32(3, 6),
)
case(
    "dynamic_range_matmul",
    lambda x: ops.matmul(
        ops.dynamic_fake_quantize(x, axis=1), ops.transpose(stored(5, 6), perm=(1, 0))
    ),
    f32(3, 6),
)
case(
    "dynamic_range_matmul",
    lambda x: ops.matmul(ops.dynamic_fake_quantize(x, axis=2), stored(6, 5, axis=1)),
    f32(2, 3, 6),
)
case("dynamic_range_pixels", lambda x: rounded_conv(x, 1, 1, axis=3), f32(2, 3, 4, 6))
case(
    "dynamic_range_conv",
    lambda x: rounded_conv(x, 3, 3, axis=1, pad=(1,) * 4, stride=(2, 2)),
    f32(2, 9, 8, 6),
)
