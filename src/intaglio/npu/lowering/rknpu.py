"""Limits of Rockchip's RKNPU: a convolution core with bias, scale, residual and table in one pass.

The core reads feature maps in blocks of C2 channels and keeps weights in the same memory banks.
Pooling, element-wise ops and copies have units of their own, with limits in the chip file.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """The limits that the chip file's single numbers do not express."""
    if node.op == "npu.pool" and tuple(node.attrs["dilation"]) != (1, 1):
        return f"dilation is {node.attrs['dilation']}; pooling windows have no dilation"
    return None
