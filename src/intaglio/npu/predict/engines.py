"""The timeline of a vendor's commands: engines that run in order, and wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

ALTERNATES = 0.25  # of a layer's time: if both kinds of engine take more, they wait for each other
COMPUTE, BANDWIDTH, LAUNCH, DEPENDENCY, CPU = "compute", "bandwidth", "launch", "dependency", "CPU"


@dataclass(slots=True)
class Step:
    """One command."""

    engine: str
    what: str
    layer: int  # the row of the report
    microseconds: float
    start: float = 0.0  # of these, before any work
    waits: int = -1  # number of a step of another engine that must have ended; -1: none
    bytes: int = 0  # of DDR
    macs: int = 0
    moves: bool = False  # it moves data, and computes nothing
    also: tuple[int, ...] = ()  # numbers of more steps that must have ended


@dataclass(slots=True)
class LayerText:
    """What a report says about a layer, besides its time."""

    op: str
    name: str
    dtype: str = "i8"
    inputs: str = ""
    output: str = ""
    module: str = ""  # of a package with several; empty: the only one


@dataclass(slots=True)
class Timed:
    """Commands with their costs, and the layers that they belong to."""

    steps: list[Step]
    layers: list[LayerText]
    source: str  # where the times come from
    clock: float  # MHz, of the engine that computes
    ddr: float  # GB/s
    notes: list[str] = field(default_factory=list)  # what is not counted
    cores: int = 1
    begin: list[float] = field(default_factory=list)  # microseconds, of each step
    end: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        last: dict[str, float] = {}
        for s in self.steps:
            waited = [self.end[k] for k in (s.waits, *s.also) if k >= 0]
            begin = max(last.get(s.engine, 0.0), *waited, 0.0)
            self.begin.append(begin)
            self.end.append(begin + s.microseconds)
            last[s.engine] = self.end[-1]

    @property
    def microseconds(self) -> float:
        """From the first command to the end of the last."""
        return max(self.end, default=0.0)

    def busy(self) -> dict[str, float]:
        """The share of the time that each engine works."""
        sums: dict[str, float] = {}
        for s in self.steps:
            sums[s.engine] = sums.get(s.engine, 0.0) + s.microseconds
        return {k: v / (self.microseconds or 1.0) for k, v in sums.items()}

    def critical(self) -> list[int]:
        """The steps of the critical path, the last one first."""
        before: dict[str, int] = {}
        causes: list[int] = []
        for i, s in enumerate(self.steps):
            own = before.get(s.engine, -1)
            candidates = [k for k in (own, s.waits, *s.also) if k >= 0]
            causes.append(max(candidates, key=lambda k: self.end[k], default=-1))
            before[s.engine] = i
        path: list[int] = []
        at = max(range(len(self.steps)), key=lambda k: self.end[k], default=-1)
        while at >= 0:
            path.append(at)
            at = causes[at]
        return path

    def spent(self) -> tuple[list[float], list[str]]:
        """For each layer: its time on the critical path, and what bounds it."""
        parts = [dict.fromkeys((COMPUTE, BANDWIDTH, LAUNCH, CPU), 0.0) for _ in self.layers]
        for i in self.critical():
            s = self.steps[i]
            kind = CPU if s.engine == "CPU" else BANDWIDTH if s.moves else COMPUTE
            parts[s.layer][LAUNCH] += s.start
            parts[s.layer][kind] += s.microseconds - s.start
        return [sum(p.values()) for p in parts], [_bound(p) for p in parts]


def _bound(parts: dict[str, float]) -> str:
    whole = sum(parts.values())
    if not whole:
        return COMPUTE
    if min(parts[COMPUTE], parts[BANDWIDTH]) > ALTERNATES * whole:
        return DEPENDENCY
    return max(parts, key=lambda k: parts[k])


@dataclass(slots=True)
class KnownLayers:
    """The layers of a file, which a package keeps beside it: files do not name them."""

    layers: list[LayerText]
    runs: dict[str, list[list[int]]]  # by engine: [layer, number of commands]

    def give(self, commands: Iterable[HasLayer]) -> None:
        """Give each command its layer; a command after the known ones belongs to the last."""
        each = {e: [k for k, n in runs for _ in range(n)] for e, runs in self.runs.items()}
        left = {e: iter(known) for e, known in each.items()}
        for c in commands:
            last = (each.get(c.engine) or [0])[-1]
            layer = next(left.get(c.engine, iter(())), last)
            c.layer = min(max(layer, 0), len(self.layers) - 1)


class HasLayer(Protocol):
    """A command of an engine."""

    engine: str
    layer: int


def in_a_row(parts: Sequence[Timed]) -> Timed:
    """Timelines one after the other: each begins when the one before it has ended."""
    layers = [text for part in parts for text in part.layers]
    steps: list[Step] = []
    last, row = -1, 0  # the step that the next timeline waits for, and its first layer
    for part in parts:
        first = len(steps)
        for s in part.steps:
            waits = s.waits + first if s.waits >= 0 else last
            also = tuple(k + first for k in s.also)
            steps.append(replace(s, layer=s.layer + row, waits=waits, also=also))
        row += len(part.layers)
        if part.steps:
            last = part.end.index(max(part.end)) + first
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    figures = max(parts, key=lambda part: part.clock)
    cores = max(part.cores for part in parts)
    return Timed(steps, layers, figures.source, figures.clock, figures.ddr, notes, cores)


def described(layers: Sequence[dict[str, Any]]) -> list[LayerText]:
    """The texts of layers as `npu.metadata.describe` has them."""
    found = []
    for layer in layers:
        shapes = ",".join("x".join(map(str, s)) for s in layer["inputs"])
        if "kernel" in layer:
            shapes += " w" + "x".join(map(str, layer["kernel"]))
        output = "x".join(map(str, layer["output"]))
        found.append(LayerText(layer["op"], layer["name"], layer["dtype"], shapes, output))
    return found


def numbered_waits(
    engines: Sequence[str], numbers: Sequence[int], depends: Sequence[int], other: dict[str, str]
) -> list[int]:
    """For each command, the index of the other engine's command that it waits for; -1: none."""
    done: dict[str, list[tuple[int, int]]] = {e: [] for e in other}
    found: list[int] = []
    at = dict.fromkeys(other, 0)
    for i, (engine, number, depend) in enumerate(zip(engines, numbers, depends, strict=True)):
        queue = done[other[engine]]
        k = at[engine]  # waits never go back within an engine's queue
        while k < len(queue) and queue[k][0] <= depend:
            k += 1
        at[engine] = k
        found.append(queue[k - 1][1] if k and depend else -1)
        done[engine].append((number, i))
    return found
