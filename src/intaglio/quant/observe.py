"""What the tensors of a model hold when it runs on samples: ranges, histograms, channels."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

import intaglio
from intaglio import dtypes, native
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Value
from intaglio.ops.shape import transpose
from intaglio.quant import ranges
from intaglio.quant.data import Samples
from intaglio.quant.ranges import Spread
from intaglio.session import Session

Progress = Callable[[str, int, int | None], None]  # what is being done, how far, of how much
Sample = Mapping[str, Array]
BINS = 2048  # on either side of 0
MOMENTUM = 0.9
F16_MOST = 65504.0
LIMIT = 256 << 20  # bytes of tensors that are looked at in one pass over the samples


class _Spread(ctypes.Structure):
    _fields_ = [
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("exponent", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("zeros", ctypes.c_uint64),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_observe.argtypes = [pointer, u64, ctypes.c_uint32, pointer, pointer]
    lib.itg_observe_channels.argtypes = [pointer, u64, u64, u64, pointer, pointer, pointer]
    lib.itg_observe_channels.restype = None
    return lib


@dataclass
class Channels:
    """What each channel of a tensor held."""

    axis: int
    low: Array
    high: Array
    sum: Array
    count: int = 0  # values per channel

    @property
    def largest(self) -> Array:
        """The largest magnitude of every channel."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def mean(self) -> Array:
        return self.sum / max(self.count, 1)


@dataclass
class Observation:
    """What one tensor held, over all samples so far."""

    name: str
    low: float = np.inf
    high: float = -np.inf
    moving: tuple[float, float] = (0.0, 0.0)
    exponent: int = -100  # the histogram goes from -2^exponent to 2^exponent
    counts: Array = field(default_factory=lambda: np.zeros(2 * BINS, np.int64))
    zeros: int = 0
    samples: int = 0
    channels: Channels | None = None
    largest: list[float] = field(default_factory=list)  # magnitude, sample by sample

    def add(self, x: Array, axis: int | None = None) -> bool:
        """Take one sample's values in; False where one of them is NaN or infinite."""
        x = np.ascontiguousarray(x, np.float32)
        bins = len(self.counts) // 2
        counts, found = np.empty(8 * bins, np.uint32), _Spread()
        lib = _library()
        if lib.itg_observe(x.ctypes.data, x.size, bins, counts.ctypes.data, ctypes.byref(found)):
            return False
        if not x.size:  # of a tensor whose extent varies
            return True
        self._merge(counts[: 2 * bins], found.exponent)
        self.counts[bins] -= found.zeros
        self.zeros += found.zeros
        ends = (float(found.low), float(found.high))
        keep = MOMENTUM if self.samples else 0.0
        a, b = self.moving
        self.moving = (keep * a + (1 - keep) * ends[0], keep * b + (1 - keep) * ends[1])
        self.low, self.high = min(self.low, ends[0]), max(self.high, ends[1])
        self.largest.append(max(-ends[0], ends[1]))
        self.samples += 1
        if axis is not None:
            self._add_channels(x, axis)
        return True

    def _merge(self, counts: Array, exponent: int) -> None:
        """Add a histogram; whichever has the shorter range is folded into the other's."""
        mine = _widened(self.counts, exponent - self.exponent)
        self.counts = mine + _widened(counts.astype(np.int64), self.exponent - exponent)
        self.exponent = max(self.exponent, exponent)

    def _add_channels(self, x: Array, axis: int) -> None:
        n = x.shape[axis]
        if self.channels is None:
            ends = np.full(n, np.inf, np.float32)
            self.channels = Channels(axis, ends, -ends, np.zeros(n))
        c = self.channels
        outer, inner = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis + 1 :]))
        _library().itg_observe_channels(
            x.ctypes.data, outer, n, inner, c.low.ctypes.data, c.high.ctypes.data, c.sum.ctypes.data
        )
        c.count += outer * inner

    @property
    def spread(self) -> Spread:
        """How the values are spread, as the range methods want it."""
        low, high = (self.low, self.high) if self.samples else (0.0, 0.0)
        return Spread(low, high, self.moving, self.counts, 2.0**self.exponent)

    def range(self, method: str = "minmax", dtype: str = "i8",
              symmetric: bool = False) -> tuple[float, float]:  # fmt: skip
        """What a format should cover; 0 is inside, and both ends are 0 where nothing else was seen.

        Methods: minmax, moving, percentile (99.99; "percentile:99.9" for another), kl, mse.
        """
        return ranges.find(self.spread, method, dtype, symmetric)

    @property
    def overflows(self) -> bool:
        """A value was larger than f16 can hold."""
        return bool(self.samples) and max(-self.low, self.high) > F16_MOST

    def notes(self) -> list[str]:
        """What a user should know of this tensor, in words."""
        if not self.samples:
            return [f"'{self.name}' was empty in every sample: its range is unknown"]
        notes = []
        if max(-self.low, self.high) < ranges.TINY:
            notes.append(f"'{self.name}' is always 0: it gets scale 1")
        elif self.low == self.high:
            notes.append(f"'{self.name}' is always {self.low:g}: it could be a constant")
        if self.overflows:
            most = max(-self.low, self.high)
            notes.append(f"'{self.name}' reaches {most:g}: more than f16 holds ({F16_MOST:g})")
        return notes


