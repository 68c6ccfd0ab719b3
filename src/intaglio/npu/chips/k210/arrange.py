"""Where the maps of a network lie in the KPU's RAM.

A concat moves no bytes: its operands lie one after another in one buffer. Each starts on a line of
its own, so there may be gaps; the convolution that reads them has weights of zero there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.chips.buffers import Buffer, place
from intaglio.npu.chips.k210 import parts, ram

ON_KPU = "k210.conv"
IN_MAIN = ("k210.global_mean", "k210.linear", "reshape")  # read and write main memory


class TooLarge(Unsupported):
    """The maps that are needed at one time do not fit into the KPU's RAM."""

    def __init__(self, words: str, node: Node):
        super().__init__(words)
        self.node = node


@dataclass(slots=True)
class Home:
    """The place of a map: a buffer, the line within it, and the channels as they lie there."""

    buffer: Buffer
    line: int
    channels: Array  # the position of every channel; others are gaps
    room: int  # channels with gaps

    @property
    def start(self) -> int:
        return self.buffer.start + self.line

    @property
    def dense(self) -> bool:
        return self.room == len(self.channels)


@dataclass(slots=True)
class Arrangement:
    """The order of all nodes, and the homes of all maps in the KPU's RAM."""

    nodes: list[Node]
    homes: dict[Value, Home] = field(default_factory=dict)
    lines: int = 0


def separate(graph: Graph) -> None:
    """Copy maps that would have to lie in two places, or that a depthwise layer reads with gaps."""
    taken: set[Value] = set()
    for node in reversed(list(graph.nodes())):
        if node.op != "concat" or not in_ram(node.outputs[0]):
            continue
        for i, v in enumerate(node.inputs):
            assert v is not None
            if v in taken:
                graph.set_input(node, i, parts.copied(v))
            taken.add(v)
    for node in list(graph.nodes()):
        x = node.inputs[0]
        if node.op == ON_KPU and node.attrs["depthwise"] and x is not None and _has_gaps(x):
            graph.set_input(node, 0, parts.copied(x))


def _has_gaps(v: Value) -> bool:
    n = v.producer
    if n is None or n.op != "concat":
        return False
    groups = ram.layout(v.shape[3]).groups
    inner = [x for x in n.inputs if x is not None]
    return any(x.shape[1] % groups for x in inner[:-1]) or any(map(_has_gaps, inner))


def in_ram(v: Value) -> bool:
    """Whether a layer of the KPU reads or writes a value in its RAM."""
    n = v.producer
    if n is not None and n.op in IN_MAIN:
        return False
    in_main = n is None or n.op == "k210.crop"  # and uploaded for layers of the KPU
    if in_main and not any(r.op in (ON_KPU, "concat") for r in v.uses):
        return False
    if n is not None and n.op == "concat":
        return all(in_ram(x) for x in n.inputs if x is not None)
    return True


def arrange(graph: Graph) -> Arrangement:
    """Place all maps; TooLarge where they do not fit."""
    found = Arrangement(list(graph.nodes()))
    roots = _homes(found)
    for step, node in enumerate(found.nodes):
        _use(found, node, step)
    for v in graph.inputs:
        if v in found.homes:
            found.homes[v].buffer.extend(-1)
    found.lines = place(roots)
    if found.lines > ram.LINES:
        raise _too_large(found, roots)
    return found


def _homes(found: Arrangement) -> list[Buffer]:
    """Give every map a buffer, those of a concat one for all."""
    roots: list[Buffer] = []
    values = [v for n in found.nodes for v in (*n.outputs, *n.inputs) if v is not None]
    for v in reversed(dict.fromkeys(values)):
        if v.data is None and in_ram(v) and v not in found.homes and v.type.rank == 4:
            _home(found, v, None, 0, 0, roots)
    return roots


def _home(
    found: Arrangement, v: Value, root: Buffer | None, line: int, first: int, roots: list[Buffer]
) -> int:
    """Place `v` at a line of a buffer; returns the number of channels that it takes up there."""
    _, channels, height, width = v.shape
    place_of = ram.layout(width)
    outer = _outer_concat(v)
    if root is None and outer is not None and outer not in found.homes:
        _home(found, outer, None, 0, 0, roots)
        return 0
    owner = Buffer(0, len(found.nodes), -1) if root is None else root
    n = v.producer
    if n is None or n.op != "concat":
        room, positions = channels, np.arange(channels)
    else:
        room, pieces = 0, []
        for i, x in enumerate(n.inputs):
            assert x is not None
            room = -(-room // place_of.groups) * place_of.groups if i else 0
            at = line + room // place_of.groups * place_of.row_lines * height
            taken = _home(found, x, owner, at, room, roots)
            pieces.append(room + found.homes[x].channels)
            room += taken
        positions = np.concatenate(pieces)
    found.homes[v] = Home(owner, line, positions, room)
    if root is None:
        owner.size = ram.lines(room, height, width)
        roots.append(owner)
    return room


def _outer_concat(v: Value) -> Value | None:
    for reader in v.uses:
        if reader.op == "concat" and in_ram(reader.outputs[0]):
            return reader.outputs[0]
    return None


def _use(found: Arrangement, node: Node, step: int) -> None:
    """Keep the buffers that a step reads or writes."""
    if node.op == "concat":
        return
    for v in (*node.inputs, *node.outputs):
        if v is not None and v in found.homes:
            found.homes[v].buffer.extend(step)


def _too_large(found: Arrangement, roots: list[Buffer]) -> TooLarge:
    """Names the step that needs the most memory."""
    at_step = [
        sum(b.size for b in roots if b.first <= step <= b.last) for step in range(len(found.nodes))
    ]
    step = int(np.argmax(at_step))
    node = found.nodes[step]
    name = node.origin or node.outputs[0].name or node.op
    return TooLarge(
        f"k210: the maps around {name} {node.outputs[0].type} need {found.lines * ram.LINE:,} "
        f"bytes of the KPU's RAM; it has {ram.BYTES:,}: use a smaller input",
        node,
    )
