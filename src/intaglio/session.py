"""Running models: `intaglio.open` makes a Session, which the C runtime executes."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from intaglio import dtypes
from intaglio.arguments import described, whole_number
from intaglio.errors import BadFile, BadInput, RunError
from intaglio.feeds import array_for, check_inputs, no_such_name, require_names
from intaglio.ir import Array
from intaglio.package import Package
from intaglio.runtime import CError, CMemory, COptions, CProfile, CView, Model, error_of, library

MAX_THREADS = 256  # ITG_MAX_THREADS of csrc/runtime.h
_Byte = ctypes.c_char
_C_CONTIGUOUS_AND_ALIGNED = 0x101  # bits of numpy's flags.num


@dataclass(frozen=True, slots=True)
class StepProfile:
    """The time of one step, summed over all runs since the session was opened."""

    op: str
    origin: str  # the node in the user's model
    isa: str  # instruction set of the kernel
    plan: int  # 0: a step of the model itself, else the number of its sub-plan
    threads: int  # that share the work
    macs: int  # multiply-accumulates of one call
    calls: int
    milliseconds: float  # of all calls


class Session:
    """A model that is ready to run.

    Threads may share a session: a `run` waits until the run before it has ended. For runs at the
    same time, `fork()` gives another session over the same weights. The state of a streaming model
    is neither an input nor an output here: the session carries it from one run to the next. A
    process forked by `os.fork` or `multiprocessing` may run and close the sessions of its parent.
    """

    def __init__(self, model: Model, threads: int, plan: int, profile: bool, max_steps: int):
        lib, error, handle = library(), CError(), ctypes.c_void_p()
        self.threads, self._model, self._plan = threads, model, plan
        self._options = COptions(plan, threads, profile, 1, max_steps)
        status = lib.itg_session_create(
            model.handle, ctypes.byref(self._options), ctypes.byref(handle), ctypes.byref(error)
        )
        if status:
            raise error_of(status, error.words)
        self._handle, self._lock = handle, threading.Lock()
        self._destroy = weakref.finalize(self, lib.itg_session_destroy, handle)
        pairs = model.states(plan)
        inputs, outputs = model.types(True, plan), model.types(False, plan)
        state_inputs, state_outputs = {i for i, _ in pairs}, {o for _, o in pairs}
        self._states = {list(inputs)[i]: list(inputs.values())[i] for i, _ in pairs}
        self._input_numbers = [i for i in range(len(inputs)) if i not in state_inputs]
        self._output_numbers = [i for i in range(len(outputs)) if i not in state_outputs]
        self.inputs = {n: t for i, (n, t) in enumerate(inputs.items()) if i not in state_inputs}
        self.outputs = {n: t for i, (n, t) in enumerate(outputs.items()) if i not in state_outputs}
        self._takes = [(n, dtypes.numpy_of(t.dtype), t.shape) for n, t in self.inputs.items()]
        self._makes = [(n, dtypes.numpy_of(t.dtype), t.shape) for n, t in self.outputs.items()]
        self._dynamic = any(t.dynamic for t in self.outputs.values())
        # Addresses for the runtime; those of states stay null, because the session owns them.
        self._sources = (ctypes.c_void_p * max(len(inputs), 1))()
        self._results = (ctypes.c_void_p * max(len(outputs), 1))()
        self._run = lib.itg_run_with
        _sessions.add(self)

    def run(
        self, inputs: Mapping[str, Array], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run the model and return its outputs by name.

        Outputs are written into the arrays in `out`; for names that it lacks, new arrays are made.
        C-contiguous inputs are read without a copy. While another thread runs this session, the
        call waits.
        """
        try:
            arrays = self._arrays(inputs, out)  # alive until the run is over
            results = (
                self._buffers(out, arrays)
                if out
                else {name: np.empty(shape, dtype) for name, dtype, shape in self._makes}
            )
        except MemoryError:
            raise self._no_memory() from None
        sources = [_address(a) for a in arrays]
        places = [_address(a) for a in results.values()]
        with self._lock:
            handle = self._open_handle()
            if not self._states:
                self._sources[: len(sources)] = sources  # type: ignore[assignment]
                self._results[: len(places)] = places  # type: ignore[assignment]
            else:
                for i, address in zip(self._input_numbers, sources, strict=True):
                    self._sources[i] = address
                for i, address in zip(self._output_numbers, places, strict=True):
                    self._results[i] = address
            if status := self._run(handle, self._sources, self._results):
                self._fail(status)
            if self._dynamic:
                self._trim(handle, results)
        return results

    def _arrays(self, inputs: Mapping[str, Array], out: object) -> list[Array]:
        """The inputs in order, contiguous and aligned; BadInput where one does not fit."""
        if type(inputs) is not dict:
            require_names("session.run({})", self.inputs, inputs, out)
        arrays = []
        for name, dtype, shape in self._takes:
            a = inputs.get(name)
            fits = type(a) is np.ndarray and a.dtype == dtype and a.shape == shape
            if not fits or a.flags.num & _C_CONTIGUOUS_AND_ALIGNED != _C_CONTIGUOUS_AND_ALIGNED:  # type: ignore[union-attr]
                break
            arrays.append(a)
        if len(arrays) == len(inputs) == len(self._takes):
            return arrays  # type: ignore[return-value]  # the fast path
        checked = check_inputs(self.inputs, inputs)
        return [np.require(a, requirements=["C", "A"]) for a in checked.values()]

    def _trim(self, handle: ctypes.c_void_p, results: dict[str, Array]) -> None:
        """Cut outputs with dynamic axes from their upper bound to their true shape."""
        lib, view = library(), CView()
        for i, (name, t) in zip(self._output_numbers, self.outputs.items(), strict=True):
            if t.dynamic:
                lib.itg_get_output(handle, i, ctypes.byref(view))
                results[name] = _leading(results[name], tuple(view.shape[: view.rank]))

    def _buffers(self, out: Mapping[str, Array], inputs: list[Array]) -> dict[str, Array]:
        """One array per output: from `out`, or a new one."""
        if not isinstance(out, Mapping):
            raise BadInput(
                f"out is {described(out)}; it maps names of outputs to arrays, or is left out: "
                "the result of `run` has all outputs"
            )
        if unknown := [n for n in out if n not in self.outputs]:
            raise no_such_name("output", unknown[0], self.outputs)
        buffers = {}
        for name, dtype, shape in self._makes:
            if name not in out:
                buffers[name] = np.empty(shape, dtype)
                continue
            a = buffers[name] = array_for(name, "out", out[name], self.outputs[name])
            if any(np.may_share_memory(a, b) for b in inputs):
                raise BadInput(f"out['{name}'] shares memory with an input; give it its own")
        return buffers

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the state that the next run starts with, by name."""
        lib, view, found = library(), CView(), {}
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
        """Set the state that the next run starts with; names that are missing keep theirs."""
        require_names("session.state = {}", self._states, arrays)
        if unknown := [n for n in arrays if n not in self._states]:
            raise no_such_name("state", unknown[0], self._states)
        checked = check_inputs({n: self._states[n] for n in arrays}, arrays)
        with self._lock:
            handle = self._open_handle()
            for i, name in enumerate(self._states):
                if name in checked:
                    a = np.ascontiguousarray(checked[name])
                    if status := library().itg_set_state(handle, i, a.ctypes.data, a.nbytes):
                        self._fail(status)

    @property
    def meta(self) -> dict[str, Any]:
        """The package's metadata: name, target, preprocessing of pictures, the model's own."""
        return self._model.meta

    def reset(self) -> None:
        """Set every state to its initial value."""
        with self._lock:
            library().itg_reset_states(self._open_handle())

    def fork(self) -> Session:
        """Another session over the same weights, with its own memory and state."""
        o = self._options
        return Session(self._model, self.threads, self._plan, bool(o.profile), o.max_steps)

    def profile(self) -> list[StepProfile]:
        """The time of each step, in order; empty unless opened with profile=True."""
        if not self._options.profile:
            return []
        lib, p, steps = library(), CProfile(), []
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
        """Set all measured times to zero."""
        with self._lock:
            library().itg_reset_profile(self._open_handle())

    def memory(self) -> dict[str, int]:
        """Bytes by purpose: weights, arena (internal tensors), scratch, io (inputs and outputs),
        tables."""
        m, error = CMemory(), CError()
        library().itg_model_memory(
            self._model.handle, ctypes.byref(self._options), ctypes.byref(m), ctypes.byref(error)
        )
        sizes = {n: int(getattr(m, n)) for n in ("weights", "arena", "scratch", "io", "tables")}
        io = (*self.inputs.values(), *self.outputs.values(), *self._states.values())
        sizes["io"] = sum(t.bytes for t in io)
        return sizes

    def close(self) -> None:
        """Free the session's memory. A closed session cannot run."""
        with self._lock:
            self._destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _no_memory(self) -> RunError:
        size = sum(t.bytes for t in (*self.inputs.values(), *self.outputs.values()))
        return RunError(
            f"there is not enough memory for the inputs and outputs, {size / (1 << 20):,.0f} MiB; "
            "compile the model for a smaller batch or input"
        )

    def _open_handle(self) -> ctypes.c_void_p:
        if not self._destroy.alive:
            raise BadInput("the session is closed; open the package again")
        return self._handle

    def _fail(self, status: int) -> NoReturn:
        raise error_of(status, library().itg_session_error(self._handle))


