"""Cases: hoisting and merging."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import IMAGE, case, conv, f32, num, pool, scalar

from intaglio import ops
from intaglio.ir import Type, constant

LONG = f32(64, 1024)


def rows(x, start, stop, axis=0):
    return ops.part(x, start, stop, axis=axis)


# ---- slices and gathers --------------------------------------------------------------------------
case("hoist_slice", lambda x: rows(ops.tanh(ops.exp(x)), 3, 5), LONG)
case(
    "hoist_slice",
    lambda x, y: rows(ops.transpose(ops.add(ops.mul(x, num(1024)), y), perm=(1, 0)), 3, 5, 1),
    LONG,
    f32(64, 1),
)
case("hoist_slice", lambda x, y: rows(ops.concat(ops.sin(x), ops.cos(y), axis=1), 0, 1), LONG, LONG)
case(
    "hoist_slice",
    lambda x: rows(
        ops.reshape(ops.expand(ops.exp(x), shape=(3, 64, 1024)), shape=(3, 64, 32, 32)), 1, 9, 1
    ),
    LONG,
)
case("hoist_slice", lambda x: rows(ops.pad(ops.exp(x), before=(0, 2), after=(0, 2)), 60, 64), LONG)
case(
    "hoist_slice", lambda x: rows(pool(ops.max_pool, ops.exp(x)), 1, 3, axis=1), f32(1, 32, 64, 64)
)
case("hoist_gather", lambda x: ops.gather(ops.exp(x), constant([7, 1, 30]), axis=0), LONG)
case(
    "hoist_gather",
    lambda x: ops.gather(
        ops.gather(num(9, 4096), ops.cast(x, dtype="i64"), axis=0), constant(np.int64(-1)), axis=1
    ),
    f32(2, 64),
)
WIDE = f32(1, 64, 128)
case(
    "hoist_slice_over_matmul",
    lambda x: rows(
        ops.add(ops.matmul(ops.layer_norm(x, num(128), num(128)), num(128, 256)), num(256)),
        -1,
        64,
        axis=1,
    ),
    WIDE,
)
case("hoist_slice_over_matmul", lambda x: rows(ops.relu(conv(x, 32)), 4, 9, 1), f32(1, 8, 32, 32))
case("hoist_slice_over_matmul", lambda x: rows(conv(x, 32, groups=32), 4, 9, 1), f32(1, 32, 32, 32))
HEADS = f32(1, 2, 64, 32)
case(
    "hoist_slice_over_matmul",
    lambda q, k, v, m: rows(ops.attention(q, k, v, m, scale=0.3), 63, 64, axis=2),
    HEADS,
    HEADS,
    HEADS,
    f32(64, 64),
)
case(
    "hoist_slice_over_matmul",
    lambda x: rows(ops.reduce_mean(ops.softmax(x), axes=(1,), keepdims=False), 5, 6, axis=1),
    f32(2, 32, 64, 64),
)
case(
    "hoist_gather_over_matmul",
    lambda x: ops.gather(ops.matmul(x, num(128, 256)), constant([5, 0]), axis=1),
    WIDE,
)

# ---- activations and constants -------------------------------------------------------------------
TURN = {"perm": (0, 2, 3, 1)}
case("hoist_activation", lambda x: ops.relu(pool(ops.max_pool, conv(x), pad=1)), IMAGE)
case(
    "hoist_activation",
    lambda x: ops.sigmoid(ops.reshape(ops.transpose(conv(x), **TURN), shape=(2, -1))),
    IMAGE,
)
case("hoist_constant", lambda x: ops.mul(pool(ops.max_pool, conv(x)), num(6, 1, 1)), IMAGE)
case("hoist_constant", lambda x: ops.add(ops.transpose(conv(x), **TURN), num(6)), IMAGE)
case("hoist_constant", lambda x: ops.add(ops.reshape(conv(x), shape=(2, 6, 36)), num(6, 1)), IMAGE)
case(
    "hoist_constant",
    lambda x: ops.mul(ops.reduce_mean(conv(x), axes=(2, 3), keepdims=True), scalar(-2)),
    IMAGE,
)
case(
    "hoist_activation_over_concat",
    lambda x: ops.relu(ops.concat(conv(x, 3), conv(x, 2, 5, pad=(2,) * 4), axis=1)),
    IMAGE,
)
case(
    "hoist_constant_over_concat",
    lambda x: ops.mul(ops.concat(conv(x, 3), conv(x, 2, 5, pad=(2,) * 4), axis=1), num(5, 1, 1)),
    IMAGE,
)
case(
    "cancel_reshapes",
    lambda x: ops.reshape(
        ops.add(ops.matmul(ops.reshape(x, shape=(64, 128)), num(128, 8)), num(1, 8)),
        shape=(1, 64, 8),
    ),
    WIDE,
)
case(
    "cancel_reshapes",
    lambda x: ops.reshape(
        ops.layer_norm(ops.reshape(x, shape=(8, 8, 128)), num(128)), shape=(64, 128)
    ),
    WIDE,
)

case(
    "cancel_reshapes",
    lambda x: ops.reshape(
        ops.mul(ops.tanh(ops.reshape(x, shape=(128, 64))), scalar(3)), shape=(1, 64, 128)
    ),
    WIDE,
)
case(
    "merge_reshapes",
    lambda x, y: ops.sub(ops.reshape(x, shape=(5, 2)), ops.reshape(y, shape=(5, 2))),
    f32(2, 5),
    f32(2, 5),
)
case(
    "sink_constant_below_extremum",
    lambda x: ops.reduce_max(ops.mul(ops.sin(x), num(4, 1, 1)), axes=(2, 3), keepdims=False),
    IMAGE,
)
case(
    "sink_constant_below_sum",
    lambda x: ops.reduce_mean(ops.add(ops.sin(x), num(4, 1, 1)), axes=(2, 3), keepdims=True),
    IMAGE,
)
case(
    "sink_constant_below_sum",
    lambda x: ops.reduce_sum(ops.shift_left(x, constant(np.uint32(3))), axes=(1,), keepdims=False),
    Type("u32", (2, 5)),
)

# ---- parallel branches ---------------------------------------------------------------------------
case(
    "hoist_concat", lambda x, y: ops.concat(ops.tanh(x), ops.tanh(y), axis=1), f32(2, 5), f32(2, 3)
)
case(
    "hoist_concat",
    lambda x, y: ops.concat(ops.mul(x, scalar(2)), ops.mul(y, scalar(2)), axis=0),
    f32(2, 5),
    f32(2, 5),
)
case("common_factor", lambda x, y, z: ops.sub(ops.mul(x, y), ops.mul(y, z)), LONG, LONG, LONG)
case(
    "common_factor",
    lambda x, y, w: ops.add(ops.matmul(x, w), ops.matmul(y, w)),
    f32(4, 8),
    f32(4, 8),
    f32(8, 3),
)
case("factor_out_of_power", lambda x: ops.pow(ops.mul(x, scalar(-2)), scalar(3)), f32(2, 5))
case("reciprocal_as_division", lambda x, y: ops.mul(ops.reciprocal(x), y), LONG, LONG)
case(
    "merge_concatenated_products",
    lambda x: ops.concat(ops.relu(conv(x, 3)), ops.relu(conv(x, 5)), x, axis=1),
    IMAGE,
)
case(
    "merge_concatenated_products",
    lambda x: ops.concat(
        ops.add(ops.matmul(x, num(128, 3)), num(3)), ops.matmul(x, num(128, 4)), axis=2
    ),
    WIDE,
)
case(
    "merge_parallel_products",
    lambda x: [
        ops.reshape(ops.sigmoid(conv(x, 1, 1, pad=(0,) * 4)), shape=(1, -1)),
        ops.reshape(ops.sigmoid(conv(x, 4, 1, pad=(0,) * 4, bias=False)), shape=(1, -1)),
    ],
    f32(1, 64, 20, 20),
)
case(
    "merge_parallel_products",
    lambda x: [
        ops.softmax(ops.add(ops.matmul(x, num(1024, 3)), num(3))),
        ops.softmax(ops.matmul(x, num(1024, 4))),
    ],
    LONG,
)
