"""What a float model's ops become before it is quantised for an NPU: sums as convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import P, rule

x = P["x"][0]


@rule(P.reduce_sum(x))
def channel_sum_as_conv(node: Node, x: Value) -> Any:
    """Replace a sum over the channels of a feature map by a 1x1 convolution with weights of 1."""
    if x.type.rank != 4 or x.type.dynamic or x.dtype != "f32" or x.data is not None:
        return None
    if tuple(a % 4 for a in node.attrs["axes"]) != (1,):
        return None
    ones = constant(np.ones((1, x.shape[1], 1, 1), np.float32))
    window: dict[str, Any] = {
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": 1,
    }
    y = ops.conv(x, ones, None, **window)
    return ops.reshape(y, shape=node.outputs[0].shape)


BEFORE_QUANTISATION = (channel_sum_as_conv,)
