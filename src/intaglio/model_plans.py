"""The plans of a model file: compiled for the shapes that come, each once, over shared weights."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.compile_cache import PackageCache
from intaglio.compile_options import OPTION_NAMES
from intaglio.compiler import COLLECT_ABOVE_BYTES
from intaglio.errors import IntaglioError, Unsupported, unknown_keyword
from intaglio.frontends.onnx.importer import NeedsValue
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.preprocess import OPTIONS as PREPROCESSING
from intaglio.ir import Array
from intaglio.model_inputs import Binding, ModelInputs, SizesSeen, refuse_ranges
from intaglio.open_graph import sizes_of
from intaglio.package import Package
from intaglio.runtime import Model
from intaglio.shared_weights import SharedWeights
from intaglio.symint import Symbol


class Key(NamedTuple):
    """What a plan is compiled for."""

    shapes: tuple[tuple[int, ...], ...]
    overridden: tuple[str, ...]  # initialisers that the caller gives
    bound: tuple[str, ...]  # inputs whose values are compiled in
    values: tuple[bytes, ...]  # of those


class ModelPlans:
    """What sessions of one model compile. Threads may share it."""

    def __init__(
        self, model: Any, target: str, cache: str | Path | bool | None, keywords: Mapping[str, Any]
    ):
        known = (*OPTION_NAMES, *(f.name for f in fields(ImportOptions)), *PREPROCESSING)
        if unknown := [k for k in keywords if k not in known]:
            raise unknown_keyword("Session", unknown[0], known)
        of_load = {k: v for k, v in keywords.items() if k not in OPTION_NAMES}
        refuse_ranges(of_load)
        self._options = {k: v for k, v in keywords.items() if k in OPTION_NAMES}
        self._options["target"] = target
        self.source = ModelInputs(model, of_load)
        self._cache = PackageCache(cache, model)
        self._seen = SizesSeen()
        self.value_inputs: tuple[str, ...] = ()  # whose values are compiled in
        self._ranges_fail = self.source.types is None or bool(self.source.unranked)
        self._tried: list[str] | None = None  # the ranges that were compiled last
        self.wide: Model | None = None  # the plan for a range of sizes
        self._weights = SharedWeights()
        self._garbage = 0  # bytes of packages that were compiled since garbage was collected
        self._models: weakref.WeakValueDictionary[Any, Model] = weakref.WeakValueDictionary()
        self._turns: weakref.WeakValueDictionary[Any, _Turn] = weakref.WeakValueDictionary()
        self.renew_locks()
        if self.source.is_graph and self.source.may_vary:  # one plan for the ranges that it has
            self._ranges_fail = True
            self.wide = self._once("graph", lambda: Binding({}))

    def renew_locks(self) -> None:
        """Begin with new locks, as a forked process must."""
        self._table = threading.Lock()  # of everything but the weights
        self._packing = threading.Lock()  # of the weights
        self._turns.clear()

    # ---- keys ----------------------------------------------------------------------------------
    def key_of(self, arrays: Mapping[str, Array]) -> Key:
        """The key of the plan that runs these inputs."""
        bound = tuple(n for n in self.value_inputs if n in arrays)
        return Key(
            tuple(a.shape for a in arrays.values()),
            tuple(n for n in arrays if n in self.source.overridable),
            bound,
            tuple(arrays[n].tobytes() for n in bound),
        )

    def _binding(self, key: Key, arrays: Mapping[str, Array]) -> Binding:
        source = self.source
        values = {n: np.array(arrays[n]) for n in key.bound}
        shapes = {n: a.shape for n, a in arrays.items() if n not in values}
        declared = source.types or {}
        if all(n in declared and declared[n].shape == s for n, s in shapes.items()):
            shapes = {}
        kinds = {}
        if source.types is None:
            kinds = {n: dtypes.name_of(a.dtype) for n, a in arrays.items()}
        return Binding(shapes, values, key.overridden, kinds)

    # ---- compiling -----------------------------------------------------------------------------
    def at(self, arrays: Mapping[str, Array]) -> tuple[Key, Model]:
        """A plan for these shapes, and for the values of inputs that decide shapes."""
        while True:
            key = self.key_of(arrays)
            try:
                model = self._once(key, functools.partial(self._binding, key, arrays))
                break
            except NeedsValue as e:
                if not self._bind([n for n in e.names if n in arrays and n not in key.bound]):
                    raise
            except Unsupported:  # an initialiser that must be constant
                if not self._bind([n for n in key.overridden if n not in key.bound]):
                    raise
        types = self.source.types
        if types is not None and not self._ranges_fail and not key.overridden:
            with self._table:
                self._seen.add(sizes_of(types, key.shapes))
        return key, model

    def by_shape(self, arrays: Mapping[str, Array]) -> Model | None:
        """A plan for these shapes, whatever the values; None if values decide shapes too."""
        if self.source.is_graph and self.wide is not None:
            return self.wide
        key = self.key_of(arrays)
        try:
            return self._once(key, functools.partial(self._binding, key, arrays))
        except NeedsValue as e:
            if not self._bind([n for n in e.names if n in arrays]):
                raise
        return None

    def _bind(self, names: list[str]) -> bool:
        """Compile the values of these inputs in from now on; False if there are none."""
        with self._table:
            self.value_inputs += tuple(n for n in names if n not in self.value_inputs)
            self._ranges_fail |= any(n in (self.source.types or {}) for n in names)
        return bool(names)

    def _once(self, key: Any, binding: Callable[[], Binding]) -> Model:
        """The model of this key. If another thread compiles it, this waits for it."""
        with self._table:
            turn = self._turns.setdefault(key, _Turn())
        with turn.lock:
            with self._table:
                model = self._models.get(key)
            if model is None:
                model = self._open(self._package(binding()))
                with self._table:
                    self._models[key] = model
        return model

    def _package(self, binding: Binding) -> Package:
        stored = {"load": self.source.keywords, "at": binding.words(), "compile": self._options}
        package = self._cache.get(stored)
        if package is None:
            graph = self.source.load_for(binding)
            package = intaglio.compile(graph, **self._options)
            self._cache.put(stored, package)
        return package

    def _open(self, package: Package) -> Model:
        """The package, ready for sessions; its constants join those of the others."""
        size = len(package.image)
        if self.source.may_vary or self.value_inputs or self.source.overridable:
            with self._packing:
                package = self._weights.adopt(package)
        self._garbage += size
        if self._garbage > COLLECT_ABOVE_BYTES:
            self._garbage = 0
            gc.collect()  # graphs are cycles: their constants are still in memory
        return Model(package, True)

    # ---- ranges --------------------------------------------------------------------------------
    def untried_ranges(self) -> list[Symbol] | None:
        """Ranges that hold all sizes so far, if a plan for them is worth a try."""
        with self._table:
            if self._ranges_fail or not self._seen.vary:
                return None
            ranges = self._seen.ranges()
            words = [f"{s.name}={s}" for s in ranges]
            if words == self._tried:
                return None
            self._tried = words
            return ranges

    def widen(self, ranges: list[Symbol]) -> None:
        """Compile a plan for ranges of sizes, if the model allows one."""
        try:
            words = tuple(f"{s.name}={s}" for s in ranges)
            model = self._once(words, lambda: self.source.within(ranges))
        except IntaglioError:
            self._ranges_fail = True  # every shape gets a plan of its own
            return
        self.wide = model


class _Turn:
    """A lock that can be forgotten."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
