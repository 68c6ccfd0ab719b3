"""The C libraries: loading them, their tables of operations and kernels, packing of attributes."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput, IntaglioError, RunError
from intaglio.ir import Array, Node, Value

MAX_RANK = 8
# enum itg_op_flags
INPLACE, VIEW, EXTENT, CONTROL, INPLACE_FIRST, VALUES, ROUNDS = 1, 2, 4, 8, 16, 32, 64


class CTensor(ctypes.Structure):
    """struct itg_tensor of kernel.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("capacity", ctypes.c_uint64),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
    ]


class CCall(ctypes.Structure):
    """struct itg_call of kernel.h."""

    _fields_ = [
        ("inputs", ctypes.POINTER(ctypes.POINTER(CTensor))),
        ("outputs", ctypes.POINTER(ctypes.POINTER(CTensor))),
        ("n_in", ctypes.c_uint32),
        ("n_out", ctypes.c_uint32),
        ("attrs", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("round", ctypes.c_int64),
    ]


_Infer = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(CCall), ctypes.POINTER(CTensor))
_Scratch = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(CCall), ctypes.c_uint32)
_Run = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(CCall), ctypes.c_uint32, ctypes.c_uint32)


class _COp(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("fields", ctypes.c_char_p),
        ("attrs_size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("infer", _Infer),
        ("scratch", _Scratch),
    ]


class _CKernel(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.POINTER(_COp)),
        ("types", ctypes.c_char_p),
        ("isa", ctypes.c_char_p),
        ("tile", ctypes.c_char_p),
        ("needs", ctypes.c_uint32),
        ("run", _Run),
    ]


@dataclass(frozen=True)
class Field:
    """One field of an attribute struct: `count` 8-byte numbers called `name`."""

    name: str
    kind: str  # "i" integer, "f" float, "e" index into `words`
    count: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class NativeOp:
    """An operation of the runtime's table."""

    name: str
    fields: tuple[Field, ...]
    flags: int
    infer: Any
    scratch: Any

    def numbers(self, attrs: Mapping[str, Any]) -> list[Any]:
        """The attributes as the numbers of the op's C struct, 8 bytes each."""
        return [n for f in self.fields for n in _field_numbers(self.name, f, attrs)]

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        """The attributes as the bytes of the op's C struct."""
        out = bytearray()
        for f in self.fields:
            numbers = [symint.plain(n) for n in _field_numbers(self.name, f, attrs)]
            out += np.array(numbers, np.float64 if f.kind == "f" else np.int64).tobytes()
        return bytes(out)

    def unpack_attrs(self, raw: bytes) -> dict[str, Any]:
        """The inverse of `pack_attrs`, for reports."""
        out: dict[str, Any] = {}
        at = 0
        for f in self.fields:
            items = np.frombuffer(raw, np.float64 if f.kind == "f" else np.int64, f.count, at)
            at += items.nbytes
            values = [f.words[i] for i in items] if f.kind == "e" else items.tolist()
            out[f.name] = values[0] if f.count == 1 else tuple(values)
        for name in [n for n in out if n.startswith("n_") and n[2:] in out]:
            value = out[name[2:]]
            out[name[2:]] = value[: out.pop(name)] if isinstance(value, tuple) else value
        return out


