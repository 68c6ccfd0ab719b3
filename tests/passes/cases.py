"""Graphs on which each rule fires: one line or more per rule, named for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

INF = math.inf
RNG = np.random.default_rng(7)
CASES: list[tuple[str, Callable[..., Any], list[Type]]] = []


def case(name: str, build: Callable[..., Any], *types: Type) -> None:
    """`build` takes one Value per type and returns what a rule called `name` must rewrite."""
    CASES.append((name, build, list(types)))


def graph_of(build: Callable[..., Any], types: list[Type]) -> Graph:
    inputs = [Value(t, f"x{i}") for i, t in enumerate(types)]
    made = build(*inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    return Graph(inputs, outputs, [f"y{i}" for i in range(len(outputs))])


def f32(*shape: int) -> Type:
    return Type("f32", shape)


def num(*shape: int) -> Value:
    return constant(RNG.uniform(0.5, 1.5, shape).astype(np.float32))


def scalar(x: float) -> Value:
    return constant(np.float32(x))


def conv(x: Value, m: int = 6, k: int = 3, bias: bool = True, **attrs: Any) -> Value:
    groups = attrs.get("groups", 1)
    rank = x.type.rank - 2
    w = num(m, x.shape[1] // groups, *[k] * rank)
    given = {"stride": (1,) * rank, "pad": (1,) * 2 * rank, "dilation": (1,) * rank, **attrs}
    made: Value = ops.conv(x, w, num(m) if bias else None, **given)
    return made


def pool(op: Any, x: Value, pad: int = 0, **attrs: Any) -> Value:
    rank = x.type.rank - 2
    made: Value = op(x, kernel=(2,) * rank, stride=(2,) * rank, pad=(pad,) * 2 * rank,
                     dilation=(1,) * rank, **attrs)  # fmt: skip
    return made


def deconv(x: Value, groups: int = 1) -> Value:
    made: Value = ops.conv_transpose(x, num(x.shape[1], 3, 2, 2), num(3 * groups), stride=(2, 2),
                                     pad=(0,) * 4, output_pad=(0, 0), dilation=(1, 1),
                                     groups=groups)  # fmt: skip
    return made


IMAGE = f32(2, 4, 6, 6)
VECTOR = f32(2, 5)
SHIFT = constant(np.linspace(-1, 1, 5, dtype=np.float32))
BN = lambda x, c: ops.batch_norm(x, num(c), num(c), num(c), num(c), epsilon=1e-3)  # noqa: E731

# ---- fold
case("fold_constants", lambda x: ops.add(x, ops.exp(num(5))), VECTOR)
case("shape_of_fixed", lambda x: ops.shape_of(ops.relu(x)), VECTOR)
case("fold_weights",
     lambda x: ops.mul(x, ops.dequantize_linear(constant(np.arange(5, dtype=np.int8)), num())),
     VECTOR)  # fmt: skip

# ---- canonical
case("reshape_to_itself", lambda x: ops.reshape(ops.relu(x), shape=(2, -1)), VECTOR)
case("reshape_of_reshape", lambda x: ops.reshape(ops.reshape(x, shape=(10,)), shape=(5, 2)), VECTOR)
case("transpose_of_unit_axes", lambda x: ops.transpose(x, perm=(0, 2, 1)), f32(3, 1, 4))
case("transpose_of_unit_axes", lambda x: ops.relu(ops.transpose(x, perm=(0, 1))), VECTOR)
TURN = {"perm": (2, 0, 1)}
case("transpose_of_transpose",
     lambda x: ops.transpose(ops.transpose(x, **TURN), **TURN), f32(2, 3, 4))  # fmt: skip
case("expand_to_itself", lambda x: ops.expand(ops.relu(x), shape=(1, 5)), VECTOR)
case("expand_for_nothing", lambda x, y: ops.sub(ops.expand(y, shape=(2, 5)), x), VECTOR, f32(5))
case("expand_for_nothing", lambda x, y: ops.sub(x, ops.expand(y, shape=(2, 5))), VECTOR, f32(5))
WHOLE = {"start": (0, -5), "stop": (2**62, 5), "step": (1, 1)}
case("slice_of_everything", lambda x: ops.slice_(ops.relu(x), **WHOLE), VECTOR)
case("pad_by_nothing", lambda x: ops.pad(ops.relu(x), before=(0, 0), after=(0, 0)), VECTOR)
case("tile_once", lambda x: ops.tile(ops.relu(x), repeats=(1, 1)), VECTOR)
case("reduce_of_one", lambda x: ops.reduce_mean(x, axes=(1,), keepdims=False), f32(3, 1, 2))
case("simpler_concat", lambda x: ops.relu(ops.concat(x, axis=1)), VECTOR)
case(
    "simpler_concat", lambda x, y: ops.concat(x, ops.concat(y, x, axis=-1), axis=1), VECTOR, VECTOR
)
case("simpler_concat", lambda x, y: ops.concat(x, y, x, axis=1), VECTOR, f32(2, 0))
case("gather_of_range", lambda x: ops.gather(x, constant([-3, -2]), axis=1), f32(2, 5, 3))
case("gather_of_range", lambda x: ops.gather(x, constant(np.int64(1)), axis=0), VECTOR)
case("where_decided", lambda x, y: ops.where(x, y, constant(np.array([True]))), f32(5), VECTOR)
case("where_decided", lambda x, y: ops.where(x, y, constant(np.array([False]))), f32(5), VECTOR)
case("cast_to_itself", lambda x: ops.cast(ops.relu(x), dtype="f32"), VECTOR)
case("cast_of_cast", lambda x: ops.cast(ops.cast(x, dtype="f64"), dtype="i32"), VECTOR)
case("clip_of_clip", lambda x: ops.clip(ops.clip(x, lo=-1.0, hi=0.5), lo=-0.5, hi=INF), VECTOR)
case("clip_of_relu", lambda x: ops.clip(ops.relu(x), lo=-1.0, hi=0.5), VECTOR)
case("relu_of_clip", lambda x: ops.relu(ops.clip(x, lo=-1.0, hi=0.5)), VECTOR)
case("relu_of_relu", lambda x: ops.relu(ops.relu(x)), VECTOR)
case("clip_of_bound", lambda x: ops.minimum(scalar(0.3), x), VECTOR)
case("clip_of_bound", lambda x: ops.maximum(x, scalar(0.3)), VECTOR)
case("clip_is_relu", lambda x: ops.clip(x, lo=0.0, hi=INF), VECTOR)
case("clip_is_relu", lambda x: ops.sigmoid(ops.clip(x, lo=-INF, hi=INF)), VECTOR)
case("constant_to_the_right", lambda x: ops.add(SHIFT, x), VECTOR)
for op, number in (("mul", 1), ("add", 0), ("sub", 0), ("div", 1), ("pow", 1)):
    case(
        "neutral_operand",
        lambda x, op=op, n=number: ops.REGISTRY[op](ops.relu(x), scalar(n)),
        VECTOR,
    )
case("neutral_operand", lambda x: ops.add(x, constant(np.zeros(5, np.float32))), VECTOR)

# ---- fuse
case("batch_norm_as_scale_and_shift", lambda x: BN(x, 4), IMAGE)
case("scale_into_conv", lambda x: ops.mul(conv(x), num(6, 1, 1)), IMAGE)
case("scale_into_conv", lambda x: ops.mul(conv(x, bias=False, groups=2), scalar(0.7)), IMAGE)
case("scale_into_conv", lambda x: ops.mul(deconv(x), num(1, 3, 1, 1)), IMAGE)
case("scale_into_conv", lambda x: ops.mul(deconv(x, 2), num(6, 1, 1)), IMAGE)
case("shift_into_conv", lambda x: ops.add(num(6, 1, 1), conv(x, bias=False)), IMAGE)
case("shift_into_conv", lambda x: ops.add(deconv(x), num(1, 3, 1, 1)), IMAGE)
GEMM = {"alpha": 0.5, "beta": 2.0, "trans_b": True}
case("gemm_as_matmul_and_add", lambda x: ops.gemm(x, num(7, 5), num(7), **GEMM), VECTOR)
case("scale_into_matmul", lambda x: ops.mul(ops.matmul(x, num(5, 3)), num(3)), VECTOR)
case("scale_over_shift",
     lambda x: ops.mul(ops.add(ops.matmul(x, num(5, 3)), num(3)), num(3)), VECTOR)  # fmt: skip
case("scale_before_conv", lambda x: conv(ops.mul(x, num(4, 1, 1)), groups=2), IMAGE)
case("shift_before_conv", lambda x: conv(ops.add(x, num(4, 1, 1)), groups=2, pad=(0,) * 4), IMAGE)
PAD = {"before": (0, 0, 1, 0), "after": (0, 0, 2, 1)}
case("pad_into_conv", lambda x: conv(ops.pad(x, **PAD)), IMAGE)
case("pad_into_avg_pool",
     lambda x: pool(ops.avg_pool, ops.pad(x, **PAD), count_include_pad=False), IMAGE)  # fmt: skip
case("pad_into_max_pool", lambda x: pool(ops.max_pool, ops.pad(x, **PAD, value=-INF), 1), IMAGE)
case("subtract_as_add", lambda x: ops.sub(x, SHIFT), VECTOR)
case("divide_as_multiply", lambda x: ops.div(x, num(5)), VECTOR)
case("constants_meet", lambda x: ops.add(ops.add(x, num(5)), num(2, 5)), VECTOR)
case("constants_meet", lambda x: ops.mul(num(5), ops.mul(x, num(1))), VECTOR)

# ---- recognize
RAMP = lambda x: ops.clip(ops.add(x, scalar(3)), lo=0.0, hi=6.0)  # noqa: E731
ERF = lambda x: ops.add(ops.erf(ops.div(x, scalar(math.sqrt(2)))), scalar(1))  # noqa: E731
ERF2 = lambda x: ops.add(scalar(1), ops.erf(ops.mul(scalar(math.sqrt(0.5)), x)))  # noqa: E731


def tanh_arg(x: Value, cube: Value) -> Value:
    inner = ops.mul(scalar(math.sqrt(2 / math.pi)), ops.add(x, ops.mul(cube, scalar(0.044715))))
    made: Value = ops.add(ops.tanh(inner), scalar(1))
    return made


def square(x: Value) -> Value:
    made: Value = ops.pow(x, scalar(2))
    return made


def centred(x: Value) -> Value:
    made: Value = ops.sub(x, ops.reduce_mean(x, axes=(1,), keepdims=True))
    return made


def spread(x: Value, squared: Value, axis: int = 1) -> Value:
    mean = ops.reduce_mean(squared, axes=(axis,), keepdims=True)
    made: Value = ops.sqrt(ops.add(mean, scalar(1e-3)))
    return made


def layer_norm(x: Value) -> Value:
    d = centred(x)
    made: Value = ops.div(d, spread(d, square(d)))
    return made


HALF = scalar(0.5)
case("swish", lambda x: ops.mul(ops.sigmoid(x), x), VECTOR)
case("mish", lambda x: ops.mul(x, ops.tanh(ops.softplus(x))), VECTOR)
case("softplus", lambda x: ops.log(ops.add(scalar(1), ops.exp(x))), VECTOR)
case("hard_sigmoid", lambda x: ops.div(RAMP(x), scalar(6)), VECTOR)
case("hard_sigmoid", lambda x: ops.mul(RAMP(x), scalar(1 / 6)), VECTOR)
case("hardswish", lambda x: ops.div(ops.mul(x, RAMP(x)), scalar(6)), VECTOR)
case("hardswish", lambda x: ops.mul(ops.mul(x, RAMP(x)), scalar(1 / 6)), VECTOR)
case("hardswish", lambda x: ops.mul(ops.mul(scalar(1 / 6), x), RAMP(x)), VECTOR)
case("hardswish_of_hard_sigmoid",
     lambda x: ops.mul(x, ops.hard_sigmoid(x, alpha=1 / 6, beta=0.5)), VECTOR)  # fmt: skip
case("gelu", lambda x: ops.mul(ops.mul(x, ERF(x)), HALF), VECTOR)
case("gelu", lambda x: ops.mul(x, ops.mul(ERF2(x), HALF)), VECTOR)
case("gelu", lambda x: ops.mul(ERF(x), ops.mul(HALF, x)), VECTOR)
case("gelu_tanh",
     lambda x: ops.mul(ops.mul(x, HALF), tanh_arg(x, ops.pow(x, scalar(3)))), VECTOR)  # fmt: skip
case(
    "gelu_tanh", lambda x: ops.mul(x, ops.mul(HALF, tanh_arg(x, ops.mul(x, ops.mul(x, x))))), VECTOR
)
case("norm_of_div", layer_norm, VECTOR)
case("norm_of_div", lambda x: ops.div(x, spread(x, ops.mul(x, x))), VECTOR)
case("norm_of_reciprocal",
     lambda x: ops.mul(ops.reciprocal(spread(x, square(x))), x), VECTOR)  # fmt: skip
case("scale_into_layer_norm", lambda x: ops.mul(num(5), ops.layer_norm(x, axis=1)), VECTOR)
case("shift_into_layer_norm",
     lambda x: ops.add(ops.layer_norm(x, num(5), axis=1), num(5)), VECTOR)  # fmt: skip
case("scale_into_rms_norm", lambda x: ops.mul(ops.rms_norm(x, axis=1), num(1, 5)), VECTOR)


# ---- integer arithmetic: scales that are powers of two make the float detour exact ---------------
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
