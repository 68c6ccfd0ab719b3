"""Integer arithmetic: scales that are powers of two make the float detour exact."""

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


BYTES = Type("i8", (2, 4))
case("clamp_by_saturation", lambda x: stored(ops.relu(x), 0.25, -128), VECTOR)
case("clamp_by_saturation", lambda x: stored(ops.clip(x, lo=-32.5, hi=INF), 0.25, 0), VECTOR)
case("quantize_before_moving", lambda x: stored(ops.transpose(x, perm=(1, 0)), zero=1), VECTOR)
case("quantize_before_moving", lambda x: stored(ops.reshape(x, shape=(-1,))), VECTOR)
case("dequantize_after_moving", lambda q: ops.transpose(real(q, 0.5), perm=(1, 0)), BYTES)
case("dequantize_after_moving", lambda q: ops.part(real(q, 0.5, 3), 0, 1, axis=0), BYTES)
case("integer_conv", lambda q: integer_conv(q, constant(np.arange(6, dtype=np.float32))),
     Type("i8", (1, 4, 5, 5)))  # fmt: skip
case("integer_conv", lambda q: integer_conv(q, real(whole(6, dtype="i32"), 1 / 2048)),
     Type("u8", (1, 4, 5, 5)))  # fmt: skip
case("integer_gemm", lambda q: stored(
    ops.gemm(real(q, 1 / 32), real(whole(5, 4), 1 / 64), num(5), trans_b=True)), BYTES)  # fmt: skip
case("integer_gemm", lambda q: stored(
    ops.gemm(real(q, 1 / 32), real(whole(4, 5), 1 / 64))), BYTES)  # fmt: skip
case("integer_matmul", lambda q: stored(
    ops.matmul(real(q, 1 / 32, 2), real(whole(4, 5), 1 / 64)), 1.0), BYTES)  # fmt: skip
