"""Limits of Sophgo's TPU: lanes with local memory, each holding every n-th channel.

C2 is the number of lanes; all lanes do the same at once. Windows of BM chips may be dilated, also
those of pooling; npu/chips/cv18xx has the limits of CV18xx. All others are in the chip file.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.npu.chips.cv18xx import limits
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """The limits that the chip file's single numbers do not express."""
    return limits.why_not(node) if chip.file == "cvimodel" else None
