"""`intaglio report`: one HTML page about a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from intaglio.cli import fitted, key_options, model_files, options, progress_line, sample_options
from intaglio.cli.chip_names import TARGET
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable

GROUPS = {  # of --help
    "Accuracy": "--golden --data --samples --seed --bgr --resize --no-accuracy",
    "Speed": "--target --no-speed",
    "Output": "-o --json",
    **key_options.GROUP,
}


@click.command("report", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option(
    "-o", "out", type=click.Path(), help="The page to write [default: MODEL's name with .html]."
)
@sample_options.golden
@sample_options.samples
@click.option("--no-accuracy", is_flag=True, help="Compare nothing.")
@click.option("--no-speed", is_flag=True, help="Measure and predict no times.")
@click.option("--target", type=TARGET, help="Compile MODEL for this chip [default: this CPU].")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; write a page only with -o.")
@key_options.package_options
@options.model_options
def command(
    model: str,
    out: str | None,
    golden: str | None,
    no_accuracy: bool,
    no_speed: bool,
    target: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Write one HTML page about MODEL: graph, accuracy, speed, memory, partition.

    The page is one file and loads nothing. MODEL is a package (.itg) or a model file.

    \b
    intaglio report model.itg                    writes model.html
    intaglio report model.itg --golden model.onnx --data images/ --std 255
    intaglio report int8.onnx -o report.html     with and without rounding
    intaglio report model.onnx --target rk3588 --data images/ --std 255
    """
    from intaglio.analysis.report import report

    path = _path(model, out)
    read, load = sample_options.arguments(given)
    with progress_line.shown():
        package: Any = model_files.load_package(model) if model_files.is_package(model) else model
        if not as_json or out:
            refuse_unwritable(path)
        found = report(
            package,
            golden,
            target=target,
            accuracy=not no_accuracy,
            speed=not no_speed,
            name=Path(model).name,
            **read,
            **load,
        )
        if not as_json or out:
            found.save(path)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
        return
    fitted.echo(str(found))
    fitted.echo(f"{path}: {path.stat().st_size / 1e6:.2f} MB; open it in a browser")


def _path(model: str, out: str | None) -> Path:
    path = Path(out) if out else Path(Path(model).stem or "model").with_suffix(".html")
    if path.suffix not in (".html", ".htm"):
        raise BadInput(f"-o {path}: the page is HTML; give a name that ends in .html")
    return path
