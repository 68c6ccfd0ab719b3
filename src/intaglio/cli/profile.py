"""`intaglio profile`: the time of every step on this machine, against its measured peak."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import key_options, model_files, options, progress_line, runs_on
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically


@click.command("profile", cls=options.ModelCommand, groups=key_options.GROUP)
@click.argument("model", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option(
    "--seconds",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 600),
    help="Duration of the measurement.",
)
@click.option(
    "--trace", type=click.Path(), metavar="FILE", help="Write a trace for chrome://tracing."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
@options.model_options
def command(
    model: str,
    other: str | None,
    seconds: float,
    trace: str | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Show time, MACs, bytes and the share of the machine's peak of every step of MODEL.

    \b
    intaglio profile model.itg
    intaglio profile before.itg after.itg       two builds, step by step
    intaglio profile model.itg --trace t.json   for chrome://tracing, Perfetto
    """
    from intaglio.analysis.profile import profile
    from intaglio.analysis.profile_difference import difference, difference_text

    refuse_unwritable(trace)
    found = []
    for path in (model, other) if other else (model,):
        package = model_files.read_package(str(path), model_options)
        if chip := runs_on.chip_of(package):
            raise BadInput(
                f"{path} is for {chip}, which is simulated here; `intaglio perf {path}` predicts it"
            )
        with progress_line.shown():
            found.append(profile(package, seconds))
    if trace:
        write_atomically(trace, found[-1].trace().encode())
    if as_json:
        plain: Any = found[0].to_dict()
        if other:
            rows = difference(found[0], found[1])
            plain = {"before": plain, "after": found[1].to_dict(), "difference": rows}
        click.echo(json.dumps(plain, indent=1))
        return
    click.echo(difference_text(found[0], found[1]) if other else str(found[0]))
