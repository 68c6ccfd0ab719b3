"""From a quantised graph to the layers of Rockchip's NPU, and their meaning.

Rules that all NPUs share make the layers. Bytes are signed: a map of u8 is stored with 128 less.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np

from intaglio import ops as neutral
from intaglio import passes
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.chips.file_part import Port, Reals, file_part
from intaglio.npu.chips.rockchip import limits, means, ops
from intaglio.npu.chips.rockchip.arithmetic import (
    Bounds,
    Product,
    of_bounds,
    of_convolution,
    of_pair,
)
from intaglio.npu.chips.rockchip.geometry import DESIGNS, RK3588, Design
from intaglio.npu.chips.rockchip.scaling import CHANNEL_BITS, factors, mantissa
from intaglio.npu.chips.rockchip.wide_weights import source, window
from intaglio.npu.chips.shifted_maps import shifted
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Chip

READ_CONSTANTS = ("npu.eltwise", "npu.concat")  # they may read maps that are constants
SMALLEST = float(np.finfo(np.float32).tiny)  # range of a table


@dataclass(slots=True)
class Lowered:
    """The layers with the chip's arithmetic, the ports of the file, and the caller's nodes."""

    graph: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def lower(graph: Graph, chip: Chip, level: int = 3) -> Lowered:
    """The layers of a quantised graph, which changes; Unsupported names ops in the way."""
    design = DESIGNS[chip.name]
    target = npu_target(chip, also=partial(limits.why_not, design=design))
    reals = Reals()
    reals.learn(graph)
    passes.run(graph, passes.neutral(), level)
    reals.learn(graph)
    tables_of_bytes(graph)
    passes.run(graph, passes.offload(target)[:-1], level)
    graph.tidy()
    part = file_part(graph, target, reals)
    layers = part.layers
    unsigned = {v for n in layers.nodes() for v in n.outputs if v.dtype == "u8"}
    unsigned |= {v for v in layers.inputs if v.dtype == "u8"}
    maps = [v for n in layers.nodes() if n.op in READ_CONSTANTS for v in n.inputs[:2]]
    unsigned |= {v for v in maps if v is not None and v.data is not None and v.dtype == "u8"}
    if unsigned:
        layers = shifted(layers, unsigned, "i8")
    made = meaning(layers, design)
    return Lowered(made, part.inputs, part.outputs, part.before, part.after)


def tables_of_bytes(graph: Graph) -> None:
    """Tables of floats behind the last products become tables of bytes, and the scale of those."""
    for node in list(graph.nodes()):
        table = node.inputs[1] if node.op == "lookup_wide" else None
        if table is None or table.data is None or table.dtype != "f32":
            continue
        low, high = min(float(table.data.min()), 0.0), max(float(table.data.max()), 0.0)
        scale = np.float32(max(high - low, SMALLEST) / 255)
        zero = np.int8(np.clip(np.rint(-128 - low / scale), -128, 127))
        stored = np.clip(np.rint(table.data / scale) + zero, -128, 127).astype(np.int8)
        made = neutral.lookup_wide(node.inputs[0], constant(stored), base=node.attrs["base"])
        real = neutral.dequantize_linear(made, constant(scale), constant(zero))
        graph.replace(node.outputs[0], real)


def meaning(graph: Graph, design: Design = RK3588) -> Graph:
    """A graph of NPU ops of i8 with those that round replaced by the chip's own."""
    inner: dict[Value, Value] = {v: Value(v.type, v.name) for v in graph.inputs}
    for n in graph.nodes():
        if n.op in ("npu.concat", "npu.slice") and not begins_blocks(n, design.atom):
            inner[n.outputs[0]] = _moved(n, [inner.get(v, v) for v in n.inputs if v is not None])
            inner[n.outputs[0]].name = n.outputs[0].name
            continue
        made = _chip_node(n, inner)
        for old, new in zip(n.outputs, made.outputs, strict=True):
            new.name, inner[old] = old.name, new
    outputs = [inner[v] for v in graph.outputs]
    return Graph([inner[v] for v in graph.inputs], outputs, graph.output_names, graph.name)


def _chip_node(n: Node, inner: dict[Value, Value]) -> Node:
    given = [v if v is None or v.data is not None else inner[v] for v in n.inputs]
    a = n.attrs
    if n.op in ("npu.conv", "npu.depthwise"):
        x, made = source(n), of_convolution(n)
        groups = x.shape[1] if n.op == "npu.depthwise" else 1
        return _conv(n, made, inner[x], given[4], groups, window(n))
    if n.op == "npu.depth_to_space":
        assert given[0] is not None
        return _interleaved(n, given[0])
    if n.op == "npu.pool" and a["kind"] == "avg":
        assert given[0] is not None
        return _mean(n, given[0])
    if n.op == "npu.eltwise":
        p = of_pair(n)
        numbers = {"a_zero": p.a_zero, "b_zero": p.second.zero, "b_scale": p.second.scale}
        numbers |= {"b_shift": p.second.shift, "scale": p.scale, "shift": p.shift, "zero": p.zero}
        numbers |= {"a_scale": p.a_scale, "a_shift": p.a_shift}
        return ops.pair.node(
            *given[:2], multiplies=p.multiplies, **numbers, **asdict(p.bounds), origin=n.origin
        )
    return REGISTRY[n.op].node(*given, **a, origin=n.origin)