def _widened(counts: Array, doublings: int) -> Array:
    """The same counts in a histogram whose range was doubled that often; neighbours merge."""
    bins = len(counts) // 2
    if doublings <= 0:
        return counts
    members = min(1 << min(doublings, 30), bins)
    wide = np.zeros_like(counts)
    room = bins // members
    wide[bins : bins + room] = counts[bins:].reshape(-1, members).sum(1)
    wide[bins - room : bins] = counts[:bins].reshape(-1, members).sum(1)
    return wide


def observe(
    graph: Graph,
    tensors: Sequence[Value],
    samples: Iterable[Sample],
    *,
    progress: Progress | None = None,
    bins: int = BINS,
    channels: Mapping[Value, int] | None = None,
    limit: int = LIMIT,
) -> dict[Value, Observation]:
    """Run the compiled graph on every sample and gather statistics of `tensors`.

    `channels` names the axis of tensors of which each channel is wanted too. Tensors of more than
    `limit` bytes together are looked at in several passes; samples that can be walked only once
    are then kept in memory. Raises BadInput where a value is NaN or infinite, naming its layer.
    """
    if bins < 2 or bins & (bins - 1):
        raise BadInput(f"bins is {bins}; a power of two is needed, so that bins can merge")
    axes = channels or {}
    order = {v: i for i, v in enumerate(graph.values())}
    if foreign := [v for v in tensors if v not in order]:
        raise BadInput(f"tensor '{foreign[0].name}' is not part of the graph")
    if strange := [v for v in tensors if not dtypes.is_float(v.dtype)]:
        v = strange[0]
        raise BadInput(f"tensor '{v.name}' is {v.dtype}; only floats have ranges to observe")
    wanted = sorted(dict.fromkeys(tensors), key=order.__getitem__)
    made = {v: Observation(v.name, counts=np.zeros(2 * bins, np.int64)) for v in wanted}
    for v in wanted:
        if v.data is not None and not made[v].add(v.data, axes.get(v)):
            raise BadInput(f"the constant {name_of(v)} holds NaN or infinite values")
    groups = in_groups([v for v in wanted if v.data is None], limit)
    if len(groups) > 1 and iter(samples) is samples:
        samples = list(samples)
    for i, group in enumerate(groups):
        part = f", part {i + 1} of {len(groups)}" if len(groups) > 1 else ""
        _pass(graph, group, samples, made, axes, progress, part)
    return made


