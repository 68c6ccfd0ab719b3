"""A program's graph as layers: which channels of which feature map each reads and writes.

A FeatureMap has memory of its own. The parts of a concat and the results of a slice have none if
they are whole blocks of channels: they are channel ranges of the larger map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intaglio import dtypes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value
from intaglio.npu.ops.relayout import RELAYOUTS
from intaglio.passes.schedule import best_order
from intaglio.targets.chip import Chip

# layers of floats that only encoders of real chips have, with the instructions that they share
FLOAT_INSTRUCTIONS = {
    "npu.float_conv": "conv",
    "npu.float_depthwise": "depthwise",
    "npu.float_pool": "pool",
}
WINDOWED = ("npu.conv", "npu.depthwise", "npu.pool", *FLOAT_INSTRUCTIONS)
PRODUCTS = ("npu.conv", "npu.depthwise")
FLOAT_PRODUCTS = ("npu.float_conv", "npu.float_depthwise")
MATMULS = ("matmul", "float_matmul")
# kinds of layers, which are the names of their instructions; encoders of real chips have the last
KINDS = ("conv", "depthwise", "pool", "eltwise", "lut", "resize", "depth_to_space", "matmul")
FLOAT_KINDS = (
    "float_matmul",
    "layer_norm",
    "softmax",
    "arithmetic",
    "quantize",
    "dequantize",
    "cast",
    "bound",
    "function",
)
NOT_IN_PLACE = ("npu.slice", *RELAYOUTS)  # ops whose results are never parts of a concat
RELAYOUT = "relayout"  # moves whole maps in DDR; a group of its own


@dataclass(eq=False, slots=True)
class FeatureMap:
    """`images` times channels x height x width elements, in blocks of c2 channels."""

    name: str
    dtype: str
    images: int
    channels: int
    height: int
    width: int
    c2: int
    align: int = 1  # bytes: alignment of rows in SRAM, or of planes if rows are packed
    packed: bool = False
    spread: int = 1  # bytes of SRAM for each byte of the map: chips may keep bytes in words
    input_slot: int = -1  # the number of the program's input; -1: a layer makes it
    # parts that are outputs of the program: output slot, first channel, channels
    output_ranges: list[tuple[int, int, int]] = field(default_factory=list)

    item: int = field(init=False)  # bytes of an element
    blocks: int = field(init=False)  # of c2 channels
    row: int = field(init=False)  # bytes of a row of one block in DDR
    pitch: int = field(init=False)  # bytes from row to row in SRAM

    def __post_init__(self) -> None:
        self.item = dtypes.TABLE[self.dtype].numpy.itemsize
        self.blocks = -(-self.channels // self.c2)
        self.row = self.width * self.c2 * self.item
        row = self.row * self.spread
        self.pitch = row if self.packed else -(-row // self.align) * self.align

    def ddr_bytes(self, rows: int) -> int:
        """Bytes of `rows` rows of an image in DDR."""
        return self.blocks * rows * self.row

    def sram_bytes(self, rows: int, blocks: int | None = None) -> int:
        """Bytes of `rows` rows of an image in SRAM, of all blocks of channels or so many."""
        return (self.blocks if blocks is None else blocks) * self.plane(rows)

    def plane(self, rows: int) -> int:
        """Bytes from one block of channels to the next in SRAM, if each has `rows` rows."""
        return -(-rows * self.pitch // self.align) * self.align


@dataclass(frozen=True, slots=True)
class ChannelRange:
    """Some channels of a feature map."""

    map: FeatureMap
    first: int
    channels: int

    @property
    def aligned(self) -> bool:
        return self.first % self.map.c2 == 0


@dataclass(eq=False, slots=True)
class Layer:
    """One instruction's work on whole feature maps; `reads` are its operands, in their order."""

    number: int
    op: str  # the name of its instruction
    name: str
    reads: list[ChannelRange]
    dst: ChannelRange
    node: Node | None = None
    residual: int = -1  # the index in `reads` of a residual; -1: none
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    factor: tuple[int, int] = (1, 1)  # of a resize or depth_to_space
    first: tuple[int, int] = (0, 0)  # row and column where the result of depth_to_space is cropped

    @property
    def attrs(self) -> dict[str, Any]:
        return self.node.attrs if self.node else {}

    @property
    def is_product(self) -> bool:
        return self.op in ("conv", "depthwise")

    @property
    def is_window(self) -> bool:
        return self.op in ("conv", "depthwise", "pool")

    def rows(self, k: int, low: int, high: int) -> tuple[int, int]:
        """The rows of operand k that rows low .. high of the result depend on."""
        height = self.reads[k].map.height
        if height == 1:
            return 0, 1
        if self.op in ("resize", "depth_to_space"):
            top, step = self.first[0], self.factor[0]
            return (low + top) // step, (high + top - 1) // step + 1
        if self.op in MATMULS:
            return (low, high) if k == 0 else (0, height)
        if self.op in ("softmax", RELAYOUT):
            return 0, height
        if k or self.op not in ("conv", "depthwise", "pool"):
            return low, high
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        first = low * self.stride[0] - self.pad[0]
        last = (high - 1) * self.stride[0] - self.pad[0] + reach
        first = min(
            max(first, 0), height - 1
        )  # a window that sees only padding reads one row all the same
        return first, min(max(last, first + 1), height)

    def macs(self, rows: int) -> int:
        """Multiply-accumulates for `rows` rows of the result of one image."""
        if not self.is_product and self.op not in MATMULS:
            return 0
        deep = self.reads[0].channels if self.op != "depthwise" else 1
        return (
            rows * self.dst.map.width * self.dst.channels * deep * self.kernel[0] * self.kernel[1]
        )


