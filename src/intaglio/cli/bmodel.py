"""bmodel files of Sophgo's chips on the command line: inspect and run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from intaglio.cli import options
from intaglio.errors import BadInput
from intaglio.ir import Array, Type

if TYPE_CHECKING:
    from intaglio.npu.chips.bm1684x.bmodel import Bmodel

ENDING = ".bmodel"


def load(path: str) -> Bmodel:
    """The contents of a bmodel file."""
    from intaglio.npu.chips.bm1684x.bmodel import read

    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise BadInput(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
    return read(data)


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a bmodel."""
    from intaglio.npu.chips.bm1684x import disassembly

    model = load(path)
    if as_json:
        click.echo(json.dumps(disassembly.facts(model), indent=1))
        return
    for line in disassembly.lines(model, words):
        click.echo(line)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a bmodel, simulated, and their types."""
    from intaglio.npu.chips.bm1684x.simulate import DTYPES, Machine

    machine = Machine(load(path))
    stage = machine.stage
    inputs, outputs = (
        {t.name: Type(np.dtype(DTYPES[t.type]).name, t.shape) for t in tensors}
        for tensors in (stage.inputs, stage.outputs)
    )
    feeds = options.read_feeds(sources, inputs, fill, seed, {})
    return machine.run(feeds), outputs