def in_groups(tensors: list[Value], limit: int) -> list[list[Value]]:
    """The tensors in order, in runs of at most `limit` bytes."""
    groups: list[list[Value]] = []
    room = 0
    for v in tensors:
        if not groups or v.type.bytes > room:
            groups.append([])
            room = limit
        groups[-1].append(v)
        room -= v.type.bytes
    return groups


def _pass(
    graph: Graph,
    tensors: list[Value],
    samples: Iterable[Sample],
    made: dict[Value, Observation],
    axes: Mapping[Value, int],
    progress: Progress | None,
    part: str,
) -> None:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    total = len(samples) if isinstance(samples, Sized) else None
    n = 0
    with Probe(graph, tensors) as probe, ThreadPoolExecutor(threads) as pool:
        for n, sample in enumerate(samples, 1):
            if progress:
                progress(f"calibrating{part}", n, total)
            arrays = probe.run(sample)

            def add(v: Value, arrays: Mapping[Value, Array] = arrays) -> bool:
                return made[v].add(arrays[v], probe.axis(v, axes[v]) if v in axes else None)

            for v, fine in zip(tensors, pool.map(add, tensors), strict=True):
                if not fine:
                    at = samples.where(n - 1) if isinstance(samples, Samples) else f"sample {n}"
                    raise BadInput(
                        f"calibration: {name_of(v)} holds NaN or infinite values in {at}; "
                        "ranges cannot be found from these: check the model and its preprocessing"
                    )
    for v in tensors:
        if (c := made[v].channels) is not None:
            c.axis = axes[v]
    if not n:
        raise BadInput("calibration got no samples; at least one is needed")


def name_of(v: Value) -> str:
    """A tensor and the layer that makes it, for people to find it."""
    if v.producer is None:
        return f"'{v.name}'" if v.data is not None else f"input '{v.name}'"
    layer = f" '{v.producer.origin}'" if v.producer.origin else ""
    return f"tensor '{v.name}' (made by {v.producer.op}{layer})"


class Probe:
    """The compiled graph with tensors of one's choice as its outputs.

    Images come as [N, H, W, C]: so the target computes them, and no transpose is needed.
    """

    def __init__(self, graph: Graph, tensors: Sequence[Value], images_last: bool = True):
        self.tensors = [v for v in dict.fromkeys(tensors) if v.producer is not None]
        self.inputs = [v for v in tensors if v.producer is None]
        self.turned = {v for v in self.tensors if images_last and v.type.rank == 4}
        self.session: Session | None = None
        if self.tensors:
            probe = _with_outputs(graph, self.tensors, self.turned)
            self.takes = [v.name for v in probe.inputs]
            self.session = intaglio.open(intaglio.compile(probe))
            self.out = {
                n: np.empty(t.shape, dtypes.numpy_of(t.dtype))
                for n, t in self.session.outputs.items()
                if not t.dynamic
            }

    def axis(self, v: Value, axis: int) -> int:
        """Where an axis of the tensor is in the array that `run` gives."""
        axis %= v.type.rank
        return (0, 3, 1, 2)[axis] if v in self.turned else axis

    def run(self, sample: Sample) -> dict[Value, Array]:
        """The tensors' values; the next run writes over them."""
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

    def close(self) -> None:
        if self.session is not None:
            self.session.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _with_outputs(graph: Graph, tensors: Sequence[Value], turned: set[Value]) -> Graph:
    """A copy of the graph that makes these tensors and nothing else."""
    whole = Graph(graph.inputs, tensors, [f"t{i}" for i in range(len(tensors))], graph.name)
    try:
        copy = whole.copy()
    finally:
        for v in tensors:
            v.uses.pop(whole.result, None)
    outputs = [
        transpose(w, perm=(0, 2, 3, 1)) if v in turned else w
        for v, w in zip(tensors, copy.outputs, strict=True)
    ]
    return Graph(copy.inputs, outputs, copy.output_names, graph.name)
