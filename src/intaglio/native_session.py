"""A session of the C runtime: the calls of csrc/include/intaglio.h with Python's types."""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes, native, result_memory, symint
from intaglio.custom.callback import take_exception
from intaglio.custom.handover import MIN_BYTES
from intaglio.errors import BadInput
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array, Type
from intaglio.numpy_struct import KNOWN, OTHER_ARRAYS, ArraysCall
from intaglio.result_memory import ResultMemory
from intaglio.runtime import CError, CProfile, CView, Model, error_of, library
from intaglio.session_settings import ANY_PLAN, SessionSettings
from intaglio.symint import Symbol, Symbols

MAX_LISTED = 8  # plans in a message
Shape = tuple[int, ...]
Takes = tuple[str, np.dtype[Any], Shape]  # of an input or output: name, element type, shape
Named = tuple[int, str]  # number in the package, name
Numbered = tuple[int, str, np.dtype[Any], Shape]  # and its number in the package
Call = Callable[[], int]  # runs a session, and returns the status


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


@dataclass(eq=False, slots=True)
class Sized:
    """A session at one set of input shapes: the arrays that it takes and makes."""

    native: NativeSession
    takes: list[Takes]
    makes: list[Takes]
    rows: Any = None  # the shapes for itg_set_shapes; None: the session has only these
    varies: bool = False  # an output may be smaller than its array, because data decides
    padded: list[Shape] | None = None  # shapes of the plan that runs instead, with padded inputs
    large: frozenset[str] = frozenset()  # outputs that lie in `memory_of_results`
    unread: tuple[Named, ...] = ()  # outputs that are a plug-in's result, and nothing else
    direct: ArraysCall | None = None  # if all of each array is used, and C can read its struct

    def new_result(self, name: str, dtype: np.dtype[Any], shape: Shape) -> Array:
        """A new array for an output."""
        if name in self.large:
            return self.native.memory_of_results.empty(shape, dtype)
        return np.empty(shape, dtype)


