"""Emission: from tiled layer groups with a memory plan to the instructions of all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from intaglio.npu.layers import RELAYOUT, ChannelRange, FeatureMap, Layer
from intaglio.npu.ops.relayout import boxes
from intaglio.npu.own.addresses import Cursor, transfer_of
from intaglio.npu.own.fields import (
    chunk_channels,
    convolution_fields,
    other_fields,
    part,
    phase_copies,
)
from intaglio.npu.own.hazards import Hazards, Span, span
from intaglio.npu.own.isa import Feature, Instruction
from intaglio.npu.tiling.pinning import MemoryPlan
from intaglio.npu.tiling.placement import Layout
from intaglio.npu.tiling.tiles import TilingContext

Bands = list[tuple[int, int]]  # image and tile of each
WEIGHT_ALIGNMENT = 16  # bytes
SHARED_BYTES = 32768  # the smallest block of weights that is stored once for several layers


class Emitter:
    """Writes the instructions of all cores, and the weights in the order of their first load."""

    def __init__(self, context: TilingContext, plan: MemoryPlan):
        self.context, self.plan = context, plan
        self.instructions: list[Instruction] = []
        self.weights = bytearray()
        self.offsets: dict[bytes, int] = {}  # of what `weights` holds
        self.packed: dict[tuple[int, int, int], tuple[int, int]] = {}  # chunk: offset, bytes
        self.hazards = [Hazards() for _ in range(context.cores)]
        self.core = self.barriers = 0
        self.at = self.cursor(plan.layouts[0])

    def cursor(self, layout: Layout) -> Cursor:
        chip_layout = self.context.chip_layout
        return Cursor(self.plan, layout, planar=chip_layout.planar, exact=chip_layout.exact_rows)

    def run(self) -> None:
        """Emit all groups; every core takes a contiguous share of a group's bands."""
        cores = self.context.cores
        for layout in self.plan.layouts:
            self.at = self.cursor(layout)
            group = layout.group
            bands = [(n, t) for n in range(group.images) for t in range(group.tiles)]
            for core in range(cores):
                self.core = core
                if share := bands[core * len(bands) // cores : (core + 1) * len(bands) // cores]:
                    self.group(share)
            if cores > 1 and layout is not self.plan.layouts[-1]:
                self.barrier(group.last - 1)

    def barrier(self, layer: int) -> None:
        """All cores wait for each other: the next group reads maps that any of them stored."""
        for core, hazards in enumerate(self.hazards):
            load, compute, store = hazards.count
            wait = load, compute, store
            hazards.add("store", [], [])
            self.instructions.append(Instruction("barrier", {}, core, layer, wait, self.barriers))
        self.barriers += 1

    # ---- the order of bands and layers ----------------------------------------------------------
    def group(self, bands: Bands) -> None:
        """The bands of a group that one core computes."""
        group = self.at.layout.group
        if self.context.layers[group.first].op == RELAYOUT:
            self.at.move(0, bands[0])
            self.relayout(self.context.layers[group.first])
            return
        if not group.streams_weights:
            for k in group.numbers:
                self.load_table(k)
                self.load_chunk(k, 0, 0)
        if group.tiles * group.images == 1:
            self.at.move(0, bands[0])
            self.single_band()
        elif group.channels_outer:
            self.channels_outer(bands)
        else:
            self.each_band(bands, self.layers)

    def layers(self) -> None:
        for k in self.at.layout.group.numbers:
            self.layer(k)

    def each_band(self, bands: Bands, work: Callable[[], None]) -> None:
        """Load and compute band after band; double buffers load the next band meanwhile."""
        layout, double = self.at.layout, self.at.layout.group.double_buffered
        if double:
            self.at.move(0, bands[0])
            self.load_maps(layout.live_in)
        for turn, tile in enumerate(bands):
            if not double:
                self.at.move(turn, tile)
                self.load_maps(layout.live_in)
            elif turn + 1 < len(bands):
                self.at.move(turn + 1, bands[turn + 1])
                self.load_maps(layout.live_in)
            self.at.move(turn, tile)
            work()

    def channels_outer(self, bands: Bands) -> None:
        """One layer: for each chunk of output channels all bands, so its weights load once."""
        layout = self.at.layout
        k = layout.group.first
        layer, c, slots = self.context.layers[k], self.context.constants[k], layout.weights[k]
        assert c is not None
        self.load_table(k)
        for i in range(-(-c.blocks // layout.chunks[k])):
            self.load_chunk(k, i, i % len(slots))
            self.each_band(bands, partial(self.compute_and_store_chunk, layer, i))

    def compute_and_store_chunk(self, layer: Layer, i: int) -> None:
        if layer.number in self.at.band.made:
            self.store_range(layer.number, self.chunk(layer, i))

    def single_band(self) -> None:
        """A group in one band: each layer's maps and weights load while the layer before runs."""
        layout, group = self.at.layout, self.at.layout.group
        loads: dict[int, list[FeatureMap]] = {}  # by the layer before which they are emitted
        for fm in layout.live_in:
            loads.setdefault(max(group.first, self.first_reader(fm) - 1), []).append(fm)
        for k in group.numbers:
            self.load_maps(loads.get(k, []))
            for ahead in range(k, group.last):
                blocks = layout.weights.get(ahead)
                if group.streams_weights and blocks and blocks[0].first == k:
                    self.load_chunk(ahead, 0, 0)
            self.layer(k, loaded=True)

    def relayout(self, layer: Layer) -> None:
        """Copies of boxes within DDR: from a map or a constant to a map, and to outputs."""
        node, fm = layer.node, layer.dst.map
        assert node is not None
        maps = iter(layer.reads)
        sources: list[Feature] = []
        for v in node.inputs:
            assert v is not None
            if v.data is None:
                sources.append(self.at.whole_in_ddr(next(maps).map))
                continue
            offset, _ = self.add_weights(v.data.tobytes())
            sources.append(Feature("weights", offset, v.dtype, 1, 1, 1, 1, 1, 1, 1))
        targets = [self.at.whole_in_output(fm, slot) for slot, _, _ in fm.output_ranges]
        if fm in self.plan.spilled:
            targets.append(self.at.whole_in_ddr(fm))
        for box in boxes(node):
            for to in targets:
                fields = transfer_of(box, sources[box.operand], to)
                self.emit("store", fields, layer.number)

    # ---- feature maps ---------------------------------------------------------------------------
    def load_maps(self, maps: Iterable[FeatureMap]) -> None:
        for fm in maps:
            if fm not in self.at.band.rows or fm in self.plan.pinned:
                continue
            rows = self.at.band.rows[fm]
            for r in self.at.layout.live_in[fm]:
                fields = {"src": self.at.in_ddr(r, *rows), "dst": self.at.in_sram(r, *rows)}
                self.emit("load", fields, self.first_reader(fm))

    def first_reader(self, fm: FeatureMap) -> int:
        """The first layer of the group that reads a map."""
        group = self.at.layout.group
        return next(k for k in self.context.readers[fm] if group.first <= k < group.last)

    def store_maps(self, k: int) -> None:
        """Store the result of layer k, once the last layer of the group that writes it has run."""
        group, fm = self.at.layout.group, self.context.layers[k].dst.map
        writers = [w for w in self.context.writers[fm] if group.first <= w < group.last]
        if fm not in self.at.layout.live_out or k != writers[-1]:
            return
        for w in writers:
            self.store_range(w, self.context.layers[w].dst)

    def store_range(self, k: int, r: ChannelRange) -> None:
        """Store this band of channels that layer k made in internal memory, and in outputs."""
        fm, tiles, tile = r.map, self.at.layout.group.tiles, self.at.tile
        rows = fm.height * tile // tiles, fm.height * (tile + 1) // tiles
        if rows[0] == rows[1]:
            return
        if fm in self.plan.spilled and fm not in self.plan.pinned:
            fields = {"src": self.at.in_sram(r, *rows), "dst": self.at.in_ddr(r, *rows)}
            self.emit("store", fields, k)
        for slot, first, total in fm.output_ranges:
            begin = max(r.first, first)
            count = min(r.first + r.channels, first + total) - begin
            if count > 0:
                src = self.at.in_sram(ChannelRange(fm, begin, count), *rows)
                dst = self.at.in_output(fm, slot, total, begin - first, count, rows)
                self.emit("store", {"src": src, "dst": dst}, k)

    # ---- constants ------------------------------------------------------------------------------
    def load_table(self, k: int) -> None:
        block, c = self.at.layout.tables.get(k), self.context.constants[k]
        if block is None or c is None:
            return
        if (k, -1, 0) not in self.packed:
            self.packed[k, -1, 0] = self.add_weights(c.table)
        self.load_bytes(self.packed[k, -1, 0], block.offset, k)

    def load_chunk(self, k: int, number: int, slot: int) -> None:
        blocks, c = self.at.layout.weights.get(k), self.context.constants[k]
        if not blocks or c is None:
            return
        step = self.at.layout.chunks[k]
        first = number * step
        count = min(step, c.blocks - first)
        key = (k, first, count)
        if key not in self.packed:
            raw = c.chunk_bytes(self.context.layers[k], first, count)
            self.packed[key] = self.add_weights(raw)
        self.load_bytes(self.packed[key], blocks[slot % len(blocks)].offset, k)

    def add_weights(self, raw: bytes) -> tuple[int, int]:
        """Append to the weights, unless the same large block is there; returns offset and size."""
        if raw in self.offsets:
            return self.offsets[raw], len(raw)
        self.weights += b"\0" * (-len(self.weights) % WEIGHT_ALIGNMENT)
        if len(raw) >= SHARED_BYTES:
            self.offsets[raw] = len(self.weights)
        self.weights += raw
        return len(self.weights) - len(raw), len(raw)

    def load_bytes(self, source: tuple[int, int], to: int, k: int) -> None:
        offset, n = source
        src, dst = (
            Feature(space, where, "u8", 1, 1, n, 1, n, n, 1)
            for space, where in (("weights", offset), ("sram", to))
        )
        self.emit("load", {"src": src, "dst": dst}, k)

    # ---- compute --------------------------------------------------------------------------------
    def layer(self, k: int, loaded: bool = False) -> None:
        """Compute layer k of this band, and store its result; `loaded`: its first chunk is."""
        layer = self.context.layers[k]
        if k not in self.at.band.made:
            return
        if self.at.layout.group.streams_weights:
            self.load_table(k)
        if layer.is_product:
            self.convolution(layer, loaded)
        elif layer.op == "depth_to_space":
            for fields in phase_copies(layer, self.at):
                self.emit("copy", fields, k)
        else:
            self.emit(layer.op, other_fields(layer, self.at, self.context.constants[k]), k)
        self.store_maps(k)

    def convolution(self, layer: Layer, loaded: bool) -> None:
        """All chunks of a convolution; with two weight buffers the next chunk loads meanwhile."""
        k, c = layer.number, self.context.constants[layer.number]
        assert c is not None
        streamed, slots = self.at.layout.group.streams_weights, self.at.layout.weights[k]
        chunks = -(-c.blocks // self.at.layout.chunks[k])
        if streamed and not loaded:
            self.load_chunk(k, 0, 0)
        for i in range(chunks):
            if streamed and i + 1 < chunks and len(slots) > 1:
                self.load_chunk(k, i + 1, i + 1)
            elif streamed and i and len(slots) == 1:
                self.load_chunk(k, i, 0)
            self.chunk(layer, i)

    def chunk(self, layer: Layer, i: int) -> ChannelRange:
        """Compute chunk i of a convolution's output channels; returns these channels."""
        c = self.context.constants[layer.number]
        assert c is not None
        fields, constants = convolution_fields(layer, self.at, c, i)
        self.emit(layer.op, fields, layer.number, constants)
        return part(layer.dst, *chunk_channels(layer, self.at, c, i))

    def emit(
        self, op: str, fields: dict[str, Any], layer: int, constants: Iterable[Span] = ()
    ) -> None:
        """Append an instruction, with the waits that its operands require."""
        result = Instruction(op, fields, self.core, layer, barrier=self.barriers)
        sources = [f for n in ("src", "other", "residual") if (f := fields.get(n)) is not None]
        reads = [(f.space, span(f)) for f in sources]
        reads += [("sram", s) for s in constants]
        if fields.get("entries"):
            c = self.context.constants[layer]
            assert c is not None
            reads.append(("sram", (fields["table"], fields["table"] + len(c.table))))
        dst = fields["dst"]
        writes = [(dst.space, span(dst))]
        block = self.at.layout.scratch.get(layer) if result.queue == "compute" else None
        if block is not None:
            result.scratch = block.offset
            writes.append(("sram", (block.offset, block.offset + block.size)))
        result.wait = self.hazards[self.core].add(result.queue, reads, writes)
        self.instructions.append(result)
