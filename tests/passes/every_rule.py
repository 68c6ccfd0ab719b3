"""All rules of the pipeline, the CPU and the library of replacements, by name."""

from __future__ import annotations

from intaglio import passes, targets
from intaglio.passes.legalize import lowering
from intaglio.rewrite import Rule
from intaglio.targets.cpu.attention import BF16_ATTENTION
from intaglio.targets.cpu.bf16 import BF16
from intaglio.targets.cpu.dynamic_quantize import DYNAMIC_CONVOLUTIONS
from intaglio.targets.cpu.f16 import F16
from intaglio.targets.cpu.qlinear import PIECEWISE_TABLES
from intaglio.targets.cpu.winograd_choice import conv_as_winograd_or_bf16
from intaglio.targets.replace import REPLACE

CPU = targets.find("cpu", "scalar")


def _every() -> list[Rule]:
    pipeline = [*passes.neutral(), *passes.lowering(CPU)]
    found = [r for p in pipeline if isinstance(p.run, passes.Rules) for r in p.run.every]
    return list(
        dict.fromkeys(
            [
                *found,
                *CPU.lower,
                *lowering(CPU),
                *REPLACE,
                *BF16,
                *F16,
                conv_as_winograd_or_bf16,
                *BF16_ATTENTION,
                *PIECEWISE_TABLES,
                *DYNAMIC_CONVOLUTIONS,
            ]
        )
    )


RULES: dict[str, list[Rule]] = {}
for _rule in _every():
    RULES.setdefault(_rule.name, []).append(_rule)
