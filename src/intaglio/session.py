"""A running model: the C runtime through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from intaglio import dtypes, native
from intaglio.errors import BadFile, BadInput, IntaglioError, RunError, Unsupported
from intaglio.interpret import check_inputs
from intaglio.ir import Array, Quant, Type
from intaglio.package import Package
from intaglio.package.format import ALIGN

_STATUS: dict[int, type[IntaglioError]] = {
    1: BadFile,
    2: BadInput,
    3: Unsupported,
    4: RunError,
    5: RunError,  # no memory
}
_Shape = ctypes.c_int64 * native.MAX_RANK
_Byte = ctypes.c_char
_READABLE = 0x101  # numpy's bits for C-contiguous and aligned


class _Error(ctypes.Structure):
    _fields_ = [("words", ctypes.c_char * 256)]


class _Info(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("dynamic", ctypes.c_uint8),
        ("shape", _Shape),
        ("bytes", ctypes.c_uint64),
        ("scale", ctypes.POINTER(ctypes.c_double)),
        ("zero", ctypes.POINTER(ctypes.c_int64)),
        ("n_scale", ctypes.c_uint32),
        ("quant_axis", ctypes.c_int32),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("plan", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("profile", ctypes.c_uint32),
        ("external_io", ctypes.c_uint32),
        ("max_steps", ctypes.c_uint64),
        ("memory", ctypes.c_void_p),
        ("memory_size", ctypes.c_uint64),
        ("weights", ctypes.c_void_p),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [
        (n, ctypes.c_uint64) for n in ("weights", "arena", "scratch", "io", "tables", "session")
    ]


class _View(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("shape", _Shape),
        ("bytes", ctypes.c_uint64),
    ]


class _State(ctypes.Structure):
    _fields_ = [
        ("input", ctypes.c_uint32),
        ("output", ctypes.c_uint32),
        ("initial", ctypes.c_void_p),
    ]


class _Profile(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char_p),
        ("origin", ctypes.c_char_p),
        ("kernel_isa", ctypes.c_char_p),
        ("plan", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("macs", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("ns", ctypes.c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What one step took, summed over all runs since the session was opened."""

    op: str
    origin: str  # the place in the user's model
    isa: str  # of the kernel
    plan: int  # 0: a step of the model itself, else the number of its sub-plan
    threads: int  # that share its work
    macs: int  # of one call
    calls: int
    milliseconds: float  # of all calls


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.library()
    pointer, u32, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t
    signatures: list[tuple[Any, ...]] = [
        ("itg_model_open_file", u32, ctypes.c_char_p, u32, pointer, pointer),
        ("itg_model_open", u32, pointer, size, u32, pointer, pointer),
        ("itg_model_close", None, pointer),
        ("itg_model_inputs", u32, pointer, u32),
        ("itg_model_outputs", u32, pointer, u32),
        ("itg_model_plans", u32, pointer),
        ("itg_model_input", u32, pointer, u32, u32, pointer),
        ("itg_model_output", u32, pointer, u32, u32, pointer),
        ("itg_model_states", u32, pointer, u32),
        ("itg_model_state", u32, pointer, u32, u32, pointer),
        ("itg_get_state", u32, pointer, u32, pointer),
        ("itg_set_state", u32, pointer, u32, pointer, size),
        ("itg_reset_states", None, pointer),
        ("itg_model_memory", u32, pointer, pointer, pointer, pointer),
        ("itg_session_create", u32, pointer, pointer, pointer, pointer),
        ("itg_session_destroy", None, pointer),
        ("itg_session_error", ctypes.c_char_p, pointer),
        ("itg_session_steps", u32, pointer),
        ("itg_run_with", u32, pointer, pointer, pointer),
        ("itg_get_output", u32, pointer, u32, pointer),
        ("itg_get_profile", u32, pointer, u32, pointer),
        ("itg_reset_profile", None, pointer),
    ]
    for name, result, *takes in signatures:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, takes
    return lib


