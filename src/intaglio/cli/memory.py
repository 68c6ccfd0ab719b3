"""`intaglio memory`: what a model takes of a chip's memories, without the chip."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import options


@click.command("memory")
@click.argument("model", type=click.Path())
@click.option("--target", help="Chip, where MODEL is no package.")
@click.option("--cores", type=int, default=1, show_default=True, help="Cores that share the work.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@options.model_options
def command(model: str, target: str | None, cores: int, as_json: bool,
            **model_options: Any) -> None:  # fmt: skip
    """Show weights, internal maps, inputs and outputs, commands; where each map lies.

    \b
    intaglio memory model.itg
    intaglio memory model.int8.onnx --target rk3588
    """
    from intaglio.analysis.memory import memory
    from intaglio.errors import BadInput
    from intaglio.package import Package

    if target is None:
        package = Package.load(model)
    else:
        import intaglio

        if target == "cpu":
            raise BadInput("the CPU's memory: `intaglio inspect` of its package shows it")
        load = options.load_arguments(**model_options)
        package = intaglio.compile(model, target=target, cores=cores, **load)
    found = memory(package)
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else str(found))
