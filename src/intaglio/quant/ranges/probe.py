"""Read intermediate tensors of a compiled model, on a pool of sessions, one for each CPU."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import os
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Value, detach
from intaglio.ops.shape import transpose
from intaglio.session import Session

Sample = Mapping[str, Array]
T = TypeVar("T")
R = TypeVar("R")


class Closeable(Protocol):
    """An object with `close`."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closeable)


class Probe:
    """The graph compiled with any of its tensors as outputs.

    Tensors of rank 4 come as [N, H, W, C], the CPU's own layout, which saves a transpose.
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Sequence[Value],
        images_last: bool = True,
        threads: int | None = None,
    ):
        self.tensors = [v for v in dict.fromkeys(tensors) if v.producer is not None]
        self.inputs = [v for v in tensors if v.producer is None and v.data is None]
        self.turned = {v for v in self.tensors if images_last and v.type.rank == 4}
        self.session: Session | None = None
        if self.tensors:
            probe = _with_outputs(graph, self.tensors, self.turned)
            self.takes = [v.name for v in probe.inputs]
            self.session = _opened(probe, threads)
            self._allocate_outputs()

    def _allocate_outputs(self) -> None:
        assert self.session is not None
        self.out = {
            n: np.empty(t.shape, dtypes.numpy_of(t.dtype))
            for n, t in self.session.outputs.items()
            if not t.dynamic
        }

    def clone(self) -> Probe:
        """A second probe over the same weights, to run concurrently."""
        result = copy.copy(self)
        if self.session is not None:
            result.session = self.session.clone()
            result._allocate_outputs()
        return result

    def axis(self, v: Value, axis: int) -> int:
        """The position of a tensor's axis in the array that `run` returns."""
        axis %= v.type.rank
        return (0, 3, 1, 2)[axis] if v in self.turned else axis

    def run(self, sample: Sample) -> dict[Value, Array]:
        """The tensors' values; the next run overwrites them."""
        arrays = {}
        for v in self.inputs:
            if v.name not in sample:
                raise BadInput(f"the sample has no input '{v.name}'; it has {', '.join(sample)}")
            arrays[v] = np.asarray(sample[v.name])
        if self.session is not None:
            results = self.session.run({n: sample[n] for n in sample}, self.out)
            for i, v in enumerate(self.tensors):
                arrays[v] = results[f"t{i}"]
        return arrays

    def plain(self, v: Value, arrays: Mapping[Value, Array]) -> Array:
        """A copy of one result of `run`, with its axes in the graph's order."""
        if v.data is not None:
            return v.data
        return arrays[v].transpose(0, 3, 1, 2).copy() if v in self.turned else arrays[v].copy()

    def close(self) -> None:
        if self.session is not None:
            self.session.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SessionPool(Generic[S]):
    """Single-threaded sessions, one for each CPU, that run samples in parallel."""

    def __init__(self, first: S, fork: Callable[[], S]):
        self.every = [first, *(fork() for _ in range(cpus() - 1))]
        self._free: queue.SimpleQueue[S] = queue.SimpleQueue()
        for runner in self.every:
            self._free.put(runner)
        self._pool = ThreadPoolExecutor(len(self.every))

    def in_order(self, work: Callable[[S, T], R], items: Iterable[T]) -> Iterator[R]:
        """The results of `work` for every item, in order; a few run at a time."""

        def run(item: T) -> R:
            runner = self._free.get()
            try:
                return work(runner, item)
            finally:
                self._free.put(runner)

        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(self._pool.submit(run, item))
            if len(waiting) > 2 * len(self.every):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def __enter__(self) -> SessionPool[S]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for runner in self.every:
            runner.close()


def cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def probes(graph: Graph, tensors: Sequence[Value]) -> SessionPool[Probe]:
    """A pool of probes of these tensors."""
    first = Probe(graph, tensors, threads=1)
    return SessionPool(first, first.clone)


def sessions(graph: Graph) -> SessionPool[Session]:
    """A pool of sessions of the compiled graph."""
    first = _opened(graph, 1)
    return SessionPool(first, first.clone)


def _opened(graph: Graph, threads: int | None) -> Session:
    """A session of the compiled graph; memory that compiling used is released first."""
    with deferred_gc():
        package = intaglio.compile(graph)
        release_memory()
    return intaglio.open(package, threads)


@contextlib.contextmanager
def deferred_gc() -> Iterator[None]:
    """Disable automatic garbage collection inside the block: it would take a quarter of the time.

    Objects from before the block are frozen: an explicit gc.collect() skips them."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()


def release_memory() -> None:
    """Return freed memory to the system; malloc would keep it."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc only
        trim(0)


def _with_outputs(graph: Graph, tensors: Sequence[Value], turned: set[Value]) -> Graph:
    """A copy of the graph that computes only these tensors."""
    whole = Graph(graph.inputs, tensors, [f"t{i}" for i in range(len(tensors))], graph.name)
    try:
        copy = whole.copy()
    finally:
        detach(whole.result)
    outputs = [
        transpose(w, perm=(0, 2, 3, 1)) if v in turned else w
        for v, w in zip(tensors, copy.outputs, strict=True)
    ]
    return Graph(copy.inputs, outputs, copy.output_names, graph.name)
