"""Cases: constant folding."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import VECTOR, case, num, scalar

from intaglio import ops
from intaglio.ir import constant

case("fold_constants", lambda x: ops.add(x, ops.exp(num(5))), VECTOR)
case("constant_shape", lambda x: ops.shape_of(ops.relu(x)), VECTOR)
case(
    "fold_weights",
    lambda x: ops.mul(
        x, ops.dequantize_linear(constant(np.arange(5, dtype=np.int8)), scalar(0.75))
    ),
    VECTOR,
)
