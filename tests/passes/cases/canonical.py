"""Cases: canonical forms."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import IMAGE, INF, SHIFT, VECTOR, case, f32, num, pool, scalar

from intaglio import ops
from intaglio.ir import Type, constant

case("identity_reshape", lambda x: ops.reshape(ops.relu(x), shape=(2, -1)), VECTOR)
case("reshape_of_reshape", lambda x: ops.reshape(ops.reshape(x, shape=(10,)), shape=(5, 2)), VECTOR)
case("transpose_as_reshape", lambda x: ops.transpose(x, perm=(0, 2, 1)), f32(3, 1, 4))
case("transpose_as_reshape", lambda x: ops.relu(ops.transpose(x, perm=(0, 1))), VECTOR)
TURN = {"perm": (2, 0, 1)}
case(
    "transpose_of_transpose",
    lambda x: ops.transpose(ops.transpose(x, **TURN), **TURN),
    f32(2, 3, 4),
)
case("identity_expand", lambda x: ops.expand(ops.relu(x), shape=(1, 5)), VECTOR)
case("redundant_expand", lambda x, y: ops.sub(ops.expand(y, shape=(2, 5)), x), VECTOR, f32(5))
case("redundant_expand", lambda x, y: ops.sub(x, ops.expand(y, shape=(2, 5))), VECTOR, f32(5))
WHOLE = {"start": (0, -5), "stop": (2**62, 5), "step": (1, 1)}
case("identity_slice", lambda x: ops.slice_(ops.relu(x), **WHOLE), VECTOR)
case("identity_pad", lambda x: ops.pad(ops.relu(x), before=(0, 0), after=(0, 0)), VECTOR)
case("identity_tile", lambda x: ops.tile(ops.relu(x), repeats=(1, 1)), VECTOR)
case("identity_reduce", lambda x: ops.reduce_mean(x, axes=(1,), keepdims=False), f32(3, 1, 2))
case("simplify_concat", lambda x: ops.relu(ops.concat(x, axis=1)), VECTOR)
case(
    "simplify_concat", lambda x, y: ops.concat(x, ops.concat(y, x, axis=-1), axis=1), VECTOR, VECTOR
)
case("simplify_concat", lambda x, y: ops.concat(x, y, x, axis=1), VECTOR, f32(2, 0))
case("gather_as_slice", lambda x: ops.gather(x, constant([-3, -2]), axis=1), f32(2, 5, 3))
case("gather_as_slice", lambda x: ops.gather(x, constant(np.int64(1)), axis=0), VECTOR)
case("where_of_constant", lambda x, y: ops.where(x, y, constant(np.array([True]))), f32(5), VECTOR)
case("where_of_constant", lambda x, y: ops.where(x, y, constant(np.array([False]))), f32(5), VECTOR)
case("identity_cast", lambda x: ops.cast(ops.relu(x), dtype="f32"), VECTOR)
case("cast_of_cast", lambda x: ops.cast(ops.cast(x, dtype="f64"), dtype="i32"), VECTOR)
case("clip_of_clip", lambda x: ops.clip(ops.clip(x, lo=-1.0, hi=0.5), lo=-0.5, hi=INF), VECTOR)
case("clip_of_relu", lambda x: ops.clip(ops.relu(x), lo=-1.0, hi=0.5), VECTOR)
case("relu_of_clip", lambda x: ops.relu(ops.clip(x, lo=-1.0, hi=0.5)), VECTOR)
case("extremum_as_clip", lambda x: ops.minimum(scalar(0.3), x), VECTOR)
case("extremum_as_clip", lambda x: ops.maximum(x, scalar(0.3)), VECTOR)
case("clip_as_relu", lambda x: ops.clip(x, lo=0.0, hi=INF), VECTOR)
case("clip_as_relu", lambda x: ops.sigmoid(ops.clip(x, lo=-INF, hi=INF)), VECTOR)
case("constant_on_right", lambda x: ops.add(SHIFT, x), VECTOR)
for op, number in (("mul", 1), ("add", 0), ("sub", 0), ("div", 1), ("pow", 1)):
    case(
        "identity_operand",
        lambda x, op=op, n=number: ops.REGISTRY[op](ops.relu(x), scalar(n)),
        VECTOR,
    )
case("identity_operand", lambda x: ops.add(x, constant(np.zeros(5, np.float32))), VECTOR)


# ---- identities ----------------------------------------------------------------------------------
ONE = {"kernel": (1, 1), "stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
case("identity_pool", lambda x: ops.avg_pool(ops.relu(x), **ONE), IMAGE)
case("identity_pool", lambda x: ops.max_pool(ops.relu(x), **ONE), IMAGE)
case(
    "identity_resize",
    lambda x: ops.resize(ops.relu(x), axes=(2, 3), shape=(6, 6), scales=(1.0, 1.0), mode="linear"),
    IMAGE,
)
BOOLS = Type("bool", (2, 5))
INTS = Type("i32", (2, 5))
case("where_of_same", lambda x, b: ops.where(x, x, b), f32(5), BOOLS)
case("identity_operand", lambda x: ops.logical_and(ops.logical_not(x), constant(True)), BOOLS)
case("redundant_clamp", lambda x: ops.relu(pool(ops.max_pool, ops.relu(x))), IMAGE)
case("redundant_clamp", lambda x: ops.abs(ops.sigmoid(x)), VECTOR)
case(
    "redundant_clamp",
    lambda x, y: ops.clip(
        ops.concat(ops.clip(x, lo=0.0, hi=1.0), ops.clip(y, lo=0.5, hi=2.0), axis=1), lo=0.0, hi=2.0
    ),
    VECTOR,
    VECTOR,
)

# ---- data movement -------------------------------------------------------------------------------
case(
    "expand_of_expand",
    lambda x: ops.expand(ops.expand(x, shape=(2, 5)), shape=(3, 2, 5)),
    f32(1, 5),
)
case("tile_as_expand", lambda x: ops.tile(x, repeats=(4, 1)), f32(1, 5))
case("redundant_expand", lambda x, y: ops.add(x, ops.reshape(y, shape=(1, 5))), VECTOR, f32(5))
LAST = {"axes": (2, 3)}
case(
    "reshape_into_reduction",
    lambda x: ops.reshape(ops.reduce_mean(x, **LAST, keepdims=True), shape=(2, 4)),
    IMAGE,
)
case(
    "reshape_into_reduction",
    lambda x: ops.reshape(ops.argmax(x, axis=1, keepdims=False), shape=(2, 1, 6, 6)),
    IMAGE,
)
case(
    "extremum_of_expand",
    lambda x: ops.reduce_max(ops.expand(x, shape=(2, 5, 7)), axes=(1, 2), keepdims=False),
    f32(2, 5, 1),
)
case(
    "extremum_of_extremum",
    lambda x: ops.reduce_max(
        ops.reduce_max(x, axes=(1,), keepdims=False), axes=(1,), keepdims=False
    ),
    IMAGE,
)


def cut(x, *bounds):
    start, stop, step = zip(*bounds, strict=True)
    return ops.slice_(x, start=start, stop=stop, step=step)


ALL = (0, 2**62, 1)
case("slice_of_slice", lambda x: cut(cut(x, ALL, (1, 9, 2)), ALL, (1, 3, 1)), f32(2, 10))
case(
    "slice_of_slice", lambda x: cut(cut(x, ALL, (-1, -(2**62), -1)), ALL, (4, -20, -2)), f32(2, 10)
)
HALVES = lambda x: ops.reshape(x, shape=(2, 3, 2, 7))  # noqa: E731
case(
    "slice_of_reshape",
    lambda x: ops.reshape(ops.part(HALVES(x), 1, 2, axis=2), shape=(2, 3, 7)),
    f32(2, 6, 7),
)
case(
    "slice_of_reshape",
    lambda x: ops.reshape(ops.part(HALVES(x), 1, 3, axis=1), shape=(2, 4, 7)),
    f32(2, 6, 7),
)
JOINED = lambda x, y: ops.concat(x, y, x, axis=1)  # noqa: E731
case("slice_of_concat", lambda x, y: cut(JOINED(x, y), ALL, (6, 9, 1)), VECTOR, VECTOR)
case("slice_of_concat", lambda x, y: cut(JOINED(x, y), (0, 1, 1), (2, 10, 1)), VECTOR, VECTOR)
BORDER = {"before": (0, 2), "after": (0, 1)}
case("slice_of_pad", lambda x: cut(ops.pad(x, **BORDER), ALL, (1, 4, 1)), VECTOR)
case("slice_of_pad", lambda x: cut(ops.pad(x, **BORDER, mode="edge"), ALL, (2, 5, 1)), VECTOR)
case("pad_of_pad", lambda x: ops.pad(ops.pad(x, **BORDER), **BORDER), VECTOR)
case(
    "simplify_concat",
    lambda x: ops.concat(cut(x, ALL, (0, 2, 1)), cut(x, ALL, (2, 5, 1)), axis=1),
    VECTOR,
)
case("simplify_concat", lambda x: ops.concat(x, num(2, 1), num(2, 3), axis=1), VECTOR)
case("gather_as_slice", lambda x: ops.gather(x, constant([0, 2, 4]), axis=1), VECTOR)
case(
    "gather_of_gather",
    lambda x: ops.gather(
        ops.gather(x, constant([4, 0, 2]), axis=1), constant([[2, 0], [1, -1]]), axis=1
    ),
    VECTOR,
)
case(
    "slice_of_shape",
    lambda x: ops.slice_(ops.shape_of(ops.nonzero(x)), start=(0,), stop=(1,), step=(1,)),
    VECTOR,
)

# ---- arithmetic ----------------------------------------------------------------------------------
case("cast_of_cast", lambda x: ops.cast(ops.cast(x, dtype="i16"), dtype="u8"), INTS)
GRID = (constant(np.float32(0.1)), constant(np.int8(3)))
case(
    "quantize_of_dequantize",
    lambda x: ops.quantize_linear(ops.dequantize_linear(x, *GRID), *GRID, dtype="i8"),
    Type("i8", (2, 5)),
)
EACH = (constant(np.linspace(0.1, 0.9, 5, dtype=np.float32)),)
case(
    "quantize_of_dequantize",
    lambda x: ops.quantize_linear(ops.dequantize_linear(x, *EACH), *EACH, dtype="u8"),
    Type("u8", (2, 5)),
)
case("double_negation", lambda x: ops.relu(ops.neg(ops.neg(x))), VECTOR)
case("double_negation", lambda x: ops.cast(ops.logical_not(ops.logical_not(x)), dtype="f32"), BOOLS)
case("round_of_round", lambda x: ops.round(ops.floor(x)), VECTOR)
case("abs_of_negation", lambda x: ops.abs(ops.neg(x)), VECTOR)
case("negation_into_sum", lambda x, y: ops.add(ops.neg(x), y), VECTOR, VECTOR)
case("negation_into_sum", lambda x, y: ops.sub(x, ops.neg(y)), VECTOR, VECTOR)
case("negations_cancel", lambda x, y: ops.div(ops.neg(x), ops.neg(y)), VECTOR, VECTOR)
case("negation_into_constant", lambda x: ops.mul(ops.neg(x), num(5)), VECTOR)
case("where_not", lambda x, y, b: ops.where(x, y, ops.logical_not(b)), VECTOR, VECTOR, BOOLS)
case("not_of_comparison", lambda x, y: ops.logical_not(ops.less(x, y)), INTS, INTS)
case("quotient_as_reciprocal", lambda x: ops.div(scalar(1), x), VECTOR)
case("combine_constants_exactly", lambda x: ops.maximum(ops.maximum(x, num(5)), num(2, 5)), VECTOR)
case(
    "combine_constants_exactly",
    lambda x: ops.add(ops.add(x, constant(np.int32(3))), constant(np.int32(4))),
    INTS,
)
case("prelu_as_leaky_relu", lambda x: ops.prelu(x, num(1, 1)), VECTOR)