class NativeSession:
    """The handle of a C session with its own memory. Not for several threads at once."""

    def __init__(self, model: Model, settings: SessionSettings):
        lib, error, handle = library(), CError(), ctypes.c_void_p()
        self.model, self.settings = model, settings
        options = ctypes.byref(settings.native())
        status = lib.itg_session_create(
            model.handle, options, ctypes.byref(handle), ctypes.byref(error)
        )
        if status:
            raise error_of(status, error.words)
        self._handle, self._closed = handle, False
        self._destroy = weakref.finalize(self, lib.itg_session_destroy, handle)
        every = range(model.plans) if settings.plan == ANY_PLAN else [settings.plan]
        self.plan = every[0]
        pairs = model.states(self.plan)
        inputs, outputs = model.types(True, self.plan), model.types(False, self.plan)
        carried, made = {i for i, _ in pairs}, {o for _, o in pairs}
        states = {n for i, n in enumerate(inputs) if i in carried}
        self.plan_inputs = [_without(states, model.types(True, p)) for p in every]
        self.input_numbers = [i for i in range(len(inputs)) if i not in carried]
        self.output_numbers = [i for i in range(len(outputs)) if i not in made]
        self.inputs = dict(_merged(self.plan_inputs))
        self.perms: dict[str, tuple[int, ...]] = {}  # of inputs that are given in another layout
        self.outputs = {n: t for i, (n, t) in enumerate(outputs.items()) if i not in made}
        self.states = {list(inputs)[i]: list(inputs.values())[i] for i, _ in pairs}
        self._counts = len(inputs), len(outputs)
        self.sources, self.results = self.address_lists()
        self.call = self.prepared(self.sources, self.results)
        self.memory_of_results = ResultMemory()
        self._rows: Any = None  # the shapes that are set; a Sized would be a reference cycle
        self._internal_at = 0  # address of the block of internal memory that the session has
        if settings.internal is not None:
            settings.internal.reserve(self.internal_bytes)

    def close(self) -> None:
        """Free the session's memory."""
        self._closed = True
        self._destroy()

    @property
    def handle(self) -> ctypes.c_void_p:
        if self._closed:
            raise BadInput("the session is closed; open the package again")
        return self._handle

    def check(self, status: int) -> None:
        """Raise the error of a call that failed."""
        if status:
            raise error_of(status, library().itg_session_error(self._handle)) from take_exception()

    # ---- shapes --------------------------------------------------------------------------------
    @property
    def resizable(self) -> bool:
        """Whether inputs may have several shapes."""
        return not all(t.fixed for t in self.inputs.values())

    def listed_shapes(self) -> str:
        """The first shapes that the package was compiled for, in a message."""
        return " or ".join(
            ", ".join(f"'{n}' {t.shape}" for n, t in plan.items())
            for plan in self.plan_inputs[:MAX_LISTED]
        )

    def sized(self, shapes: Sequence[Shape] | None = None) -> Sized:
        """The arrays for these shapes of the inputs; for the only ones without."""
        if shapes is None:
            types = [t.shape for t in self.inputs.values()]
            result = Sized(self, _takes(self.inputs, types), [])
        else:
            rows = ((ctypes.c_int64 * native.MAX_RANK) * max(len(self.sources), 1))()
            for i, name, shape in zip(self.input_numbers, self.inputs, shapes, strict=True):
                order = np.argsort(self.perms[name]) if name in self.perms else range(len(shape))
                rows[i][: len(shape)] = [shape[k] for k in order]
            result = Sized(self, _takes(self.inputs, shapes), [], rows)
        self._apply(result)
        view, outputs = CView(), self.model.types(False, self.plan)
        now = library().itg_session_plan(self.handle)
        if now != self.plan:
            outputs = self.model.types(False, now)
        listed = list(outputs.values())
        for i, name in zip(self.output_numbers, self.outputs, strict=True):
            library().itg_get_output(self.handle, i, ctypes.byref(view))
            t, shape = listed[i], tuple(view.shape[: view.rank])
            result.makes.append((name, dtypes.numpy_of(t.dtype), shape))
            result.varies |= bool(t.dynamic)
        result.large = frozenset(
            name
            for name, dtype, shape in result.makes
            if math.prod(shape) * dtype.itemsize > result_memory.MIN_BYTES
        )
        if not result.varies:
            unread = library().itg_output_unread
            numbers = self.input_numbers, self.output_numbers
            result.unread = tuple(
                (i, name)
                for i, (name, dtype, shape) in zip(numbers[1], result.makes, strict=True)
                if math.prod(shape) * dtype.itemsize >= MIN_BYTES and unread(self.handle, i)
            )
            if KNOWN:
                reads = _numbered(numbers[0], result.takes)
                writes = _numbered(numbers[1], result.makes)
                addresses = self.sources, self.results
                result.direct = ArraysCall(self.handle, reads, writes, addresses)
        return result

    def _apply(self, sized: Sized) -> None:
        handle = self.handle  # raises if the session is closed
        if sized.rows is not None:
            self._rows = None
            self.check(library().itg_set_shapes(handle, sized.rows))
        self._rows = sized.rows

    # ---- running -------------------------------------------------------------------------------
    def run(self, sized: Sized, sources: list[Any], results: list[Any]) -> None:
        """Run with inputs and outputs at these addresses."""
        for i, address in zip(self.input_numbers, sources, strict=True):
            self.sources[i] = address
        for i, address in zip(self.output_numbers, results, strict=True):
            self.results[i] = address
        self.run_at(sized, self.call)

    def address_lists(self) -> tuple[Any, Any]:
        """Addresses of all inputs and of all outputs for `run_at`, null until they are set.

        Those of states stay null, because the session owns them.
        """
        n_inputs, n_outputs = self._counts
        lists = (ctypes.c_void_p * max(n_inputs, 1))(), (ctypes.c_void_p * max(n_outputs, 1))()
        return lists

    def prepared(self, sources: Any, results: Any) -> Call:
        """A run with inputs and outputs at the addresses in these lists of `address_lists`.

        ctypes converts its arguments once, here, which halves the time of a call.
        """
        run = library()["itg_run_with"]  # without argtypes, which would convert each time
        run.restype = ctypes.c_uint32
        session = ctypes.c_char.from_address(self._handle.value or 0)
        return functools.partial(run, *map(ctypes.byref, (session, sources, results)))

    def run_at(self, sized: Sized, call: Call) -> int:
        """Run a call of `prepared`, or of an `ArraysCall`: 0, or OTHER_ARRAYS."""
        if self._closed or sized.rows is not self._rows:
            self._apply(sized)
        internal = self.settings.internal
        status = call() if internal is None else self._run_lent(internal, call)
        if status and status != OTHER_ARRAYS:
            self.check(status)
        return status

    def _run_lent(self, internal: InternalMemory, call: Call) -> int:
        """Run with internal memory that is borrowed for this run; returns the status."""
        block = internal.take()
        try:
            if self._internal_at != block.address:
                self._internal_at = 0
                self.check(library().itg_set_internal(self.handle, block.address, block.bytes))
                self._internal_at = block.address
            return call()
        finally:
            internal.give(block)

    def output_shapes(self) -> list[Shape]:
        """The true shapes of the outputs of the last run."""
        view, found = CView(), []
        for i in self.output_numbers:
            library().itg_get_output(self.handle, i, ctypes.byref(view))
            found.append(tuple(view.shape[: view.rank]))
        return found

    # ---- states --------------------------------------------------------------------------------
    def read_states(self) -> dict[str, Array]:
        """Copies of the states that the next run starts with."""
        view, found = CView(), {}
        for i, (name, t) in enumerate(self.states.items()):
            library().itg_get_state(self.handle, i, ctypes.byref(view))
            a = found[name] = np.empty(t.shape, dtypes.numpy_of(t.dtype))
            if a.nbytes:
                ctypes.memmove(a.ctypes.data, view.data, a.nbytes)
        return found

    def write_states(self, arrays: dict[str, Array]) -> None:
        """Set the states that the next run starts with."""
        for i, name in enumerate(self.states):
            if name in arrays:
                a = np.ascontiguousarray(arrays[name])
                self.check(library().itg_set_state(self.handle, i, a.ctypes.data, a.nbytes))

    def reset_states(self) -> None:
        library().itg_reset_states(self.handle)

    # ---- reports -------------------------------------------------------------------------------
    def profile(self) -> list[StepProfile]:
        """The time of each step of the plan that ran last."""
        lib, p, steps = library(), CProfile(), []
        for i in range(lib.itg_session_steps(self.handle)):
            lib.itg_get_profile(self.handle, i, ctypes.byref(p))
            words = p.op.decode(), p.origin.decode("utf-8", "replace"), p.kernel_isa.decode()
            steps.append(StepProfile(*words, p.plan, p.parts, p.macs, p.calls, p.ns / 1e6))
        return steps

    def reset_profile(self) -> None:
        library().itg_reset_profile(self.handle)

    def memory(self) -> dict[str, int]:
        """Bytes by purpose, those of arrays of the caller left out."""
        m = self.model.memory(self.settings.native())
        return {n: int(getattr(m, n)) for n in ("weights", "arena", "scratch", "io", "tables")}

    @property
    def internal_bytes(self) -> int:
        """Bytes of intermediate tensors and scratch memory."""
        return int(self.model.memory(self.settings.native()).internal)


