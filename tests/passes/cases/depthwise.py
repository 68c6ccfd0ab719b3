"""Cases: fusions into int8 depthwise convolutions."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import RNG, case

from intaglio import ops
from intaglio.ir import Type, Value, constant
from intaglio.targets.cpu.depthwise_packing import tap_packing
from intaglio.targets.cpu.qdepthwise import qdepthwise

LAST = Type("u8", (1, 7, 7, 20))


def depthwise(x: Value, dtype: str = "u8") -> Value:
    window = {"stride": (1, 1), "dilation": (1, 1)}
    w = RNG.integers(-90, 90, (3, 3, 20)).astype(np.int8)
    packed = tap_packing((3, 3), window["stride"], window["dilation"]).packed(w)
    scale = RNG.uniform(0.001, 0.004, 20).astype(np.float32)
    low = -128 if dtype == "i8" else 0
    made: Value = qdepthwise(
        x,
        constant(packed),
        constant(np.arange(20, dtype=np.int32)),
        constant(scale),
        kernel=(3, 3),
        pad=(1,) * 4,
        x_zero=7,
        y_zero=low + 50,
        lo=low,
        hi=low + 255,
        dtype=dtype,
        **window,
    )
    return made


case("clip_into_qdepthwise", lambda x: ops.clip(depthwise(x), lo=20.0, hi=190.0), LAST)
case("clip_into_qdepthwise", lambda x: ops.clip(depthwise(x, "i8"), lo=-78.0, hi=999.0), LAST)
for kind in ("u8", "i8"):
    case(
        "table_into_qdepthwise",
        lambda x, kind=kind: ops.lookup(
            depthwise(x, kind), constant(RNG.integers(0, 100, 256), dtype="i8")
        ),
        LAST,
    )
