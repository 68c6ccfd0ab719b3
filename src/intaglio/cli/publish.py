"""`intaglio publish`: put a package into a model repository as a new version."""

from __future__ import annotations

from pathlib import Path

import click

from intaglio.cli import fitted
from intaglio.cli.serve_options import read_token


@click.command("publish")
@click.argument("package", type=click.Path())
@click.argument("repository", type=click.Path(file_okay=False))
@click.option("--name", help="Name of the model [default: of the file].")
@click.option("--version", type=int, help="Number of the version [default: the next].")
@click.option("--candidate", is_flag=True, help="Only servers for candidates load it.")
@click.option("--load", "url", metavar="URL", help="Ask the server there to load it.")
@click.option("--token", metavar="FILE|env:NAME", help="Token for that server.")
def command(
    package: str,
    repository: str,
    name: str | None,
    version: int | None,
    candidate: bool,
    url: str | None,
    token: str | None,
) -> None:
    """Make PACKAGE a version of a model in REPOSITORY, a folder that `intaglio serve` reads.

    The version appears at once and whole. Servers load it when they are asked to: with --load, or
    POST /v2/repository/models/NAME/load.

    \b
    intaglio publish model.itg repository     the next version of 'model'
    intaglio publish model.itg repository --load http://127.0.0.1:8000
    intaglio publish model.itg repository --candidate    for intaglio rollout
    """
    from intaglio.serve.publish import publish, request_load

    words = read_token(token)
    chosen = name or Path(package).stem
    path = publish(package, repository, chosen, version, candidate=candidate)
    number, _, kind = path.parent.name.partition(".")
    fitted.echo(f"{path}: {kind or 'version'} {number} of '{chosen}'")
    if url is not None:
        request_load(url, chosen, words)
        fitted.echo(f"{url} serves it")
