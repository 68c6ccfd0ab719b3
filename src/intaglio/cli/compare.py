"""`intaglio compare`: the error of every tensor of a model against the golden model."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from intaglio.cli import key_options, model_files, options, progress_line, sample_options
from intaglio.cli.chip_names import CHIP
from intaglio.errors import BadInput

GROUPS = {  # of --help
    "Samples": "--data --samples --seed --bgr --resize",
    "Runs": "--run --target --tensor",
    "Output": "--layers --sort --snapshot --min-cosine --json",
    **key_options.GROUP,
}


@click.command("compare", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@sample_options.samples("up to 8")
@click.option(
    "--run",
    "runs",
    multiple=True,
    type=click.Choice(["interpreter", "native"]),
    help="Engines to compare; repeatable [default: both].",
)
@click.option("--target", type=CHIP, help="Also compare the simulator of this chip.")
@click.option(
    "--tensor", "tensors", multiple=True, metavar="NAME", help="Compare this tensor; repeatable."
)
@click.option("--layers", is_flag=True, help="Print every tensor, not only the worst.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(["single", "model"]),
    default="single",
    show_default=True,
    help="Order of the table: largest error alone first, or as the model computes them.",
)
@click.option(
    "--snapshot",
    type=click.Path(),
    metavar="DIR",
    help="Write the tensors of every run as .npy files into a new folder.",
)
@click.option(
    "--min-cosine",
    type=click.FloatRange(0, 1),
    metavar="C",
    help="Exit with code 1 if an output's cosine is lower.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
@options.model_options
def command(
    model: str,
    other: str | None,
    runs: tuple[str, ...],
    target: str | None,
    tensors: tuple[str, ...],
    layers: bool,
    order: str,
    snapshot: str | None,
    min_cosine: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare OTHER with MODEL, tensor by tensor; the float values of MODEL are golden.

    \b
    intaglio compare model.onnx int8.onnx --data images/ --std 255
    intaglio compare model.onnx model.itg      a package with its model
    intaglio compare int8.onnx                 the model with and without rounding
    intaglio compare int8.onnx --target rk3588 in the simulator of a chip too
    intaglio compare a.onnx b.tflite --min-cosine 0.99   exits 1 if worse

    "entire" figures are those of the whole model, in which errors accumulate. "single" figures are
    those of one layer alone, computed from golden inputs: the guilty layer has the largest.
    """
    from intaglio.analysis import comparison_text
    from intaglio.analysis.compare import compare

    read, load = sample_options.arguments(given)
    package: Any = other
    if model_files.is_package(model):
        raise BadInput(
            f"{model} is a package, which holds no float values; give the model it was compiled "
            f"from first: intaglio compare model.onnx {model}"
        )
    if other is not None and model_files.starts_as_package(other):
        package = model_files.load_package(other)
    with progress_line.shown():
        found = compare(
            model,
            package,
            runs=runs or ("interpreter", "native"),
            target=target,
            tensors=tensors,
            snapshot=snapshot,
            **read,
            **load,
        )
    passed = min_cosine is None or found.worst_output >= min_cosine
    if as_json:
        plain = found.to_dict()
        if min_cosine is not None:
            plain["passed"] = passed
        click.echo(json.dumps(plain, indent=1))
    else:
        click.echo(comparison_text.text(found, every=layers, order=order))
        if not passed:
            click.echo(f"failed: cosine {found.worst_output:.5f} is less than {min_cosine:g}")
    if not passed:
        sys.exit(1)
