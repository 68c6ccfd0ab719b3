"""`intaglio stats`: parameters, work and memory access of a model, or of the catalogue."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import model_files, options, progress_line
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically

GROUPS = {  # of --help
    "Catalogue": "--catalogue --chips --least --network --save",
    "Output": "--layers --json --svg",
}


@click.command("stats", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path(), required=False)
@click.option("--layers", is_flag=True, help="Print operations without parameters too.")
@click.option("--catalogue", is_flag=True, help="Compare well-known networks instead of MODEL.")
@click.option(
    "--chips",
    metavar="NAMES",
    help="Predict the networks' speed on these chips: rk3588,k230,... or all. A prediction takes "
    "about a second.",
)
@click.option(
    "--least",
    is_flag=True,
    help="Least times by the chips' peaks, at once, instead of predictions.",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    metavar="NAME",
    help="A network of the catalogue; repeatable [default: all].",
)
@click.option(
    "--save",
    type=click.Path(),
    metavar="FILE.onnx",
    help="Write the network with random weights, for `intaglio perf`.",
)
@click.option(
    "--svg", type=click.Path(), metavar="FILE", help="Plot the networks on one chip, or on several."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@options.model_options
def command(
    model: str | None,
    layers: bool,
    catalogue: bool,
    chips: str | None,
    least: bool,
    networks: tuple[str, ...],
    save: str | None,
    svg: str | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Show parameters, MACs, memory access and arithmetic intensity of MODEL by layer.

    \b
    intaglio stats model.onnx
    intaglio stats --catalogue                      known networks, as published
    intaglio stats --catalogue --chips rk3588,k230  which network fits my chip
    intaglio stats --catalogue --network resnet50 --save resnet50.onnx
    """
    if catalogue == (model is not None):
        raise BadInput("give a model file, or --catalogue for the known networks")
    refuse_unwritable(svg)
    refuse_unwritable(save)
    if model is not None:
        of_catalogue = {"--chips": chips, "--least": least, "--network": networks, "--svg": svg}
        given = [f for f, v in (of_catalogue | {"--save": save}).items() if v]
        if given:
            raise BadInput(f"{given[0]} is for --catalogue; leave it out, or leave out the model")
        _model(model, layers, as_json, model_options)
        return
    from intaglio import catalogue as known
    from intaglio.analysis.catalogue_table import catalogue_table
    from intaglio.targets import chip

    names = list(chip.names()) if chips == "all" else [c.strip() for c in (chips or "").split(",")]
    names = [chip.load(c).name for c in names if c]
    if svg and not names:
        raise BadInput("--svg plots the speed on a chip; add --chips NAME")
    if save:
        if len(networks) != 1:
            raise BadInput("--save writes one network; name it with --network NAME")
        import intaglio

        intaglio.save_onnx(known.build(networks[0], "random"), save)
    with progress_line.shown():
        found = catalogue_table(names, networks, predict=not least)
    if svg:
        write_atomically(svg, found.svg().encode())
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else str(found))


def _model(path: str, layers: bool, as_json: bool, model_options: dict[str, Any]) -> None:
    from intaglio.analysis.stats import stats

    if model_files.is_package(path):
        raise BadInput(f"{path} is compiled already; give the model file, or `intaglio inspect` it")
    with progress_line.shown():
        found = stats(path, **options.load_arguments(**model_options))
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found.text(layers))
