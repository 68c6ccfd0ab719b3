"""Limits of Sophgo's TPU: lanes with local memory, each holding every n-th channel.

C2 is the number of lanes; all lanes do the same at once. Windows may be dilated, also those of
pooling. All other limits are numbers in the chip file.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """The limits that the chip file's single numbers do not express: none."""
    return None
