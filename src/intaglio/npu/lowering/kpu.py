"""Canaan: a convolution unit with a table at its end, that works on whole images in its own RAM.

The first generation knows two kernels and no others; the chip's file lists them, and then pads are
those that keep the image's size. Later ones take windows of any size.
"""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.targets.chip import Chip


def why_not(chip: Chip, node: Node) -> str | None:
    """What limits of single numbers do not say."""
    if node.op == "npu.pool" and tuple(node.attrs["dilation"]) != (1, 1):
        return f"dilation is {node.attrs['dilation']}; pooling windows have no gaps"
    if node.op not in ("npu.conv", "npu.depthwise"):
        return None
    if not isinstance(chip.units["conv"].limits.get("kernel"), tuple):
        return None
    w, pad = node.inputs[1], tuple(node.attrs["pad"])
    assert w is not None
    kernel = w.shape[2:]
    if kernel[0] != kernel[1] or pad != (kernel[0] // 2,) * 4:
        return (
            f"pad is {pad}; a kernel of {kernel[0]}x{kernel[1]} pads {kernel[0] // 2} on all sides"
        )
    if node.attrs["stride"][0] != node.attrs["stride"][1]:
        return f"stride is {node.attrs['stride']}; it is the same both ways"
    return None