def _conv(
    n: Node,
    made: Product,
    x: Value,
    residual: Value | None,
    groups: int,
    how: dict[str, tuple[int, ...]],
) -> Node:
    numbers = np.stack([made.bias, made.multipliers]).astype(np.int64)
    table, first, bits, added = None, 0, 0, {}
    if made.table is not None:
        table = constant(np.array(made.table.entries, np.int8))
        first, bits = made.table.first, made.table.bits
    if made.added is not None:
        added = {f"added_{k}": v for k, v in asdict(made.added).items()}
    return ops.conv.node(
        x,
        constant(made.weights),
        constant(numbers),
        residual,
        table,
        **how,
        **added,
        groups=groups,
        padding=n.attrs["x_zero"],
        scale=made.scale,
        shift=made.shift,
        zero=0 if table is not None else n.attrs["y_zero"],
        **asdict(made.bounds),
        first=first,
        step_bits=bits,
        origin=n.origin,
    )


def _mean(n: Node, x: Value) -> Node:
    """Means are a depthwise convolution whose weights are 1.

    Where windows reach over the border, its result is multiplied by a constant map.
    """
    partial = means.factors_of_windows(n)
    if partial is None:
        bounds = of_bounds(n, *mantissa(means.mean_factor(n)))
        return _whole_mean(n, x, bounds)
    made = _whole_mean(n, x, Bounds()).outputs[0]
    a, (scale, shift) = n.attrs, mantissa(partial.unit)
    zero = {"a_zero": a["y_zero"], "zero": a["y_zero"], "b_zero": 0, "b_scale": 1, "b_shift": 0}
    ends = asdict(of_bounds(n, scale, shift))
    number = {"multiplies": True, "scale": scale, "shift": shift} | zero | ends
    return ops.pair.node(made, constant(partial.values), **number, origin=n.origin)


def _whole_mean(n: Node, x: Value, bounds: Bounds) -> Node:
    a, geometry = n.attrs, means.mean_geometry(n)
    weights = np.ones((x.shape[1], 1, *geometry.kernel), np.int16)
    count = geometry.kernel[0] * geometry.kernel[1]
    multipliers, scale, shift = factors(np.full(x.shape[1], means.mean_factor(n)))
    bias = np.full(x.shape[1], -a["x_zero"] * count, np.int64)
    made = Product(weights, bias, multipliers, scale, shift, bounds)
    how = {"stride": geometry.strides, "pad": geometry.pads, "dilation": (1, 1)}
    return _conv(n, made, x, None, x.shape[1], how)


def _interleaved(n: Node, x: Value) -> Node:
    """Pixels of the phases of channels: a transposed convolution whose weights are 0 and 1."""
    conv, block, outputs = limits.interleaving(n), n.attrs["blocksize"], n.attrs["channels"]
    weights = np.zeros((outputs, x.shape[1], *conv.kernel), np.int16)
    deep, every = x.shape[1] // block**2, range(outputs)
    for phase in range(block**2):
        row, column = (k - 1 - p for k, p in zip(conv.kernel, divmod(phase, block), strict=True))
        weights[every, [phase * deep + c for c in every], row, column] = 1
    how = {"pad": conv.pads, "apart": conv.apart}
    return _copies(x, weights, None, how, n)


def begins_blocks(n: Node, atom: int) -> bool:
    """Whether all parts of a concatenation, or a slice, begin with a block of channels."""
    if n.op == "npu.slice":
        return bool(n.attrs["first"] % atom == 0)
    sizes = [v.shape[1] for v in n.inputs if v is not None]
    return all(size % atom == 0 for size in sizes[:-1])


def _moved(n: Node, parts: list[Value]) -> Value:
    """A concatenation or slice between the channels of blocks: pointwise convolutions of 0 and 1.

    Each part of a concatenation is added to the bytes of those before it.
    """
    outputs = n.outputs[0].shape[1]
    if n.op == "npu.slice":
        return _selected(parts[0], n.attrs["first"], 0, outputs, outputs, None, n)
    made, at = None, 0
    for part in parts:
        made = _selected(part, 0, at, part.shape[1], outputs, made, n)
        at += part.shape[1]
    assert made is not None
    return made


def _selected(
    x: Value, first: int, to: int, count: int, outputs: int, before: Value | None, n: Node
) -> Value:
    """Channels from `first` on as those from `to` on; others are those of `before`, or 0."""
    weights = np.zeros((outputs, x.shape[1], 1, 1), np.int16)
    weights[range(to, to + count), range(first, first + count)] = 1
    return _copies(x, weights, before, {"pad": (0, 0, 0, 0)}, n).outputs[0]


def _copies(
    x: Value, weights: Array, before: Value | None, how: dict[str, tuple[int, ...]], n: Node
) -> Node:
    """A convolution whose weights are 0 and 1 and whose results are bytes of the input."""
    one, outputs = 1 << CHANNEL_BITS, len(weights)
    numbers = np.stack([np.zeros(outputs, np.int64), np.full(outputs, one, np.int64)])
    window = {"stride": (1, 1), "dilation": (1, 1)} | how
    same = {"added_scale": one, "added_shift": CHANNEL_BITS} if before is not None else {}
    given = x, constant(weights), constant(numbers), before, None
    scale = {"scale": one, "shift": CHANNEL_BITS}
    return ops.conv.node(*given, **window, **scale, **same, origin=n.origin)
