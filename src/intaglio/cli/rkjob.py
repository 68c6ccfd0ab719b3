""".rkjob files of Rockchip's NPUs on the command line: compile, inspect and run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from intaglio.cli import options, vendor_files
from intaglio.ir import Array, Graph, Type
from intaglio.targets.chip import Chip

if TYPE_CHECKING:
    from intaglio.npu.chips.rockchip.compile import Compiled
    from intaglio.npu.chips.rockchip.job import Job, JobPort


def make(graph: Graph, chip: Chip, level: int) -> Compiled:
    """Compile a quantised graph."""
    from intaglio.npu.chips.rockchip.compile import compile_job

    return compile_job(graph, chip, level)


def facts(made: Compiled) -> dict[str, Any]:
    """What --json prints of a file."""
    ports = {"inputs": made.job.inputs, "outputs": made.job.outputs}
    rows = {k: [asdict(p) for p in v] for k, v in ports.items()}
    return {"tasks": _tasks(made.job), "memory": _memory(made.job), **rows}


def about(made: Compiled) -> str:
    """The first line of the summary."""
    words = sum(len(t.words) for t in made.job.tasks)
    return (
        f"register commands for {made.job.chip}, {len(made.data) / 1e6:.2f} MB, "
        f"{len(made.job.tasks)} tasks of {words:,} words"
    )


def summary(made: Compiled) -> Iterator[str]:
    """The memory of the network."""
    sizes = _memory(made.job)
    yield f"memory  {sizes['weights']:,} bytes of weights, {sizes['maps']:,} of maps"


def types(made: Compiled) -> tuple[list[str], list[str]]:
    """The element types of inputs and outputs."""
    return [p.dtype for p in made.job.inputs], [p.dtype for p in made.job.outputs]


def _tasks(job: Job) -> dict[str, int]:
    return dict(Counter(t.op for t in job.tasks))


def _memory(job: Job) -> dict[str, int]:
    return {"weights": len(job.weights), "maps": job.internal}


def load(path: str) -> Job:
    """The contents of a file."""
    from intaglio.npu.chips.rockchip.job import read

    return read(vendor_files.load(path))


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a file."""
    from intaglio.npu.chips.rockchip import job_disassembly

    vendor_files.show(job_disassembly, load(path), words, as_json)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a file, simulated, and their types."""
    from intaglio.npu.chips.rockchip.run_job import JobMachine

    machine = JobMachine(load(path))
    inputs = {p.name: _type(p) for p in machine.job.inputs}
    outputs = {p.name: _type(p) for p in machine.job.outputs}
    feeds = options.read_feeds(sources, inputs, fill, seed, {})
    return machine.run(feeds), outputs


def _type(port: JobPort) -> Type:
    return Type(port.dtype, port.shape)
