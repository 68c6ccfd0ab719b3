"""`intaglio gateway`: the HAProxy configuration in front of servers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click

from intaglio.cli import fitted
from intaglio.cli.serve_options import SOCKET, read_token
from intaglio.errors import BadInput

CHECK_S = 30


@click.command("gateway")
@click.argument("repository", type=click.Path(file_okay=False, exists=True))
@click.option(
    "--stable", multiple=True, required=True, metavar="HOST:PORT", help="A server; repeatable."
)
@click.option(
    "--canary", multiple=True, metavar="HOST:PORT", help="A server for candidates; repeatable."
)
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT")
@click.option("--grpc-stable", multiple=True, metavar="HOST:PORT", help="gRPC of a server.")
@click.option("--grpc-listen", metavar="HOST:PORT", help="Address of gRPC.")
@click.option("--certificate", type=click.Path(), help="Certificate and private key (PEM): TLS.")
@click.option(
    "--client-ca",
    type=click.Path(),
    help="Clients must show a certificate that this authority signed (PEM).",
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="FILE|env:NAME",
    help="A token that clients may bear; repeatable. Its hash is written beside the output.",
)
@click.option("--socket", type=click.Path(), help="Runtime socket [default: in the repository].")
@click.option(
    "--max-body",
    default=64,
    show_default=True,
    type=click.IntRange(1, 2047),
    metavar="MIB",
    help="Largest request.",
)
@click.option(
    "--max-repeated",
    default=1024,
    show_default=True,
    type=click.IntRange(16, 1 << 16),
    metavar="KIB",
    help="Largest request that is repeated on another server; a buffer has this size.",
)
@click.option(
    "--max-connections", default=1024, show_default=True, type=click.IntRange(1), metavar="N"
)
@click.option(
    "--slow-client",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    metavar="S",
    help="Seconds that a client may pause.",
)
@click.option("-o", "--output", default="haproxy.cfg", show_default=True, type=click.Path())
def command(repository: str, output: str, tokens: tuple[str, ...], **given: Any) -> None:
    """Write a configuration for HAProxy (2.6 or newer) in front of `intaglio serve` servers.

    It has TLS, tokens, limits, retries on another server, and 503 with Retry-After. Each model of
    REPOSITORY gets weights of its own, which `intaglio rollout` changes through the socket.
    Requests with the header X-Intaglio-Version: canary (or stable) go to those servers.

    \b
    intaglio gateway repository --stable 127.0.0.1:8000 --stable 127.0.0.1:8010
    intaglio gateway repository --stable 127.0.0.1:8000 --canary 127.0.0.1:8100
    haproxy -f haproxy.cfg
    """
    from intaglio.serve.gateway import Gateway, configuration, token_hash
    from intaglio.serve.settings import MODEL_NAME

    path = Path(output).absolute()
    hashes = [token_hash(token) for source in tokens if (token := read_token(source))]
    hash_file = path.with_suffix(".tokens")
    root = Path(repository).resolve()
    folders = sorted(e.name for e in os.scandir(root) if e.is_dir() and MODEL_NAME.match(e.name))
    gateway = Gateway(
        models=folders,
        stable=given["stable"],
        canary=given["canary"],
        grpc=given["grpc_stable"],
        listen=given["listen"],
        grpc_listen=given["grpc_listen"],
        certificate=_absolute(given["certificate"]),
        client_authority=_absolute(given["client_ca"]),
        token_hashes=str(hash_file) if hashes else None,
        socket=str(Path(given["socket"] or root / SOCKET).absolute()),
        max_body=given["max_body"] << 20,
        max_repeated=given["max_repeated"] << 10,
        max_connections=given["max_connections"],
        slow_client_s=given["slow_client"],
    )
    text = configuration(gateway)
    if hashes:
        hash_file.write_text("\n".join(hashes) + "\n")
    path.write_text(text)
    fitted.echo(f"{output}: {len(folders)} models; start it: haproxy -f {output}")
    _check(path)


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _check(path: Path) -> None:
    """Let HAProxy check the file, if it is installed."""
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if haproxy is None:
        return
    done = subprocess.run(
        [haproxy, "-c", "-f", str(path)], capture_output=True, text=True, timeout=CHECK_S
    )
    if done.returncode:
        raise BadInput(f"{haproxy} refuses {path}: {done.stderr or done.stdout}")
    fitted.echo("checked by haproxy -c")
