"""`intaglio publish`: put a package into a model repository as a new version."""

from __future__ import annotations

from pathlib import Path

import click

from intaglio.cli import fitted
from intaglio.cli.serve_options import read_token
from intaglio.errors import BadInput


@click.command("publish")
@click.argument("package", type=click.Path())
@click.argument("repository", type=click.Path(file_okay=False))
@click.option("--name", help="Name of the model [default: of the file].")
@click.option("--version", type=int, help="Number of the version [default: the next].")
@click.option("--candidate", is_flag=True, help="Only servers for candidates load it.")
@click.option("--load", "url", metavar="URL", help="Ask the server there to load it.")
@click.option("--token", metavar="FILE|env:NAME", help="Token for that server.")
@click.option(
    "--triton",
    is_flag=True,
    help="Write config.pbtxt for Triton's server, with batches, tensors and a warm-up.",
)
@click.option(
    "--instances",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="--triton: runs of the model at the same time.",
)
@click.option(
    "--threads",
    default=1,
    show_default=True,
    type=click.IntRange(1, 256),
    help="--triton: threads of one run.",
)
def command(
    package: str,
    repository: str,
    name: str | None,
    version: int | None,
    candidate: bool,
    url: str | None,
    token: str | None,
    triton: bool,
    instances: int,
    threads: int,
) -> None:
    """Make PACKAGE a version of a model in REPOSITORY, a folder that `intaglio serve` reads.

    The version appears at once and whole. Servers load it when they are asked to: with --load, or
    POST /v2/repository/models/NAME/load.

    \b
    intaglio publish model.itg repository     the next version of 'model'
    intaglio publish model.itg repository --load http://127.0.0.1:8000
    intaglio publish model.itg repository --candidate    for intaglio rollout
    intaglio publish model.itg repository --triton        for Triton's server, too
    """
    from intaglio.serve.publish import publish, request_load

    words = read_token(token)
    if url is not None and not url.startswith(("http://", "https://")):
        raise BadInput(f"--load is '{url}'; give a URL such as http://127.0.0.1:8000")
    chosen = name or Path(package).stem
    if triton:
        from intaglio.serve.triton_config import CONFIG, config, write_config

        config(package, chosen)  # says what Triton cannot serve before anything is published
    path = publish(package, repository, chosen, version, candidate=candidate)
    number, _, kind = path.parent.name.partition(".")
    fitted.echo(f"{path}: {kind or 'version'} {number} of '{chosen}'")
    if triton:
        model = path.parent.parent
        if write_config(path, model, instances=instances, threads=threads):
            fitted.echo(f"{model / CONFIG}: configuration for Triton's server")
        else:
            fitted.echo(f"{model / CONFIG} is not ours and was kept; compare it with the package")
    if url is not None:
        request_load(url, chosen, words)
        fitted.echo(f"{url} serves it")
