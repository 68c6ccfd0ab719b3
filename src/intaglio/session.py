"""Sessions: models that are ready to run, executed by the C runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import numpy as np

from intaglio import dtypes
from intaglio.after_fork import Turn
from intaglio.array_addresses import address_of, as_given, fitting, leading, output_buffers
from intaglio.bindings import Binding, inputs_in_place
from intaglio.core_mask import CoreMask
from intaglio.direct_run import run_directly
from intaglio.errors import BadInput, RunError
from intaglio.feeds import check_inputs, no_such_name, require_names
from intaglio.input_layouts import copy_layouts, read_layout, set_layout
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array, Type
from intaglio.native_session import NativeSession, Sized
from intaglio.native_session import StepProfile as StepProfile
from intaglio.package import Package
from intaglio.package.keys import KeySource, PublicKeySource
from intaglio.package_source import is_package, open_package
from intaglio.padding import Padding, pad
from intaglio.request_queue import RequestQueue
from intaglio.session_settings import SessionSettings
from intaglio.thread_pool import ThreadPool

MAX_SHAPES = 256  # sets of input shapes that a session remembers
MAX_WAITING = 64  # submitted requests of one session that wait for it
CLOSED = "the session is closed; open the model again"


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
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        core_mask: CoreMask | None = None,
    ):
        settings = SessionSettings.of(
            threads,
            plan=plan,
            profile=profile,
            max_steps=max_steps,
            pool=pool,
            internal=internal,
            core_mask=core_mask,
        )
        model = open_package(source, verify, copy, key, public_key, weights)
        self._begin(NativeSession(model, settings), settings)

    def _begin(self, native: NativeSession | None, settings: SessionSettings) -> None:
        self._now, self._closed, self._settings = native, False, settings
        self._turn = Turn()  # one run at a time
        self._requests = RequestQueue(1, MAX_WAITING, CLOSED)
        self._known: dict[tuple[Any, ...], Sized] = {}  # by the shapes of the inputs
        self._sized = self._padding = None
        if native is not None and not native.resizable:
            self._sized = native.sized()
        elif native is not None:
            self._padding = Padding.of(native.model.meta, native.plan_inputs)

    @property
    def threads(self) -> int:
        """How many threads work on one run, with the caller's."""
        return self._settings.threads

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

    def input_layout(self, name: str) -> str | None:
        """The layout in which the first kernels read a picture: "NHWC", or "NCHW".

        None: as the model declares it, or the input is no picture.
        """
        return read_layout(self._native, name)

    def set_input_layout(self, name: str, layout: str | None) -> None:
        """Take an input as `input_layout` tells, such as a camera's NHWC; None: as declared.

        The session then no longer transposes it. Make bindings anew.
        """
        with self._turn.lock:
            set_layout(self._native, name, layout)
            self._known.clear()
            self._sized = None if self._native.resizable else self._native.sized()

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
    def stateful(self) -> bool:
        """Whether the model keeps state between runs; of a model file, known after the first."""
        return self._now is not None and bool(self._now.states)

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
        C-contiguous inputs are read without a copy. Both may be arrays of another library that
        offers DLPack, such as tensors of PyTorch. While another thread runs this session, the call
        waits.

        Calls as onnxruntime has them work too: `run(None, {"x": a})` and `run(["y"], {"x": a})`
        return a list of arrays.
        """
        if type(inputs) is not dict:
            if _is_list_of_names(inputs) and isinstance(out, Mapping):
                return self._run_as_onnxruntime(inputs, out)  # type: ignore[return-value]
            require_names("session.run({})", self.inputs, inputs, out)
        try:
            sized = self._sized
            if sized is not None and type(inputs) is dict and (out is None or type(out) is dict):
                results = run_directly(sized, inputs, out, self._turn.lock)
                if results is not None:
                    return results
            arrays = None if sized is None else fitting(sized, inputs)  # alive until the end
            if arrays is None or sized is None:
                sized, arrays = self._fit(inputs)
            results = output_buffers(sized, self.outputs, out, arrays)
        except MemoryError:
            raise self._no_memory() from None
        if sized.padded is not None:
            return self._run_padded(sized, arrays, results)
        sources = [address_of(a) for a in arrays]
        places = [address_of(a) for a in results.values()]
        with self._turn.lock:
            sized.native.run(sized, sources, places)
            if sized.varies:  # data decided how large the outputs are
                shapes = sized.native.output_shapes()
                results = {
                    name: leading(a, shape)
                    for (name, a), shape in zip(results.items(), shapes, strict=True)
                }
        return results if not out else as_given(results, out)

    def bind(
        self, inputs: Mapping[str, Array] | None = None, outputs: Mapping[str, Array] | None = None
    ) -> Binding:
        """A binding of these arrays: its `run()` takes no arguments and allocates nothing.

        Arrays are numpy's, or those of a library that offers DLPack, and are used in place. Names
        that are missing get new arrays; inputs do if the model has fixed shapes.
        """
        arrays = inputs_in_place(self.inputs, {} if inputs is None else inputs)
        sized, used = self._fit(arrays)
        if sized.padded is not None or len(used) < len(arrays):
            raise BadInput(
                "these inputs cannot be bound: the model pads them, or compiles their values in; "
                "use session.run, or bind a shape that the package was compiled for"
            )
        results = output_buffers(sized, self.outputs, outputs, used)
        return Binding(self._turn, sized, {n: arrays[n] for n in self.inputs}, results)

    def submit(
        self, inputs: Mapping[str, Array], out: Mapping[str, Array] | None = None
    ) -> Future[dict[str, Array]]:
        """`run` in a background thread: a future of the outputs.

        Requests of one session run one after the other, in the order of the calls. The arrays must
        not change until the future is done. If MAX_WAITING requests wait already, the call waits.
        """
        return self._requests.submit(lambda: self.run(inputs, out))

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
        sized = self._sized
        if sized is None or self._native.resizable:  # other threads may run with other shapes
            self._sized = sized = self._at(tuple(a.shape for a in arrays))
        return sized, arrays

    def _at(self, key: tuple[tuple[int, ...], ...]) -> Sized:
        sized = self._known.get(key)
        if sized is None:
            sized = self._new_size(key)
            with self._turn.lock:
                while len(self._known) >= MAX_SHAPES:
                    del self._known[next(iter(self._known))]
                self._known[key] = sized
        return sized

    def _new_size(self, key: tuple[tuple[int, ...], ...]) -> Sized:
        try:
            with self._turn.lock:
                return self._native.sized(key)
        except BadInput as e:
            larger = None if self._padding is None else self._padding.larger(key)
            if larger is None and len(self._native.plan_inputs) == 1:
                raise
            if larger is None:
                listed = self._native.listed_shapes()
                raise BadInput(f"{e}; it was compiled for {listed}") from None
        sized = self._at(tuple(larger))
        assert self._padding is not None
        empty = {name: np.empty(shape, dtype) for name, dtype, shape in sized.makes}
        makes = [(n, a.dtype, a.shape) for n, a in self._padding.crop(empty, key).items()]
        takes = [(n, d, s) for (n, d, _), s in zip(sized.takes, key, strict=True)]
        return Sized(self._native, takes, makes, padded=larger)

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the state that the next run starts with, by name."""
        with self._turn.lock:
            return self._native.read_states()

    @state.setter
    def state(self, arrays: Mapping[str, Array]) -> None:
        """Set the state that the next run starts with; names that are missing keep theirs."""
        states = self._native.states
        require_names("session.state = {}", states, arrays)
        if unknown := [n for n in arrays if n not in states]:
            raise no_such_name("state", unknown[0], states)
        checked = check_inputs({n: states[n] for n in arrays}, arrays)
        with self._turn.lock:
            self._native.write_states(checked)

    @property
    def meta(self) -> dict[str, Any]:
        """The package's metadata: name, target, preprocessing of pictures, the model's own."""
        return self._native.model.meta

    def reset(self) -> None:
        """Set every state to its initial value."""
        with self._turn.lock:
            self._native.reset_states()

    def clone(
        self,
        *,
        threads: int | None = None,
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        core_mask: CoreMask | None = None,
        plan: int | None = None,
    ) -> Session:
        """Another session over the same weights, with its own memory and state.

        What is not given is as in this session.
        """
        settings = self._settings.but(threads, pool, internal, core_mask, plan)
        other = object.__new__(Session)
        native = NativeSession(self._native.model, settings)
        copy_layouts(self._native, native)
        other._begin(native, settings)
        return other

    def profile(self) -> list[StepProfile]:
        """The time of each step of the last shapes, in order; empty unless opened with
        profile=True."""
        if not self._settings.profile:
            return []
        with self._turn.lock:
            return self._native.profile()

    def reset_profile(self) -> None:
        """Set all measured times to zero."""
        with self._turn.lock:
            self._native.reset_profile()

    def memory(self) -> dict[str, int]:
        """Bytes by purpose: weights, arena (internal tensors), scratch, io (inputs and outputs),
        tables. All are planned for the largest shapes."""
        sizes = self._native.memory()
        sizes["io"] = self._io_bytes()
        return sizes

    @property
    def internal_bytes(self) -> int:
        """Bytes of intermediate tensors and scratch memory: a block of `InternalMemory`."""
        return self._native.internal_bytes

    def close(self) -> None:
        """Free the session's memory, after all submitted requests. A closed session cannot run."""
        self._requests.close()
        with self._turn.lock:
            self._closed = True
            if self._now is not None:
                self._now.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise BadInput(CLOSED)

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


def _is_list_of_names(given: object) -> bool:
    """Whether this is the first argument of onnxruntime's `run`."""
    return given is None or (
        isinstance(given, list | tuple) and all(isinstance(n, str) for n in given)
    )
