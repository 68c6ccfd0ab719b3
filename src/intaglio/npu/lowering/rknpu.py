"""Rockchip: a convolution core whose sums go through bias, scale, residual and table in one go.

The core reads feature maps in blocks of C2 channels and keeps weights in the same banks; pooling,
element-wise work and copies are units behind it, each with limits of its own in the chip's file.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """What limits of single numbers do not say."""
    if node.op == "npu.pool" and tuple(node.attrs["dilation"]) != (1, 1):
        return f"dilation is {node.attrs['dilation']}; pooling windows have no gaps"
    return None
