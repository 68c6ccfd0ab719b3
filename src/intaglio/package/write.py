"""Write plans as the bytes of a package file. The same plans always give the same bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, heap, native, symint
from intaglio.errors import BadFile, Unsupported
from intaglio.heap import Arena
from intaglio.ir import Array, Quant
from intaglio.package import format as f
from intaglio.package.constant_pool import ByContent, bytes_of
from intaglio.package.ranges import Ranges
from intaglio.plan import MEMORIES, Plan, Step, Tensor

MAX_UNUSED_SHARE = 1 / 16  # of an arena's bytes; above, the constants are copied out of it


def write(
    plans: Sequence[Plan],
    isa: int = 0,
    meta: Mapping[str, Any] | None = None,
    strip: bool = False,
    arena: Arena | None = None,
) -> Array:
    """The bytes of a file with the main plans `plans`, for a CPU with the ISA bits `isa`.

    `strip` leaves out names of internal tensors and of the model's nodes. The result can be opened
    in memory; `seal` adds the checksum that a file needs. Constants made in `arena` stay there,
    unless too much of the arena is unused.
    """
    if arena is not None and not _fills(plans, arena):
        arena = None
    w = _Writer(strip, arena)
    for plan in plans:
        w.add_main(plan)
    text = json.dumps(dict(meta or {}), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    sections: dict[str, Data] = {
        "META": text.encode(),
        "PLAN": _pack(f.PLAN, w.plans),
        "TENS": _pack(f.TENSOR, w.tensors),
        "QUNT": _pack(f.QUANT, w.quants),
        "STEP": _pack(f.STEP, w.steps),
        "ARGS": np.array(w.args, "<u4").tobytes(),
        "ATTR": bytes(w.attrs),
        "NAME": bytes(w.names.data),
        "ORIG": bytes(w.origins.data),
        "CNST": w.consts,
    }
    if w.states:
        sections["STAT"] = _pack(f.STATE, w.states)
    sections |= w.ranges.sections()
    if w.plugins:
        sections["PLUG"] = _pack(f.PLUGIN, [w.plugins[op] for op in sorted(w.plugins)])
    if meta is not None and (links := meta.get("padding")) is not None:
        sections["PADS"] = _pack(f.PAD, _pads(plans[0], links))
    if strip:
        del sections["ORIG"]
    if w.code.end:
        sections["CODE"] = w.code
    return image(sections, isa, arena)


def _pads(plan: Plan, links: Mapping[str, Mapping[Any, Any]]) -> list[tuple[int, ...]]:
    """The rows of PADS, from the metadata of a package whose inputs may be padded."""
    inputs = [t.name if t is not None else None for t in plan.inputs]
    outputs = [t.name for t in plan.outputs]
    return [
        (outputs.index(out), int(axis), inputs.index(name), int(of))
        for out, axes in links.items()
        for axis, (name, of) in axes.items()
    ]


def _fills(plans: Sequence[Plan], arena: Arena) -> bool:
    """Whether the plans use nearly all constants in the arena."""
    every = [t.data for plan in plans for t in plan.tensors() if t.data is not None]
    used = {p for a in every if (p := arena.places.get(a.ctypes.data))}
    allocated = arena.end - arena.HEAD
    return allocated * (1 - MAX_UNUSED_SHARE) < sum(size for _, size in used)


def assemble(sections: Mapping[str, Data], isa: int = 0) -> bytes:
    """A whole file: header, section table and sections."""
    return seal(image(sections, isa)).tobytes()


def image(sections: Mapping[str, Data], isa: int = 0, arena: Arena | None = None) -> Array:
    """Header, section table and aligned sections, without the checksum of CNST.

    Constants are copied once, into aligned memory, so that a session can use them without another
    copy. The constants of an arena lie there already, before all other sections.
    """
    table = np.zeros(len(sections), f.SECTION)
    at = f.align(f.HEADER.itemsize + table.nbytes)
    if arena is not None:
        at = f.align(arena.HEAD + len(sections["CNST"]))
    for row, (kind, data) in zip(table, sections.items(), strict=True):
        row["kind"], row["offset"], row["size"] = kind.encode(), at, len(data)
        row["flags"] = f.REQUIRED if kind in f.REQUIRED_KINDS else 0
        if kind == "CNST" and arena is not None:
            row["offset"] = arena.HEAD
        else:
            at = f.align(at + len(data))
    in_arena = arena is not None and arena.whole and at <= len(arena.memory)
    result = arena.memory[:at] if arena is not None and in_arena else heap.own_block(at)
    end = f.HEADER.itemsize + table.nbytes
    for place in np.argsort(table["offset"], kind="stable"):
        row = table[place]
        data, start = sections[row["kind"].decode()], int(row["offset"])
        result[end:start] = 0
        end = start + len(data)
        if isinstance(data, Constants):
            data.lay(result[start:end])
        else:
            result[start:end] = np.frombuffer(data, np.uint8)
        if row["kind"] != b"CNST":
            row["crc"] = zlib.crc32(result[start:end].data)
    result[end:] = 0
    write_head(result, table, isa)
    return result


def seal(made: Array, every: bool = False) -> Array:
    """Add the checksum of the constants to an image, or of every section; only a file needs it."""
    table = table_of(made).copy()
    for row in table:
        if every or row["kind"] == b"CNST":
            start = int(row["offset"])
            row["crc"] = zlib.crc32(made[start : start + int(row["size"])].data)
    header = made[: f.HEADER.itemsize].view(f.HEADER)[0]
    write_head(made, table, int(header["isa"]), int(header["flags"]))
    return made


def table_of(made: Array) -> Array:
    """The section table, in place; BadFile if the file ends before it does."""
    whole = len(made) >= f.HEADER.itemsize
    header = made[: f.HEADER.itemsize].view(f.HEADER)[0] if whole else {"sections": 0}
    end = f.HEADER.itemsize + int(header["sections"]) * f.SECTION.itemsize
    if end > len(made):
        raise BadFile("file ends before its section table; it is truncated or damaged")
    table: Array = made[f.HEADER.itemsize : end].view(f.SECTION)
    return table


def write_head(made: Array, table: Array, isa: int, flags: int = 0) -> None:
    """Write header and section table, with their checksum."""
    header = np.zeros(1, f.HEADER)
    header["magic"], header["version"], header["isa"] = f.MAGIC, f.VERSION, isa
    header["flags"] = flags
    header["sections"], header["size"] = len(table), len(made)
    header["crc"] = zlib.crc32(header.tobytes() + table.tobytes())
    raw = header.tobytes() + table.tobytes()
    made[: len(raw)] = np.frombuffer(raw, np.uint8)


class _Strings:
    """A table of NUL-terminated strings, each stored once; offset 0 is the empty string."""

    def __init__(self) -> None:
        self.data, self.place = bytearray(b"\0"), {"": 0}

    def add(self, text: str) -> int:
        if text not in self.place:
            self.place[text] = len(self.data)
            self.data += text.replace("\0", "").encode() + b"\0"
        return self.place[text]


class Constants:
    """The constants of a section: aligned, equal ones stored once, not copied before `lay`."""

    def __init__(self, arena: Arena | None = None) -> None:
        self.arena = arena
        self.end = 0 if arena is None else arena.end - arena.HEAD
        self.pieces: dict[int, Array] = {}  # by offset
        self.places: ByContent[int] = ByContent()  # the offset of an array

    def __len__(self) -> int:
        return self.end

    def add(self, data: Array) -> tuple[int, int]:
        """Store an array once; returns its offset and size in bytes."""
        raw = bytes_of(data)
        made, new = self._in_arena(raw), f.align(self.end)
        start = self.places.find(raw, new if made is None else made)
        if made is None and start == new:
            self.end = start + len(raw)
            self.pieces[start] = raw
        return start, len(raw)

    def _in_arena(self, raw: Array) -> int | None:
        """The offset of an array made in the arena; it stays there even if an equal one exists."""
        if self.arena is None:
            return None
        start, size = self.arena.places.get(raw.ctypes.data, (0, -1))
        if size != len(raw):
            return None
        self.pieces[start - self.arena.HEAD] = raw
        return start - self.arena.HEAD

    def lay(self, made: Array) -> None:
        """Copy the arrays that are not in place yet, and clear the gaps."""
        end = 0
        for start, raw in sorted(self.pieces.items()):
            made[end:start] = 0
            end = start + len(raw)
            if raw.ctypes.data != made[start:].ctypes.data:
                made[start:end] = raw
        made[end:] = 0


Data = bytes | bytearray | memoryview | Constants  # contents of a section


class _Writer:
    """Collects the rows of every section."""

    def __init__(self, strip: bool, arena: Arena | None = None) -> None:
        self.strip = strip
        self.plans: list[tuple[Any, ...]] = []
        self.tensors: list[tuple[Any, ...]] = []
        self.quants: list[tuple[Any, ...]] = []
        self.steps: list[tuple[Any, ...]] = []
        self.states: list[tuple[Any, ...]] = []
        self.args: list[int] = []
        self.attrs, self.consts, self.code = bytearray(), Constants(arena), Constants()
        self.names, self.origins = _Strings(), _Strings()
        self.ranges = Ranges(self.names.add)
        self.inputs = self.outputs = 0  # slots of earlier main plans
        self.blobs: dict[bytes, int] = {}
        self.plugins: dict[int, tuple[int, ...]] = {}  # rows of PLUG, by the place of the op's name
        self.quant_rows: dict[Quant, int] = {}

    def add_main(self, plan: Plan) -> None:
        family = list(plan.walk())
        if sum(len(s.plans) for p in family for s in p.steps) != len(family) - 1:
            raise ValueError(f"plan '{plan.name}': a sub-plan is run by two steps; plan it twice")
        main = len(self.plans)
        number = {p: main + i for i, p in enumerate(family)}
        named = {t for t in (*plan.inputs, *plan.outputs) if t is not None}
        self.ranges.add_plan(main, plan)
        ids: dict[Tensor | None, int] = {None: f.NONE}
        for t in plan.tensors():
            ids[t] = len(self.tensors)
            self.tensors.append(self._tensor(t, t in named))
        for p in family:
            first, inputs = len(self.steps), self._list(ids, p.inputs)
            outputs = self._list(ids, p.outputs)
            for s in p.steps:
                self.ranges.add_step(len(self.steps), s)
                self.steps.append(self._step(s, ids, number))
            self.plans.append(
                (
                    self.names.add(p.name),
                    main,
                    first,
                    len(p.steps),
                    inputs,
                    len(p.inputs),
                    outputs,
                    len(p.outputs),
                    p.arena,
                )
            )
        for state in plan.states:
            begin = f.ZEROS if state.initial is None else self.consts.add(state.initial)[0]
            self.states.append((main, state.input, state.output, 0, begin))
        self.inputs += len(plan.inputs)
        self.outputs += len(plan.outputs)

    def _tensor(self, t: Tensor, named: bool) -> tuple[Any, ...]:
        if t.type.rank > native.MAX_RANK:
            raise Unsupported(
                f"tensor '{t.name}' has rank {t.type.rank}; the runtime takes at most "
                f"{native.MAX_RANK}; reshape it to fewer axes"
            )
        offset, slot, size = t.offset, 0, t.size
        if t.fixed:
            if t.data is None:
                raise ValueError(f"constant tensor '{t.name}' has no data")
            offset, size = self._constant(t.data, t.memory == "code")
        elif t.memory != "arena":
            slot = t.slot + (self.inputs if t.memory == "input" else self.outputs)
        shape = symint.plain(t.type.shape) + (0,) * (native.MAX_RANK - t.type.rank)
        name = self.names.add(t.name if named or not self.strip else "")
        varies = [i for i, d in enumerate(t.type.shape) if symint.is_symbolic(d)]
        dynamic = sum(1 << i for i in {*t.type.dynamic, *varies})
        code = dtypes.TABLE[t.type.dtype].code
        memory, quant = MEMORIES.index(t.memory), self._quant(t.type.quant)
        return name, code, t.type.rank, memory, dynamic, slot, quant, offset, size, shape

    def _constant(self, data: Array, code: bool) -> tuple[int, int]:
        return (self.code if code else self.consts).add(data)

    def _quant(self, q: Quant | None) -> int:
        if q is None:
            return f.NONE
        if q not in self.quant_rows:
            raw = np.array(q.scale, "<f8").tobytes() + np.array(q.zero, "<i8").tobytes()
            self.quant_rows[q] = len(self.quants)
            axis = -1 if q.axis is None else q.axis
            self.quants.append((axis, len(q.scale), self._blob(raw)))
        return self.quant_rows[q]

    def _step(
        self, s: Step, ids: Mapping[Tensor | None, int], number: Mapping[Plan, int]
    ) -> tuple[Any, ...]:
        op = native.ops().get(s.op)
        if op is None:
            raise Unsupported(
                f"step '{s.origin}': the runtime has no op '{s.op}'; lower it to other ops"
            )
        attrs = {k: number[a] if isinstance(a, Plan) else a for k, a in s.attrs.items()}
        raw = op.pack_attrs(attrs)
        name = self.names.add(s.op)
        if op.plugin is not None and name not in self.plugins:
            words = (op.plugin.name, op.plugin.version, op.declared)
            self.plugins[name] = (name, *map(self.names.add, words), op.plugin.abi, 0)
        origin = f.NONE if self.strip or not s.origin else self.origins.add(s.origin)
        args = self._list(ids, [*s.inputs, *s.outputs])
        return (
            name,
            origin,
            args,
            len(s.inputs),
            len(s.outputs),
            len(raw),
            self._blob(raw),
            symint.bound(s.macs),
        )

    def _list(self, ids: Mapping[Tensor | None, int], tensors: Sequence[Tensor | None]) -> int:
        first = len(self.args)
        self.args += [ids[t] for t in tensors]
        return first

    def _blob(self, raw: bytes) -> int:
        """The offset of these bytes in ATTR, a multiple of 8; equal bytes are stored once."""
        if raw not in self.blobs:
            self.blobs[raw] = len(self.attrs)
            self.attrs += raw + bytes(-len(raw) % 8)
        return self.blobs[raw]


def _pack(dtype: np.dtype[Any], rows: Sequence[tuple[Any, ...]]) -> bytes:
    return np.array(rows, dtype).tobytes() if rows else b""
