"""Where the maps of a network lie: blocks of channels, in one memory between layers.

A slice of whole blocks is a place in its source, and a part of a concatenation is written where
the concatenation lies, if its channels begin a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.ir import Graph, Node, Value
from intaglio.npu.chips.buffers import Buffer, place
from intaglio.npu.chips.rockchip.dpu_tasks import MapSize, map_size
from intaglio.npu.chips.rockchip.geometry import (
    PICTURE_BYTES,
    PICTURE_CHANNELS,
    RK3576,
    RK3588,
    Convolution,
    Design,
    round_up,
    why_not,
)

ALIGNMENT = 64
PICTURE_ALIGNMENT = 16  # pixels of a row of a picture


def size_of(v: Value, design: Design = RK3588) -> MapSize:
    """The size of a map."""
    return map_size(v.shape, design)


def written_bytes(v: Value, design: Design = RK3588) -> int:
    """Bytes of a map with the channels that fill up what a convolution computes at a time."""
    made, size = v.producer, size_of(v, design)
    if made is None or made.op != "rockchip.conv" or design is RK3576:
        return size.bytes
    block = design.outputs * (2 if made.attrs["groups"] > 1 else 1)
    return round_up(v.shape[1], block) * size.pixels


@dataclass(slots=True)
class Place:
    """A map: a buffer, and where in it."""

    buffer: Buffer
    offset: int = 0
    picture: bool = False

    @property
    def start(self) -> int:
        return self.buffer.start + self.offset


@dataclass(slots=True)
class Memory:
    """The places of all maps, and what has to be copied into a concatenation."""

    places: dict[Value, Place] = field(default_factory=dict)
    copies: dict[Node, list[int]] = field(default_factory=dict)  # inputs of a concat, by number
    scratch: Buffer = field(default_factory=lambda: Buffer(ALIGNMENT, 0, 0))
    size: int = 0
    design: Design = RK3588


def plan(graph: Graph, design: Design = RK3588) -> Memory:
    """Give every map of a graph an address."""
    made = Memory(design=design)
    order = {n: i for i, n in enumerate(graph.nodes())}
    buffers: list[Buffer] = []
    joined = _joined(graph)
    for v in graph.inputs:
        picture = design is RK3588 and is_picture(v)
        size = v.shape[1] * v.shape[2] * v.shape[3] if picture else size_of(v, design).bytes
        made.places[v] = Place(Buffer(size, -1, -1), picture=picture)
        buffers.append(made.places[v].buffer)
    for node in graph.nodes():  # concatenations first: their parts are written into them
        if node.op == "npu.concat" and node.outputs[0] not in made.places:
            _concat(node, joined, made, buffers)
    for node in graph.nodes():
        y = node.outputs[0]
        if y in made.places:
            pass
        elif node.op == "npu.slice":
            x = node.inputs[0]
            assert x is not None
            skipped = node.attrs["first"] // design.atom * size_of(x, design).surface
            source = made.places[x]
            made.places[y] = Place(source.buffer, source.offset + skipped)
        else:
            buffer = Buffer(written_bytes(y, design), order[node], order[node])
            made.places[y] = Place(buffer)
            buffers.append(buffer)
    last = len(order)
    for v, where in made.places.items():
        if v.producer is not None:
            where.buffer.extend(order[v.producer])
        for user in v.uses:
            if user in order:
                where.buffer.extend(order[user])
        if v in graph.outputs or v.producer is None:  # inputs stay for the next run
            where.buffer.extend(last)
    made.scratch.last = last
    buffers.append(made.scratch)
    made.size = place(buffers, ALIGNMENT)
    return made


def is_picture(v: Value) -> bool:
    """Whether all readers of an input take it as rows of pixels of 1, 3 or 4 channels."""
    fits = v.shape[1] in PICTURE_BYTES and v.shape[3] % PICTURE_ALIGNMENT == 0
    if not fits or v.shape[1] > PICTURE_CHANNELS or not v.uses:
        return False
    return all(_reads_picture(user, v) for user in v.uses)


def _reads_picture(node: Node, v: Value) -> bool:
    if node.op != "rockchip.conv" or node.attrs["groups"] != 1 or node.inputs[0] is not v:
        return False
    w, a = node.inputs[1], node.attrs
    assert w is not None
    conv = Convolution(
        v.shape[1],
        v.shape[2],
        v.shape[3],
        w.shape[0],
        (w.shape[2], w.shape[3]),
        a["stride"],
        a["pad"],
        a["dilation"],
    )
    return node.inputs[3] is not v and why_not(conv) is None


def _joined(graph: Graph) -> dict[Value, Node]:
    """Values that may be written into a concatenation, and the last one that reads them."""
    found: dict[Value, Node] = {}
    for node in graph.nodes():
        if node.op == "npu.concat":
            for v in node.inputs:
                if v is not None and v.producer is not None and v.producer.op != "npu.slice":
                    found.setdefault(v, node)
    return found


def _concat(node: Node, joined: dict[Value, Node], made: Memory, buffers: list[Buffer]) -> None:
    """Place a concatenation: in another one that it is a part of, or by itself."""
    y, design = node.outputs[0], made.design
    outer = joined.get(y)
    if outer is not None and outer.outputs[0] not in made.places:
        _concat(outer, joined, made, buffers)
    if y not in made.places:
        made.places[y] = Place(Buffer(size_of(y, design).bytes, 1 << 30, -1))
        buffers.append(made.places[y].buffer)
    home, at = made.places[y], 0
    for number, v in enumerate(node.inputs):
        assert v is not None
        offset = home.offset + at // design.atom * size_of(y, design).surface
        more = written_bytes(v, design) - size_of(v, design).bytes
        whole = number == len(node.inputs) - 1 and home.offset == 0
        if joined.get(v) is node and v not in made.places and (not more or whole):
            made.places[v] = Place(home.buffer, offset)
            home.buffer.size = max(home.buffer.size, offset + written_bytes(v, design))
        else:
            made.copies.setdefault(node, []).append(number)
        at += v.shape[1]
