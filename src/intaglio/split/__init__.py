"""Splits a model between a device and a server, at the one tensor that is sent.

plan = plan_split(graph, Chip("rk3588"), Cpu(), Link(bandwidth=5e6, rtt=20))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.split.cuts import Cut as Cut
    from intaglio.split.cuts import parts as parts
    from intaglio.split.cuts import single_tensor_cuts as single_tensor_cuts
    from intaglio.split.machines import Chip as Chip
    from intaglio.split.machines import Cpu as Cpu
    from intaglio.split.machines import Machine as Machine
    from intaglio.split.parts_folder import write_parts as write_parts
    from intaglio.split.plan import Link as Link
    from intaglio.split.plan import Row as Row
    from intaglio.split.plan import SplitPlan as SplitPlan
    from intaglio.split.plan import plan_split as plan_split

_LAZY = {  # so that `import intaglio` is fast
    "Chip": "intaglio.split.machines",
    "Cpu": "intaglio.split.machines",
    "Cut": "intaglio.split.cuts",
    "Link": "intaglio.split.plan",
    "Machine": "intaglio.split.machines",
    "Row": "intaglio.split.plan",
    "SplitPlan": "intaglio.split.plan",
    "parts": "intaglio.split.cuts",
    "plan_split": "intaglio.split.plan",
    "single_tensor_cuts": "intaglio.split.cuts",
    "write_parts": "intaglio.split.parts_folder",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio.split' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
