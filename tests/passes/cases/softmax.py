"""Cases: softmax, log-softmax, hardmax, L1 and L2 norms, and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import IMAGE, VECTOR, case, scalar

from intaglio import ops
from intaglio.ir import Value, constant

AXIS = {"axes": (1,), "keepdims": True}


def shifted(x: Value) -> Value:
    made: Value = ops.sub(x, ops.reduce_max(x, **AXIS))
    return made


def softmax(x: Value) -> Value:
    e = ops.exp(x)
    made: Value = ops.div(e, ops.reduce_sum(e, **AXIS))
    return made


def by_reciprocal(x: Value) -> Value:
    e = ops.exp(x)
    made: Value = ops.mul(e, ops.reciprocal(ops.reduce_sum(e, **AXIS)))
    return made


def log_sum(x: Value) -> Value:
    made: Value = ops.log(ops.reduce_sum(ops.exp(x), **AXIS))
    return made


def log_softmax(x: Value) -> Value:
    made: Value = ops.sub(x, log_sum(x))
    return made


def log_sum_exp(x: Value) -> Value:
    top = ops.reduce_max(x, **AXIS)
    made: Value = ops.add(log_sum(ops.sub(x, top)), top)
    return made


case("softmax", lambda x: softmax(shifted(x)), IMAGE)
case("softmax", softmax, VECTOR)
case("softmax", lambda x: by_reciprocal(shifted(x)), VECTOR)
case("log_of_softmax", lambda x: ops.log(ops.softmax(x, axis=1)), IMAGE)
case("log_softmax", lambda x: log_softmax(shifted(x)), VECTOR)
case("log_softmax", log_softmax, VECTOR)
case("log_softmax_of_log_sum_exp", lambda x: ops.sub(x, ops.reduce_log_sum_exp(x, **AXIS)), VECTOR)
case("log_sum_exp", log_sum_exp, VECTOR)

# ---- hardmax -------------------------------------------------------------------------------------
TOP = {"axis": 1, "keepdims": False}
OFF_ON = np.array([0, 1])


def one_hot(x: Value, dtype: Any) -> Value:
    made: Value = ops.one_hot(ops.argmax(x, **TOP), OFF_ON.astype(dtype), depth=5, axis=-1)
    return made


case("hardmax_of_one_hot", lambda x: one_hot(x, np.float32), VECTOR)
case("hardmax_of_one_hot", lambda x: one_hot(x, np.int64), VECTOR)
case("hardmax_of_one_hot", lambda x: ops.cast(one_hot(x, np.int64), dtype="f32"), VECTOR)
COUNT = constant(np.arange(5))
case(
    "hardmax_of_equal",
    lambda x: ops.cast(ops.equal(ops.argmax(x, axis=1, keepdims=True), COUNT), dtype="f32"),
    VECTOR,
)
FLAT = lambda x: ops.reshape(ops.argmax(x, **TOP), shape=(2, 1))  # noqa: E731
case("hardmax_of_equal", lambda x: ops.cast(ops.equal(COUNT, FLAT(x)), dtype="i64"), VECTOR)

# ---- norms as sums -------------------------------------------------------------------------------
case("l2_of_sum", lambda x: ops.sqrt(ops.reduce_sum(ops.mul(x, x), **AXIS)), VECTOR)
case(
    "l2_of_sum",
    lambda x: ops.sqrt(ops.reduce_sum(ops.pow(x, scalar(2)), axes=(0,), keepdims=False)),
    VECTOR,
)
case("l1_of_sum", lambda x: ops.reduce_sum(ops.abs(x), **AXIS), VECTOR)

# ---- whole images --------------------------------------------------------------------------------
MEAN = ops.reduce_mean
for keep, then in ((True, (2,)), (False, (2,)), (False, (0, 2))):
    case(
        "reduce_of_reduce",
        lambda x, k=keep, t=then: MEAN(MEAN(x, axes=(3,), keepdims=k), axes=t, keepdims=k),
        IMAGE,
    )
case(
    "reduce_of_reshape",
    lambda x: MEAN(ops.reshape(x, shape=(2, 4, 36)), axes=(2,), keepdims=False),
    IMAGE,
)
case(
    "reduce_of_reshape",
    lambda x: ops.reduce_max(ops.reshape(x, shape=(8, 6, 6)), axes=(1, 2), keepdims=True),
    IMAGE,
)
WHOLE = {"kernel": (6, 6), "stride": (6, 6), "pad": (0,) * 4, "dilation": (1, 1)}
case("global_pool", lambda x: ops.avg_pool(x, **WHOLE), IMAGE)
case("global_pool", lambda x: ops.max_pool(x, **WHOLE), IMAGE)