class _Model:
    """An open package file; closed when the last session that uses it is gone."""

    def __init__(self, source: str | Path | bytes | Package, verify: bool):
        lib, error, handle = _library(), _Error(), ctypes.c_void_p()
        if isinstance(source, Package) and not source.sealed:
            verify = False  # it never left this process
        flags = 0 if verify else 1
        where = ""
        if isinstance(source, Package | bytes | bytearray | memoryview):
            data = source.image if isinstance(source, Package) else bytes(source)
            given = np.frombuffer(data, np.uint8)
            at = given.ctypes.data
            self._keep = None if at % ALIGN else given  # of other bytes the library makes a copy
            status = lib.itg_model_open(
                at, len(data), flags, ctypes.byref(handle), ctypes.byref(error)
            )
        else:
            where = f"{source}: "
            path = os.fsencode(source)
            status = lib.itg_model_open_file(path, flags, ctypes.byref(handle), ctypes.byref(error))
        if status:
            words = error.words.decode("utf-8", "replace")
            raise _STATUS[status](words if str(source) in words else where + words)
        self.handle = handle
        weakref.finalize(self, lib.itg_model_close, handle)

    def types(self, inputs: bool, plan: int) -> dict[str, Type]:
        lib = _library()
        count, get = (
            (lib.itg_model_inputs, lib.itg_model_input)
            if inputs
            else (lib.itg_model_outputs, lib.itg_model_output)
        )
        found: dict[str, Type] = {}
        info = _Info()
        for i in range(count(self.handle, plan)):
            get(self.handle, plan, i, ctypes.byref(info))
            name = info.name.decode("utf-8", "replace")
            if name in found:
                raise BadFile(f"package has two {'in' if inputs else 'out'}puts called '{name}'")
            found[name] = _type(info)
        return found

    def states(self, plan: int) -> list[tuple[int, int]]:
        """Numbers of the input and the output of every state."""
        lib, state, found = _library(), _State(), []
        for i in range(lib.itg_model_states(self.handle, plan)):
            lib.itg_model_state(self.handle, plan, i, ctypes.byref(state))
            found.append((int(state.input), int(state.output)))
        return found


def _type(info: _Info) -> Type:
    quant = None
    if info.scale:
        n = info.n_scale
        axis = None if info.quant_axis < 0 else info.quant_axis
        quant = Quant(tuple(info.scale[:n]), tuple(info.zero[:n]), axis)
    axes = tuple(i for i in range(info.rank) if info.dynamic >> i & 1)
    return Type(dtypes.BY_CODE[info.dtype].name, tuple(info.shape[: info.rank]), quant, axes)


