"""Sophgo: lanes with local memory, each of which holds every n-th channel of a feature map.

A channel lies in one lane: C2 is the number of lanes, and all lanes do the same at once. Windows
may have gaps, in pooling too; what else they can do, the numbers in the chip's file say.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """What limits of single numbers do not say: nothing."""
    return None
