"""Ourselves: `quantize` with its defaults, `compile`, then `open` of the file."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array, ours
from benchmarks.peers.int8 import SAMPLES

ENGINE = "intaglio.session"
PACKAGES = ()


def convert(case: Case, folder: Path, threads: int) -> Path:
    import intaglio

    file = folder / "model.itg"
    graph = intaglio.load(case.path, dims=case.dims)
    intaglio.compile(intaglio.quantize(graph, data=case.samples(SAMPLES))).save(file)
    return file


def load(file: Path, feeds: dict[str, Array], threads: int) -> ours.Runner:
    return ours.Runner(file, feeds, threads, "int8")
