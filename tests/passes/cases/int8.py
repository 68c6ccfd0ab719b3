"""Quantised convolutions and products on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import RNG, case, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant

BYTES = Type("u8", (1, 6, 7, 7))


def one(zero: int, dtype: str) -> Value:
    return constant(zero, dtype=dtype)


def weights(*shape: int) -> Value:
    return constant(RNG.integers(-90, 90, shape), dtype="i8")


def conv(x: Value, m: int = 5, k: int = 3, groups: int = 1, **attrs: Any) -> Value:
    w, b = weights(m, x.shape[1] // groups, k, k), constant(np.arange(m, dtype=np.int32))
    given = {"stride": (1, 1), "pad": (k // 2,) * 4, "dilation": (1, 1), **attrs}
    made: Value = ops.qlinear_conv(
        x, scalar(0.02), one(9, x.dtype), w, constant(np.full(m, 0.01, np.float32)),
        constant(np.zeros(m, np.int8)), scalar(0.05), one(100, "u8"), b, groups=groups, **given,
    )  # fmt: skip
    return made


case("qlinear_conv_packed", conv, BYTES)
case("qlinear_conv_packed", lambda x: conv(x, 6, groups=6, stride=(2, 2)), BYTES)
case("qlinear_conv_packed", lambda x: conv(x, 4, groups=2), Type("i8", (1, 6, 7, 7)))
case("qlinear_matmul_packed",
     lambda a: ops.qlinear_matmul(a, scalar(0.02), one(9, "u8"), weights(6, 5), scalar(0.01),
                                  one(0, "i8"), scalar(0.05), one(100, "u8")),
     Type("u8", (2, 6)))  # fmt: skip
case("qlinear_avg_pool_channels_last",
     lambda x: ops.qlinear_avg_pool(x, scalar(0.02), one(9, "u8"), scalar(0.05), one(3, "i8"),
                                    kernel=(3, 3), stride=(2, 2), pad=(1,) * 4, dilation=(1, 1)),
     BYTES)  # fmt: skip
