"""`intaglio push`: a package as an OCI artifact."""

from __future__ import annotations

import json

import click

from intaglio.cli import fitted, progress_line
from intaglio.errors import BadInput

plain_http = click.option(
    "--plain-http/--tls",
    default=None,
    help="Speak HTTP without TLS [default: only with registries on this machine].",
)


@click.command("push")
@click.argument("package", type=click.Path(exists=True, dir_okay=False))
@click.argument("reference")
@click.option(
    "--with",
    "more",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A file that belongs to it, such as a weight file. Repeatable.",
)
@click.option(
    "--annotation", "annotations", multiple=True, metavar="KEY=VALUE", help="Of the manifest."
)
@plain_http
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    package: str,
    reference: str,
    more: tuple[str, ...],
    annotations: tuple[str, ...],
    plain_http: bool | None,
    as_json: bool,
) -> None:
    """Push PACKAGE to a container registry, as REFERENCE: registry/repository:tag.

    Any registry that stores OCI artifacts will do. Log in with `docker login` or `oras login`. The
    printed digest names exactly these files, whatever the tag names later.

    \b
    intaglio push model.itg localhost:5000/models/digits:3
    intaglio push model.itg ghcr.io/me/digits:3 --with model.weights
    """
    from intaglio.oci.artifact import push

    given = dict(_pair(text) for text in annotations)
    with progress_line.shown():
        done = push([package, *more], reference, given, plain_http=plain_http)
    if as_json:
        click.echo(json.dumps(done.__dict__, indent=1))
        return
    fitted.echo(f"{done.reference}: {done.sent:,} bytes sent")
    click.echo(done.digest)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadInput(f"--annotation is '{text}'; give KEY=VALUE")
    return key, value
