"""Cases: integer arithmetic. Scales are powers of two, so that the float form is exact."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import INF, RNG, VECTOR, case, num, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant


def real(q: Value, scale: float, zero: int = 0) -> Value:
    made: Value = ops.dequantize_linear(q, scalar(scale), constant(zero, dtype=q.dtype), axis=0)
    return made


def stored(x: Value, scale: float = 0.25, zero: int = 3, dtype: str = "i8") -> Value:
    made: Value = ops.quantize_linear(x, scalar(scale), constant(zero, dtype=dtype), dtype=dtype)
    return made


def whole(*shape: int, dtype: str = "i8") -> Value:
    return constant(RNG.integers(-90, 90, shape), dtype=dtype)


def integer_conv(q: Value, bias: Value) -> Value:
    w = real(whole(6, 4, 3, 3), 1 / 64)
    return stored(
        ops.conv(real(q, 1 / 32, 1), w, bias, stride=(1, 1), pad=(1,) * 4, dilation=(1, 1))
    )


def sums(q: Value, bias: bool = True) -> Value:
    """A convolution of quantised tensors."""
    w, b = real(whole(4, 4, 3, 3), 1 / 64), constant(np.arange(4, dtype=np.float32))
    made: Value = ops.conv(
        real(q, 1 / 32, 1), w, b if bias else None, stride=(1, 1), pad=(1,) * 4, dilation=(1, 1)
    )
    return made


def columns(n: int, k: int = 4) -> Value:
    """Weights with a scale per column."""
    scale = constant((2.0 ** -np.arange(5, 5 + n)).astype(np.float32))
    made: Value = ops.dequantize_linear(whole(k, n), scale, None, axis=1)
    return made


def upsampled(q: Value, groups: int = 1, kernel: int = 3, stride: int = 2) -> Value:
    each = np.array([1 / 64, 1 / 32, 1 / 128, 1 / 16], np.float32)
    depthwise = groups == 4
    shape = (4, 1 if depthwise else 3, kernel, kernel)
    scale = constant(each if depthwise else each[:3].copy())
    w = ops.dequantize_linear(whole(*shape), scale, None, axis=0 if depthwise else 1)
    b = constant(np.arange(shape[1] * groups, dtype=np.float32))
    made: Value = ops.conv_transpose(
        real(q, 1 / 32, 1),
        w,
        b,
        stride=(stride, stride),
        pad=(1,) * 4,
        output_pad=(stride - 1,) * 2,
        dilation=(1, 1),
        groups=groups,
    )
    return made


def per_channel(*numbers: float) -> Value:
    return constant(np.array(numbers, np.float32).reshape(-1, 1, 1))


def normed(x: Value) -> Value:
    """A batch norm whose factors are powers of two."""
    gamma, beta, mean, var = ([1, 2, 0.5, 1], [0, 1, 2, 3], [4, 0, 2, 1], [4, 1, 16, 0.25])
    every = (constant(np.array(a, np.float32)) for a in (gamma, beta, mean, var))
    made: Value = ops.batch_norm(x, *every, epsilon=0.0)
    return made


BYTES = Type("i8", (2, 4))
PIXELS = Type("i8", (1, 4, 5, 5))
case("clamp_into_saturation", lambda x: stored(ops.relu(x), 0.25, -128), VECTOR)
case("clamp_into_saturation", lambda x: stored(ops.clip(x, lo=-32.5, hi=INF), 0.25, 0), VECTOR)
case("quantize_before_movement", lambda x: stored(ops.transpose(x, perm=(1, 0)), zero=1), VECTOR)
case("quantize_before_movement", lambda x: stored(ops.reshape(x, shape=(-1,))), VECTOR)
case(
    "clamp_before_movement",
    lambda x: stored(ops.clip(ops.transpose(x, perm=(1, 0)), lo=0.0, hi=6.0)),
    VECTOR,
)
case("clamp_before_movement", lambda x: stored(ops.relu(ops.reshape(x, shape=(-1,)))), VECTOR)
AROUND = {"before": (0, 1), "after": (2, 0)}
case("quantize_before_pad", lambda x: stored(ops.pad(x, **AROUND)), VECTOR)
case(
    "quantize_before_pad", lambda x: stored(ops.pad(x, **AROUND, value=-1.125), dtype="u8"), VECTOR
)
case("quantize_before_pad", lambda x: stored(ops.pad(x, **AROUND, mode="edge")), VECTOR)
case("dequantize_after_movement", lambda q: ops.transpose(real(q, 0.5), perm=(1, 0)), BYTES)
case("dequantize_after_movement", lambda q: ops.part(real(q, 0.5, 3), 0, 1, axis=0), BYTES)
case(
    "integer_conv",
    lambda q: integer_conv(q, constant(np.arange(6, dtype=np.float32))),
    Type("i8", (1, 4, 5, 5)),
)
case(
    "integer_conv",
    lambda q: integer_conv(q, real(whole(6, dtype="i32"), 1 / 2048)),
    Type("u8", (1, 4, 5, 5)),
)
case(
    "batch_norm_into_quantized_weights",
    lambda q: stored(
        ops.relu(
            normed(
                ops.add(
                    ops.div(sums(q, bias=False), per_channel(2, 4, -0.5, 1)),
                    per_channel(1, 2, 3, 4),
                )
            )
        )
    ),
    PIXELS,
)
case(
    "batch_norm_into_quantized_weights",
    lambda q: stored(ops.sub(ops.mul(per_channel(-2, 4, 0.5, -1), sums(q)), scalar(2))),
    PIXELS,
)
case(
    "batch_norm_into_quantized_weights",
    lambda q, r: stored(ops.add(normed(sums(q)), real(r, 0.5))),
    PIXELS,
    PIXELS,
)
case(
    "integer_gemm",
    lambda q: stored(ops.gemm(real(q, 1 / 32), real(whole(5, 4), 1 / 64), num(5), trans_b=True)),
    BYTES,
)
case("integer_gemm", lambda q: stored(ops.gemm(real(q, 1 / 32), real(whole(4, 5), 1 / 64))), BYTES)
case(
    "integer_matmul",
    lambda q: stored(ops.matmul(real(q, 1 / 32, 2), real(whole(4, 5), 1 / 64)), 1.0),
    BYTES,
)
case("integer_matmul", lambda q: stored(ops.matmul(real(q, 1 / 32, 2), columns(5)), 1.0), BYTES)
case(
    "integer_biased_matmul",
    lambda q: stored(
        ops.add(
            ops.matmul(real(q, 1 / 32, 2), columns(5)), constant(np.arange(5, dtype=np.float32))
        )
    ),
    Type("u8", (2, 3, 4)),
)
case(
    "integer_residual",
    lambda q, r: stored(ops.add(sums(q), real(r, 0.5, 7))),
    PIXELS,
    Type("u8", (1, 4, 5, 5)),
)
case(
    "integer_residual",
    lambda q, r: stored(ops.add(real(r, 0.5), ops.gemm(real(q, 1 / 32), columns(5)))),
    BYTES,
    Type("i8", (2, 5)),
)
case("clamp_in_int8", lambda q: stored(ops.relu(sums(q))), PIXELS)
case(
    "clamp_in_int8",
    lambda q, r: stored(ops.clip(ops.add(sums(q), real(r, 0.5)), lo=-1.0, hi=6.0)),
    PIXELS,
    PIXELS,
)
case("quantize_before_movement", lambda x: stored(ops.part(x, 0, 3, axis=1)), VECTOR)
case("integer_conv_transpose", upsampled, PIXELS)
case("integer_conv_transpose", lambda q: upsampled(q, 2, 4), PIXELS)
case("integer_conv_transpose", lambda q: upsampled(q, 4, 4), PIXELS)
case("integer_conv_transpose", lambda q: upsampled(q, stride=1), PIXELS)
case("integer_conv_transpose", lambda q: upsampled(q, 4, stride=1), PIXELS)
case("conv_to_floats", sums, PIXELS)
case("conv_to_floats", lambda q: ops.add(sums(q, False), num(4, 1, 1)), PIXELS)
case(
    "gemm_to_floats",
    lambda q: ops.gemm(real(q, 1 / 32), columns(5), constant(np.arange(5, dtype=np.float32))),
    BYTES,
)
case("matmul_to_floats", lambda q: ops.matmul(real(q, 1 / 32), columns(5)), BYTES)
case(
    "matmul_to_floats",
    lambda q, k: ops.matmul(real(q, 1 / 32), real(k, 0.5, 3)),
    Type("u8", (2, 3, 4)),
    Type("i8", (2, 4, 6)),
)
case(
    "biased_matmul_to_floats",
    lambda q: ops.add(
        constant(np.arange(5, dtype=np.float32)), ops.matmul(real(q, 1 / 32), columns(5))
    ),
    BYTES,
)
case("residual_to_floats", lambda q, x: ops.add(sums(q), x), PIXELS, Type("f32", (1, 4, 5, 5)))
case(
    "residual_to_floats",
    lambda q, x: ops.add(
        x,
        ops.add(constant(np.arange(5, dtype=np.float32)), ops.matmul(real(q, 1 / 32), columns(5))),
    ),
    BYTES,
    Type("f32", (2, 5)),
)
case("int8_lookup_table", lambda q: stored(ops.sigmoid(real(q, 0.5, 3)), 1 / 256, -128), PIXELS)
case("int8_lookup_table", lambda q: stored(real(q, 0.5, 3), 0.25, 9, "u8"), PIXELS)
case("int8_lookup_table", lambda q: stored(real(q, 0.25, 3)), PIXELS)
case(
    "int8_lookup_table",
    lambda q: stored(
        ops.mul(real(q, 0.5), ops.clip(ops.add(real(q, 0.5), scalar(3.0)), lo=0.0, hi=6.0))
    ),
    PIXELS,
)
WORDS = Type("i16", (1, 4, 5, 5))
case("int16_lookup_table", lambda q: stored(ops.swish(real(q, 0.01)), 1 / 32, -120), WORDS)
case("int16_lookup_table", lambda q: stored(ops.tanh(real(q, 0.004)), 1 / 127, 0), WORDS)
case("compose_lookup_tables", lambda q: ops.lookup(ops.lookup(q, whole(256)), whole(256)), PIXELS)
case("float_lookup_table", lambda q: ops.relu(ops.tanh(real(q, 0.5, 3))), PIXELS)


# ---- sums, products, means, choices, parts -------------------------------------------------------
POOL = {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 1, 1), "dilation": (1, 1)}


def upscaled(x: Value) -> Value:
    made: Value = ops.resize(
        x,
        axes=(2, 3),
        shape=(10, 10),
        scales=(2.0, 2.0),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return made


case(
    "integer_add",
    lambda a, b: stored(ops.add(real(a, 0.5, 3), real(b, 0.25, 1))),
    PIXELS,
    Type("u8", (1, 4, 5, 5)),
)
case(
    "integer_add",
    lambda a, b: stored(ops.add(real(a, 0.5), real(b, 0.25))),
    PIXELS,
    Type("i8", (4, 1, 1)),
)
case(
    "integer_mul",
    lambda a, b: stored(ops.mul(real(a, 0.5, 3), real(b, 0.25, 1))),
    PIXELS,
    Type("i8", (1, 4, 1, 1)),
)
case("integer_avg_pool", lambda a: stored(ops.avg_pool(real(a, 0.5, 3), **POOL)), PIXELS)
case("integer_mean", lambda a: stored(ops.reduce_mean(real(a, 0.5, 3), axes=(2, 3))), PIXELS)
case(
    "integer_mean",
    lambda a: stored(ops.reduce_mean(real(a, 0.5, 3), axes=(2, 3), keepdims=False)),
    PIXELS,
)
case("dequantize_after_max_pool", lambda a: ops.max_pool(real(a, 0.5, 3), **POOL), PIXELS)
case("dequantize_after_max_pool", lambda a: upscaled(real(a, 0.5)), PIXELS)
case("quantize_before_max_pool", lambda a: stored(ops.max_pool(sums(a), **POOL)), PIXELS)
case("quantize_before_max_pool", lambda a: stored(upscaled(sums(a))), PIXELS)
case(
    "quantize_before_concat",
    lambda a, b: stored(ops.concat(real(a, 0.25, 3), real(b, 0.5), axis=1)),
    PIXELS,
    PIXELS,
)
case(
    "dequantize_after_concat",
    lambda a, b: ops.concat(real(a, 0.5, 3), real(b, 0.5, 3), axis=1),
    PIXELS,
    PIXELS,
)
case(
    "clamp_in_int8",
    lambda a, b: stored(ops.relu(ops.add(real(a, 0.5), real(b, 0.25)))),
    PIXELS,
    PIXELS,
)
case("integer_softmax", lambda a: stored(ops.softmax(real(a, 0.25), axis=1), 1 / 256, -128), PIXELS)
case(
    "matmul_to_floats",
    lambda q, k, x: ops.add(ops.matmul(real(q, 1 / 32), real(k, 0.5, 3)), x),
    Type("u8", (2, 3, 4)),
    Type("i8", (2, 4, 6)),
    Type("f32", (2, 3, 6)),
)
case(
    "integer_resize",
    lambda a: stored(
        ops.resize(real(a, 0.5, 3), axes=(2, 3), shape=(10, 10), scales=(2.0, 2.0), mode="linear")
    ),
    PIXELS,
)


def padded_product(q: Value) -> Value:
    """A convolution of an image with a border of what stands for 0."""
    around = ops.pad(q, before=(0, 0, 1, 0), after=(0, 0, 2, 1), value=3.0)
    of_x, of_w = (
        (scalar(1 / 32), constant(3, dtype="i8")),
        (scalar(1 / 64), constant(0, dtype="i8")),
    )
    made: Value = ops.qlinear_conv(
        around,
        *of_x,
        whole(6, 4, 3, 3),
        *of_w,
        scalar(0.25),
        constant(1, dtype="i8"),
        stride=(1, 1),
        pad=(1,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    return made


case("pad_into_qlinear_conv", padded_product, PIXELS)
