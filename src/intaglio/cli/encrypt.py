"""`intaglio encrypt`: a package in, an encrypted package out."""

from __future__ import annotations

import click

from intaglio.cli import fitted, key_options, model_files
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable

LEVEL_HELP = (
    "What is encrypted. weights: weights and NPU programs; graph: all sections, so that only their "
    "kinds and sizes are visible; all: everything."
)


@click.command("encrypt")
@click.argument("package", type=click.Path())
@click.option("-o", "out", type=click.Path(), required=True, help="Package to write.")
@click.option(
    "--level",
    type=click.Choice(["weights", "graph", "all"]),
    default="all",
    show_default=True,
    help=LEVEL_HELP,
)
@click.option("--sign", metavar="FILE", help="Sign it with this Ed25519 private key (PEM).")
@key_options.key_options
def command(package: str, out: str, level: str, sign: str | None) -> None:
    """Encrypt PACKAGE with AES-256-GCM.

    \b
    intaglio keygen model.key
    intaglio encrypt model.itg -o secret.itg --key-file model.key
    intaglio run secret.itg x=x.npy --key-file model.key
    """
    from intaglio.package import Package

    key = key_options.required_key()
    refuse_unwritable(out)
    if not model_files.starts_as_package(package):
        raise BadInput(f"{package} is no package; compile it with --encrypt {level}")
    made = Package.load(package)
    made.save(out, encrypt=level, key=key, sign=sign)
    signed = ", signed" if sign else ""
    fitted.echo(f"{out}: {len(made.image) / 1e6:.2f} MB, encrypted (level {level}){signed}")