# A thread of the parent may have held a session's lock when its process was forked.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _renew_locks() -> None:
    for session in _sessions:
        session._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _address(a: Array) -> int:
    """The address of an array's elements; four times as fast as `a.ctypes.data`."""
    try:
        return ctypes.addressof(_Byte.from_buffer(a))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or no buffer protocol
        return a.ctypes.data


def _leading(buffer: Array, shape: tuple[int, ...]) -> Array:
    """The leading elements of `buffer` as an array of this shape."""
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
    copy: bool = False,
) -> Session:
    """Open a package file (or a Package, or its bytes) to run it.

    `threads` defaults to the number of CPUs that this process may use. `plan` chooses one of the
    sets of input shapes that the package was compiled for. `profile` measures every step.
    `verify=False` skips the checksum of the weights. `max_steps` limits the number of steps of one
    run, so that endless loops stop (0: 10^9 steps). A file is mapped: nobody may write into it or
    shorten it while it is open. `copy=True` reads it into memory instead.
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threads = whole_number("threads", threads, 1, MAX_THREADS)
    plan = whole_number("plan", plan, 0)
    max_steps = whole_number("max_steps", max_steps, 0, (1 << 64) - 1)
    return Session(_model(source, verify, copy), threads, plan, profile, max_steps)


def _model(source: str | Path | bytes | Package, verify: bool, copy: bool) -> Model:
    """The open package; BadFile says what a file is that is no package."""
    if isinstance(source, bytes | bytearray | memoryview | Package):
        return Model(source, verify)
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise BadInput(f"open takes a package, got {described(source)}; {_how_to_open(source)}")
    try:
        return Model(source, verify, copy)
    except BadFile:
        _refuse_model_file(Path(source))
        raise


def _how_to_open(source: object) -> str:
    if type(source).__name__ in ("Graph", "ModelProto") or hasattr(source, "state_dict"):
        return "compile it first: intaglio.open(intaglio.compile(model))"
    return "give the path of a .itg file, its bytes or a Package"


def _refuse_model_file(path: Path) -> None:
    """BadFile if this is a folder, or a model that is not compiled yet."""
    from intaglio.frontends import sniff  # running a package does not need it
    from intaglio.frontends.model_source import named

    if path.is_dir():
        raise BadFile(f"'{path}' is a folder; give the path of a .itg file")
    try:
        kind = sniff(path)
    except BadFile:
        return
    if kind != "ONNX" or path.suffix == ".onnx":  # what is nothing else is taken for ONNX
        result = path.with_suffix(".itg").name
        raise BadFile(
            f"'{path}' is {named(kind)} model, not a package; compile it first: "
            f'intaglio.compile("{path}").save("{result}")'
        )
