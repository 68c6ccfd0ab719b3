"""`intaglio keygen`: a new key to encrypt packages, or a pair of keys to sign them."""

from __future__ import annotations

import click

from intaglio.cli import fitted


@click.command("keygen")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--signing",
    is_flag=True,
    help="Make an Ed25519 pair to sign packages: the private key goes to FILE, the public key "
    "beside it, with the ending .pub.",
)
def command(file: str, signing: bool) -> None:
    """Write a new key to FILE, which only its owner can read. Files are never overwritten.

    \b
    intaglio keygen model.key                  256 bits, to encrypt packages
    intaglio keygen --signing release.pem      and release.pub, to sign them
    """
    from intaglio.package import keygen

    if signing:
        public = keygen.write_signing_pair(file)
        fitted.echo(f"{file}: private key; keep it secret, and sign with --sign {file}")
        fitted.echo(f"{public}: public key; give it to whoever opens packages")
        return
    keygen.write_key(file)
    fitted.echo(f"{file}: key of 256 bits; keep it secret, and keep a copy: without it,")
    fitted.echo("packages that are encrypted with it cannot be opened")
