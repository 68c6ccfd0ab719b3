"""Window attributes of convolution and pooling: strides, dilations, pads, auto_pad, ceil_mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intaglio.errors import BadInput
from intaglio.frontends.onnx.importer import OnnxNode

Ints = tuple[int, ...]


@dataclass
class Windows:
    """Windows over the spatial axes; `extra` is the end padding that ceil_mode adds."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    pad: Ints
    extra: Ints

    @property
    def attrs(self) -> dict[str, Any]:
        return {"stride": self.stride, "pad": self.pad, "dilation": self.dilation}


def same_pad(total: int, upper: bool) -> tuple[int, int]:
    """Padding of SAME_UPPER or SAME_LOWER; an odd pixel goes to the end for SAME_UPPER."""
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def windows_of(n: OnnxNode, extents: Ints, kernel: Ints) -> Windows:
    """The windows of a node for an input of these spatial extents."""
    rank = len(extents)
    stride = tuple(n.attr("strides", ())) or (1,) * rank
    dilation = tuple(n.attr("dilations", ())) or (1,) * rank
    pads = tuple(n.attr("pads", ())) or (0,) * (2 * rank)
    auto = n.attr("auto_pad", "NOTSET")
    if len(kernel) != rank or len(stride) != rank or len(dilation) != rank:
        raise BadInput(
            f"kernel {kernel}, strides {stride}, dilations {dilation} must have {rank} entries each"
        )
    if len(pads) != 2 * rank:
        raise BadInput(f"pads {pads} must have {2 * rank} entries")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise BadInput(f"auto_pad '{auto}' is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if min(stride) < 1:
        raise BadInput(f"strides {stride} must be above 0")
    begin, end, extra = [], [], []
    for i, extent in enumerate(extents):
        span = dilation[i] * (kernel[i] - 1) + 1
        if auto.startswith("SAME"):
            count = -(-extent // stride[i])
            total = max((count - 1) * stride[i] + span - extent, 0)
            b, e = same_pad(total, auto == "SAME_UPPER")
        else:
            b, e = (0, 0) if auto == "VALID" else (pads[i], pads[rank + i])
        more = 0
        if n.attr("ceil_mode", 0) and not auto.startswith("SAME"):
            count = -(-(extent + b + e - span) // stride[i]) + 1
            if (count - 1) * stride[i] >= extent + b:  # a window must not start in the end padding
                count -= 1
            reach = max((count - 1) * stride[i] + span - extent - b, 0)
            more, e = max(reach - e, 0), reach
        begin.append(b)
        end.append(e)
        extra.append(more)
    return Windows(tuple(kernel), stride, dilation, (*begin, *end), tuple(extra))
