"""Cases: scales, shifts and pads that fold into weights."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import (
    BN,
    IMAGE,
    INF,
    SHIFT,
    VECTOR,
    case,
    conv,
    deconv,
    num,
    pool,
    scalar,
)

from intaglio import ops
from intaglio.ir import Type

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
case(
    "distribute_scale", lambda x: ops.mul(ops.add(ops.matmul(x, num(5, 3)), num(3)), num(3)), VECTOR
)
case("scale_before_conv", lambda x: conv(ops.mul(x, num(4, 1, 1)), groups=2), IMAGE)
case("shift_before_conv", lambda x: conv(ops.add(x, num(4, 1, 1)), groups=2, pad=(0,) * 4), IMAGE)
PAD = {"before": (0, 0, 1, 0), "after": (0, 0, 2, 1)}
case(
    "transpose_before_pad",
    lambda x: conv(
        ops.transpose(ops.pad(x, before=(0, 1, 0, 0), after=(0, 2, 1, 0)), perm=(0, 3, 1, 2))
    ),
    Type("f32", (2, 5, 6, 4)),
)
case("pad_into_conv", lambda x: conv(ops.pad(x, **PAD)), IMAGE)
case(
    "pad_into_avg_pool",
    lambda x: pool(ops.avg_pool, ops.pad(x, **PAD), count_include_pad=False),
    IMAGE,
)
case("pad_into_max_pool", lambda x: pool(ops.max_pool, ops.pad(x, **PAD, value=-INF), 1), IMAGE)
LOWEST = float(np.finfo(np.float32).min)
BORDER = {"before": (0, 0, 1, 1), "after": (0, 0, 1, 1)}
case("pad_into_max_pool", lambda x: pool(ops.max_pool, ops.pad(ops.relu(x), **BORDER)), IMAGE)
case("pad_into_max_pool", lambda x: pool(ops.max_pool, ops.pad(x, **BORDER, value=LOWEST)), IMAGE)
case("subtract_as_add", lambda x: ops.sub(x, SHIFT), VECTOR)
case("divide_as_multiply", lambda x: ops.div(x, num(5)), VECTOR)
case("combine_constants", lambda x: ops.add(ops.add(x, num(5)), num(2, 5)), VECTOR)
case("combine_constants", lambda x: ops.mul(num(5), ops.mul(x, num(1))), VECTOR)
