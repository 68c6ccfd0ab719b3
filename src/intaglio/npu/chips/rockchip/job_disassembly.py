"""A job as text and as JSON: ports, memories, and every register command by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from intaglio.npu.chips.rockchip.disassembly import block_names, text
from intaglio.npu.chips.rockchip.geometry import DESIGNS
from intaglio.npu.chips.rockchip.job import WEIGHTS, Job, JobPort, JobTask


def lines(job: Job, words: bool = False) -> Iterator[str]:
    """A job as text; `words`: with every command."""
    count = sum(len(t.words) for t in job.tasks)
    yield f"rkjob       register commands for {job.chip}: {len(job.tasks)} tasks, {count:,} words"
    for port in job.ports:
        yield f"{'output' if port.is_output else 'input':11} {_port(port, DESIGNS[job.chip].atom)}"
    yield f"memory      {len(job.weights):,} bytes of weights, {job.internal:,} of maps"
    kinds = Counter(block_names(t.blocks) for t in job.tasks).most_common()
    yield f"tasks       {', '.join(f'{n} x {name}' for name, n in kinds)}"
    if words:
        for number, task in enumerate(job.tasks):
            yield f"task {number}  {task.op} {task.name}  {block_names(task.blocks)}"
            yield from _words(task)


def _words(task: JobTask) -> Iterator[str]:
    for i, word in enumerate(task.words):
        place = task.addresses.get(i)
        where = None
        if place is not None:
            where = "weights" if place.memory == WEIGHTS else "maps", place.offset
        yield f"  {text(word, where)}"


def _port(p: JobPort, atom: int) -> str:
    dims = "x".join(map(str, p.shape))
    how = "rows of pixels" if p.is_picture else f"blocks of {atom} channels"
    real = f"real = {p.scale:.6g} * (byte - {p.zero})"
    return f"{p.name}  {p.dtype}[{dims}], {how} at {p.offset:#x}; {real}"


def facts(job: Job) -> dict[str, Any]:
    """A job as data for JSON."""
    return {
        "chip": job.chip,
        "weights": len(job.weights),
        "maps": job.internal,
        "ports": [asdict(p) for p in job.ports],
        "tasks": [
            {
                "op": t.op,
                "name": t.name,
                "blocks": block_names(t.blocks),
                "words": [f"{w.encode():016x}" for w in t.words],
                "addresses": {str(i): asdict(a) for i, a in t.addresses.items()},
            }
            for t in job.tasks
        ],
    }
