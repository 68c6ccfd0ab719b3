"""The passes, in THE order: from what the model says to what the target runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from intaglio.ir import Graph, Node
from intaglio.passes.canonical import CANONICAL
from intaglio.passes.fold import FOLD, WEIGHTS
from intaglio.passes.fuse import FUSE
from intaglio.passes.integer import INTEGER
from intaglio.passes.layout import choose_layout
from intaglio.passes.legalize import legalize
from intaglio.passes.recognize import RECOGNIZE
from intaglio.rewrite import No, Rule, Trace, rewrite
from intaglio.targets import Target
from intaglio.verify import verify

Progress = Callable[[str], None]  # is told what is being done


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline: a function that changes the graph in place and may report rules."""

    name: str
    run: Callable[[Graph, Trace], Any]
    level: int = 0  # the lowest optimisation level at which it runs


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

    @property
    def fired(self) -> int:
        return sum(e.refusal is None for e in self.events)

    def trace(self, rule: Rule, node: Node, refusal: No | None) -> None:
        self.events.append(Event(rule.name, node.op, node.origin, refusal))


def rules(*lists: Sequence[Rule]) -> Callable[[Graph, Trace], int]:
    """A pass that applies rules until none fires."""
    every = [r for one in lists for r in one]
    return lambda graph, trace: rewrite(graph, every, trace)


def neutral() -> list[Pass]:
    """What is true of a model on every target."""
    return [
        Pass("canonicalize", rules(FOLD, CANONICAL), level=1),
        Pass("recognize", rules(RECOGNIZE), level=2),
        Pass("integer", rules(INTEGER), level=2),
        Pass("fuse", rules(FOLD, FUSE, CANONICAL), level=2),
    ]


def lowering(target: Target) -> list[Pass]:
    """What turns a model into the target's own ops."""
    return [
        Pass("legalize", partial(legalize, target)),
        Pass("fold weights", rules(WEIGHTS, FOLD), level=1),
        Pass("layout", choose_layout, level=1),
        Pass("fuse for target", rules(target.fuse, FOLD, CANONICAL), level=3),
        Pass("check", partial(legalize, target)),
    ]


def run(
    graph: Graph,
    passes: Sequence[Pass],
    level: int = 3,
    dump_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """Run passes over `graph`, in place. INTAGLIO_DEBUG=1 verifies the graph after each of them."""
    records = []
    check = os.environ.get("INTAGLIO_DEBUG", "0") not in ("", "0")
    for i, p in enumerate(passes):
        if p.level > level:
            continue
        if progress:
            progress(p.name)
        record, start = Record(p.name), time.perf_counter()
        p.run(graph, record.trace)
        record.seconds, record.nodes = time.perf_counter() - start, sum(1 for _ in graph.nodes())
        records.append(record)
        if check:
            verify(graph, f"after {p.name}")
        if dump_dir is not None:
            Path(dump_dir).mkdir(parents=True, exist_ok=True)
            Path(dump_dir, f"{i:02}-{p.name.replace(' ', '-')}.txt").write_text(f"{graph}\n")
    return records
