"""The passes, in THE order: from what the model says to what the target runs."""

from __future__ import annotations

import difflib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import intaglio.targets.cpu  # noqa: F401  # whose ops every graph may hold
from intaglio.errors import BadInput
from intaglio.ir import Graph, Node
from intaglio.passes.batch_slicing import in_slices_of
from intaglio.passes.canonical import CANONICAL
from intaglio.passes.code_motion import MEET_FLOATS, MOVE, MOVE_FLOATS, parallel_products
from intaglio.passes.common_subexpressions import merge_duplicates
from intaglio.passes.fold import FOLD, WEIGHTS
from intaglio.passes.fuse import FUSE
from intaglio.passes.integer import INTEGER, TO_FLOATS, WORDS
from intaglio.passes.layout import choose_layout, fewer_transposes
from intaglio.passes.legalize import refuse, steps
from intaglio.passes.merge_linear import LINEAR
from intaglio.passes.prune import prune_channels
from intaglio.passes.recognize import RECOGNIZE
from intaglio.passes.recognize.shuffles import SHUFFLES
from intaglio.rewrite import No, Pick, Rule, Trace, as_estimated, rewrite
from intaglio.targets import Target
from intaglio.targets.cost import USUAL, Cost
from intaglio.verify import verify

Progress = Callable[[str], None]  # is told what is being done


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline: a function that changes the graph in place and may report rules."""

    name: str
    run: Callable[[Graph, Trace], Any]
    level: int = 0  # the lowest optimisation level at which it runs
    rule: str = ""  # the name under which `disable` leaves it out, where it is no list of rules


@dataclass(frozen=True, slots=True)
class Event:
    """A rule that fired, or the words with which it refused."""

    rule: str
    op: str
    origin: str
    refusal: str | None


@dataclass
class Record:
    """What one pass did, how long it took, and how many nodes it left."""

    name: str
    seconds: float = 0.0
    nodes: int = 0
    events: list[Event] = field(default_factory=list)
    level: int = 0
    times: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # seconds by rule, fired or not
    result: Any = None  # what the pass returned, such as what pruning saved

    @property
    def fired(self) -> int:
        return sum(e.refusal is None for e in self.events)

    def trace(self, rule: Rule, node: Node, refusal: No | None) -> None:
        self.events.append(Event(rule.name, node.op, node.origin, refusal))


class _Timed(Rule):
    """A rule that notes how long its attempts take."""

    def __init__(self, rule: Rule, times: dict[str, float]):
        self.__dict__.update(vars(rule))
        self.rule, self.times = rule, times

    def apply(self, graph: Graph, node: Node) -> Any:
        start = time.perf_counter()
        new = self.rule.apply(graph, node)  # its own way of doing that
        self.times[self.name] += time.perf_counter() - start
        return new


class Rules:
    """A pass that applies rules until none fires; those that compete are weighed by `cost`."""

    def __init__(self, every: Sequence[Rule], cost: Cost):
        self.every, self.cost = list(every), cost

    def __call__(self, graph: Graph, trace: Trace) -> int:
        return rewrite(graph, self.every, trace, self.cost)

    def timed(self, times: dict[str, float], disable: Collection[str]) -> Rules:
        """The same without the rules in `disable`; how long each takes is added to `times`."""
        every = [_Timed(r, times) for r in self.every if r.name not in disable]
        return Rules(every, self.cost)


class Legal(Rules):
    """A pass that applies rules until the target runs every node, or says which it cannot."""

    def __init__(self, target: Target, every: Sequence[Rule] | None = None):
        super().__init__(steps(target) if every is None else every, target.cost)
        self.target = target

    def __call__(self, graph: Graph, trace: Trace) -> int:
        fired = super().__call__(graph, trace)
        refuse(self.target, graph)
        return fired

    def timed(self, times: dict[str, float], disable: Collection[str]) -> Rules:
        return Legal(self.target, super().timed(times, disable).every)


def _rules(cost: Cost, *lists: Sequence[Rule]) -> Rules:
    return Rules([r for one in lists for r in one], cost)


def neutral(cost: Cost = USUAL) -> list[Pass]:
    """What is true of a model on every target; where rules compete, the target's cost decides."""
    rules = partial(_rules, cost)
    parallel = [parallel_products(cost)]
    return [
        Pass("canonicalize", rules(FOLD, CANONICAL), level=1),
        Pass("merge duplicates", merge_duplicates, level=1, rule="merge_duplicates"),
        Pass("recognize", rules(RECOGNIZE), level=2),
        Pass("integer", rules(INTEGER), level=3),
        Pass("integer sums", rules(TO_FLOATS), level=3),  # of products that nobody rounds
        Pass("prune channels", prune_channels, level=2, rule="prune_channels"),
        # shuffles of bytes show only once quantisation between their steps is gone
        Pass("fuse", rules(FOLD, FUSE, LINEAR, MEET_FLOATS, SHUFFLES, CANONICAL), level=2),
        Pass("fewer transposes", fewer_transposes, level=1, rule="fewer_transposes"),
        Pass("move", rules(FOLD, MOVE, CANONICAL), level=1),
        Pass("move products", rules(FOLD, FUSE, LINEAR, MOVE_FLOATS, parallel, CANONICAL), level=2),
        Pass("merge duplicates again", merge_duplicates, level=1, rule="merge_duplicates"),
    ]


