"""Sessions: models that are ready to run, executed by the C runtime."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from intaglio import dtypes
from intaglio.arguments import default_threads, described, whole_number
from intaglio.array_addresses import address_of, fitting, leading
from intaglio.errors import BadInput, RunError
from intaglio.feeds import array_for, check_inputs, no_such_name, require_names
from intaglio.ir import Array, Type
from intaglio.native_session import ANY_PLAN, NativeSession, Sized
from intaglio.native_session import StepProfile as StepProfile
from intaglio.package import Package
from intaglio.package.keys import KeySource, PublicKeySource
from intaglio.package_source import is_package, open_package
from intaglio.padding import Padding, pad
from intaglio.runtime import COptions

MAX_SHAPES = 256  # sets of input shapes that a session remembers


class Session:
    """A model that is ready to run: `Session("model.itg")` is `intaglio.open("model.itg")`.

    A model file works too: `Session("model.onnx")` compiles it for each shape of its inputs when
    that is first seen; its keywords are those of `intaglio.compile`, and `keep` (how many plans are
    kept), `cache` (a folder for packages; True: the user's cache folder) and `background` (whether
    further plans are compiled in the background).

    Inputs may have every shape that the package was compiled for: `inputs` names their open
    dimensions. Threads may share a session: a `run` waits until the run before it has ended. For
    runs at the same time, `clone()` gives another session over the same weights. The state of a
    streaming model is neither an input nor an output here: the session carries it from one run to
    the next. A process forked by `os.fork` or `multiprocessing` may run and close the sessions of
    its parent.
    """

    _now: NativeSession | None  # the plan that runs
    _sized: Sized | None  # at the shapes of the last inputs

    def __new__(cls, source: Any = None, *args: Any, **keywords: Any) -> Session:
        if cls is Session and not is_package(source):
            from intaglio.model_session import ModelSession  # imports the compiler

            return object.__new__(ModelSession)
        return object.__new__(cls)

    def __init__(
        self,
        source: str | Path | bytes | Package,
        threads: int | None = None,
        *,
        plan: int | None = None,
        profile: bool = False,
        verify: bool = True,
        max_steps: int = 0,
        copy: bool = False,
        key: KeySource | None = None,
        public_key: PublicKeySource | None = None,
        weights: str | Path | None = None,
    ):
        threads = default_threads(threads)
        plan = ANY_PLAN if plan is None else whole_number("plan", plan, 0, ANY_PLAN - 1)
        max_steps = whole_number("max_steps", max_steps, 0, (1 << 64) - 1)
        model = open_package(source, verify, copy, key, public_key, weights)
        self.threads = threads
        self._begin(NativeSession(model, COptions(plan, threads, profile, 1, max_steps)))

    def _begin(self, native: NativeSession | None) -> None:
        self._now, self._closed = native, False
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], Sized] = {}  # by the shapes of the inputs
        self._sized = self._padding = None
        if native is not None and not native.resizable:
            self._sized = native.sized()
        elif native is not None:
            self._padding = Padding.of(native.model.meta, native.plan_inputs)
        _sessions.add(self)

    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs by name, open dimensions with their names."""
        return self._native.inputs

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, at the largest shapes."""
        return self._native.outputs

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs, in the order of the model."""
        return list(self.outputs)

    def output_shapes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """The shapes of the outputs for these shapes of the inputs, by name.

        Where data decides an extent, it is the largest.
        """
        require_names("session.output_shapes({})", self.inputs, shapes)
        types = {n: dtypes.numpy_of(t.dtype) for n, t in self.inputs.items()}
        empty = {n: np.zeros(shape, types.get(n)) for n, shape in shapes.items()}
        sized, _ = self._fit(empty)
        return {name: shape for name, _, shape in sized.makes}

    @property
    def _native(self) -> NativeSession:
        if self._now is None:
            raise BadInput("the session has not run yet: its first inputs decide what is compiled")
        return self._now

    def run(
        self, inputs: Mapping[str, Array], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run the model and return its outputs by name.

        Outputs are written into the arrays in `out`; for names that it lacks, new arrays are made.
        C-contiguous inputs are read without a copy. While another thread runs this session, the
        call waits.

        Calls as onnxruntime has them work too: `run(None, {"x": a})` and `run(["y"], {"x": a})`
        return a list of arrays.
        """
        if type(inputs) is not dict:
            if _is_list_of_names(inputs) and isinstance(out, Mapping):
                return self._run_as_onnxruntime(inputs, out)  # type: ignore[return-value]
            require_names("session.run({})", self.inputs, inputs, out)
        try:
            sized = self._sized
            arrays = None if sized is None else fitting(sized, inputs)  # alive until the end
            if arrays is None or sized is None:
                sized, arrays = self._fit(inputs)
            results = (
                self._buffers(sized, out, arrays)
                if out
                else {name: np.empty(shape, dtype) for name, dtype, shape in sized.makes}
            )
        except MemoryError:
            raise self._no_memory() from None
        if sized.padded is not None:
            return self._run_padded(sized, arrays, results)
        sources = [address_of(a) for a in arrays]
        places = [address_of(a) for a in results.values()]
        with self._lock:
            sized.native.run(sized, sources, places)
            if sized.varies:  # data decided how large the outputs are
                shapes = sized.native.output_shapes()
                results = {
                    name: leading(a, shape)
                    for (name, a), shape in zip(results.items(), shapes, strict=True)
                }
        return results

    def _run_as_onnxruntime(self, names: Any, inputs: Mapping[str, Array]) -> list[Array]:
        results = self.run(dict(inputs))
        if unknown := [n for n in names or () if n not in results]:
            raise no_such_name("output", unknown[0], self.outputs)
        return [results[n] for n in names or results]

    def _run_padded(
        self, sized: Sized, arrays: Sequence[Array], results: dict[str, Array]
    ) -> dict[str, Array]:
        """Run in a larger plan, and copy what belongs to the inputs into the results."""
        assert sized.padded is not None
        assert self._padding is not None
        whole = dict(zip(self.inputs, pad(arrays, sized.padded), strict=True))
        cropped = self._padding.crop(self.run(whole), [a.shape for a in arrays])
        for name, a in cropped.items():
            results[name][...] = a
        return results

    def _fit(self, inputs: Mapping[str, Array]) -> tuple[Sized, list[Array]]:
        """The session at the shapes of these inputs, and the inputs as arrays in order."""
        checked = check_inputs(self.inputs, inputs)
        arrays = [np.require(a, requirements=["C", "A"]) for a in checked.values()]
        if self._sized is None or self._native.resizable:
            self._sized = self._at(tuple(a.shape for a in arrays))
        return self._sized, arrays

    def _at(self, key: tuple[tuple[int, ...], ...]) -> Sized:
        sized = self._known.get(key)
        if sized is None:
            sized = self._new_size(key)
            while len(self._known) >= MAX_SHAPES:
                del self._known[next(iter(self._known))]
            self._known[key] = sized
        return sized

    def _new_size(self, key: tuple[tuple[int, ...], ...]) -> Sized:
        try:
            with self._lock:
                return self._native.sized(key)
        except BadInput as e:
            larger = None if self._padding is None else self._padding.larger(key)
            if larger is None and len(self._native.plan_inputs) == 1:
                raise
            if larger is None:
                raise BadInput(
                    f"{e}; it was compiled for {self._listed_shapes()}; pad the inputs yourself "
                    "where that is right"
                ) from None
        sized = self._at(tuple(larger))
        assert self._padding is not None
        empty = {name: np.empty(shape, dtype) for name, dtype, shape in sized.makes}
        makes = [(n, a.dtype, a.shape) for n, a in self._padding.crop(empty, key).items()]
        takes = [(n, d, s) for (n, d, _), s in zip(sized.takes, key, strict=True)]
        return Sized(self._native, takes, makes, padded=larger)

    def _listed_shapes(self) -> str:
        return " or ".join(
            ", ".join(f"'{n}' {t.shape}" for n, t in plan.items())
            for plan in self._native.plan_inputs[:8]
        )

    def _buffers(
        self, sized: Sized, out: Mapping[str, Array], inputs: Sequence[Array]
    ) -> dict[str, Array]:
        """One array per output: from `out`, or a new one."""
        if not isinstance(out, Mapping):
            raise BadInput(
                f"out is {described(out)}; it maps names of outputs to arrays, or is left out: "
                "the result of `run` has all outputs"
            )
        if unknown := [n for n in out if n not in self.outputs]:
            raise no_such_name("output", unknown[0], self.outputs)
        buffers = {}
        for name, dtype, shape in sized.makes:
            if name not in out:
                buffers[name] = np.empty(shape, dtype)
                continue
            kind = self.outputs[name].but(shape=shape)
            a = buffers[name] = array_for(name, "out", out[name], kind)
            if any(np.may_share_memory(a, b) for b in inputs):
                raise BadInput(f"out['{name}'] shares memory with an input; give it its own")
        return buffers

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the state that the next run starts with, by name."""
        with self._lock:
            return self._native.read_states()

    @state.setter
    def state(self, arrays: Mapping[str, Array]) -> None:
        """Set the state that the next run starts with; names that are missing keep theirs."""
        states = self._native.states
        require_names("session.state = {}", states, arrays)
        if unknown := [n for n in arrays if n not in states]:
            raise no_such_name("state", unknown[0], states)
        checked = check_inputs({n: states[n] for n in arrays}, arrays)
        with self._lock:
            self._native.write_states(checked)

    @property
    def meta(self) -> dict[str, Any]:
        """The package's metadata: name, target, preprocessing of pictures, the model's own."""
        return self._native.model.meta

    def reset(self) -> None:
        """Set every state to its initial value."""
        with self._lock:
            self._native.reset_states()

    def clone(self) -> Session:
        """Another session over the same weights, with its own memory and state."""
        other = object.__new__(Session)
        other.threads = self.threads
        other._begin(NativeSession(self._native.model, self._native.options))
        return other

    def profile(self) -> list[StepProfile]:
        """The time of each step of the last shapes, in order; empty unless opened with
        profile=True."""
        if not self._native.options.profile:
            return []
        with self._lock:
            return self._native.profile()

    def reset_profile(self) -> None:
        """Set all measured times to zero."""
        with self._lock:
            self._native.reset_profile()

    def memory(self) -> dict[str, int]:
        """Bytes by purpose: weights, arena (internal tensors), scratch, io (inputs and outputs),
        tables. All are planned for the largest shapes."""
        sizes = self._native.memory()
        sizes["io"] = self._io_bytes()
        return sizes

    def close(self) -> None:
        """Free the session's memory. A closed session cannot run."""
        with self._lock:
            self._closed = True
            if self._now is not None:
                self._now.close()

    def _renew_locks(self) -> None:
        """Begin with new locks in a forked process."""
        self._lock = threading.Lock()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise BadInput("the session is closed; open the model again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _io_bytes(self) -> int:
        types = (self.inputs, self.outputs, self._native.states)
        return sum(t.bytes for some in types for t in some.values())

    def _no_memory(self) -> RunError:
        return RunError(
            "there is not enough memory for the inputs and outputs, "
            f"{self._io_bytes() / (1 << 20):,.0f} MiB; compile the model for a smaller batch or "
            "input"
        )


# A thread of the parent may have held a session's lock when its process was forked.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _renew_locks() -> None:
    for session in _sessions:
        session._renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def open(
    source: str | Path | bytes | Package,
    threads: int | None = None,
    *,
    plan: int | None = None,
    profile: bool = False,
    verify: bool = True,
    max_steps: int = 0,
    copy: bool = False,
    key: KeySource | None = None,
    public_key: PublicKeySource | None = None,
    weights: str | Path | None = None,
) -> Session:
    """Open a package file (or a Package, or its bytes) to run it.

    `threads` defaults to the number of CPUs that this process may use. A package that was compiled
    for a list of shapes runs all of them; `plan` chooses one. `profile` measures every step.
    `verify=False` skips the checksum of the weights. `max_steps` limits the number of steps of one
    run, so that endless loops stop (0: 10^9 steps). A file is mapped: nobody may write into it or
    shorten it while it is open. `copy=True` reads it into memory instead.

    `key` opens an encrypted package: 32 bytes, the path of a key file, `env:NAME`, or a function
    that returns the bytes. With `public_key` (32 bytes, or the path of a PEM file), a package
    without a valid Ed25519 signature of that key is refused.

    `weights` is the weight file of a package without weights, or the folder of its weight files
    [default: beside the package]. Each is mapped once in a process, whichever packages use it.
    """
    session = object.__new__(Session)
    session.__init__(  # type: ignore[misc]  # __new__ would take a model file
        source,
        threads,
        plan=plan,
        profile=profile,
        verify=verify,
        max_steps=max_steps,
        copy=copy,
        key=key,
        public_key=public_key,
        weights=weights,
    )
    return session


def _is_list_of_names(given: object) -> bool:
    """Whether this is the first argument of onnxruntime's `run`."""
    return given is None or (
        isinstance(given, list | tuple) and all(isinstance(n, str) for n in given)
    )
