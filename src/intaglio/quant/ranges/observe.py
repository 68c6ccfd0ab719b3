"""Observe tensors while the model runs on samples: extremes, histograms, channel statistics."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from intaglio import dtypes, native
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Value
from intaglio.progress import Progress as Progress
from intaglio.quant.ranges import methods
from intaglio.quant.ranges.methods import Spread
from intaglio.quant.ranges.probe import Probe as Probe
from intaglio.quant.ranges.probe import Sample, probes
from intaglio.quant.samples.dataset import Samples

BINS = 2048  # on either side of 0
MOMENTUM = 0.9
F16_MOST = 65504.0
LIMIT = 256 << 20  # bytes of tensors that are observed in one pass over the samples


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
    lib = native.compiler_library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_observe_all.argtypes = [pointer, u64, ctypes.c_uint32, pointer]
    lib.itg_observe_all.restype = None
    return lib


class _Look(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("n", "outer", "channels", "inner")),
        *((name, ctypes.c_void_p) for name in ("low", "high", "sum", "counts")),
        ("spread", _Spread),
        ("wrong", ctypes.c_uint64),
    ]


class StopCriterion(Protocol):
    """Decides after each block of samples whether observation may stop."""

    def sizes(self) -> Iterable[int]: ...

    def reached(self, seen: Iterable[Observation]) -> bool: ...


@dataclass
class Channels:
    """Statistics of each channel of a tensor."""

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
class Measured:
    """Statistics of one tensor in one sample."""

    finite: bool
    size: int
    counts: Array
    spread: _Spread
    channels: Channels | None


def measure(x: Array, bins: int = BINS, axis: int | None = None) -> Measured:
    """Extremes and histogram of an array, and the extremes and sum of each channel along `axis`."""
    return measure_all([x], bins, [axis])[0]


def measure_all(
    arrays: Sequence[Array], bins: int = BINS, axes: Sequence[int | None] = ()
) -> list[Measured]:
    """`measure` of several arrays in one C call, which leaves Python free for other threads."""
    kept = [np.ascontiguousarray(x, np.float32) for x in arrays]
    counts, scratch = np.zeros((len(kept), 2 * bins), np.uint32), np.empty(8 * bins, np.uint32)
    rows = (_Look * len(kept))()
    channels: list[Channels | None] = []
    for row, x, axis, own in zip(rows, kept, axes, counts, strict=True):
        row.x, row.n, row.counts = x.ctypes.data, x.size, own.ctypes.data
        result = None
        if axis is not None and x.size:
            row.outer, row.inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
            row.channels = x.shape[axis]
            low, high = np.empty((2, row.channels), np.float32)
            result = Channels(axis, low, high, np.empty(row.channels), row.outer * row.inner)
            row.low, row.high, row.sum = (
                a.ctypes.data for a in (result.low, result.high, result.sum)
            )
        channels.append(result)
    _library().itg_observe_all(rows, len(kept), bins, scratch.ctypes.data)
    return [
        Measured(not row.wrong, x.size, own, row.spread, None if row.wrong else result)
        for row, x, own, result in zip(rows, kept, counts, channels, strict=True)
    ]


@dataclass
class Observation:
    """Statistics of one tensor over all samples so far."""

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
        """Add one sample's values; False if one of them is NaN or infinite."""
        return self.take(measure(x, len(self.counts) // 2, axis))

    def take(self, one: Measured) -> bool:
        """Add the statistics of one sample."""
        if not one.finite:
            return False
        if not one.size:  # of a tensor with a dynamic shape
            return True
        bins, found = len(self.counts) // 2, one.spread
        self._merge(one.counts, found.exponent)
        self.counts[bins] -= found.zeros
        self.zeros += found.zeros
        ends = (float(found.low), float(found.high))
        keep = MOMENTUM if self.samples else 0.0
        a, b = self.moving
        self.moving = (keep * a + (1 - keep) * ends[0], keep * b + (1 - keep) * ends[1])
        self.low, self.high = min(self.low, ends[0]), max(self.high, ends[1])
        self.largest.append(max(-ends[0], ends[1]))
        self.samples += 1
        if one.channels is not None:
            self._add_channels(one.channels)
        return True

    def _merge(self, counts: Array, exponent: int) -> None:
        """Add a histogram; the one with the shorter range is rebinned to the other's range."""
        mine = widened(self.counts, exponent - self.exponent)
        self.counts = mine + widened(counts.astype(np.int64), self.exponent - exponent)
        self.exponent = max(self.exponent, exponent)

    def _add_channels(self, more: Channels) -> None:
        c = self.channels
        if c is None:
            self.channels = more
            return
        np.minimum(c.low, more.low, out=c.low)
        np.maximum(c.high, more.high, out=c.high)
        c.sum += more.sum
        c.count += more.count

    @property
    def spread(self) -> Spread:
        """Extremes and histogram for the range methods."""
        low, high = (self.low, self.high) if self.samples else (0.0, 0.0)
        return Spread(low, high, self.moving, self.counts, 2.0**self.exponent)

    def range(
        self, method: str = "minmax", dtype: str = "i8", symmetric: bool = False
    ) -> tuple[float, float]:
        """The range by a method. It contains 0, and is (0, 0) if only zeros were observed.

        Methods: minmax, moving, percentile (99.99; "percentile:99.9" for another), kl, mse.
        """
        return methods.find(self.spread, method, dtype, symmetric)

    @property
    def overflows(self) -> bool:
        """A value was larger than f16 can hold."""
        return bool(self.samples) and max(-self.low, self.high) > F16_MOST

    def notes(self) -> list[str]:
        """Messages for the user about this tensor."""
        if not self.samples:
            return [f"'{self.name}' was empty in all samples: its range is unknown"]
        notes = []
        if max(-self.low, self.high) < methods.TINY:
            notes.append(f"'{self.name}' is always 0: it gets scale 1")
        elif self.low == self.high:
            notes.append(f"'{self.name}' is always {self.low:g}: it could be a constant")
        if self.overflows:
            most = max(-self.low, self.high)
            notes.append(f"'{self.name}' reaches {most:g}: more than f16 holds ({F16_MOST:g})")
        return notes


def widened(counts: Array, doublings: int) -> Array:
    """The histogram with its range doubled so many times; neighbouring bins merge."""
    bins = len(counts) // 2
    if doublings <= 0:
        return counts
    members = min(1 << min(doublings, 30), bins)
    wide = np.zeros_like(counts)
    used = bins // members
    wide[bins : bins + used] = counts[bins:].reshape(-1, members).sum(1)
    wide[bins - used : bins] = counts[:bins].reshape(-1, members).sum(1)
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
    outputs: MutableMapping[int, dict[str, Array]] | None = None,
    enough: StopCriterion | None = None,
    started: Callable[[], None] = lambda: None,
) -> dict[Value, Observation]:
    """Run the compiled graph on every sample and gather statistics of `tensors`.

    `channels` gives the channel axis of tensors whose channels are observed too. Tensors of more
    than `limit` bytes together are observed in several passes; samples of a generator are then
    kept in memory. The keys of `outputs` are numbers of samples: the graph's outputs for these
    samples are stored there. `enough` may end a pass before the last sample; `started` is called
    before the first sample runs. A NaN or infinite value raises BadInput, which names its layer.
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
    results = {v: Observation(v.name, counts=np.zeros(2 * bins, np.int64)) for v in wanted}
    for v in wanted:
        if v.data is not None and not results[v].add(v.data, axes.get(v)):
            raise BadInput(f"the constant {name_of(v)} holds NaN or infinite values")
    groups = groups_by_bytes([v for v in wanted if v.data is None], limit)
    if len(groups) > 1 and iter(samples) is samples:
        samples = list(samples)
    for i, group in enumerate(groups):
        part = f", part {i + 1} of {len(groups)}" if len(groups) > 1 else ""
        _pass(
            graph,
            group,
            samples,
            results,
            axes,
            progress,
            part,
            {} if i else outputs or {},
            enough,
            started,
        )
    return results


def groups_by_bytes(tensors: list[Value], limit: int) -> list[list[Value]]:
    """The tensors in order, in groups of at most `limit` bytes."""
    groups: list[list[Value]] = []
    left = 0
    for v in tensors:
        if not groups or v.type.bytes > left:
            groups.append([])
            left = limit
        groups[-1].append(v)
        left -= v.type.bytes
    return groups


def _pass(
    graph: Graph,
    tensors: list[Value],
    samples: Iterable[Sample],
    made: dict[Value, Observation],
    axes: Mapping[Value, int],
    progress: Progress | None,
    part: str,
    outputs: MutableMapping[int, dict[str, Array]],
    enough: StopCriterion | None,
    started: Callable[[], None],
) -> None:
    total = len(samples) if isinstance(samples, Sized) else None
    bins = len(made[tensors[0]].counts) // 2
    results = dict(zip(graph.output_names, graph.outputs, strict=True)) if outputs else {}

    def look(probe: Probe, numbered: tuple[int, Sample]) -> list[Measured]:
        n, sample = numbered
        arrays = probe.run(sample)
        if n in outputs:
            outputs[n] = {name: probe.plain(v, arrays) for name, v in results.items()}
        at = {v: probe.axis(v, axes[v]) for v in tensors if v in axes}
        return measure_all([arrays[v] for v in tensors], bins, [at.get(v) for v in tensors])

    def take(n: int, found: list[Measured]) -> None:
        if progress:
            progress(f"calibrating{part}", n, total)
        for v, one in zip(tensors, found, strict=True):
            if not made[v].take(one):
                at = samples.where(n - 1) if isinstance(samples, Samples) else f"sample {n}"
                raise BadInput(
                    f"calibration: {name_of(v)} holds NaN or infinite values in {at}; "
                    "a range needs finite values: check the model and its preprocessing"
                )

    n, numbered = 0, iter(enumerate(samples))
    with probes(graph, [*tensors, *results.values()]) as pool:
        started()
        for size in enough.sizes() if enough else [None]:
            before = n
            for found in pool.in_order(look, itertools.islice(numbered, size)):
                n += 1
                take(n, found)
            if n - before != size or (enough and enough.reached(made[v] for v in tensors)):
                break
    for v in tensors:
        if (c := made[v].channels) is not None:
            c.axis = axes[v]
    if not n:
        raise BadInput("calibration got no samples; at least one is needed")


def name_of(v: Value) -> str:
    """A tensor and the layer that computes it, for messages."""
    if v.producer is None:
        return f"'{v.name}'" if v.data is not None else f"input '{v.name}'"
    layer = f" '{v.producer.origin}'" if v.producer.origin else ""
    return f"tensor '{v.name}' (output of {v.producer.op}{layer})"
