"""`intaglio sign`: add a signature to a package."""

from __future__ import annotations

import click

from intaglio.cli import fitted, model_files
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically


@click.command("sign")
@click.argument("package", type=click.Path())
@click.option(
    "--private-key", "sign", metavar="FILE", required=True, help="Ed25519 private key (PEM)."
)
@click.option("-o", "out", type=click.Path(), help="Package to write [default: PACKAGE itself].")
def command(package: str, sign: str, out: str | None) -> None:
    """Sign PACKAGE, encrypted or not, in place of a signature that it may have.

    \b
    intaglio keygen --signing release.pem
    intaglio sign model.itg --private-key release.pem
    intaglio run model.itg x=x.npy --public-key release.pub
    """
    from intaglio.package import read_bytes, signing

    path = out or package
    refuse_unwritable(path)
    if not model_files.starts_as_package(package):
        raise BadInput(f"{package} is no package; compile it with --sign {sign}")
    made = signing.sign(read_bytes(package), sign)
    write_atomically(path, [made.data])
    signer = signing.signature_of(made)
    fitted.echo(f"{path}: signed with the key {signer.public_key[:16] if signer else ''}...")
