"""The optimiser's passes, in the order in which they run: from the imported graph to target ops."""

from __future__ import annotations

import difflib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import intaglio.targets.cpu  # noqa: F401  # registers the cpu.* ops
from intaglio import progress
from intaglio.errors import BadInput
from intaglio.ir import Graph, Node
from intaglio.passes.batch_slicing import in_slices_of
from intaglio.passes.canonical import CANONICAL
from intaglio.passes.code_motion import (
    CODE_MOTION,
    CODE_MOTION_FLOATS,
    HOIST_CONSTANTS,
    merge_parallel_products,
)
from intaglio.passes.common_subexpressions import merge_duplicates
from intaglio.passes.fold import FOLD, WEIGHTS
from intaglio.passes.fuse import FUSE
from intaglio.passes.integer import INT16, INTEGER, TO_FLOATS
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


@dataclass(frozen=True)
class Pass:
    """One step of the pipeline: a function that changes the graph in place and may report rules."""

    name: str
    run: Callable[[Graph, Trace], Any]
    level: int = 0  # the lowest optimisation level at which it runs
    rule: str = ""  # its name for `disable`, if the pass is not a list of rules
    finds: str = ""  # the name under which `run` returns the function's result


@dataclass(frozen=True, slots=True)
class Event:
    """One attempt of a rule: it fired, or it refused and said why."""

    rule: str
    op: str
    origin: str
    refusal: str | None


@dataclass
class Record:
    """The result of one pass: its rule events, its run time and the number of nodes it left."""

    name: str
    seconds: float = 0.0
    nodes: int = 0
    events: list[Event] = field(default_factory=list)
    level: int = 0
    times: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # seconds by rule, fired or not

    @property
    def fired(self) -> int:
        return sum(e.refusal is None for e in self.events)

    def trace(self, rule: Rule, node: Node, refusal: No | None) -> None:
        self.events.append(Event(rule.name, node.op, node.origin, refusal))


class Ran(NamedTuple):
    """The record of every pass that ran, and the results of those that return one, by name."""

    records: list[Record]
    found: dict[str, Any]


class _Timed(Rule):
    """A rule that measures how long its attempts take."""

    def __init__(self, rule: Rule, times: dict[str, float]):
        self.__dict__.update(vars(rule))
        self.rule, self.times = rule, times

    def apply(self, graph: Graph, node: Node) -> Any:
        start = time.perf_counter()
        new = self.rule.apply(graph, node)
        self.times[self.name] += time.perf_counter() - start
        return new


class Rules:
    """A pass that applies rules until none fires. `cost` decides between competing rules."""

    def __init__(self, every: Sequence[Rule], cost: Cost):
        self.every, self.cost = list(every), cost

    def __call__(self, graph: Graph, trace: Trace) -> int:
        return rewrite(graph, self.every, trace, self.cost)

    def timed(self, times: dict[str, float], disable: Collection[str]) -> Rules:
        """The same pass without the rules in `disable`; adds each rule's run time to `times`."""
        every = [_Timed(r, times) for r in self.every if r.name not in disable]
        return Rules(every, self.cost)


class Legal(Rules):
    """A pass that applies rules until the target supports every node, or raises Unsupported."""

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
    """Passes that hold on every target. `cost` decides between competing rules."""
    rules = partial(_rules, cost)
    parallel = [merge_parallel_products(cost)]
    return [
        Pass("canonicalize", rules(FOLD, CANONICAL), level=1),
        Pass("merge duplicates", merge_duplicates, level=1, rule="merge_duplicates"),
        Pass("recognize", rules(RECOGNIZE), level=2),
        Pass("integer", rules(INTEGER), level=3),
        Pass(
            "integer to float", rules(TO_FLOATS), level=3
        ),  # quantised products with float results
        Pass("prune channels", prune_channels, level=2, rule="prune_channels", finds="pruned"),
        # int8 shuffles become visible once the quantisation between their steps is gone
        Pass("fuse", rules(FOLD, FUSE, LINEAR, HOIST_CONSTANTS, SHUFFLES, CANONICAL), level=2),
        Pass("fewer transposes", fewer_transposes, level=1, rule="fewer_transposes"),
        Pass("code motion", rules(FOLD, CODE_MOTION, CANONICAL), level=1),
        Pass(
            "code motion of floats",
            rules(FOLD, FUSE, LINEAR, CODE_MOTION_FLOATS, parallel, CANONICAL),
            level=2,
        ),
        Pass("merge duplicates again", merge_duplicates, level=1, rule="merge_duplicates"),
    ]


