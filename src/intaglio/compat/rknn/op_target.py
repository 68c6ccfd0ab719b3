"""`op_target`: layers that a quantised model computes in floats, as the CPU would.

Users move layers to the CPU because int8 costs accuracy there. The cost model places the floats: on
an NPU that multiplies float16, products stay there.
"""

from __future__ import annotations

import re

from intaglio.compat.rknn.config import Config
from intaglio.ops.registry import REGISTRY, named
from intaglio.quant import Scheme
from intaglio.quant.placement.scheme import Override

CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def scheme(config: Config) -> Scheme | None:
    """The layers with the target cpu, by name or type, as a scheme; None if there are none."""
    wanted = [key for key, target in (config.op_target or {}).items() if target == "cpu"]
    return Scheme(rules=[_rule(key) for key in wanted], source="op_target") if wanted else None


def _rule(key: str) -> Override:
    """A key is the name of an output, or a type of operator of ONNX such as Softmax."""
    if found := named("onnx").get(key):
        return Override("f32", op=found.name)
    if key[:1].isupper() and key.isalpha():
        for name in (key.lower(), CAPITAL.sub("_", key).lower()):
            if name in REGISTRY:
                return Override("f32", op=name)
    return Override("f32", tensor=key)