@dataclass(slots=True)
class Network:
    """The layers of a program in execution order, and its feature maps."""

    layers: list[Layer]
    inputs: list[Value]
    outputs: list[Value]
    maps: list[FeatureMap]


def network(body: Graph, chip: Chip, exact_rows: bool = False, spread: int = 1) -> Network:
    """The layers and feature maps of a graph of NPU ops; the rest as in ChipLayout."""
    return _Builder(body, chip, exact_rows, spread).build()


class _Builder:
    def __init__(self, body: Graph, chip: Chip, exact_rows: bool, spread: int):
        self.body, self.chip, self.exact_rows, self.spread = body, chip, exact_rows, spread
        self.at: dict[Value, ChannelRange] = {}
        self.planned: dict[
            Value, tuple[Value, int]
        ] = {}  # parts of a concat: the concat's output, their first channel there
        self.maps: list[FeatureMap] = []
        self.layers: list[Layer] = []

    def build(self) -> Network:
        order = best_order(self.body)
        for slot, v in enumerate(self.body.inputs):
            store = self.new_map(v)
            store.input_slot = slot
            self.at[v] = ChannelRange(store, 0, store.channels)
        self.plan_concats(order)
        for node in order:
            self.add(node)
        for slot, v in enumerate(self.body.outputs):
            place = self.at[v]
            moved = any(k.dst.map is place.map and k.op == RELAYOUT for k in self.layers)
            # no layer would write an input that is an output
            if place.map.input_slot >= 0 or (moved and place.channels < place.map.channels):
                place = self.copied(place, v)
            place.map.output_ranges.append((slot, place.first, place.channels))
        return Network(self.layers, list(self.body.inputs), list(self.body.outputs), self.maps)

    def new_map(self, v: Value) -> FeatureMap:
        n, c, h, w = v.shape
        align, packed = self.chip.align, self.chip.packed
        c2, spread = self.c2(v), self.spread
        result = FeatureMap(v.name, v.dtype, n, c, h, w, c2, align, packed, spread)
        self.maps.append(result)
        return result

    def plan_concats(self, order: list[Node]) -> None:
        """Find the values that can be computed directly into the concat that reads them.

        Later concats come first, so a concat that is part of another one finds its place.
        """
        for node in reversed(order):
            if node.op != "npu.concat":
                continue
            out, first = node.outputs[0], 0
            for v in node.inputs:
                assert v is not None
                aligned = first % self.c2(out) == 0
                used_once = list(node.inputs).count(v) == 1 and v not in self.planned
                if aligned and used_once and self.may_be_part(v, node):
                    self.planned[v] = (out, first)
                first += v.shape[1]

    def may_be_part(self, v: Value, concat: Node) -> bool:
        """Whether a value can be computed into a concat.

        A window whose operand is part of the same concat needs all rows of it at once, if bands
        have exactly the rows that windows read and write.
        """
        made = v.producer
        if made is None or made.op in NOT_IN_PLACE:
            return False
        beside = made.op in WINDOWED and made.inputs[0] in concat.inputs
        fits = self.spread * concat.outputs[0].type.bytes <= self.chip.sram
        return (fits or not (self.exact_rows and beside)) and self.window_fits(v, concat)

    def window_fits(self, v: Value, concat: Node) -> bool:
        """Whether a core can hold the rows under windows over `v` if they are rows of a concat.

        Rows of a map are loaded with all channels that lie in it, also those of its other parts.
        """
        whole = concat.outputs[0]
        rows = [
            node.attrs["kernel"][0]
            for node in v.uses
            if node.op == "npu.pool" and node.outputs[0] in concat.inputs
        ]
        item = dtypes.TABLE[whole.dtype].numpy.itemsize
        need = max(rows, default=0) * whole.shape[3] * whole.shape[1] * item * self.spread
        return 2 * need <= self.chip.sram

    def c2(self, v: Value) -> int:
        item = dtypes.TABLE[v.dtype].numpy.itemsize
        return self.chip.c2.get(v.dtype) or max(self.chip.c2["i8"] // item, 1)

    def place(self, v: Value) -> ChannelRange:
        """The channel range into which a value is computed."""
        if v in self.at:
            return self.at[v]
        if v in self.planned:
            whole, first = self.planned[v]
            around = self.place(whole)
            result = ChannelRange(around.map, around.first + first, v.shape[1])
        else:
            store = self.new_map(v)
            result = ChannelRange(store, 0, store.channels)
        self.at[v] = result
        return result

    def read(self, v: Value, whole_blocks: bool = True) -> ChannelRange:
        """The channel range of an operand; copied first if it starts in the middle of a block."""
        place = self.at[v]
        return self.copied(place, v) if whole_blocks and not place.aligned else place

    def whole(self, v: Value) -> ChannelRange:
        """The channel range of an operand that has a map of its own; copied first if it has not."""
        place = self.at[v]
        return place if place.channels == place.map.channels else self.copied(place, v)

    def read_window(self, v: Value, node: Node) -> ChannelRange:
        """The channel range of an operand; copied first if rows of all channels are too large."""
        place = self.at[v]
        rows = min(v.shape[2], node.attrs["kernel"][0])
        fits = 2 * place.map.sram_bytes(rows) <= self.chip.sram
        return (
            self.read(v) if fits or place.channels == place.map.channels else self.copied(place, v)
        )

    def copied(self, place: ChannelRange, v: Value) -> ChannelRange:
        store = self.new_map(v)
        new = ChannelRange(store, 0, place.channels)
        self.layer("copy", v.name, [place], new)
        self.at[v] = new
        return new

    def layer(
        self, op: str, name: str, reads: list[ChannelRange], dst: ChannelRange, **rest: Any
    ) -> None:
        self.layers.append(Layer(len(self.layers), op, name, reads, dst, **rest))

    def add(self, node: Node) -> None:
        out = node.outputs[0]
        name = node.origin or out.name
        kind = FLOAT_INSTRUCTIONS.get(node.op) or node.op.removeprefix("npu.")
        if node.op == "npu.concat":
            self.concat(node)
            return
        if node.op == "npu.slice":
            x = node.inputs[0]
            assert x is not None
            inside = self.at[x]
            first = inside.first + node.attrs["first"]
            self.at[out] = ChannelRange(inside.map, first, node.attrs["count"])
            return
        if node.op in RELAYOUTS:
            whole = [self.whole(v) for v in node.inputs if v is not None and v.data is None]
            self.layer(RELAYOUT, name, whole, self.place(out), node=node)
            return
        if kind not in (*KINDS, *FLOAT_KINDS):
            raise Unsupported(f"npu: {node.op} '{name}' has no instruction")
        x = node.inputs[0]
        assert x is not None
        reads = [self.read_window(x, node) if kind == "pool" else self.read(x)]
        rest: dict[str, Any] = {"node": node}
        if node.op in PRODUCTS and (r := node.inputs[4]) is not None:
            reads.append(self.read(r))
            rest["residual"] = 1
        if kind in ("eltwise", "arithmetic", "softmax", *MATMULS):
            reads += [self.read(v) for v in node.inputs[1:2] if v is not None]
        if node.op in WINDOWED:
            weights = node.inputs[1] if node.op in (*PRODUCTS, *FLOAT_PRODUCTS) else None
            kernel = weights.shape[2:] if weights is not None else node.attrs["kernel"]
            rest["kernel"] = tuple(kernel)
            rest |= {k: tuple(node.attrs[k]) for k in ("stride", "dilation", "pad")}
        if kind == "resize":
            rest["factor"] = tuple(node.attrs["factor"])
        if kind == "depth_to_space":
            rest["factor"] = (node.attrs["blocksize"],) * 2
            rest["first"] = tuple(node.attrs["first"])
        dst = self.place(out)
        self.layer(kind, name, reads, dst, **rest)

    def concat(self, node: Node) -> None:
        """Copy the parts that were not computed in place."""
        whole = self.place(node.outputs[0])
        first = whole.first
        for v in node.inputs:
            assert v is not None
            there, here = self.at[v], ChannelRange(whole.map, first, v.shape[1])
            if there != here:
                self.layer("copy", node.origin or v.name, [there], here)
            first += v.shape[1]
