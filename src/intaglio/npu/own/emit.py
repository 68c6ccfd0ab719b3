"""From groups with places to instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from intaglio import dtypes
from intaglio.npu.layers import Layer, Range, Store
from intaglio.npu.own.hazards import Span, Waits, span
from intaglio.npu.own.isa import ELTWISE, POOLS, Feature, Instruction
from intaglio.npu.tiling.pinning import Arrangement
from intaglio.npu.tiling.placement import Layout
from intaglio.npu.tiling.tiles import Band, Facts
from intaglio.npu.weight_packing import chunk_bytes

ROUND = ("y_zero", "low", "high", "least", "most")


class Emitter:
    """Writes the instructions of all cores, and the weights in the order in which they come in."""

    def __init__(self, facts: Facts, arrangement: Arrangement):
        self.facts, self.where = facts, arrangement
        self.instructions: list[Instruction] = []
        self.weights = bytearray()
        self.packed: dict[tuple[int, int, int], tuple[int, int]] = {}  # where chunks lie
        self.waits = [Waits() for _ in range(facts.cores)]
        self.core = self.barriers = 0
        self.made: Layout = arrangement.layouts[0]
        self.band = Band()
        self.image = self.tile = self.turn = 0

    def run(self) -> None:
        for made in self.where.layouts:
            self.made = made
            group, cores = made.group, self.facts.cores
            order = [(n, t) for n in range(group.images) for t in range(group.tiles)]
            for core in range(cores):
                self.core = core
                if share := order[core * len(order) // cores : (core + 1) * len(order) // cores]:
                    self.group(share)
            self.meet()

    def meet(self) -> None:
        """All cores wait for each other: what comes next reads what any of them stored."""
        if len(self.waits) == 1 or self.made is self.where.layouts[-1]:
            return
        for core, waits in enumerate(self.waits):
            load, compute, store = waits.count
            last = (load, compute, store)
            made = Instruction("barrier", {}, core, self.made.group.last - 1, last, self.barriers)
            waits.add("store", [], [])
            self.instructions.append(made)
        self.barriers += 1

    # ---- the order ------------------------------------------------------------------------------
    def group(self, order: list[tuple[int, int]]) -> None:
        """The bands of a group that one core computes."""
        group = self.made.group
        if not group.streamed:
            for k in group.numbers:
                self.load_table(k)
                self.load_chunk(k, 0, 0)
        if group.tiles * group.images == 1:
            self.at(0, order[0])
            self.whole()
        elif group.turned:
            self.turned(order)
        else:
            self.bands(order, self.layers)

    def layers(self) -> None:
        for k in self.made.group.numbers:
            self.layer(k)

    def bands(self, order: list[tuple[int, int]], work: Callable[[], None]) -> None:
        """Do the work for each band; with two places for maps, the next ones come in meanwhile."""
        made, double = self.made, self.made.group.double
        if double:
            self.at(0, order[0])
            self.load_maps(made.incoming)
        for turn, tile in enumerate(order):
            if not double:
                self.at(turn, tile)
                self.load_maps(made.incoming)
            elif turn + 1 < len(order):
                self.at(turn + 1, order[turn + 1])
                self.load_maps(made.incoming)
            self.at(turn, tile)
            work()

    def turned(self, order: list[tuple[int, int]]) -> None:
        """All bands for some output channels, whose weights stay, then for the next ones."""
        k = self.made.group.first
        layer, c, slots = self.facts.layers[k], self.facts.constants[k], self.made.weights[k]
        assert c is not None
        self.load_table(k)
        for i in range(-(-c.blocks // self.made.chunks[k])):
            self.load_chunk(k, i, i % len(slots))
            self.bands(order, partial(self.turn_of, layer, i))

    def turn_of(self, layer: Layer, i: int) -> None:
        if layer.number in self.band.made:
            self.store_range(layer.number, self.chunk(layer, i))

    def whole(self) -> None:
        """One band: what a layer reads from outside comes in while the one before it runs."""
        made, group = self.made, self.made.group
        first: dict[int, list[Store]] = {}
        for s in made.incoming:
            k = next(
                k for k in group.numbers if any(r.store is s for r in self.facts.layers[k].reads)
            )
            first.setdefault(max(group.first, k - 1), []).append(s)
        for k in group.numbers:
            self.load_maps(first.get(k, []))
            for ahead in (k, k + 1):
                blocks = made.weights.get(ahead)
                if blocks and blocks[0].first == k:
                    self.load_chunk(ahead, 0, 0)
            self.layer(k, loaded=True)

    def at(self, turn: int, tile: tuple[int, int]) -> None:
        """Turn to a band of an image."""
        self.turn, (self.image, self.tile) = turn, tile
        self.band = self.made.bands[self.tile]

    # ---- maps -----------------------------------------------------------------------------------
    def load_maps(self, stores: Any) -> None:
        for s in stores:
            if s not in self.band.rows or s in self.where.pinned:
                continue
            low, high = self.band.rows[s]
            for r in self.made.incoming[s]:
                move = {"src": self.outside(r, low, high), "dst": self.inside(r, low, high)}
                self.emit("load", move, self.reader(s))

    def reader(self, s: Store) -> int:
        """The layer for which a map is loaded."""
        group = self.made.group
        return next(k for k in self.facts.readers[s] if group.first <= k < group.last)

    def inside(self, r: Range, low: int, high: int) -> Feature:
        """Rows low .. high of some channels, in SRAM."""
        s = r.store
        row = s.pitch
        if s in self.where.pinned:
            offset, top, rows = self.where.pinned[s] + self.image * s.room(s.height), 0, s.height
        else:
            blocks = self.made.maps[s]
            offset, top = blocks[self.turn % len(blocks)].offset, self.band.rows[s][0]
            rows = self.made.rows[s]
        plane = s.plane(rows)
        at = offset + r.first // s.c2 * plane + (low - top) * row
        return Feature(
            "sram",
            at,
            s.dtype,
            r.channels,
            high - low,
            s.width,
            s.c2,
            plane,
            row,
            s.c2 * s.item,
            r.first % s.c2,
        )

    def outside(self, r: Range, low: int, high: int) -> Feature:
        """The same rows where they wait: in an input, or in internal memory."""
        s = r.store
        if s.slot >= 0:
            return _plain(
                "input", s.slot, s, s.channels, r.first, r.channels, self.image, low, high
            )
        row = s.row
        plane = s.height * row
        at = self.where.homes[s] + self.image * s.bytes(s.height)
        at += r.first // s.c2 * plane + low * row
        return Feature(
            "internal",
            at,
            s.dtype,
            r.channels,
            high - low,
            s.width,
            s.c2,
            plane,
            row,
            s.c2 * s.item,
            r.first % s.c2,
        )

    def store_maps(self, k: int) -> None:
        """What leaves the core once layer k has run."""
        group, s = self.made.group, self.facts.layers[k].dst.store
        here = [w for w in self.facts.writers[s] if group.first <= w < group.last]
        if s not in self.made.kept or k != here[-1]:
            return
        for w in here:
            self.store_range(w, self.facts.layers[w].dst)

    def store_range(self, k: int, r: Range) -> None:
        """Take this band of some channels that layer k made to where they wait, or go out."""
        s, tiles = r.store, self.made.group.tiles
        low, high = (s.height * (self.tile + i) // tiles for i in (0, 1))
        if low == high:
            return
        if s in self.where.homes and s not in self.where.pinned:
            move = {"src": self.inside(r, low, high), "dst": self.outside(r, low, high)}
            self.emit("store", move, k)
        for slot, first, channels in s.ports:
            begin = max(r.first, first)
            count = min(r.first + r.channels, first + channels) - begin
            if count > 0:
                port = _plain(
                    "output", slot, s, channels, begin - first, count, self.image, low, high
                )
                part = self.inside(Range(s, begin, count), low, high)
                self.emit("store", {"src": part, "dst": port}, k)

    # ---- constants ------------------------------------------------------------------------------
    def load_table(self, k: int) -> None:
        block, c = self.made.tables.get(k), self.facts.constants[k]
        if block is None or c is None:
            return
        if (k, -1, 0) not in self.packed:
            self.packed[k, -1, 0] = self.keep(c.table)
        self.load_bytes(self.packed[k, -1, 0], block.offset, k)

    def load_chunk(self, k: int, number: int, slot: int) -> None:
        blocks, c = self.made.weights.get(k), self.facts.constants[k]
        if not blocks or c is None:
            return
        step = self.made.chunks[k]
        first = number * step
        count = min(step, c.blocks - first)
        key = (k, first, count)
        if key not in self.packed:
            self.packed[key] = self.keep(chunk_bytes(self.facts.layers[k], c, first, count))
        self.load_bytes(self.packed[key], blocks[slot % len(blocks)].offset, k)

    def keep(self, raw: bytes) -> tuple[int, int]:
        self.weights += b"\0" * (-len(self.weights) % 16)
        self.weights += raw
        return len(self.weights) - len(raw), len(raw)

    def load_bytes(self, at: tuple[int, int], to: int, k: int) -> None:
        offset, n = at
        move = {
            space: Feature(space, where, "u8", 1, 1, n, 1, n, n, 1)
            for space, where in (("weights", offset), ("sram", to))
        }
        self.emit("load", {"src": move["weights"], "dst": move["sram"]}, k)

    # ---- work -----------------------------------------------------------------------------------
    def layer(self, k: int, loaded: bool = False) -> None:
        layer = self.facts.layers[k]
        if k not in self.band.made:
            return
        if self.made.group.streamed:
            self.load_table(k)
        if layer.is_product:
            self.product(layer, loaded)
        else:
            self.other(layer)
        self.store_maps(k)

    def product(self, layer: Layer, loaded: bool) -> None:
        k, c = layer.number, self.facts.constants[layer.number]
        assert c is not None
        step, streamed = self.made.chunks[k], self.made.group.streamed
        parts = -(-c.blocks // step)
        slots = self.made.weights[k]
        if streamed and not loaded:
            self.load_chunk(k, 0, 0)
        for i in range(parts):
            if streamed and i + 1 < parts and len(slots) > 1:
                self.load_chunk(k, i + 1, i + 1)
            elif streamed and i and len(slots) == 1:
                self.load_chunk(k, i, 0)
            self.chunk(layer, i)

    def chunk(self, layer: Layer, i: int) -> Range:
        """Compute chunk i of a product's channels; returns which those are."""
        k, a, c = layer.number, layer.attrs, self.facts.constants[layer.number]
        assert c is not None
        step, slots = self.made.chunks[k], self.made.weights[k]
        first = i * step * c.atoms.outputs
        channels = min(step * c.atoms.outputs, layer.dst.channels - first)
        weights = slots[i % len(slots)].offset
        params = weights + c.params_at(channels)
        made = _part(layer.dst, first, channels)
        low, high = self.band.made[k]
        fields = self.window(layer) | self.rounding(layer)
        fields |= {
            "dst": self.inside(made, low, high),
            "weights": weights,
            "weight_bytes": c.weight_bytes(channels),
            "params": params,
            "in_atom": c.atoms.inputs,
            "out_atom": c.atoms.outputs,
            "x_zero": a["x_zero"],
            "sparse": c.sparse,
            "one_scale": int(c.one_scale),
            "weight_type": dtypes.TABLE[layer.node.inputs[1].dtype].code,  # type: ignore[union-attr]
        }
        if layer.op == "depthwise":
            x = _part(layer.reads[0], first, channels)
            fields["src"] = self.inside(x, *layer.rows(0, low, high))
        if layer.residual >= 0:
            r = _part(layer.reads[layer.residual], first, channels)
            fields["residual"] = self.inside(r, low, high)
            fields |= {"r_zero": a["r_zero"], "r_factor": a["r_factor"]}
        constants = [
            (weights, weights + c.weight_bytes(channels)),
            (params, params + c.param_bytes(channels)),
        ]
        self.emit(layer.op, fields, k, constants)
        return made

    def other(self, layer: Layer) -> None:
        k, a = layer.number, layer.attrs
        low, high = self.band.made[layer.number]
        fields: dict[str, Any] = {
            "src": self.inside(layer.reads[0], *layer.rows(0, low, high)),
            "dst": self.inside(layer.dst, low, high),
        }
        if layer.op == "pool":
            fields |= self.window(layer) | self.rounding(layer)
            fields |= {n: a[n] for n in ("x_zero", "x_scale", "y_scale")}
            fields |= {"kind": POOLS.index(a["kind"]), "count_pad": int(a["count_include_pad"])}
        elif layer.op == "eltwise":
            other = layer.reads[1]
            fields["other"] = _spread(self.inside(other, *layer.rows(1, low, high)), fields["dst"])
            fields |= self.rounding(layer) | {"kind": ELTWISE.index(a["kind"])}
            fields |= {n: a[n] for n in ("a_zero", "b_zero", "a_factor", "b_factor")}
        elif layer.op == "lut":
            fields |= self.table(layer)
        elif layer.op == "resize":
            at = low - layer.rows(0, low, high)[0] * layer.factor[0]
            fields |= {"factor": layer.factor, "phase": (at, 0)}
        elif layer.op == "matmul":
            fields["other"] = self.inside(layer.reads[1], *layer.rows(1, low, high))
            fields |= {n: a[n] for n in ("a_zero", "b_zero", "factor", *ROUND)}
            fields["turned"] = int(a["turned"])
        self.emit(layer.op, fields, k)

    def window(self, layer: Layer) -> dict[str, Any]:
        low, high = self.band.made[layer.number]
        first, last = layer.rows(0, low, high)
        above = first - (low * layer.stride[0] - layer.pad[0])
        return {
            "src": self.inside(layer.reads[0], first, last),
            "dst": self.inside(layer.dst, low, high),
            "kernel": layer.kernel,
            "stride": layer.stride,
            "dilation": layer.dilation,
            "pad": (above, layer.pad[1]),
        }

    def rounding(self, layer: Layer) -> dict[str, Any]:
        a = layer.attrs
        return {n: a[n] for n in ROUND} | self.table(layer)

    def table(self, layer: Layer) -> dict[str, Any]:
        block, c = self.made.tables.get(layer.number), self.facts.constants[layer.number]
        if block is None or c is None:
            return {}
        return {"table": block.offset, "entries": c.entries, "base": layer.attrs["base"]}

    def emit(
        self, op: str, fields: dict[str, Any], layer: int, constants: list[Span] | None = None
    ) -> None:
        made = Instruction(op, fields, self.core, layer, barrier=self.barriers)
        reads = [f for n in ("src", "other", "residual") if (f := fields.get(n)) is not None]
        touched = [(f.space, span(f)) for f in reads]
        touched += [("sram", s) for s in constants or ()]
        if fields.get("entries"):
            c = self.facts.constants[layer]
            assert c is not None
            touched.append(("sram", (fields["table"], fields["table"] + len(c.table))))
        written = fields["dst"]
        made.wait = self.waits[self.core].add(made.queue, touched, [(written.space, span(written))])
        self.instructions.append(made)


def _part(r: Range, first: int, channels: int) -> Range:
    return Range(r.store, r.first + first, channels)


def _spread(f: Feature, over: Feature) -> Feature:
    """An operand that is the same for all rows or columns repeats its bytes."""
    if f.height == 1 and over.height > 1:
        f.row, f.height = 0, over.height
    if f.width == 1 and over.width > 1:
        f.pixel, f.width = 0, over.width
    return f


def _plain(
    space: str,
    slot: int,
    s: Store,
    total: int,
    first: int,
    channels: int,
    image: int,
    low: int,
    high: int,
) -> Feature:
    """Rows and channels of a tensor in the plain order, N C H W, that has `total` channels."""
    row = s.width * s.item
    plane = s.height * row
    at = (image * total + first) * plane + low * row
    return Feature(
        space, at, s.dtype, channels, high - low, s.width, 1, plane, row, s.item, slot=slot
    )