@dataclass(frozen=True)
class Kernel:
    """A kernel of the runtime's table: a function for one op, element type and ISA."""

    op: NativeOp
    types: str
    isa: str
    tile: str
    needs: int
    run: Any


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded runtime library."""
    return _load("libintaglio.so")


@functools.cache
def compiler_library() -> ctypes.CDLL:
    """The loaded library of functions that only the compiler calls; boards do without it."""
    return _load("libintaglio_compiler.so")


def _load(name: str) -> ctypes.CDLL:
    here = Path(__file__).parent
    places = [here / name, here.parents[1] / "build" / name]  # installed; in a checkout
    if given := os.environ.get("INTAGLIO_LIBRARY"):  # the runtime's; the other may lie beside it
        beside = Path(given).with_name(name)
        places = [Path(given)] if name == "libintaglio.so" else [beside, *places]
    for path in places:
        if path.exists():
            return ctypes.CDLL(str(path))
    raise IntaglioError(
        f"the C library is missing: looked for {places[0]}; "
        "reinstall intaglio (pip install .) or run make build in the checkout"
    )


@functools.cache
def _tables() -> tuple[dict[str, NativeOp], tuple[Kernel, ...]]:
    count = ctypes.c_size_t()
    fn = library().itg_kernels
    fn.restype = ctypes.POINTER(_CKernel)
    rows = fn(ctypes.byref(count))
    ops: dict[str, NativeOp] = {}
    kernels = []
    for i in range(count.value):
        row, c = rows[i], rows[i].op.contents
        name = c.name.decode()
        if name not in ops:
            fields = tuple(_parse_field(w) for w in c.fields.decode().split())
            ops[name] = NativeOp(name, fields, c.flags, c.infer, c.scratch)
        kernels.append(
            Kernel(
                ops[name],
                row.types.decode(),
                row.isa.decode(),
                row.tile.decode(),
                row.needs,
                row.run,
            )
        )
    return ops, tuple(kernels)


def ops() -> dict[str, NativeOp]:
    """Every operation that has a kernel, by name."""
    return _tables()[0]


@functools.cache
def activations() -> tuple[str, ...]:
    """The activations that epilogues can apply, in the order of their numbers in packages.

    The list is ITG_ACTIVATIONS in csrc/kernels/elementwise/unary.inc.
    """
    words = next(f.words for f in ops()["cpu.gemm"].fields if f.name == "act")
    return tuple(w for w in words if w not in ("none", "prelu"))


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    """Every kernel of this build, best last."""
    return tuple(k for k in _tables()[1] if k.run)


@functools.cache
def _kernels_of(op: str) -> tuple[Kernel, ...]:
    """Every kernel of an op, best first, also those for machines that this build is not for."""
    return tuple(k for k in reversed(_tables()[1]) if k.op.name == op)


def find_kernel(op: str, dtype: str, isa: int) -> Kernel | None:
    """The best kernel for `op` whose first input is `dtype`, given the ISA bits `isa`."""
    for k in _kernels_of(op):
        if not k.needs & ~isa and k.types in (dtype, "any"):
            return k
    return None


def why_not(node: Node, isa: int) -> str | None:
    """None if a CPU with the ISA bits `isa` can run this node; otherwise the reason."""
    op = ops().get(node.op)
    if op is None:
        return f"the CPU runtime has no op '{node.op}'"
    if op.flags & CONTROL:
        return None
    types = [v.type for v in node.inputs if v is not None]
    if types and find_kernel(node.op, types[0].dtype, isa) is None:
        return f"the CPU runtime has no {node.op} for {types[0].dtype}"
    try:
        blob = op.pack_attrs(node.attrs)
    except BadInput as e:
        return str(e)
    for t in (*types, *(v.type for v in node.outputs)):
        if t.rank > MAX_RANK:
            return f"a tensor has rank {t.rank}; the CPU runtime takes at most {MAX_RANK}"
    if any(v.type.dynamic for v in (*node.inputs, *node.outputs) if v is not None):
        return None  # the runtime infers these types on every run
    ins = [None if v is None else _typed(v) for v in node.inputs]
    call, inferred, keep = _call(ins, blob, len(node.outputs))
    words = op.infer(ctypes.byref(call), inferred)
    del keep
    if words:
        return str(words.decode())
    for v, t in zip(node.outputs, inferred, strict=True):
        got = (dtypes.BY_CODE[t.dtype].name, tuple(t.shape[: t.rank]))
        if got != (v.dtype, symint.plain(v.shape)):
            return f"its kernel infers {got[0]}{got[1]}, the graph has {v.type}"
    return None


def _parse_field(text: str) -> Field:
    name, kind, count, words = re.fullmatch(r"(\w+):([ife])(\d+)(?:\((.*)\))?", text).groups()  # type: ignore[union-attr]
    return Field(name, kind, int(count), tuple(words.split("|")) if words else ())


def _field_numbers(op: str, f: Field, attrs: Mapping[str, Any]) -> list[Any]:
    if f.name not in attrs and f.name.startswith("n_"):
        return [len(attrs[f.name[2:]])]
    if f.name not in attrs:
        raise KeyError(
            f"op {op}: the kernel wants attribute {f.name!r}, the node has {sorted(attrs)}"
        )
    value = attrs[f.name]
    items = [value] if f.count == 1 and not isinstance(value, tuple | list) else list(value)
    if f.kind == "e":
        if unknown := [w for w in items if w not in f.words]:
            raise BadInput(
                f"op {op}: {f.name} is {unknown[0]!r}; the kernel knows {', '.join(f.words)}"
            )
        items = [f.words.index(w) for w in items]
    if len(items) > f.count:
        raise BadInput(
            f"op {op}: {f.name} has {len(items)} entries; the kernel takes at most {f.count}"
        )
    return items + [0] * (f.count - len(items))


# ---- running a single kernel, for tests and benchmarks ------------------------------------------
class Prepared:
    """A kernel with its operands bound and its outputs allocated, to be run repeatedly."""

    def __init__(
        self,
        kernel: Kernel,
        arrays: Sequence[Array | None],
        attrs: Mapping[str, Any],
        n_out: int = 1,
        parts: int = 1,
    ):
        if not kernel.run:
            raise IntaglioError(
                f"{kernel.op.name} for {kernel.isa} is not in this build of the C library; "
                "run make build ISAS=all in the checkout"
            )
        self.kernel, self.parts = kernel, parts
        self.ins = [None if a is None else np.asarray(a, order="C") for a in arrays]
        in_tensors = [None if a is None else _tensor(a) for a in self.ins]
        self.call, inferred, self.keep = _call(in_tensors, kernel.op.pack_attrs(attrs), n_out)
        _check(kernel, kernel.op.infer(ctypes.byref(self.call), inferred))
        types = [(tuple(t.shape[: t.rank]), dtypes.BY_CODE[t.dtype].numpy) for t in inferred]
        self.outs = [np.zeros(shape, dtype) for shape, dtype in types]
        self.out_tensors = [_tensor(a) for a in self.outs]
        self.call.outputs = (ctypes.POINTER(CTensor) * n_out)(
            *[ctypes.pointer(t) for t in self.out_tensors]
        )
        scratch = kernel.op.scratch
        size = scratch(ctypes.byref(self.call), parts) if scratch else 0
        self.scratch = np.zeros(size + 64, np.uint8)
        self.call.scratch = -(-self.scratch.ctypes.data // 64) * 64

    def run(self) -> None:
        """Run the parts of every round one after the other, on this thread."""
        rounds = self.outs[0].shape[0] if self.kernel.op.flags & ROUNDS and self.outs[0].size else 1
        for self.call.round in range(rounds):
            for part in range(self.parts):
                _check(self.kernel, self.kernel.run(ctypes.byref(self.call), part, self.parts))

    def outputs(self) -> list[Array]:
        """The outputs, cut to their true shapes (kernels write them densely)."""
        shapes = [tuple(t.shape[: t.rank]) for t in self.out_tensors]
        return [
            a.reshape(-1)[: math.prod(s)].reshape(s) for a, s in zip(self.outs, shapes, strict=True)
        ]


def run_kernel(
    kernel: Kernel,
    arrays: Sequence[Array | None],
    attrs: Mapping[str, Any],
    n_out: int = 1,
    parts: int = 1,
) -> list[Array]:
    """Infer shapes, allocate outputs and run one kernel, split into `parts`."""
    prepared = Prepared(kernel, arrays, attrs, n_out, parts)
    prepared.run()
    return prepared.outputs()


def _call(ins: Sequence[CTensor | None], attrs: bytes, n_out: int) -> tuple[CCall, Any, Any]:
    """A call with these inputs, tensors for the inferred outputs, and buffers to keep alive."""
    blob = ctypes.create_string_buffer(attrs or b"\0")
    pointers = (ctypes.POINTER(CTensor) * max(len(ins), 1))(
        *[ctypes.POINTER(CTensor)() if t is None else ctypes.pointer(t) for t in ins]
    )
    call = CCall(pointers, None, len(ins), n_out, ctypes.cast(blob, ctypes.c_void_p), None, 0)
    return call, (CTensor * n_out)(), (blob, pointers)


def _typed(v: Value) -> CTensor:
    """A tensor for shape inference; only constants have an address."""
    known = v.data is not None and v.data.flags.c_contiguous
    shape = (ctypes.c_int64 * MAX_RANK)(*symint.plain(v.shape))
    code = dtypes.TABLE[v.dtype].code
    return CTensor(v.data.ctypes.data if known else None, shape, v.type.bytes, code, v.type.rank)  # type: ignore[union-attr]


def _tensor(a: Array) -> CTensor:
    shape = (ctypes.c_int64 * MAX_RANK)(*a.shape)
    return CTensor(
        a.ctypes.data, shape, a.nbytes, dtypes.TABLE[dtypes.name_of(a.dtype)].code, a.ndim
    )


def _check(kernel: Kernel, words: bytes | None) -> None:
    if words:
        raise RunError(f"{kernel.op.name}: {words.decode()}")


@functools.cache
def machine() -> int:
    """The ISA bits that this CPU has and this build has kernels for."""
    return int(library().itg_cpu_isa())
