"""Mutations of package files with corrected checksums."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.npu.own import isa
from intaglio.package import format as f
from intaglio.package.read import sections
from intaglio.package.write import assemble

RECORDS = {
    "PLAN": f.PLAN,
    "TENS": f.TENSOR,
    "QUNT": f.QUANT,
    "STEP": f.STEP,
    "ARGS": np.dtype([("tensor", "<u4")]),
    "STAT": f.STATE,  # optional, as are those that follow
    "SYMB": f.SYMBOL,
    "AXES": f.AXIS,
    "PTCH": f.PATCH,
    "PADS": f.PAD,
    "FORM": f.TERM,
    "WGTS": f.WEIGHTS,
    "PLUG": f.PLUGIN,
}
NUMBERS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    63,
    64,
    255,
    256,
    4096,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**46,
    2**62,
    2**63 - 1,
    -1,
    -2,
    -3,
    -(2**31),
    -(2**63),
]
Parts = dict[str, bytearray]


def fix_checksums(data: bytes | bytearray) -> bytes:
    """The same file with corrected checksums, if its section table can be read."""
    data = bytearray(data)
    if len(data) < f.HEADER.itemsize:
        return bytes(data)
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - 32) // 32)
    for at in range(32, 32 + 32 * count, 32):
        offset, size = struct.unpack_from("<QQ", data, at + 8)
        if offset + size <= len(data):
            struct.pack_into("<I", data, at + 24, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<I", data, 20, 0)
    struct.pack_into("<I", data, 20, zlib.crc32(data[: 32 + 32 * count]))
    return bytes(data)


# ---- mutations: each changes the sections in place ---------------------------------------------
def change_field(rng: random.Random, parts: Parts) -> None:
    whole = {k: d for k, d in RECORDS.items() if not len(parts.get(k, b"")) % d.itemsize}
    filled = [k for k in whole if parts.get(k)]
    if not filled:
        return change_bytes(rng, parts)
    kind = rng.choice(filled)
    rows = np.frombuffer(parts[kind], RECORDS[kind])
    name = rng.choice(rows.dtype.names)  # type: ignore[arg-type]
    column = rows[name]
    i = rng.randrange(len(rows))
    if column.ndim > 1 and kind == "WGTS":  # a hash
        column = column[:, rng.randrange(32)]
    elif column.ndim > 1:
        axes = min(max(int(rows["rank"][i]), 1), 8) if rng.random() < 0.9 else 8
        column = column[:, rng.randrange(axes)]
    old = int(column[i])
    new = rng.choice(
        [
            rng.choice(NUMBERS),
            old + rng.choice([-64, -8, -1, 1, 8, 64]),
            int(rng.choice(column)),
            old * 2,
            old // 2,
            len(rows) - 1,
            len(rows),
            old ^ 1 << rng.randrange(8 * column.itemsize),
        ]
    )
    column[i] = np.array(new & (2**64 - 1), "<u8").view("<i8").astype(column.dtype)


def change_attribute(rng: random.Random, parts: Parts) -> None:
    if len(parts["ATTR"]) < 8:
        return change_bytes(rng, parts)
    at = 8 * rng.randrange(len(parts["ATTR"]) // 8)
    if rng.random() < 0.1:
        value = struct.pack("<d", rng.choice([0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5]))
    elif rng.random() < 0.5:
        old = struct.unpack_from("<q", parts["ATTR"], at)[0]
        value = struct.pack("<Q", (old + rng.choice([-2, -1, 1, 2, 8])) & (2**64 - 1))
    else:
        value = struct.pack("<Q", rng.choice(NUMBERS) & (2**64 - 1))
    parts["ATTR"][at : at + 8] = value


def change_bytes(rng: random.Random, parts: Parts) -> None:
    kind = rng.choice([k for k in parts if parts[k]])
    for _ in range(rng.randint(1, 8)):
        parts[kind][rng.randrange(len(parts[kind]))] = rng.choice(
            [0, 1, 127, 128, 255, rng.randrange(256)]
        )


def change_constant(rng: random.Random, parts: Parts) -> None:
    """Change an index, a shape or a zero point, which kernels must check at run time."""
    if len(parts["CNST"]) < 8:
        return change_bytes(rng, parts)
    at = 8 * rng.randrange(len(parts["CNST"]) // 8)
    parts["CNST"][at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) & (2**64 - 1))


def change_code(rng: random.Random, parts: Parts) -> None:
    """A field of an instruction, by the table of the instruction set."""
    raw = parts.get("CODE")
    if not raw:
        return change_bytes(rng, parts)
    places = list(code_fields(bytes(raw)))
    if not places:
        return change_bytes(rng, parts)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, width = rng.choice(places)
        old = int.from_bytes(raw[at : at + width], "little")
        same = [p for p, w in places if w == width]
        other = rng.choice(same)
        new = rng.choice(
            [
                rng.choice(NUMBERS),
                old + rng.choice([-64, -16, -1, 1, 16, 64]),
                old * 2,
                old // 2,
                int.from_bytes(raw[other : other + width], "little"),
                old ^ 1 << rng.randrange(8 * width),
            ]
        )
        raw[at : at + width] = (new & (2 ** (8 * width) - 1)).to_bytes(width, "little")


def code_fields(raw: bytes) -> Iterator[tuple[int, int]]:
    """Offset and width of every field of an NPU program, as far as it can be parsed."""
    if len(raw) < isa.PROGRAM.itemsize:
        return
    yield from _numbers(isa.PROGRAM, 0)
    head = np.frombuffer(raw, isa.PROGRAM, 1)[0]
    at = isa.PROGRAM.itemsize
    for _ in range(min(int(head["inputs"]) + int(head["outputs"]), 40)):
        yield from _numbers(isa.PORT, at)
        at += isa.PORT.itemsize
    while at + isa.HEAD.itemsize <= len(raw):
        name = isa.NAMES.get(raw[at])
        if name is None or at + isa.OPS[name].itemsize > len(raw):
            return
        yield from _numbers(isa.OPS[name], at)
        at += isa.OPS[name].itemsize


def _numbers(dtype: np.dtype[Any], at: int) -> Iterator[tuple[int, int]]:
    for kind, offset, *_ in (dtype.fields or {}).values():
        if kind.base.fields:
            yield from _numbers(kind.base, at + offset)
        elif kind.base.itemsize <= 8:
            for i in range(kind.itemsize // kind.base.itemsize):
                yield at + offset + i * kind.base.itemsize, kind.base.itemsize


DONORS: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}  # by counts of inputs and outputs


def learn(data: bytes) -> set[bytes]:
    """Remember the operations of a good file and their attributes, for `change_op`; their names."""
    parts, _ = sections(data)
    names = set()
    for step in np.frombuffer(parts["STEP"], f.STEP):
        name = bytes(parts["NAME"])[int(step["op"]) :].split(b"\0")[0]
        blob = bytes(parts["ATTR"][int(step["attrs"]) :][: int(step["attrs_size"])])
        known = DONORS.setdefault((int(step["n_in"]), int(step["n_out"])), [])
        names.add(name)
        if (name, blob) not in known:
            known.append((name, blob))
    return names


def change_op(rng: random.Random, parts: Parts) -> None:
    """Another operation on the same tensors: one of the same arity, or any."""
    if not parts["STEP"]:
        return change_bytes(rng, parts)
    steps = np.frombuffer(parts["STEP"], f.STEP)
    step = steps[rng.randrange(len(steps)) :][:1]
    donors = DONORS.get((int(step["n_in"][0]), int(step["n_out"][0])))
    if donors and rng.random() < 0.8:
        names = sorted({name for name, _ in donors})
        name = rng.choice(names)
        blob = rng.choice([b for n, b in donors if n == name])
    else:
        op = rng.choice(list(native.ops().values()))
        name, blob = op.name.encode(), b""
        for kind in (x.kind for x in op.fields for _ in range(x.count)):
            small = rng.choice([0, 1, 1, 2, 3]) if rng.random() < 0.9 else rng.choice(NUMBERS)
            blob += struct.pack("<d" if kind == "f" else "<q", small)
    step["op"] = len(parts["NAME"])
    parts["NAME"] += name + b"\0"
    parts["ATTR"] += bytes(-len(parts["ATTR"]) % 8)
    step["attrs"], step["attrs_size"] = len(parts["ATTR"]), len(blob)
    parts["ATTR"] += blob


def change_type(rng: random.Random, parts: Parts) -> None:
    """The element type of everything, so that inference still agrees and other kernels run."""
    rows = np.frombuffer(parts["TENS"], f.TENSOR)
    if not len(rows):
        return change_bytes(rng, parts)
    old, new = int(rng.choice(rows["dtype"])), rng.randint(1, 23)
    rows["dtype"][rows["dtype"] == old] = new


def change_extent(rng: random.Random, parts: Parts) -> None:
    """One extent wherever it occurs, so that inference still agrees."""
    rows = np.frombuffer(parts["TENS"], f.TENSOR)
    extents = rows["shape"][rows["shape"] > 0]
    if not len(extents):
        return change_bytes(rng, parts)
    old, new = int(rng.choice(extents)), rng.choice([0, 1, 2, 3, 5, 9, 33, 100])
    for row in rows:
        shape = row["shape"][: row["rank"]]
        shape[shape == old] = new


def resize_section(rng: random.Random, parts: Parts) -> None:
    kind = rng.choice(list(parts))
    if rng.random() < 0.5:
        parts[kind] += bytes(rng.randrange(256) for _ in range(rng.choice([1, 8, 40, 96, 500])))
    else:
        del parts[kind][rng.randrange(len(parts[kind]) + 1) :]


def repair(parts: Parts) -> None:
    """Give every tensor memory of its own and the type that inference finds, so that a changed
    attribute or shape is not refused for its consequences but reaches the kernels."""
    rows, steps = np.frombuffer(parts["TENS"], f.TENSOR), np.frombuffer(parts["STEP"], f.STEP)
    args, plans = np.frombuffer(parts["ARGS"], "<u4"), np.frombuffer(parts["PLAN"], f.PLAN)
    for step in steps[::-1] if len(plans) > 1 else steps:
        name = bytes(parts["NAME"])[int(step["op"]) :].split(b"\0")[0].decode("utf-8", "replace")
        op = native.ops().get(name)
        ids = args[int(step["args"]) :][: int(step["n_in"]) + int(step["n_out"])]
        blob = bytes(parts["ATTR"])[int(step["attrs"]) :][: int(step["attrs_size"])]
        sized = op is not None and len(blob) == 8 * sum(x.count for x in op.fields)
        if op is None or not sized or op.flags & native.CONTROL or step["n_out"] > 16:
            continue
        tensors = [None if i >= len(rows) else _tensor(rows[i], parts["CNST"]) for i in ids]
        ins = tensors[: int(step["n_in"])]
        if any(t is None and i != f.NONE for t, i in zip(ins, ids, strict=False)) or any(
            i >= len(rows) for i in ids[len(ins) :]
        ):
            continue
        pointers = (ctypes.POINTER(native.CTensor) * max(1, len(ins)))(
            *[ctypes.pointer(t) if t else ctypes.POINTER(native.CTensor)() for t in ins]
        )
        out = (native.CTensor * max(1, int(step["n_out"])))()
        raw = ctypes.create_string_buffer(blob, max(1, len(blob)))
        where = ctypes.cast(raw, ctypes.c_void_p)
        call = native.CCall(pointers, None, len(ins), int(step["n_out"]), where, None)
        if op.infer(ctypes.byref(call), out):
            continue
        for i, t in zip(ids[len(ins) :], out, strict=False):
            rows["dtype"][i], rows["rank"][i], rows["shape"][i] = t.dtype, t.rank, list(t.shape)
            rows["shape"][i][t.rank :] = 0
    arena = 0
    for row in rows:
        size = _bytes(row)
        if row["rank"] > 8 or size is None:
            return
        row["size"] = size
        if row["memory"] == 1:
            row["offset"], arena = arena, f.align(arena + size)
    plans["arena"][plans["main"] == np.arange(len(plans))] = arena


def _bytes(row: Any) -> int | None:
    """Bytes of a tensor that is small enough to run."""
    if row["dtype"] not in dtypes.BY_CODE or row["rank"] > 8 or min(row["shape"]) < 0:
        return None
    size = math.prod(int(d) for d in row["shape"][: row["rank"]])
    size *= dtypes.BY_CODE[int(row["dtype"])].numpy.itemsize
    return size if size < 1 << 20 else None


def _tensor(row: Any, constants: bytearray) -> Any:
    size = _bytes(row)
    if size is None:
        return None
    data = None
    if row["memory"] == 0:
        if row["slot"] or int(row["offset"]) % 8 or int(row["offset"]) + size > len(constants):
            return None
        base = np.frombuffer(constants, np.uint8)
        data = base.ctypes.data + int(row["offset"])
    shape = (ctypes.c_int64 * 8)(*[int(d) for d in row["shape"]])
    return native.CTensor(data, shape, size, int(row["dtype"]), int(row["rank"]))


MUTATIONS: list[tuple[int, Callable[[random.Random, Parts], None]]] = [
    (8, change_field),
    (4, change_attribute),
    (3, change_bytes),
    (2, change_constant),
    (4, change_op),
    (2, change_type),
    (2, change_extent),
    (1, resize_section),
    (2, change_code),
]


def _whole(parts: Parts) -> bool:
    """Whether every section has whole records."""
    return not any(len(parts[k]) % RECORDS[k].itemsize for k in RECORDS if k in parts)


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A file that differs from `data` in a few places but has good checksums (mostly)."""
    if rng.random() < 0.05:  # the container itself
        raw = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(min(len(raw), 400))] = rng.choice([0, 1, 64, 255, rng.randrange(256)])
        if rng.random() < 0.3:
            del raw[rng.randrange(len(raw)) :]
        return fix_checksums(raw) if rng.random() < 0.8 else bytes(raw)
    found, isa = sections(data)
    parts = {k: bytearray(v) for k, v in found.items()}
    weights, changes = zip(*MUTATIONS, strict=True)
    for change in rng.choices(changes, weights, k=rng.choice([1, 1, 1, 2, 2, 3, 5])):
        change(rng, parts)
        for kind in [k for k in RECORDS if k in parts]:  # numpy needs whole records
            size = RECORDS[kind].itemsize
            if len(parts[kind]) % size and rng.random() < 0.95:
                del parts[kind][len(parts[kind]) // size * size :]
        if not _whole(parts):
            break
    if _whole(parts) and rng.random() < 0.6:
        repair(parts)
    if rng.random() < 0.02:
        del parts[rng.choice(list(parts))]
    return assemble({k: bytes(v) for k, v in parts.items()}, isa)
