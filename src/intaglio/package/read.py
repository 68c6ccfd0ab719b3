"""Parse a package file into plans, for tools and reports; the C runtime has its own reader."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.errors import BadFile, BadKey, option
from intaglio.ir import Array, Quant, Type
from intaglio.native_op import TEXT, NativeOp, Plugin
from intaglio.package import format as f
from intaglio.plan import MEMORIES, Plan, State, Step, Tensor
from intaglio.symint import Symbol, Symbols


@dataclass(frozen=True)
class Contents:
    """The parsed contents of a package file."""

    plans: list[Plan]  # the main plans
    isa: int
    meta: dict[str, Any]
    sizes: dict[str, int]  # of each section, in bytes


def sections(data: bytes | memoryview, trust: bool = False) -> tuple[dict[str, memoryview], int]:
    """The sections of a file by kind, and its ISA bits; BadFile if it is damaged.

    `trust` skips the checksum of the constants, which a package has only once it is written.
    """
    view = memoryview(data)
    if len(view) < f.HEADER.itemsize:
        raise BadFile(f"package has {len(view)} bytes, its header alone has {f.HEADER.itemsize}")
    header = np.frombuffer(view, f.HEADER, 1)[0]
    if header["magic"] != f.MAGIC:
        raise BadFile("the file does not start with ITG1; it is not a package")
    if header["version"] != f.VERSION:
        raise BadFile(
            f"package has format version {header['version']}, this reader knows {f.VERSION}; "
            "compile again"
        )
    if header["flags"] == f.ENCRYPTED:
        raise BadKey(f"package is encrypted; only its key opens it; give {option('key')}")
    if header["flags"]:
        raise BadFile(
            f"package has flags 0x{header['flags']:x}, which this reader does not know; update "
            "intaglio"
        )
    if header["size"] != len(view):
        raise BadFile(
            f"package has {len(view)} bytes, its header says {header['size']}; it is truncated"
        )
    end = f.HEADER.itemsize + int(header["sections"]) * f.SECTION.itemsize
    if end > len(view):
        raise BadFile(f"package has {header['sections']} sections, more than fit into the file")
    table = np.frombuffer(view[f.HEADER.itemsize : end], f.SECTION)
    bare = header.copy()
    bare["crc"] = 0
    if zlib.crc32(bare.tobytes() + table.tobytes()) != header["crc"]:
        raise BadFile("checksum of the header differs; the file is damaged")
    found = {}
    for row in table:
        kind = row["kind"].decode("ascii", "replace")
        part = view[int(row["offset"]) : int(row["offset"]) + int(row["size"])]
        trusted = trust and kind == "CNST"
        if len(part) != row["size"] or not (trusted or zlib.crc32(part) == row["crc"]):
            raise BadFile(f"checksum of section {kind} differs; the file is damaged")
        found[kind] = part
    return found, int(header["isa"])


def read(data: bytes | memoryview, trust: bool = False) -> Contents:
    """Parse a package file. Constants are views of `data`."""
    parts, isa = sections(data, trust)
    if "WGTS" in parts:
        raise BadFile("package has its weights in another file; Package.load finds it")
    with inconsistent():
        return _Reader(parts).contents(isa)


@contextmanager
def inconsistent() -> Iterator[None]:
    """Turns errors of reading damaged or hostile records into BadFile."""
    try:
        yield
    except (KeyError, ValueError, IndexError, TypeError) as e:
        raise BadFile(f"package is inconsistent ({type(e).__name__}: {e}); compile again") from None


class _Reader:
    def __init__(self, parts: dict[str, memoryview]) -> None:
        self.parts = parts
        self.plans = self._rows("PLAN", f.PLAN)
        self.tens = self._rows("TENS", f.TENSOR)
        self.quants = self._rows("QUNT", f.QUANT)
        self.steps = self._rows("STEP", f.STEP)
        self.args = self._rows("ARGS", np.dtype("<u4"))
        self.plugged = {op.name: op for op in self._plugin_ops()}

    def _rows(self, kind: str, dtype: np.dtype[Any]) -> Array:
        return np.frombuffer(self.parts[kind], dtype)

    def contents(self, isa: int) -> Contents:
        mains = [i for i, p in enumerate(self.plans) if p["main"] == i]
        slots = {"input": 0, "output": 0}
        plans: list[Plan] = []
        for i, main in enumerate(mains):
            last = mains[i + 1] if i + 1 < len(mains) else len(self.plans)
            plans.append(self._family(range(main, last), slots))
            plans[-1].states = self._states(main, plans[-1])
            self._open_inputs(main, plans[-1])
            slots["input"] += len(plans[-1].inputs)
            slots["output"] += len(plans[-1].outputs)
        meta = json.loads(bytes(self.parts["META"]).decode())
        if not isinstance(meta, dict):
            raise ValueError("section META is not a JSON object")
        sizes = {k: len(v) for k, v in self.parts.items()}
        return Contents(plans, isa, meta, sizes)

    def _plugin_ops(self) -> Iterator[NativeOp]:
        """The ops of plug-ins as the package was compiled with; they need not be loaded."""
        for row in self._rows("PLUG", f.PLUGIN) if "PLUG" in self.parts else ():
            kinds = ("op", "plugin", "version", "fields")
            op, plugin, version, fields = (self._string("NAME", row[k]) for k in kinds)
            about = Plugin(plugin, version, int(row["abi"]))
            yield NativeOp(op, fields, 0 if fields else TEXT, plugin=about)

    def _states(self, main: int, plan: Plan) -> list[State]:
        if "STAT" not in self.parts:
            return []
        results = []
        for s in self._rows("STAT", f.STATE):
            if s["plan"] != main:
                continue
            kind, initial = plan.inputs[s["input"]].type, None
            if s["initial"] != f.ZEROS:
                at = int(s["initial"])
                raw = self.parts["CNST"][at : at + kind.bytes]
                initial = np.frombuffer(raw, dtypes.numpy_of(kind.dtype)).reshape(kind.shape)
            results.append(State(int(s["input"]), int(s["output"]), initial))
        return results

    def _open_inputs(self, main: int, plan: Plan) -> None:
        """Give the inputs of a main plan the names of their open dimensions."""
        if "SYMB" not in self.parts:
            return
        rows = self._rows("SYMB", f.SYMBOL)
        names = {i: self._string("NAME", s["name"]) for i, s in enumerate(rows)}
        mine = [
            Symbol(names[i], int(s["low"]), int(s["high"]), int(s["multiple"]))
            for i, s in enumerate(rows)
            if s["plan"] == main
        ]
        symbols = Symbols(mine)
        for a in self._rows("AXES", f.AXIS):
            t = plan.inputs[a["input"]] if a["plan"] == main else None
            if t is not None:
                shape, axis = list(t.type.shape), int(a["axis"])
                shape[axis] = symbols.extent(names[int(a["symbol"])])
                left = tuple(i for i in t.type.dynamic if i != axis)
                t.type = t.type.but(shape=tuple(shape), dynamic=left)

    def _family(self, numbers: Sequence[int], slots: dict[str, int]) -> Plan:
        """Parse a main plan and its sub-plans; returns the main plan."""
        tensors: dict[int, Tensor | None] = {f.NONE: None}
        plans: dict[int, Plan] = {}
        for n in reversed(numbers):  # sub-plans first
            p = self.plans[n]
            first = int(p["first_step"])
            steps = self.steps[first : first + int(p["n_steps"])]
            plans[n] = Plan(
                self._tensors(p["inputs"], p["n_inputs"], tensors, slots),
                self._tensors(p["outputs"], p["n_outputs"], tensors, slots),  # type: ignore[arg-type]
                [self._step(s, tensors, slots, plans) for s in steps],
                int(p["arena"]),
                self._string("NAME", p["name"]),
            )
        return plans[numbers[0]]

    def _tensors(
        self, first: int, count: int, known: dict[int, Tensor | None], slots: dict[str, int]
    ) -> list[Tensor | None]:
        ids = [int(i) for i in self.args[int(first) : int(first) + int(count)]]
        for i in ids:
            if i not in known:
                known[i] = self._tensor(self.tens[i], slots)
        return [known[i] for i in ids]

    def _tensor(self, t: Any, slots: dict[str, int]) -> Tensor:
        memory = MEMORIES[t["memory"]]
        shape = tuple(int(d) for d in t["shape"][: t["rank"]])
        axes = tuple(i for i in range(t["rank"]) if t["dynamic"] >> i & 1)
        quant = None if t["quant"] == f.NONE else self._quant(self.quants[t["quant"]])
        kind = Type(dtypes.BY_CODE[int(t["dtype"])].name, shape, quant, axes)
        offset, size, data = int(t["offset"]), int(t["size"]), None
        if memory in ("const", "code"):
            section = self.parts["CNST" if memory == "const" else "CODE"]
            raw = section[offset : offset + kind.bytes]
            data = np.frombuffer(raw, dtypes.numpy_of(kind.dtype)).reshape(shape)
        slot = int(t["slot"]) - slots.get(memory, 0)
        return Tensor(kind, memory, offset, slot, self._string("NAME", t["name"]), data, size)

    def _quant(self, q: Any) -> Quant:
        n, at = int(q["count"]), int(q["values"])
        scale = np.frombuffer(self.parts["ATTR"][at : at + 8 * n], "<f8")
        zero = np.frombuffer(self.parts["ATTR"][at + 8 * n : at + 16 * n], "<i8")
        axis = None if q["axis"] < 0 else int(q["axis"])
        return Quant(tuple(scale.tolist()), tuple(zero.tolist()), axis)

    def _step(
        self, s: Any, known: dict[int, Tensor | None], slots: dict[str, int], plans: dict[int, Plan]
    ) -> Step:
        op, at = self._string("NAME", s["op"]), int(s["attrs"])
        raw = bytes(self.parts["ATTR"][at : at + int(s["attrs_size"])])
        declared = self.plugged.get(op) or native.ops()[op]
        attrs = declared.unpack_attrs(raw) if raw else {}
        if declared.flags & native.CONTROL:
            attrs |= {
                k: plans[attrs[k]] for k in ("then_graph", "else_graph", "body") if k in attrs
            }
        args = self._tensors(s["args"], int(s["n_in"]) + int(s["n_out"]), known, slots)
        inputs, outputs = args[: s["n_in"]], args[s["n_in"] :]
        has_origin = s["origin"] != f.NONE and "ORIG" in self.parts
        origin = self._string("ORIG", s["origin"]) if has_origin else ""
        return Step(op, inputs, outputs, attrs, origin, int(s["macs"]))  # type: ignore[arg-type]

    def _string(self, kind: str, at: int) -> str:
        text = bytes(self.parts[kind][int(at) : int(at) + 4096])
        return text[: text.index(0)].decode("utf-8", "replace")
