"""One way to say each thing."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import INF, SHIFT, VECTOR, case, f32, scalar

from intaglio import ops
from intaglio.ir import constant

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
