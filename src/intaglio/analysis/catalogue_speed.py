"""Predicted speed of networks of the catalogue on chips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from intaglio import catalogue, progress
from intaglio.analysis.agreement import usable_inputs
from intaglio.analysis.performance import Performance
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.errors import IntaglioError
from intaglio.quant import calibrate


def predicted(
    name: str, chips: Sequence[str], done: int, whole: int
) -> Iterator[tuple[str, Performance | None]]:
    """The performance of a network by chip, as the vendor's compiler would run it.

    The network is quantised with random weights. None where a chip cannot run it. `done` of
    `whole` predictions were made before.
    """
    progress.report(f"quantising {name}", done, whole)
    graph = catalogue.build(name, "random")
    data = [usable_inputs(graph, 0)[0]]
    made = calibrate(graph, data, method="minmax", accuracy=None, rounding="nearest")
    for k, chip in enumerate(chips):
        progress.report(f"predicting {name} on {chip}", done + k, whole)
        try:  # a model keeps what it compiled for each chip: one for each
            yield chip, Model(made.graph, as_vendor=True).performance(chip, WhatIf())
        except IntaglioError:
            yield chip, None
