"""Cases: lowering to the CPU, epilogue fusion and half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import IMAGE, VECTOR, case, conv, deconv, f32, num, pool, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant
from intaglio.targets.cpu import conv as cpu_conv
from intaglio.targets.cpu import gemm as cpu_gemm
from intaglio.targets.cpu import packing
from intaglio.targets.cpu import pool as cpu_pool
from intaglio.targets.cpu.channel_shuffle import deal
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.recurrent import gru_steps, lstm_steps

HALF = Type("f16", (2, 4, 6, 6))


def product(x: Value, n: int = 3, residual: Value | None = None, **attrs: Any) -> Value:
    packed = constant(packing.pack.body(num(x.shape[-1], n).data, tile=PANEL))
    made: Value = cpu_gemm.gemm(x, packed, None, residual, n=n, **attrs)
    return made


case("conv_and_matmul_in_f32", lambda x: ops.matmul(x, x), Type("f16", (3, 3)))
case("conv_channels_last", conv, IMAGE)
case("conv_channels_last", lambda x: conv(x, 4, groups=4), IMAGE)
case("conv_channels_last", lambda x: conv(x, 8, groups=4), IMAGE)
case("conv_channels_last", conv, f32(2, 4, 9))
case("conv_as_winograd", lambda x: conv(ops.mul(x, scalar(1 / 64)), 16), f32(1, 16, 12, 12))
case(
    "conv_as_winograd",
    lambda x: conv(ops.mul(x, scalar(1 / 64)), 36, bias=False, pad=(0, 1, 2, 0)),
    f32(2, 40, 9, 11),
)
case("conv_transpose_channels_last", deconv, IMAGE)
case("pool_channels_last", lambda x: pool(ops.max_pool, x), IMAGE)
case("pool_channels_last", lambda x: pool(ops.avg_pool, x, 1), IMAGE)
case("matmul_packed", lambda x: ops.matmul(x, num(5, 3)), VECTOR)
case("matmul_packed", lambda x, y: ops.matmul(x, ops.transpose(y, perm=(1, 0))), VECTOR, f32(3, 5))
case("gemm_packed", lambda x: ops.gemm(x, num(5, 3), num(3)), VECTOR)
case(
    "gemm_packed", lambda x, y: ops.gemm(x, num(3, 5), y, trans_b=True, beta=2.0), VECTOR, f32(2, 3)
)
case("activation_into_epilogue", lambda x: ops.relu(product(x)), VECTOR)
case("activation_into_epilogue", lambda x: ops.gelu(product(x)), VECTOR)
case("prelu_into_epilogue", lambda x: ops.prelu(product(x), num(3)), VECTOR)
case("add_into_epilogue", lambda x: ops.add(product(x), num(3)), VECTOR)
case("add_into_epilogue", lambda x, y: ops.add(product(x), y), VECTOR, f32(2, 3))
case("add_into_epilogue", lambda x, y: ops.add(y, product(x, act="relu")), VECTOR, f32(2, 3))
case(
    "hoist_activation_over_reshape",
    lambda x: ops.tanh(ops.reshape(product(x), shape=(1, 2, 3))),
    VECTOR,
)
case(
    "hoist_add_over_reshape",
    lambda x, y: ops.add(y, ops.reshape(product(x), shape=(1, 2, 3))),
    VECTOR,
    f32(1, 2, 3),
)
case(
    "transpose_into_gemm_weights",
    lambda x: product(ops.reshape(ops.transpose(x, perm=(0, 2, 3, 1)), shape=(2, 144))),
    IMAGE,
)


def block(x: Value, middle: int, channels: int, residual: bool = False, **attrs: Any) -> Value:
    """[1x1 ->] depthwise 3x3 -> 1x1 of an image whose channels lie last."""

    def one(v: Value, m: int, **more: Any) -> Value:
        packed = constant(packing.pack.body(num(1, v.shape[-1], m).data, tile=PANEL))
        made: Value = cpu_conv.conv(
            v,
            packed,
            num(m),
            x if residual and m == channels else None,
            channels=m,
            kernel=(1, 1),
            stride=(1, 1),
            pad=(0, 0, 0, 0),
            dilation=(1, 1),
            **more,
        )
        return made

    wide = one(x, middle, act="clip", act_args=(0.0, 6.0)) if middle else x
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), **attrs}
    channels_between = wide.shape[-1]
    taps = cpu_conv.depthwise(
        wide, num(3, 3, channels_between), num(channels_between), **window, act="relu"
    )
    return one(taps, channels)


case("fuse_separable", lambda x: block(x, 32, 8, stride=(2, 2)), f32(1, 112, 120, 8))
case("fuse_separable", lambda x: block(x, 32, 8, residual=True), f32(1, 64, 80, 8))
case("fuse_separable", lambda x: block(x, 0, 8), f32(1, 96, 96, 32))
case("channel_shuffle_channels_last", lambda x: ops.channel_shuffle(x, groups=2), IMAGE)
case(
    "slice_into_channel_shuffle",
    lambda x: ops.slice_(
        deal(x, groups=2, start=0, stop=6), start=(0, 0, 0, 2), stop=(9, 9, 9, 6), step=(1, 1, 1, 1)
    ),
    f32(2, 4, 6, 6),
)
case(
    "concat_into_channel_shuffle",
    lambda x, y: deal(ops.concat(x, y, axis=3), groups=2, start=1, stop=9),
    f32(2, 4, 6, 5),
    f32(2, 4, 6, 5),
)
case("lower_composite", lambda x: ops.hardmax(x, axis=1), VECTOR)
case("compute_in_f32", lambda x: pool(ops.avg_pool, x), HALF)
case(
    "elementwise_chain",
    lambda x, y: ops.add(ops.mul(ops.swish(x), ops.clip(y, lo=0.0, hi=6.0)), num(5)),
    VECTOR,
    VECTOR,
)
case(
    "elementwise_chain",  # read twice, but by nobody outside
    lambda x, y: ops.mul(s := ops.sub(x, y), ops.hard_sigmoid(s)),
    VECTOR,
    f32(5),
)


def recurrent(op: Any, gates: int, x: Value, **attrs: Any) -> list[Value]:
    made: list[Value] = op(
        x, num(1, gates * 6, 4), num(1, gates * 6, 6), num(1, gates * 12), hidden_size=6, **attrs
    )
    return made


case("lstm_as_steps", lambda x: recurrent(ops.lstm, 4, x), f32(3, 2, 4))
case("gru_as_steps", lambda x: recurrent(ops.gru, 3, x, linear_before_reset=True), f32(3, 2, 4))


def packed(op: Any, gates: int, x: Value, last: Value) -> list[Value]:
    given = cpu_gemm.gemm(x, num(gates, 16, 16), num(gates * 16), n=gates * 16)
    made: list[Value] = op(given, num(1, 1, 12, gates * 16), None, last, hidden=12)
    return made


case("gemm_into_lstm", lambda x: packed(lstm_steps, 4, x, num(1, 1, 12)), f32(33, 1, 16))
case("gemm_into_gru", lambda x: packed(gru_steps, 3, x, num(1, 16)), f32(33, 1, 16))


def wide(x: Value) -> Value:
    made: Value = ops.cast(x, dtype="f32")
    return made


SMALL = Type("bf16", (2, 4, 6, 6))
case("conv_as_winograd_or_bf16", lambda x: conv(ops.mul(x, scalar(1 / 64)), 64), f32(1, 64, 24, 24))
case("product_in_bf16", product, f32(2, 6))
case("product_in_bf16", lambda x, y: product(x, residual=y), f32(2, 6), f32(2, 3))
DEPTHWISE = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1)}
case(
    "depthwise_result_in_bf16",
    lambda x: cpu_conv.depthwise(product(product(x)), num(3, 3, 3), **DEPTHWISE),
    IMAGE,
)
case(
    "depthwise_operand_in_bf16",
    lambda x: cpu_conv.depthwise(wide(x), num(3, 3, 6), made="bf16", **DEPTHWISE),
    SMALL,
)
case(
    "share_cast",
    lambda x: ops.concat(ops.neg(ops.cast(x, dtype="f16")), ops.cast(x, dtype="f16"), axis=1),
    VECTOR,
)


def whole(x: Value) -> Value:
    """A product with weights that any type of 16 bits holds."""
    w = np.arange(6 * PANEL, dtype=np.float32).reshape(1, 6, PANEL) % 7 - 3
    made: Value = cpu_gemm.gemm(wide(x), constant(w), num(PANEL), n=PANEL)
    return made


case("layer_in_bf16", whole, Type("bf16", (2, 6)))
case("layer_in_f16", whole, Type("f16", (2, 6)))
case("recurrent_weights_in_bf16", lambda x: packed(lstm_steps, 4, x, num(1, 1, 12)), f32(3, 1, 16))
case("product_in_f16", product, f32(2, 6))
case("product_in_f16", lambda x, y: product(x, residual=y), f32(2, 6), f32(2, 3))
case("depthwise_in_f16", lambda x: cpu_conv.depthwise(x, num(3, 3, 6), **DEPTHWISE), IMAGE)
case(
    "embedding_in_f16",
    lambda x: ops.add(x, ops.gather(num(8, 5), constant(np.array([3, 1])), axis=0)),
    VECTOR,
)
case("recurrent_weights_in_f16", lambda x: packed(gru_steps, 3, x, num(1, 16)), f32(3, 1, 16))
case("cast_into_epilogue", lambda x: ops.cast(product(x), dtype="f16"), VECTOR)
case("cast_into_epilogue", lambda x: ops.cast(product(x), dtype="bf16"), VECTOR)
case(
    "cast_into_epilogue",
    lambda x, y: ops.cast(product(x, residual=wide(y)), dtype="bf16"),
    VECTOR,
    Type("bf16", (2, 3)),
)
case("movement_in_16_bits", lambda x: ops.transpose(wide(x), perm=(0, 2, 3, 1)), SMALL)
case(
    "max_pool_in_16_bits",
    lambda x: cpu_pool.pool(wide(x), kind="max", kernel=(2, 2), **DEPTHWISE),
    SMALL,
)
case("concat_in_16_bits", lambda x, y: ops.concat(wide(x), wide(y), axis=1), SMALL, SMALL)
case(
    "cast_before_max_pool",
    lambda x: ops.cast(
        cpu_pool.pool(product(x), kind="max", kernel=(2, 2), **DEPTHWISE), dtype="bf16"
    ),
    IMAGE,
)
case(
    "cast_before_concat",
    lambda x, y: ops.cast(ops.concat(x, y, axis=1), dtype="bf16"),
    VECTOR,
    VECTOR,
)
