"""Sessions of model files: a shape is compiled when it is first seen.

The first shape is compiled at once. When a second one comes, a plan for a range of sizes is
compiled in the background, which then serves all shapes within it. A shape that comes often gets a
plan of its own, compiled in the background too. The last plans are kept. All plans of a session
share their weights and the memory of their intermediate tensors.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.after_fork import renew_in_child
from intaglio.arguments import whole_number
from intaglio.array_addresses import fitting
from intaglio.core_mask import CoreMask
from intaglio.errors import BadInput, option
from intaglio.feeds import check_inputs
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array, Type
from intaglio.model_inputs import ModelInputs
from intaglio.model_plans import Key, ModelPlans
from intaglio.native_session import NativeSession, Sized, StepProfile
from intaglio.runtime import Model
from intaglio.session import MAX_SHAPES, Session
from intaglio.session_settings import SessionSettings
from intaglio.thread_pool import ThreadPool

OWN_PLAN_AFTER = 3  # runs of a shape in the plan for a range, until it gets a plan of its own


class ModelSession(Session):
    """A session of a model file, a Graph or a PyTorch module. See `Session`."""

    def __init__(
        self,
        model: Any,
        threads: int | None = None,
        *,
        profile: bool = False,
        max_steps: int = 0,
        keep: int = 8,
        cache: str | Path | bool | None = None,
        background: bool = True,
        target: str = "cpu",
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        core_mask: CoreMask | None = None,
        **keywords: Any,
    ):
        self.keep = whole_number("keep", keep, 1)
        settings = SessionSettings.of(
            threads,
            plan=0,
            profile=profile,
            max_steps=max_steps,
            pool=pool,
            internal=internal,
            core_mask=core_mask,
        )
        self._plans = ModelPlans(model, target, cache, keywords)
        self._start(settings, bool(background))

    def _start(self, settings: SessionSettings, background: bool) -> None:
        self._background = background
        # All plans have their intermediate tensors in the same place: one runs at a time.
        self._of_plans = replace(settings, internal=settings.internal or InternalMemory(1))
        self._exact: OrderedDict[Key, Sized] = OrderedDict()  # plans of their own, the newest last
        self._wide: NativeSession | None = None  # the plan for a range of sizes
        self._in_wide: dict[Key, Sized | None] = {}  # None: the shape is outside of the range
        self._uses: dict[Key, int] = {}  # of shapes in the plan for a range
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: dict[Any, Future[Any]] = {}  # in the background
        self._tables = threading.RLock()  # of everything above
        self._begin(None, settings)
        renew_in_child(self)

    def after_fork(self) -> None:
        """Begin with new locks. What threads of the parent were compiling is compiled again."""
        self._tables, self._pool, self._tasks = threading.RLock(), None, {}
        self._plans.renew_locks()

    # ---- descriptions --------------------------------------------------------------------------
    @property
    def model_inputs(self) -> ModelInputs:
        """What the model file tells about its inputs."""
        return self._plans.source

    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs by name, open dimensions with their names.

        An input whose rank the file does not declare is missing until the first run.
        """
        known, now = self._plans.source.types, self._now
        if known is None:
            return {} if now is None else now.inputs
        shown = {} if now is None else now.inputs
        return known | {n: shown[n] for n in self._plans.source.unranked if n in shown}

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs at the last shapes; empty before the first run."""
        return {} if self._now is None else self._now.outputs

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs; they are known before the first run."""
        return list(self._plans.source.output_names or self.outputs)

    @property
    def internal_bytes(self) -> int:
        """Bytes of intermediate tensors and scratch memory of the largest plan so far."""
        return max((n.internal_bytes for n in self._natives()), default=0)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the package that ran last."""
        return {} if self._now is None else self._now.model.meta

    @property
    def value_inputs(self) -> tuple[str, ...]:
        """The inputs whose values decide shapes, as far as known: each value is compiled for."""
        return self._plans.value_inputs

    def set_input_layout(self, name: str, layout: str | None) -> None:
        """Refused: a model is compiled anew for each shape."""
        raise BadInput(
            "a session of a model file has the layouts of the model; compile it with "
            f"{option('input_layout', layout)}, or open a package"
        )

    def clone(
        self,
        *,
        threads: int | None = None,
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        core_mask: CoreMask | None = None,
        plan: int | None = None,
    ) -> ModelSession:
        """Another session of the same model, with its own memory and state.

        Both share what they compile, and its weights. What is not given is as in this session.
        """
        if plan is not None:
            raise BadInput("a session of a model file has no numbered plans; open a package")
        other = object.__new__(ModelSession)
        other.keep, other._plans = self.keep, self._plans
        other._start(self._settings.but(threads, pool, internal, core_mask), self._background)
        return other

    def close(self) -> None:
        """Free the memory of all plans, after all submitted requests. A closed session cannot
        run."""
        self._requests.close()
        with self._tables:
            pool, self._pool = self._pool, None
            self._closed = True
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        with self._turn.lock:
            for native in self._natives():
                native.close()

    def profiles(self) -> list[list[StepProfile]]:
        """The time of each step of every plan that is kept and has run, in no certain order."""
        with self._turn.lock:
            every = [n.profile() for n in self._natives()]
        return [steps for steps in every if any(s.calls for s in steps)]

    def _natives(self) -> set[NativeSession]:
        with self._tables:
            found = {s.native for s in self._exact.values()} | {self._wide, self._now}
        return {n for n in found if n is not None}

    def prepare(self) -> None:
        """Compile now if the shapes are fixed and no value decides them; else a run does."""
        types = self._plans.source.types
        if types is not None and not self._plans.source.may_vary:
            like = {n: _placeholder(t.shape, t.dtype) for n, t in types.items()}
            model = self._plans.by_shape(like)
            if model is not None:
                self._add(self._plans.key_of(like), model)

    def output_shapes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """The shapes of the outputs for these shapes of the inputs, by name; compiles for them."""
        types = self._plans.source.types or {}
        given = shapes if isinstance(shapes, Mapping) else {}
        like = {n: _placeholder(tuple(s), types[n].dtype) for n, s in given.items() if n in types}
        model = self._plans.by_shape(like) if like.keys() == types.keys() else None
        if self.value_inputs:
            names = ", ".join(f"'{n}'" for n in self.value_inputs)
            raise BadInput(f"the values of {names} decide shapes; run the model to see its outputs")
        found = super().output_shapes(shapes)
        del model  # it was alive until now, so that it was compiled once
        return found

    # ---- plans ---------------------------------------------------------------------------------
    def _fit(self, inputs: Mapping[str, Array]) -> tuple[Sized, list[Array]]:
        known = self._known_shapes(inputs)
        fit = None if known is None else fitting(known, inputs)
        if known is not None and fit is not None:
            if known.native is not self._now:
                self._switch(known.native)
            self._sized = known
            return known, fit
        arrays = self._checked(inputs)
        key, sized = self._find(arrays)
        if sized.native is not self._now:
            self._switch(sized.native)
        self._sized = None if key.bound else sized  # values may differ next time
        kept = [arrays[name] for name, _, _ in sized.takes]
        return sized, [np.require(a, requirements=["C", "A"]) for a in kept]

    def _known_shapes(self, inputs: Mapping[str, Array]) -> Sized | None:
        """A plan for exactly these shapes, if there is one: the fast path of changing shapes."""
        names = self._plans.source.types
        if names is None or self._plans.value_inputs or len(inputs) != len(names):
            return None
        try:
            key = Key(tuple([inputs[n].shape for n in names]), (), (), ())
        except (KeyError, AttributeError):
            return None  # wrong, or no array: checked with words
        with self._tables:
            sized = self._exact.get(key)
            if sized is not None:
                self._exact.move_to_end(key)
        return sized

    def _checked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        source = self._plans.source
        if source.types is None:
            return {n: np.asarray(a) for n, a in inputs.items()}
        given = {n: t for n, t in source.overridable.items() if n in inputs}
        ranked, free = {**source.types, **given}, source.unranked
        _refuse_names(ranked, free, inputs)
        arrays = check_inputs(ranked, {n: a for n, a in inputs.items() if n not in free})
        for name, dtype in free.items():  # any shape will do
            shape = np.shape(inputs[name])
            arrays |= check_inputs({name: Type(dtype, shape)}, {name: inputs[name]})
        return arrays

    def _find(self, arrays: Mapping[str, Array]) -> tuple[Key, Sized]:
        """A plan for these inputs: the one of their own, the one of a range, or a new one."""
        self._refuse_closed()
        key = self._plans.key_of(arrays)
        with self._tables:
            sized = self._exact.get(key)
            if sized is not None:
                self._exact.move_to_end(key)
                return key, sized
        wide = self._in_range(key)
        if wide is None:
            return self._new(arrays)
        with self._tables:
            count = self._uses[key] = self._uses.pop(key, 0) + 1
            _limit(self._uses, MAX_SHAPES)
        if count == OWN_PLAN_AFTER and not self._plans.source.is_graph:
            like = {n: _placeholder(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items()}
            self._later(key, lambda: self._new(like))
        return key, wide

    def _in_range(self, key: Key) -> Sized | None:
        """The plan for a range at this shape; None if there is none, or the shape is outside."""
        model = self._plans.wide
        if model is None or key.overridden or key.bound:
            return None
        with self._tables:
            if self._wide is None or self._wide.model is not model:
                self._wide, self._in_wide = NativeSession(model, self._of_plans), {}
            if key in self._in_wide:
                return self._in_wide[key]
            native, known = self._wide, self._in_wide
        try:
            with self._turn.lock:
                sized = native.sized(key.shapes)
        except BadInput:
            sized = None
        with self._tables:
            known[key] = sized
            _limit(known, MAX_SHAPES)
        return sized

    def _new(self, arrays: Mapping[str, Array]) -> tuple[Key, Sized]:
        """A plan for the shapes of these inputs alone."""
        key, model = self._plans.at(arrays)
        sized = self._add(key, model)
        self._widen()
        return key, sized

    def _add(self, key: Key, model: Model) -> Sized:
        with self._tables:
            sized = self._exact.get(key)
            if sized is None:  # no other thread was faster
                self._refuse_closed()
                sized = self._exact[key] = NativeSession(model, self._of_plans).sized()
                _limit(self._exact, self.keep)
        return sized

    # ---- in the background ---------------------------------------------------------------------
    def _widen(self) -> None:
        """Compile a plan for a range of sizes in the background, if the model allows one."""
        if self._background:
            ranges = self._plans.untried_ranges()
            if ranges is not None:
                self._later("ranges", lambda: self._plans.widen(ranges))

    def _later(self, name: Any, work: Callable[[], Any]) -> None:
        """Do something in the background."""

        def unless_ending() -> None:
            if threading.main_thread().is_alive() and not self._closed:
                work()

        with self._tables:
            if self._closed or not self._background:
                return
            self._tasks = {n: f for n, f in self._tasks.items() if not f.done()}
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "intaglio-compile")
            before = self._tasks.get(name)
            if before is not None:
                before.cancel()
            self._tasks[name] = self._pool.submit(unless_ending)

    def wait(self) -> None:
        """Wait until nothing is compiled in the background any more."""
        while True:
            with self._tables:
                left = [f for f in self._tasks.values() if not f.done()]
            if not left:
                return
            for f in left:
                f.exception()

    def _switch(self, native: NativeSession) -> None:
        """Let another plan run next; states go on."""
        with self._turn.lock:
            if self._now is not None and native.states:
                before, kept = self._now.states, self._now.read_states()
                same = {n: a for n, a in kept.items() if native.states.get(n) == before[n]}
                native.write_states(same)
            self._now = native


def _placeholder(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of this shape without memory for its elements."""
    return np.broadcast_to(np.zeros((), dtypes.numpy_of(dtype)), shape)


def _refuse_names(
    types: Mapping[str, Type], unranked: Mapping[str, str], inputs: Mapping[str, Any]
) -> None:
    """BadInput for wrong names of a model that has inputs of any rank."""
    if not unranked:
        return  # `check_inputs` does it
    has = [f"'{n}' {t}" for n, t in types.items()]
    has += [f"'{n}' {dtype} of any shape" for n, dtype in unranked.items()]
    listed = f"the model has {', '.join(has)}"
    if unknown := [n for n in inputs if n not in types and n not in unranked]:
        raise BadInput(f"no input is called '{unknown[0]}'; {listed}")
    if missing := [n for n in unranked if n not in inputs]:
        raise BadInput(f"input '{missing[0]}' is missing; {listed}")


def _limit(table: Any, most: int) -> None:
    """Forget the oldest entries of a table."""
    while len(table) > most:
        del table[next(iter(table))]
