"""A program's graph as layers over stores: who reads and writes which channels of which map.

A Store is a feature map that has bytes of its own. Concatenations and slices of whole blocks of
channels have none: their parts are ranges of the store of what they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intaglio import dtypes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value
from intaglio.passes.schedule import best_order
from intaglio.targets.chip import Chip

WINDOWED = ("npu.conv", "npu.depthwise", "npu.pool")
PRODUCTS = ("npu.conv", "npu.depthwise")


@dataclass(eq=False, slots=True)
class Store:
    """A feature map: `images` times channels x height x width, in blocks of c2 channels."""

    name: str
    dtype: str
    images: int
    channels: int
    height: int
    width: int
    c2: int
    align: int = 1  # bytes, of what begins in SRAM: rows, or planes where rows touch
    packed: bool = False
    slot: int = -1  # the program's input that it is, -1: it is made here
    ports: list[tuple[int, int, int]] = field(default_factory=list)  # output, first, channels

    item: int = field(init=False)  # bytes of an element
    blocks: int = field(init=False)  # of c2 channels
    row: int = field(init=False)  # bytes of a row of one block, outside of the core
    pitch: int = field(init=False)  # bytes from row to row in SRAM

    def __post_init__(self) -> None:
        self.item = dtypes.TABLE[self.dtype].numpy.itemsize
        self.blocks = -(-self.channels // self.c2)
        self.row = self.width * self.c2 * self.item
        self.pitch = self.row if self.packed else -(-self.row // self.align) * self.align

    def bytes(self, rows: int) -> int:
        """What `rows` rows of an image take outside."""
        return self.blocks * rows * self.row

    def room(self, rows: int) -> int:
        """What `rows` rows of an image take in SRAM."""
        return self.blocks * self.plane(rows)

    def plane(self, rows: int) -> int:
        """Bytes from block to block in SRAM, if each has `rows` rows."""
        return -(-rows * self.pitch // self.align) * self.align


@dataclass(frozen=True, slots=True)
class Range:
    """Channels of a store."""

    store: Store
    first: int
    channels: int

    @property
    def aligned(self) -> bool:
        return self.first % self.store.c2 == 0


@dataclass(eq=False, slots=True)
class Layer:
    """One operation on the NPU; `reads` are its feature maps, in the order of the instruction."""

    number: int
    op: str  # of the instruction set
    name: str
    reads: list[Range]
    dst: Range
    node: Node | None = None
    residual: int = -1  # which of `reads` is added to a product
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    factor: tuple[int, int] = (1, 1)  # of a resize

    @property
    def attrs(self) -> dict[str, Any]:
        return self.node.attrs if self.node else {}

    @property
    def is_product(self) -> bool:
        return self.op in ("conv", "depthwise")

    def rows(self, k: int, low: int, high: int) -> tuple[int, int]:
        """The rows of operand k that the rows low .. high of the result come from."""
        height = self.reads[k].store.height
        if height == 1:
            return 0, 1
        if self.op == "resize":
            return low // self.factor[0], (high - 1) // self.factor[0] + 1
        if self.op == "matmul":
            return (low, high) if k == 0 else (0, height)
        if k or self.op not in ("conv", "depthwise", "pool"):
            return low, high
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        first = low * self.stride[0] - self.pad[0]
        last = (high - 1) * self.stride[0] - self.pad[0] + reach
        first = min(max(first, 0), height - 1)  # a window of padding alone still has a row
        return first, min(max(last, first + 1), height)

    def macs(self, rows: int) -> int:
        """Products that `rows` rows of one image of the result need."""
        if not self.is_product and self.op != "matmul":
            return 0
        deep = self.reads[0].channels if self.op != "depthwise" else 1
        return (
            rows * self.dst.store.width * self.dst.channels * deep * self.kernel[0] * self.kernel[1]
        )


@dataclass(slots=True)
class Network:
    """The layers of a program in the order in which they run."""

    layers: list[Layer]
    inputs: list[Value]
    outputs: list[Value]
    stores: list[Store]


def network(body: Graph, chip: Chip) -> Network:
    """The layers and stores of a graph of npu ops."""
    return _Builder(body, chip).build()


class _Builder:
    def __init__(self, body: Graph, chip: Chip):
        self.body, self.chip = body, chip
        self.at: dict[Value, Range] = {}
        self.planned: dict[Value, tuple[Value, int]] = {}  # a part: the concat, its first channel
        self.stores: list[Store] = []
        self.layers: list[Layer] = []

    def build(self) -> Network:
        order = best_order(self.body)
        for slot, v in enumerate(self.body.inputs):
            store = self.store(v)
            store.slot = slot
            self.at[v] = Range(store, 0, store.channels)
        self.plan_concats(order)
        for node in order:
            self.add(node)
        for slot, v in enumerate(self.body.outputs):
            place = self.at[v]
            if place.store.slot >= 0:  # nothing computes it, so nothing would write it
                place = self.copied(place, v)
            place.store.ports.append((slot, place.first, place.channels))
        return Network(self.layers, list(self.body.inputs), list(self.body.outputs), self.stores)

    def store(self, v: Value) -> Store:
        n, c, h, w = v.shape
        made = Store(v.name, v.dtype, n, c, h, w, self.c2(v), self.chip.align, self.chip.packed)
        self.stores.append(made)
        return made

    def plan_concats(self, order: list[Node]) -> None:
        """Which values are computed straight into the map that they are a part of.

        The last concat first, so that a concat that is itself a part finds its place.
        """
        for node in reversed(order):
            if node.op != "npu.concat":
                continue
            out, first = node.outputs[0], 0
            for v in node.inputs:
                assert v is not None
                aligned = first % self.c2(out) == 0
                once = list(node.inputs).count(v) == 1 and v not in self.planned
                if aligned and once and v.producer and v.producer.op != "npu.slice":
                    self.planned[v] = (out, first)
                first += v.shape[1]

    def c2(self, v: Value) -> int:
        item = dtypes.TABLE[v.dtype].numpy.itemsize
        return self.chip.c2.get(v.dtype) or max(self.chip.c2["i8"] // item, 1)

    def place(self, v: Value) -> Range:
        """Where a value that is about to be computed goes."""
        if v in self.at:
            return self.at[v]
        if v in self.planned:
            whole, first = self.planned[v]
            around = self.place(whole)
            made = Range(around.store, around.first + first, v.shape[1])
        else:
            store = self.store(v)
            made = Range(store, 0, store.channels)
        self.at[v] = made
        return made

    def read(self, v: Value, whole_blocks: bool = True) -> Range:
        """A value as an operand; channels that begin inside of a block are copied first."""
        place = self.at[v]
        return self.copied(place, v) if whole_blocks and not place.aligned else place

    def copied(self, place: Range, v: Value) -> Range:
        store = self.store(v)
        new = Range(store, 0, place.channels)
        self.layer("copy", v.name, [place], new)
        self.at[v] = new
        return new

    def layer(self, op: str, name: str, reads: list[Range], dst: Range, **rest: Any) -> None:
        self.layers.append(Layer(len(self.layers), op, name, reads, dst, **rest))

    def add(self, node: Node) -> None:
        out = node.outputs[0]
        name, kind = node.origin or out.name, node.op.removeprefix("npu.")
        if node.op == "npu.concat":
            self.concat(node)
            return
        if node.op == "npu.slice":
            x = node.inputs[0]
            assert x is not None
            inside = self.at[x]
            first = inside.first + node.attrs["first"]
            self.at[out] = Range(inside.store, first, node.attrs["count"])
            return
        if kind not in ("conv", "depthwise", "pool", "eltwise", "lut", "resize", "matmul"):
            raise Unsupported(f"npu: {node.op} '{name}' has no instruction")
        x = node.inputs[0]
        assert x is not None
        reads = [self.read(x)]
        rest: dict[str, Any] = {"node": node}
        if node.op in PRODUCTS and (r := node.inputs[4]) is not None:
            reads.append(self.read(r))
            rest["residual"] = 1
        if kind in ("eltwise", "matmul"):
            other = node.inputs[1]
            assert other is not None
            reads.append(self.read(other))
        if node.op in WINDOWED:
            weights = node.inputs[1] if node.op in PRODUCTS else None
            kernel = weights.shape[2:] if weights is not None else node.attrs["kernel"]
            rest["kernel"] = tuple(kernel)
            rest |= {k: tuple(node.attrs[k]) for k in ("stride", "dilation", "pad")}
        if kind == "resize":
            rest["factor"] = tuple(node.attrs["factor"])
        dst = self.place(out)
        self.layer(kind, name, reads, dst, **rest)

    def concat(self, node: Node) -> None:
        """Copies of those parts that were not computed in their place."""
        whole = self.place(node.outputs[0])
        first = whole.first
        for v in node.inputs:
            assert v is not None
            there, here = self.at[v], Range(whole.store, first, v.shape[1])
            if there != here:
                self.layer("copy", node.origin or v.name, [there], here)
            first += v.shape[1]
