"""The C libraries: loading them, their tables of operations and kernels, packing of attributes."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput, IntaglioError, RunError
from intaglio.ir import Array, Node, Value
from intaglio.native_op import CONTROL as CONTROL
from intaglio.native_op import INPLACE as INPLACE
from intaglio.native_op import INPLACE_FIRST as INPLACE_FIRST
from intaglio.native_op import ROUNDS as ROUNDS
from intaglio.native_op import VIEW as VIEW
from intaglio.native_op import NativeOp as NativeOp
from intaglio.native_op import Plugin as Plugin

MAX_RANK = 8


class CTensor(ctypes.Structure):
    """struct itg_tensor of intaglio_plugin.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("capacity", ctypes.c_uint64),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
    ]


class CCall(ctypes.Structure):
    """struct itg_call of intaglio_plugin.h."""

    _fields_ = [
        ("inputs", ctypes.POINTER(ctypes.POINTER(CTensor))),
        ("outputs", ctypes.POINTER(ctypes.POINTER(CTensor))),
        ("n_in", ctypes.c_uint32),
        ("n_out", ctypes.c_uint32),
        ("attrs", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("round", ctypes.c_int64),
    ]


class CPreparedCall(ctypes.Structure):
    """struct itg_prepared_call of csrc/kernels/kernel.h."""

    _fields_ = [("call", CCall), ("prepared", ctypes.c_void_p)]


Infer = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(CCall), ctypes.POINTER(CTensor))
Scratch = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(CCall), ctypes.c_uint32)
Run = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(CCall), ctypes.c_uint32, ctypes.c_uint32)
Macs = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(CCall))


class COp(ctypes.Structure):
    """struct itg_op of intaglio_plugin.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("fields", ctypes.c_char_p),
        ("attrs_size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("n_out", ctypes.c_uint32),
        ("infer", Infer),
        ("scratch", Scratch),
        ("macs", Macs),
        ("defaults", ctypes.c_char_p),
        ("formats", ctypes.c_char_p),
    ]


class CKernel(ctypes.Structure):
    """struct itg_kernel of intaglio_plugin.h."""

    _fields_ = [
        ("op", ctypes.POINTER(COp)),
        ("types", ctypes.c_char_p),
        ("isa", ctypes.c_char_p),
        ("tile", ctypes.c_char_p),
        ("needs", ctypes.c_uint32),
        ("run", Run),
    ]


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
def _tables() -> tuple[dict[str, NativeOp], list[Kernel]]:
    count = ctypes.c_size_t()
    fn = library().itg_kernels
    fn.restype = ctypes.POINTER(CKernel)
    return rows_of(fn(ctypes.byref(count)), count.value)


def rows_of(
    rows: Any, count: int, plugin: Plugin | None = None
) -> tuple[dict[str, NativeOp], list[Kernel]]:
    """The operations and kernels of a C table."""
    ops: dict[str, NativeOp] = {}
    kernels = []
    for i in range(count):
        row, c = rows[i], rows[i].op.contents
        name = c.name.decode()
        if name not in ops:
            declared = (c.fields or b"").decode()
            ops[name] = NativeOp(name, declared, c.flags, c.infer, c.scratch, plugin)
        types, isa, tile = row.types, row.isa or b"scalar", row.tile or b""
        found = Kernel(ops[name], types.decode(), isa.decode(), tile.decode(), row.needs, row.run)
        kernels.append(found)
    return ops, kernels


def add_kernels(ops: Mapping[str, NativeOp], kernels: Sequence[Kernel]) -> None:
    """Add the operations of a plug-in, for everything that asks for them from now on."""
    remove_ops(ops)
    _tables()[0].update(ops)
    _tables()[1].extend(kernels)
    _forget()


def remove_ops(names: Collection[str]) -> None:
    """Remove operations of plug-ins."""
    ops, table = _tables()
    for name in names:
        ops.pop(name, None)
    table[:] = [k for k in table if k.op.name not in names]
    _forget()


def _forget() -> None:
    kernels.cache_clear()
    _kernels_of.cache_clear()


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
    ins = [None if v is None else typed(v) for v in node.inputs]
    call, inferred, keep = call_of(ins, blob, len(node.outputs))
    words = op.infer(ctypes.byref(call), inferred)
    del keep
    if words:
        return str(words.decode())
    for v, t in zip(node.outputs, inferred, strict=True):
        got = (dtypes.BY_CODE[t.dtype].name, tuple(t.shape[: t.rank]))
        if got != (v.dtype, symint.plain(v.shape)):
            return f"its kernel infers {got[0]}{got[1]}, the graph has {v.type}"
    return None


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
        self.call, inferred, self.keep = call_of(in_tensors, kernel.op.pack_attrs(attrs), n_out)
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
        self.derived = prepare(kernel.op.name, self.call)

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


def prepare(op: str, call: CCall) -> Any:
    """Set what the kernels of an op derive from the shapes of a call of `call_of`; a buffer to keep
    alive."""
    name, at = op.encode(), ctypes.byref(call)
    derive = library().itg_prepare
    derive.restype = ctypes.c_uint64
    buffer = (ctypes.c_uint64 * (derive(name, at, None) // 8 + 1))()
    derive(name, at, buffer)
    CPreparedCall.from_address(ctypes.addressof(call)).prepared = ctypes.addressof(buffer)
    return buffer


def call_of(ins: Sequence[CTensor | None], attrs: bytes, n_out: int) -> tuple[CCall, Any, Any]:
    """A call with these inputs, tensors for the inferred outputs, and buffers to keep alive."""
    blob = ctypes.create_string_buffer(attrs or b"\0")
    pointers = (ctypes.POINTER(CTensor) * max(len(ins), 1))(
        *[ctypes.POINTER(CTensor)() if t is None else ctypes.pointer(t) for t in ins]
    )
    call = CCall(pointers, None, len(ins), n_out, ctypes.cast(blob, ctypes.c_void_p), None, 0)
    return CPreparedCall(call).call, (CTensor * n_out)(), (blob, pointers)


def typed(v: Value, shape: Sequence[int] | None = None) -> CTensor:
    """A tensor for shape inference, of another shape if one is given; constants have an address."""
    known = v.data is not None and v.data.flags.c_contiguous
    extents = symint.plain(v.shape) if shape is None else tuple(shape)
    size = math.prod(extents) * dtypes.itemsize(v.dtype)
    code, place = dtypes.TABLE[v.dtype].code, (ctypes.c_int64 * MAX_RANK)(*extents)
    return CTensor(v.data.ctypes.data if known else None, place, size, code, len(extents))  # type: ignore[union-attr]


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
