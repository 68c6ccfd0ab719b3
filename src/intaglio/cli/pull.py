"""`intaglio pull`: a package from a container registry."""

from __future__ import annotations

import json
import tempfile

import click

from intaglio.cli import fitted, progress_line
from intaglio.cli.push import plain_http
from intaglio.errors import BadInput


@click.command("pull")
@click.argument("reference")
@click.option(
    "-o",
    "folder",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Where its files are written [default: here].",
)
@click.option(
    "--publish",
    "repository",
    type=click.Path(file_okay=False),
    metavar="REPOSITORY",
    help="Make it the next version of a model in a repository, instead.",
)
@click.option("--name", help="--publish: name of the model [default: of the file].")
@plain_http
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    reference: str,
    folder: str | None,
    repository: str | None,
    name: str | None,
    plain_http: bool | None,
    as_json: bool,
) -> None:
    """Pull the package REFERENCE: registry/repository:tag, or registry/repository@sha256:...

    All files are checked against the digests of the manifest, and the package is opened, before the
    first one gets its name.

    \b
    intaglio pull localhost:5000/models/digits:3
    intaglio pull ghcr.io/me/digits@sha256:... -o models/
    intaglio pull localhost:5000/models/digits:3 --publish repository
    """
    from intaglio.oci.artifact import pull

    if folder and repository:
        raise BadInput("-o and --publish exclude each other; give one of them")
    if name and not repository:
        raise BadInput("--name is for --publish; leave it out")
    with tempfile.TemporaryDirectory() as scratch:
        with progress_line.shown():
            done = pull(reference, scratch if repository else folder or ".", plain_http=plain_http)
        files = [str(p) for p in done.files]
        if repository:
            from intaglio.serve.publish import publish

            if len(files) > 1:
                raise BadInput(
                    f"{reference} has {len(files)} files; a version is one package; pull it with -o"
                )
            files = [str(publish(files[0], repository, name or done.files[0].stem))]
    if as_json:
        plain = {"reference": done.reference, "digest": done.digest, "files": files}
        click.echo(json.dumps(plain, indent=1))
        return
    for path in files:
        fitted.echo(path)
    click.echo(done.digest)
