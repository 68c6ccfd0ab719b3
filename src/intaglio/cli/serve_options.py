"""Options that `serve`, `publish`, `gateway` and `rollout` share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from intaglio.errors import BadInput

MIN_TOKEN = 8  # characters
CLIENT_CA = click.option(
    "--client-ca",
    type=click.Path(),
    help="Clients must show a certificate that this authority signed (PEM).",
)
MAX_BODY = click.option(
    "--max-body",
    default=64,
    show_default=True,
    type=click.IntRange(1, 2047),
    metavar="MIB",
    help="Largest request.",
)
SOCKET = ".haproxy.sock"  # of the gateway, in the repository


def read_token(source: str | None) -> str | None:
    """The token in a file, or in the environment variable of `env:NAME`."""
    if source is None:
        return None
    if source.startswith("env:"):
        if (found := os.environ.get(source[4:], "")) == "":
            raise BadInput(f"the token is in no environment variable {source[4:]}: it is not set")
    else:
        try:
            found = Path(source).read_text()
        except OSError as e:
            raise BadInput(f"cannot read the token in {source}: {e.strerror}") from None
        except UnicodeDecodeError:
            raise BadInput(f"the token in {source} is no text") from None
    token = found.strip()
    if len(token) < MIN_TOKEN or not token.isascii():
        raise BadInput(
            f"the token in {source} is too short; give at least {MIN_TOKEN} ASCII characters"
        )
    return token


def numbers(flag: str, text: str) -> list[int]:
    """Whole numbers between commas."""
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise BadInput(f"{flag} takes numbers such as 1,4,8, not {text!r}") from None
