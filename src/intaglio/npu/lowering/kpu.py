"""Limits of Canaan's KPU: a convolution unit with a lookup table, working on its own RAM.

The first generation has only the kernels that its chip file lists, with the padding that keeps the
feature map's size. Later generations take windows of any size.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """The limits that the chip file's single numbers do not express."""
    if node.op == "npu.pool" and tuple(node.attrs["dilation"]) != (1, 1):
        return f"dilation is {node.attrs['dilation']}; pooling windows have no dilation"
    if node.op not in ("npu.conv", "npu.depthwise"):
        return None
    if not isinstance(chip.units["conv"].limits.get("kernel"), tuple):
        return None
    w, pad = node.inputs[1], tuple(node.attrs["pad"])
    assert w is not None
    kernel = w.shape[2:]
    if kernel[0] != kernel[1] or pad != (kernel[0] // 2,) * 4:
        size = f"{kernel[0]}x{kernel[1]}"
        return f"pad is {pad}; a {size} kernel has padding {kernel[0] // 2} on all sides"
    if node.attrs["stride"][0] != node.attrs["stride"][1]:
        return f"stride is {node.attrs['stride']}; height and width need the same"
    return None