def _without(names: Collection[str], types: dict[str, Type]) -> dict[str, Type]:
    return {n: t for n, t in types.items() if n not in names}


def _merged(plans: Sequence[dict[str, Type]]) -> dict[str, Type]:
    """The inputs of all plans: an axis whose extent differs between them is an open dimension."""
    ranks = [{n: t.rank for n, t in p.items()} for p in plans]
    if len(plans) == 1 or any(r != ranks[0] for r in ranks):
        return plans[0]
    found: dict[tuple[str, int], Symbol] = {}
    for name in plans[0]:
        shapes = [symint.plain(p[name].shape) for p in plans]
        for axis, extents in enumerate(zip(*shapes, strict=True)):
            if len(set(extents)) > 1:  # smaller ones may be padded
                found[name, axis] = Symbol(f"{name}.{axis}", 0, max(extents))
    space = Symbols(list(found.values()))
    merged = {}
    for name, t in plans[0].items():
        shape = list(t.shape)
        for axis in range(t.rank):
            if (name, axis) in found:
                shape[axis] = space.extent(found[name, axis].name)
        merged[name] = t.but(shape=tuple(shape))
    return merged


def _takes(types: dict[str, Type], shapes: Sequence[Shape]) -> list[Takes]:
    return [
        (n, dtypes.numpy_of(t.dtype), shape)
        for (n, t), shape in zip(types.items(), shapes, strict=True)
    ]


def _numbered(numbers: Sequence[int], arrays: Sequence[Takes]) -> list[Numbered]:
    return [(i, *a) for i, a in zip(numbers, arrays, strict=True)]
