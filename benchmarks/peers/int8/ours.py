"""Intaglio: `quantize` statically or dynamically, whichever is faster, `compile`, then `open`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.models import Case
from benchmarks.peers import Array, ours
from benchmarks.peers.int8 import SAMPLES, keep_fastest

ENGINE = "intaglio.session"
PACKAGES = ()


def convert(case: Case, folder: Path, threads: int) -> Path:
    import intaglio

    graph = intaglio.load(case.path, dims=case.dims)

    def packed(name: str, made: Any) -> Path:
        file = folder / f"{name}.itg"
        intaglio.compile(made).save(file)
        return file

    exact = ours.Runner(packed("float", graph), case.feeds, 1, "f32")
    exact.run()
    samples = case.samples(SAMPLES)
    return keep_fastest(
        case,
        load,
        exact.outputs(),
        {
            "static": lambda: packed("static", intaglio.quantize(graph, data=samples)),
            "dynamic": lambda: packed("dynamic", intaglio.quantize(graph, mode="dynamic")),
        },
    )


def load(file: Path, feeds: dict[str, Array], threads: int) -> ours.Runner:
    return ours.Runner(file, feeds, threads, "int8")