def offload(target: Target) -> list[Pass]:
    """Passes that turn the nodes an NPU supports into NPU programs. The CPU runs the rest."""
    from intaglio.passes.partition import partition  # imports the NPU ops

    rules = partial(_rules, target.cost)
    int16 = INT16 if target.chip and "i16" in target.chip.types else []
    return [
        Pass("slice volumes", rules(target.volumes)),
        Pass("merge slices", merge_duplicates),  # of one volume
        Pass("lower to NPU", rules(int16, target.lower, FOLD, CANONICAL)),
        Pass("partition", partition(target), finds="partition"),
    ]


def choices(target: Target, pick: Pick = as_estimated, fold: Sequence[Rule] = ()) -> list[Pass]:
    """Passes that choose between several algorithms for a node; `pick` makes the choice."""
    rules = partial(_rules, target.cost)
    replace, choose = ([r.asking(pick) for r in one] for one in (target.replace, target.choose))
    return [
        Pass("replace", rules(replace, FOLD), level=3),
        Pass("choose algorithms", rules(choose, fold), level=2),
    ]


def lowering(target: Target, pick: Pick = as_estimated) -> list[Pass]:
    """Passes that turn a graph into the target's own ops; `pick` chooses between algorithms."""
    rules = partial(_rules, target.cost)
    cut = Pass("slice the batch", in_slices_of(target.image_cache), level=3, rule="slice_batch")
    return [
        *([cut] if target.image_cache else []),
        *choices(target, pick, FOLD),
        Pass("legalize", Legal(target)),
        Pass("fold weights", rules(WEIGHTS, FOLD), level=1),
        Pass("layout", choose_layout, level=1),
        Pass("fuse for target", rules(target.fuse, FOLD, CANONICAL), level=3),
        Pass("fuse blocks", rules([r.asking(pick) for r in target.block]), level=3),
        Pass("chain elementwise", rules(target.chain), level=3),  # ops that no epilogue took
        *([Pass("half precision", rules(target.narrow, FOLD, CANONICAL))] if target.narrow else []),
        Pass("check", Legal(target)),
    ]


def run(
    graph: Graph,
    passes: Sequence[Pass],
    level: int = 3,
    dump_dir: str | Path | None = None,
    disable: Collection[str] = (),
) -> Ran:
    """Run `passes` over `graph`, in place, without the rules named in `disable`.

    `dump_dir` receives the graph as text, before the first pass and after every pass.
    INTAGLIO_DEBUG=1 verifies the graph after every pass.
    """
    _check_names(disable, passes)
    ran = Ran([], {})
    check = os.environ.get("INTAGLIO_DEBUG", "0") not in ("", "0")
    _dump(graph, dump_dir, "00-start")
    for i, p in enumerate(passes, 1):
        if p.level > level or (p.rule and p.rule in disable):
            continue
        progress.report(p.name)
        record, start = Record(p.name, level=p.level), time.perf_counter()
        work = p.run.timed(record.times, disable) if isinstance(p.run, Rules) else p.run
        result = work(graph, record.trace)
        record.seconds, record.nodes = time.perf_counter() - start, sum(1 for _ in graph.nodes())
        if p.rule:
            record.times[p.rule] = record.seconds
        ran.records.append(record)
        if p.finds:
            ran.found[p.finds] = result
        if check:
            verify(graph, f"after {p.name}")
        _dump(graph, dump_dir, f"{i:02}-{p.name.replace(' ', '-')}")
    return ran


def _dump(graph: Graph, folder: str | Path | None, name: str) -> None:
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{name}.txt").write_text(f"{graph}\n")
    except OSError as e:
        raise BadInput(f"cannot write to {folder}: {(e.strerror or str(e)).lower()}") from None


def _check_names(disable: Collection[str], passes: Sequence[Pass]) -> None:
    """Raise BadInput if `disable` names a rule that none of these passes has."""
    known = {r.name for p in passes if isinstance(p.run, Rules) for r in p.run.every}
    known.update(p.rule for p in passes if p.rule)
    for name in disable:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "docs/rules.md lists them all"
            raise BadInput(f"no rule is called '{name}'; {hint}")
