"""Sessions of model files: a shape is compiled when it is first seen.

The first shape is compiled at once. When a second one comes, a plan for a range of sizes is
compiled in the background, which then serves all shapes within it. A shape that comes often gets a
plan of its own, compiled in the background too. The last plans are kept.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.arguments import default_threads, whole_number
from intaglio.compile_cache import PackageCache
from intaglio.compile_options import OPTION_NAMES
from intaglio.errors import BadInput, IntaglioError
from intaglio.feeds import check_inputs
from intaglio.frontends.onnx.importer import NeedsValue
from intaglio.ir import Array, Type
from intaglio.model_inputs import ModelInputs
from intaglio.native_session import NativeSession, Sized
from intaglio.open_graph import sizes_of
from intaglio.package import Package
from intaglio.runtime import COptions, Model
from intaglio.session import Session
from intaglio.symint import Symbol

OWN_PLAN_AFTER = 3  # runs of a shape in the plan for a range, until it gets a plan of its own
Key = tuple[Any, ...]  # shapes of the inputs, and values of those that decide shapes


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
        **keywords: Any,
    ):
        self.keep = whole_number("keep", keep, 1)
        self._compile_options = {k: v for k, v in keywords.items() if k in OPTION_NAMES}
        self._compile_options["target"] = target
        of_load = {k: v for k, v in keywords.items() if k not in OPTION_NAMES}
        self._source = ModelInputs(model, of_load)
        self._cache = PackageCache(cache, model)
        self._start(default_threads(threads), bool(profile), max_steps, bool(background))

    def _start(self, threads: int, profile: bool, max_steps: int, background: bool) -> None:
        self.threads, self._background = threads, background
        self._settings = COptions(0, threads, profile, 1, max_steps)
        self._exact: OrderedDict[Key, Sized] = OrderedDict()  # plans of their own, the newest last
        self._wide: NativeSession | None = None  # the plan for a range of sizes
        self._wide_known: dict[Key, Sized] = {}
        self._seen: dict[Key, dict[str, int]] = {}  # sizes of the open dimensions
        self._uses: Counter[Key] = Counter()
        self._no_ranges = self._source.types is None
        self._decisive: list[str] = []  # inputs whose values decide shapes
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: dict[Any, Future[Any]] = {}
        self._plans = threading.Lock()  # of the tables above
        self._begin(None)

    # ---- descriptions --------------------------------------------------------------------------
    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs by name, open dimensions with their names."""
        known = self._source.types
        if known is None:
            return {} if self._now is None else self._now.inputs
        return known

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs at the last shapes; empty before the first run."""
        return {} if self._now is None else self._now.outputs

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs; they are known before the first run."""
        return list(self._source.output_names or self.outputs)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the package that ran last."""
        return {} if self._now is None else self._now.model.meta

    def clone(self) -> ModelSession:
        """Another session of the same model, with its own memory and state."""
        other = object.__new__(ModelSession)
        other.keep, other._source, other._cache = self.keep, self._source, self._cache
        other._compile_options = self._compile_options
        o = self._settings
        other._start(self.threads, bool(o.profile), int(o.max_steps), self._background)
        return other

    def close(self) -> None:
        """Free the memory of all plans. A closed session cannot run."""
        with self._plans:
            pool, self._pool = self._pool, None
            self._closed = True
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            for native in {s.native for s in self._exact.values()} | {self._wide} - {None}:
                native.close()  # type: ignore[union-attr]

    # ---- plans ---------------------------------------------------------------------------------
    def _fit(self, inputs: Mapping[str, Array]) -> tuple[Sized, list[Array]]:
        arrays = self._checked(inputs)
        key = self._key(arrays)
        sized = self._find(key, arrays)
        if sized.native is not self._now:
            self._switch(sized.native)
        self._sized = sized if not self._decisive else None  # values may differ next time
        kept = [a for n, a in arrays.items() if n not in self._decisive]
        return sized, [np.require(a, requirements=["C", "A"]) for a in kept]

    def _checked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._source.types is not None:
            return check_inputs(self._source.types, inputs)
        return {n: np.asarray(a) for n, a in inputs.items()}

    def _key(self, arrays: Mapping[str, Array]) -> Key:
        values = tuple(arrays[n].tobytes() for n in self._decisive)
        return (*(a.shape for a in arrays.values()), *values)

    def _find(self, key: Key, arrays: Mapping[str, Array]) -> Sized:
        """A plan for these inputs: the one of their own, the one of a range, or a new one."""
        self._refuse_closed()
        with self._plans:
            sized = self._exact.get(key)
            if sized is not None:
                self._exact.move_to_end(key)
                return sized
        if self._source.types is not None and key not in self._seen:
            shapes = [a.shape for a in arrays.values()]
            self._seen[key] = sizes_of(self._source.types, shapes)
        wide = self._in_range(key)
        if wide is None:
            sized = self._compiled(key, arrays)
            if len(self._seen) > 1:
                self._widen()
            return sized
        self._uses[key] += 1
        if self._uses[key] == OWN_PLAN_AFTER:
            owned = {n: np.array(a) for n, a in arrays.items() if n in self._decisive}
            self._later(key, lambda: self._compiled(key, {**arrays, **owned}))
        return wide

    def _in_range(self, key: Key) -> Sized | None:
        """The plan for a range at this shape; None if there is none, or the shape is outside."""
        wide = self._wide
        if wide is None or self._decisive:
            return None
        if key not in self._wide_known:
            try:
                with self._lock:
                    self._wide_known[key] = wide.sized(key)
            except BadInput:
                return None
        return self._wide_known[key]

    def _compiled(self, key: Key, arrays: Mapping[str, Array]) -> Sized:
        """Compile for these shapes, and for the values of inputs that decide shapes."""
        while True:
            values = {n: np.array(arrays[n]) for n in self._decisive}
            shapes = {n: a.shape for n, a in arrays.items() if n not in values}
            options = self._source.options_at(shapes)
            if values:
                options["values"] = values
            if self._source.types is None:
                options["dtypes"] = {n: dtypes.name_of(a.dtype) for n, a in arrays.items()}
            try:
                package = self._package(options, options)
                break
            except NeedsValue as e:
                new = [n for n in e.names if n in arrays and n not in self._decisive]
                if not new:
                    raise
                self._decisive += new
                self._no_ranges = True
        key = self._key(arrays)
        native = NativeSession(Model(package, True), self._copied_settings())
        sized = native.sized()
        with self._plans:
            self._exact[key] = sized
            while len(self._exact) > self.keep:
                self._exact.popitem(last=False)
        return sized

    def _package(self, options: Mapping[str, Any], key: Any) -> Package:
        stored = {"load": self._source.keywords, "at": key, "compile": self._compile_options}
        package = self._cache.get(stored)
        if package is None:
            graph = self._source.load(**options)
            package = intaglio.compile(graph, **self._compile_options)
            self._cache.put(stored, package)
        return package

    def _copied_settings(self) -> COptions:
        o = self._settings
        return COptions(o.plan, o.threads, o.profile, o.external_io, o.max_steps)

    def _widen(self) -> None:
        """Compile a plan for a range of sizes in the background, if the model allows one."""
        if self._no_ranges or not self._background:
            return
        seen = list(self._seen.values())
        if not seen[0]:
            return
        ranges = self._source.ranges(seen)
        words = {s.name: str(s) for s in ranges}
        self._later(tuple(words.items()), lambda: self._compile_wide(ranges, words))

    def _compile_wide(self, ranges: Sequence[Symbol], words: Mapping[str, str]) -> None:
        try:
            package = self._package(self._source.options_within(ranges), words)
            native = NativeSession(Model(package, True), self._copied_settings())
        except IntaglioError:
            self._no_ranges = True  # every shape gets a plan of its own
            return
        with self._lock:
            self._wide, self._wide_known = native, {}

    def _later(self, name: Any, work: Any) -> None:
        """Do something in the background, once."""
        if not self._background:
            return
        with self._plans:
            if name in self._tasks or self._closed:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "intaglio-compile")
            self._tasks[name] = self._pool.submit(work)

    def wait(self) -> None:
        """Wait until nothing is compiled in the background any more."""
        while True:
            with self._plans:
                left = [f for f in self._tasks.values() if not f.done()]
            if not left:
                return
            for f in left:
                f.result()

    def _switch(self, native: NativeSession) -> None:
        """Let another plan run next; states go on."""
        with self._lock:
            if self._now is not None and native.states:
                before, kept = self._now.states, self._now.read_states()
                same = {n: a for n, a in kept.items() if native.states.get(n) == before[n]}
                native.write_states(same)
            self._now = native