def offload(target: Target) -> list[Pass]:
    """What the units of an NPU do becomes programs of its own; all else is for the CPU beside."""
    from intaglio.passes.partition import partition  # which knows the ops of NPUs

    rules = partial(_rules, target.cost)
    words = WORDS if target.chip and "i16" in target.chip.types else []
    return [
        Pass("lower to NPU", rules(words, target.lower, FOLD, CANONICAL)),
        Pass("partition", partition(target)),
    ]


def choices(target: Target, pick: Pick = as_estimated, fold: Sequence[Rule] = ()) -> list[Pass]:
    """Where there are several ways to compute a node, of which `pick` takes one."""
    rules = partial(_rules, target.cost)
    replace, choose = ([r.asking(pick) for r in one] for one in (target.replace, target.choose))
    return [
        Pass("replace", rules(replace, FOLD), level=3),
        Pass("choose algorithms", rules(choose, fold), level=2),
    ]


def lowering(target: Target, pick: Pick = as_estimated) -> list[Pass]:
    """What turns a model into the target's own ops; `pick` decides where it has several ways."""
    rules = partial(_rules, target.cost)
    cut = Pass("slice the batch", in_slices_of(target.near), level=3, rule="batch_in_slices")
    return [
        *([cut] if target.near else []),
        *choices(target, pick, FOLD),
        Pass("legalize", Legal(target)),
        Pass("fold weights", rules(WEIGHTS, FOLD), level=1),
        Pass("layout", choose_layout, level=1),
        Pass("fuse for target", rules(target.fuse, FOLD, CANONICAL), level=3),
        Pass("blocks", rules([r.asking(pick) for r in target.block]), level=3),
        Pass("chain", rules(target.chain), level=3),  # what no epilogue took
        *([Pass("narrow", rules(target.narrow, FOLD, CANONICAL))] if target.narrow else []),
        Pass("check", Legal(target)),
    ]


def run(
    graph: Graph,
    passes: Sequence[Pass],
    level: int = 3,
    dump_dir: str | Path | None = None,
    progress: Progress | None = None,
    disable: Collection[str] = (),
) -> list[Record]:
    """Run passes over `graph`, in place, without the rules that `disable` names.

    `dump_dir` receives the graph as text before them and after each. INTAGLIO_DEBUG=1 verifies the
    graph after each of them.
    """
    _check_names(disable, passes)
    records = []
    check = os.environ.get("INTAGLIO_DEBUG", "0") not in ("", "0")
    _dump(graph, dump_dir, "00-start")
    for i, p in enumerate(passes, 1):
        if p.level > level or (p.rule and p.rule in disable):
            continue
        if progress:
            progress(p.name)
        record, start = Record(p.name, level=p.level), time.perf_counter()
        work = p.run.timed(record.times, disable) if isinstance(p.run, Rules) else p.run
        record.result = work(graph, record.trace)
        record.seconds, record.nodes = time.perf_counter() - start, sum(1 for _ in graph.nodes())
        if p.rule:
            record.times[p.rule] = record.seconds
        records.append(record)
        if check:
            verify(graph, f"after {p.name}")
        _dump(graph, dump_dir, f"{i:02}-{p.name.replace(' ', '-')}")
    return records


def _dump(graph: Graph, folder: str | Path | None, name: str) -> None:
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{name}.txt").write_text(f"{graph}\n")
    except OSError as e:
        raise BadInput(f"cannot write to {folder}: {(e.strerror or str(e)).lower()}") from None


def _check_names(disable: Collection[str], passes: Sequence[Pass]) -> None:
    """BadInput where no rule of these passes has a name that is to be disabled."""
    known = {r.name for p in passes if isinstance(p.run, Rules) for r in p.run.every}
    known.update(p.rule for p in passes if p.rule)
    for name in disable:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "docs/rules.md lists them all"
            raise BadInput(f"no rule is called '{name}'; {hint}")
