"""Options for keys: of encrypted packages that a command reads or writes, and of their signers.

Values go to the context of click, from which `given_keys` takes them: commands pass no keys around.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from intaglio.errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])
_KEPT = "intaglio.keys"  # in the context


def _keep(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    kept = ctx.meta.setdefault(_KEPT, {})
    if parameter.name == "public_key":
        kept["public_key"] = value
        return
    if "key" in kept:
        raise BadInput("--key-file and --key-env are given; a package has one key; leave out one")
    kept["key"] = f"env:{value}" if parameter.name == "key_env" else Path(value)
    _write_no_core_dumps()


# The names are those of the API, so that messages name these flags.
_KEY = [
    click.option(
        "--key-file",
        "key",
        type=click.Path(),
        expose_value=False,
        callback=_keep,
        help="File with the key of an encrypted package; `intaglio keygen` makes one.",
    ),
    click.option(
        "--key-env",
        "key_env",
        metavar="NAME",
        expose_value=False,
        callback=_keep,
        help="Environment variable with the key, in hexadecimal digits or base64.",
    ),
]
_PUBLIC_KEY = click.option(
    "--public-key",
    "public_key",
    type=click.Path(),
    expose_value=False,
    callback=_keep,
    help="Refuse a package without a valid Ed25519 signature of this key (PEM).",
)
GROUP = {"Keys of packages": "--key-file --key-env --public-key"}  # of --help


def key_options(command: F) -> F:
    """Add --key-file and --key-env."""
    for add in reversed(_KEY):
        command = add(command)
    return command


def package_options(command: F) -> F:
    """Add the options for packages that a command reads: keys, and --public-key."""
    return key_options(_PUBLIC_KEY(command))


def given_keys() -> dict[str, Any]:
    """The keys that were given, as arguments of `intaglio.open` and `Package.load`."""
    ctx = click.get_current_context(silent=True)
    return dict(ctx.meta.get(_KEPT, {})) if ctx else {}


def as_typed() -> str:
    """The key's option as the user typed it, with a blank before it; "" without a key."""
    key = given_keys().get("key")
    if isinstance(key, Path):
        return f" --key-file {key}"
    return f" --key-env {key.removeprefix('env:')}" if key else ""


def required_key() -> str | Path:
    """The key that was given; BadInput if none was."""
    if "key" not in given_keys():
        raise BadInput("no key is given; add --key-file FILE or --key-env NAME")
    key: str | Path = given_keys()["key"]
    return key


def refuse_keys(path: str) -> None:
    """BadInput if a key was given for a model file."""
    if given := given_keys():
        flag = "--public-key" if "public_key" in given else "--key-file"
        raise BadInput(f"{path} is a model; {flag} is for packages; leave it out")


def _write_no_core_dumps() -> None:
    """The process holds a key: if it crashes, its memory is not written to a file."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
