"""A binary layer: a step, and weights of one size."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import case, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant


def binary(x: Value) -> Value:
    table = np.where(np.arange(256).astype(np.uint8).view(np.int8) > -7, 127, -128)
    signs = ops.lookup(x, constant(table.astype(np.int8)))
    w = np.where(np.random.default_rng(3).random((5, 32, 3, 3)) < 0.5, -127, 127).astype(np.int8)
    made: Value = ops.qlinear_conv(
        signs,
        scalar(2 / 255),
        constant(np.int8(-1)),
        constant(w),
        constant(np.full(5, 0.001, np.float32)),
        constant(np.zeros(5, np.int8)),
        scalar(0.05),
        constant(np.int8(5)),
        constant(np.arange(5, dtype=np.int32)),
        stride=(1, 1),
        pad=(1,) * 4,
        dilation=(1, 1),
    )
    return made


case("signs_as_bits", binary, Type("i8", (1, 32, 7, 7)))
