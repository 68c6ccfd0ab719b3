"""Cases: norms over channels, group norms, instance norms, L2 normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import IMAGE, VECTOR, case, f32, num, scalar

from intaglio import ops
from intaglio.ir import Value

CHANNELS = {"axes": (1,), "keepdims": True}
WHOLE = f32(2, 6, 3, 5)


def centred(x: Value, **over: Any) -> Value:
    made: Value = ops.sub(x, ops.reduce_mean(x, **over))
    return made


def root(x: Value, **over: Any) -> Value:
    mean = ops.reduce_mean(ops.mul(x, x), **over)
    made: Value = ops.sqrt(ops.add(mean, scalar(1e-3)))
    return made


def layer_norm(x: Value, **over: Any) -> Value:
    d = centred(x, **over)
    made: Value = ops.div(d, root(d, **over))
    return made


def by_reciprocal(x: Value) -> Value:
    d = centred(x, **CHANNELS)
    made: Value = ops.mul(d, ops.div(scalar(1), root(d, **CHANNELS)))
    return made


def moved(x: Value, *affine: Value, norm: Any = ops.layer_norm) -> Value:
    last = ops.transpose(x, perm=(0, 2, 3, 1))
    made: Value = ops.transpose(norm(last, *affine, axis=3), perm=(0, 3, 1, 2))
    return made


case("norm_over_channels", lambda x: layer_norm(x, **CHANNELS), IMAGE)
case("norm_over_channels", by_reciprocal, IMAGE)
case("norm_over_channels", lambda x: ops.div(x, root(x, axes=(1, 2), keepdims=True)), IMAGE)
case("norm_of_reciprocal", lambda x: ops.mul(x, ops.div(scalar(1), root(x, **CHANNELS))), VECTOR)
case("scale_into_transposed_norm", lambda x: ops.mul(moved(x), num(4, 1, 1)), IMAGE)
case(
    "scale_into_transposed_norm",
    lambda x: ops.mul(num(1, 4, 1, 1), moved(x, norm=ops.rms_norm)),
    IMAGE,
)
case("shift_into_transposed_norm", lambda x: ops.add(moved(x, num(4)), num(4, 1, 1)), IMAGE)

# ---- groups of channels --------------------------------------------------------------------------
FLAT = lambda x: ops.reshape(x, shape=(2, 3, -1))  # noqa: E731
BACK = lambda x: ops.reshape(x, shape=WHOLE.shape)  # noqa: E731
case(
    "group_norm_of_instance_norm", lambda x: BACK(ops.instance_norm(FLAT(x), num(3), num(3))), WHOLE
)
case("group_norm_of_layer_norm", lambda x: BACK(ops.layer_norm(FLAT(x), axis=2)), WHOLE)
case(
    "group_norm_of_layer_norm",
    lambda x: BACK(ops.layer_norm(ops.reshape(x, shape=(2, 3, 2, 3, 5)), axis=2)),
    WHOLE,
)
case(
    "group_norm_of_layer_norm",
    lambda x: BACK(ops.layer_norm(ops.reshape(x, shape=(12, 15)), axis=-1)),
    WHOLE,
)
case("instance_norm", lambda x: ops.mul(ops.layer_norm(x, axis=2), num(4, 1, 1)), IMAGE)
NORMS = (
    lambda x: ops.group_norm(x, num(4), num(4), groups=2),
    lambda x: ops.instance_norm(x, num(4), num(4)),
)
for norm in NORMS:
    case("scale_into_group_norm", lambda x, f=norm: ops.mul(f(x), num(4, 1, 1)), IMAGE)
    case("shift_into_group_norm", lambda x, f=norm: ops.add(num(1, 4, 1, 1), f(x)), IMAGE)

# ---- L2 normalisation ----------------------------------------------------------------------------
for axes in ((1,), (3,)):
    case(
        "l2_normalize",
        lambda x, a=axes: ops.div(x, ops.clip(ops.reduce_l2(x, axes=a), lo=1e-12)),
        IMAGE,
    )
for over, squared in (((1,), np.float32(2)), ((2, 3), None)):
    case(
        "l2_normalize_as_rms_norm",
        lambda x, o=over, p=squared: ops.div(
            x,
            ops.sqrt(
                ops.add(
                    ops.reduce_sum(ops.mul(x, x) if p is None else ops.pow(x, p), axes=o),
                    scalar(1e-4),
                )
            ),
        ),
        IMAGE,
    )