class Session:
    """A model that is ready to run. Safe to share between threads: runs take turns.

    `fork()` gives a second session over the same weights, for runs at the same time. What a model
    keeps from run to run (`state`) is no input and no output: the session hands it on.
    """

    def __init__(self, model: _Model, threads: int, plan: int, profile: bool, max_steps: int):
        lib, error, handle = _library(), _Error(), ctypes.c_void_p()
        self.threads, self._model, self._plan = threads, model, plan
        self._options = _Options(plan, threads, profile, 1, max_steps)
        status = lib.itg_session_create(
            model.handle, ctypes.byref(self._options), ctypes.byref(handle), ctypes.byref(error)
        )
        if status:
            raise _STATUS[status](error.words.decode("utf-8", "replace"))
        self._handle, self._lock = handle, threading.Lock()
        self._destroy = weakref.finalize(self, lib.itg_session_destroy, handle)
        pairs = model.states(plan)
        inputs, outputs = model.types(True, plan), model.types(False, plan)
        read, made = {i for i, _ in pairs}, {o for _, o in pairs}
        self._states = {list(inputs)[i]: list(inputs.values())[i] for i, _ in pairs}
        self._read = [i for i in range(len(inputs)) if i not in read]  # the caller's
        self._made = [i for i in range(len(outputs)) if i not in made]
        self.inputs = {n: t for i, (n, t) in enumerate(inputs.items()) if i not in read}
        self.outputs = {n: t for i, (n, t) in enumerate(outputs.items()) if i not in made}
        self._takes = [(n, dtypes.numpy_of(t.dtype), t.shape) for n, t in self.inputs.items()]
        self._makes = [(n, dtypes.numpy_of(t.dtype), t.shape) for n, t in self.outputs.items()]
        self._dynamic = any(t.dynamic for t in self.outputs.values())
        self._sources = (ctypes.c_void_p * max(len(inputs), 1))()  # a state has none: the session's
        self._results = (ctypes.c_void_p * max(len(outputs), 1))()
        self._run = lib.itg_run_with

    def run(
        self, inputs: Mapping[str, Array], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Outputs by name. Arrays in `out` are written in place; the others are new.

        C-contiguous inputs are read where they are, without a copy.
        """
        arrays = self._arrays(inputs)  # alive until the run is over
        results = (
            self._buffers(out, arrays)
            if out
            else {name: np.empty(shape, dtype) for name, dtype, shape in self._makes}
        )
        sources = [_address(a) for a in arrays]
        places = [_address(a) for a in results.values()]
        with self._lock:
            handle = self._open_handle()
            if not self._states:
                self._sources[: len(sources)] = sources  # type: ignore[assignment]
                self._results[: len(places)] = places  # type: ignore[assignment]
            else:
                for i, at in zip(self._read, sources, strict=True):
                    self._sources[i] = at
                for i, at in zip(self._made, places, strict=True):
                    self._results[i] = at
            if status := self._run(handle, self._sources, self._results):
                self._fail(status)
            if self._dynamic:
                self._cut(handle, results)
        return results

    def _arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The inputs in order, as the runtime can read them; BadInput where they do not fit."""
        arrays = []
        for name, dtype, shape in self._takes:
            a = inputs.get(name)
            fits = type(a) is np.ndarray and a.dtype == dtype and a.shape == shape
            if not fits or a.flags.num & _READABLE != _READABLE:  # type: ignore[union-attr]
                break
            arrays.append(a)
        if len(arrays) == len(inputs) == len(self._takes):
            return arrays  # type: ignore[return-value]  # the usual case, quickly
        checked = check_inputs(self.inputs, inputs)
        return [np.require(a, requirements=["C", "A"]) for a in checked.values()]

    def _cut(self, handle: ctypes.c_void_p, results: dict[str, Array]) -> None:
        """Outputs whose extents are known only now get their true shapes."""
        lib, view = _library(), _View()
        for i, (name, t) in zip(self._made, self.outputs.items(), strict=True):
            if t.dynamic:
                lib.itg_get_output(handle, i, ctypes.byref(view))
                results[name] = _first(results[name], tuple(view.shape[: view.rank]))

    def _buffers(self, out: Mapping[str, Array], inputs: list[Array]) -> dict[str, Array]:
        """One array per output."""
        if unknown := [n for n in out if n not in self.outputs]:
            names = ", ".join(f"'{n}'" for n in self.outputs)
            raise BadInput(f"no output is called '{unknown[0]}'; the model has {names}")
        buffers = {}
        for name, dtype, shape in self._makes:
            if name not in out:
                buffers[name] = np.empty(shape, dtype)
                continue
            a = buffers[name] = out[name]
            if a.dtype != dtype or a.shape != shape or not a.flags.carray:
                raise BadInput(
                    f"out['{name}'] is {a.dtype}{list(a.shape)}; it must be "
                    f"{dtype}{list(shape)}, writable and C-contiguous"
                )
            if any(np.may_share_memory(a, b) for b in inputs):
                raise BadInput(f"out['{name}'] shares memory with an input; give it its own")
        return buffers

    @property
    def state(self) -> dict[str, Array]:
        """What the next run begins with, by name: copies, to be kept and set again."""
        lib, view, found = _library(), _View(), {}
        with self._lock:
            handle = self._open_handle()
            for i, (name, t) in enumerate(self._states.items()):
                lib.itg_get_state(handle, i, ctypes.byref(view))
                a = found[name] = np.empty(t.shape, dtypes.numpy_of(t.dtype))
                if a.nbytes:
                    ctypes.memmove(a.ctypes.data, view.data, a.nbytes)
        return found

    @state.setter
    def state(self, arrays: Mapping[str, Array]) -> None:
        """The next run begins with these; states that are left out stay as they are."""
        if unknown := [n for n in arrays if n not in self._states]:
            names = ", ".join(f"'{n}'" for n in self._states) or "none"
            raise BadInput(f"no state is called '{unknown[0]}'; the model has {names}")
        checked = check_inputs({n: self._states[n] for n in arrays}, arrays)
        with self._lock:
            handle = self._open_handle()
            for i, name in enumerate(self._states):
                if name in checked:
                    a = np.ascontiguousarray(checked[name])
                    if status := _library().itg_set_state(handle, i, a.ctypes.data, a.nbytes):
                        self._fail(status)

    def reset(self) -> None:
        """The next run begins as the first one did."""
        with self._lock:
            _library().itg_reset_states(self._open_handle())

    def fork(self) -> Session:
        """Another session over the same weights, with memory and state of its own."""
        o = self._options
        return Session(self._model, self.threads, self._plan, bool(o.profile), o.max_steps)

    def profile(self) -> list[StepProfile]:
        """What each step took, in order; empty unless the session was opened with profile=True."""
        if not self._options.profile:
            return []
        lib, p, steps = _library(), _Profile(), []
        with self._lock:
            handle = self._open_handle()
            for i in range(lib.itg_session_steps(handle)):
                lib.itg_get_profile(handle, i, ctypes.byref(p))
                steps.append(
                    StepProfile(
                        p.op.decode(),
                        p.origin.decode("utf-8", "replace"),
                        p.kernel_isa.decode(),
                        p.plan,
                        p.parts,
                        p.macs,
                        p.calls,
                        p.ns / 1e6,
                    )
                )
        return steps

    def reset_profile(self) -> None:
        """Forget what was measured so far."""
        with self._lock:
            _library().itg_reset_profile(self._open_handle())

    def memory(self) -> dict[str, int]:
        """Bytes of weights, arena (internal tensors), scratch, io (the caller's arrays), tables."""
        m, error = _Memory(), _Error()
        _library().itg_model_memory(
            self._model.handle, ctypes.byref(self._options), ctypes.byref(m), ctypes.byref(error)
        )
        sizes = {n: int(getattr(m, n)) for n in ("weights", "arena", "scratch", "io", "tables")}
        io = (*self.inputs.values(), *self.outputs.values(), *self._states.values())
        sizes["io"] = sum(t.bytes for t in io)
        return sizes

    def close(self) -> None:
        """Give its memory back. A closed session cannot run."""
        with self._lock:
            self._destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open_handle(self) -> ctypes.c_void_p:
        if not self._destroy.alive:
            raise BadInput("the session is closed; open the package again")
        return self._handle

    def _fail(self, status: int) -> None:
        words = _library().itg_session_error(self._handle).decode("utf-8", "replace")
        raise _STATUS[status](words)


def _address(a: Array) -> int:
    """Where its elements are: what `a.ctypes.data` says, in a quarter of the time."""
    try:
        return ctypes.addressof(_Byte.from_buffer(a))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type without buffers
        return a.ctypes.data


def _first(buffer: Array, shape: tuple[int, ...]) -> Array:
    """The first elements of `buffer` as an array of its true shape."""
    if shape == buffer.shape:
        return buffer
    return buffer.reshape(-1)[: int(np.prod(shape))].reshape(shape).copy()


def open(
    source: str | Path | bytes | Package,
    threads: int | None = None,
    *,
    plan: int = 0,
    profile: bool = False,
    verify: bool = True,
    max_steps: int = 0,
) -> Session:
    """Open a package file (or a Package, or its bytes) to run it.

    `threads` defaults to the CPUs that this process may use; `plan` chooses among the input shapes
    that the package was compiled for; `profile` measures every step; `verify=False` skips the
    checksum of the weights; `max_steps` stops loops that do not end (0: after 10^9 steps).
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if threads < 1:
        raise BadInput(f"threads is {threads}; it must be at least 1")
    return Session(_Model(source, verify), threads, plan, profile, max_steps)
