"""What the register commands of Rockchip's NPU cannot say: a reason for each NPU node."""

from __future__ import annotations

from intaglio.errors import BadInput
from intaglio.ir import Node
from intaglio.npu.chips.rockchip import geometry, means
from intaglio.npu.chips.rockchip.arithmetic import of_bounds, of_convolution, of_pair
from intaglio.npu.chips.rockchip.geometry import RK3588, Convolution, Design
from intaglio.npu.chips.rockchip.scaling import mantissa
from intaglio.npu.chips.rockchip.wide_weights import source, window
from intaglio.ops.quantized import BITS8

MOST_EXTENT, MOST_CHANNELS = 8192, 8192  # of a map of the DPU or PPU
MOST_POOL, MOST_POOL_STRIDE, MOST_POOL_PAD = 16, 16, 7
MOST_FACTOR = 8  # of a resize
MOVES = ("npu.concat", "npu.slice")


def why_not(node: Node, design: Design = RK3588) -> str | None:
    """Why the NPU does not compute a node as it is; None if it does."""
    if node.op == "npu.program":
        return None
    y = node.outputs[0]
    if y.dtype not in BITS8:
        return f"its result is {y.dtype}; results are bytes"
    if y.shape[0] != 1:
        return f"it makes {y.shape[0]} maps; a task makes one: compile with batch 1"
    if max(y.shape[2:]) > MOST_EXTENT or y.shape[1] > MOST_CHANNELS:
        return f"{y.type} is larger than {MOST_CHANNELS} channels of {MOST_EXTENT} x {MOST_EXTENT}"
    rules = {
        "npu.conv": _product,
        "npu.depthwise": _product,
        "npu.pool": _pool,
        "npu.eltwise": _pair,
        "npu.lut": _table,
        "npu.resize": _resize,
    }
    if node.op in MOVES:
        return None
    if node.op == "npu.depth_to_space":
        return geometry.why_not(interleaving(node, design))
    if node.op not in rules:
        return f"no command does {node.op}"
    try:
        return rules[node.op](node, design)
    except BadInput as e:
        return str(e)


def geometry_of(node: Node, design: Design, blocks: bool = True) -> Convolution:
    """The sizes of a convolution; `blocks`: its input lies in blocks of channels."""
    x, w = source(node), node.inputs[1]
    assert w is not None
    how = window(node)
    kernel = (w.shape[2], w.shape[3])
    if node.op == "npu.depthwise" and x is not node.inputs[0]:
        kernel = (w.shape[2], w.shape[3] // 2)
    return Convolution(
        x.shape[1],
        x.shape[2],
        x.shape[3],
        w.shape[0],
        kernel,
        how["stride"],  # type: ignore[arg-type]
        how["pad"],  # type: ignore[arg-type]
        how["dilation"],  # type: ignore[arg-type]
        depthwise=node.op == "npu.depthwise",
        blocks=blocks,
        design=design,
    )


def _product(node: Node, design: Design) -> str | None:
    if node.inputs[4] is not None and node.inputs[5] is not None:
        return "it adds a map and ends in a table; one of them is a layer of its own"
    if node.inputs[4] is not None and node.op == "npu.depthwise":
        return "it adds a map; a depthwise convolution reads one map only"
    of_convolution(node)
    conv = geometry_of(node, design)
    if conv.pads[2] >= conv.reach[0] + conv.strides[0] or conv.pads[3] > 15:
        return f"padding is {conv.pads}; the unit pads up to the window's size"
    return geometry.why_not(conv)


def _pool(node: Node, design: Design) -> str | None:
    a = node.attrs
    if tuple(a["dilation"]) != (1, 1):
        return f"dilation is {a['dilation']}; pooling windows have no dilation"
    if a["kind"] == "max":
        if max(a["kernel"]) > MOST_POOL or max(a["stride"]) > MOST_POOL_STRIDE:
            return f"windows are {a['kernel']}, {a['stride']} apart; both are at most {MOST_POOL}"
        if max(a["pad"]) > MOST_POOL_PAD:
            return f"padding is {a['pad']}; the unit pads {MOST_POOL_PAD} pixels"
        if any(p >= a["kernel"][i % 2] for i, p in enumerate(a["pad"])):
            return f"padding is {a['pad']}; every window needs a pixel of the map"
        if (a["low"], a["high"]) not in ((-128, 127), (0, 255)):
            return f"results are clamped to {a['low']} .. {a['high']}; a table does that"
        return None
    partial = means.factors_of_windows(node)
    factor = means.mean_factor(node)
    mantissa(factor)
    of_bounds(node, *mantissa(factor if partial is None else partial.unit))
    return geometry.why_not(means.mean_geometry(node, design))


def interleaving(node: Node, design: Design = RK3588) -> Convolution:
    """The transposed convolution of ones and zeros that makes pixels of the phases of channels.

    Phase p is the tap that lies p before the last one; padding or more taps crop the result.
    """
    x, a = node.inputs[0], node.attrs
    assert x is not None
    block = a["blocksize"]
    kernel = tuple(max(block, first + 1) for first in a["first"])
    starts = [k - 1 - first for k, first in zip(kernel, a["first"], strict=True)]
    ends = [
        size - 1 + k - start - ((extent - 1) * block + 1)
        for size, k, start, extent in zip(a["shape"], kernel, starts, x.shape[2:], strict=True)
    ]
    _, channels, height, width = x.shape
    pads = (*starts, *ends)
    sizes = channels, height, width, a["channels"]
    return Convolution(*sizes, kernel, pads=pads, blocks=True, apart=(block, block), design=design)


def _pair(node: Node, _: Design) -> str | None:
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    if node.inputs[2] is not None:
        return "it ends in a table; tables are layers of their own"
    if b.shape != a.shape and b.shape != (*a.shape[:2], 1, 1):
        return f"{b.type} broadcasts to {a.type}; one pixel or equal shapes are read"
    of_pair(node)
    return None


def _table(node: Node, _: Design) -> str | None:
    x, table = node.inputs
    assert x is not None
    assert table is not None
    if x.dtype not in BITS8:
        return "tables map bytes"
    return None


def _resize(node: Node, _: Design) -> str | None:
    if max(node.attrs["factor"]) > MOST_FACTOR:
        return f"it repeats pixels {node.attrs['factor']} times; at most {MOST_FACTOR} are written"
    return None
