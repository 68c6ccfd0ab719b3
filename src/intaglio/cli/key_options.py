"""Options for packages that a command reads or writes: keys, signers, weight files.

Values go to the context of click, from which `given_keys` takes them: commands pass none around.
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
    if parameter.name in ("public_key", "weights"):
        kept[parameter.name] = value
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
_WEIGHTS = click.option(
    "--weights",
    "weights",
    type=click.Path(),
    metavar="FILE",
    expose_value=False,
    callback=_keep,
    help="Weight file of a package without weights, or the folder of its weight files "
    "[default: beside the package].",
)
GROUP = {"Packages": "--weights --key-file --key-env --public-key"}  # of --help


def key_options(command: F) -> F:
    """Add --key-file and --key-env."""
    for add in reversed(_KEY):
        command = add(command)
    return command


def package_options(command: F) -> F:
    """Add the options for packages that a command reads: --weights, keys and --public-key."""
    return _WEIGHTS(key_options(_PUBLIC_KEY(command)))


def given_keys() -> dict[str, Any]:
    """The keys and weights that were given, as arguments of `intaglio.open` and `Package.load`."""
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
    """BadInput if a key or a weight file was given for a model file."""
    flags = {"key": "--key-file", "public_key": "--public-key", "weights": "--weights"}
    for name in given_keys():
        raise BadInput(f"{path} is a model; {flags[name]} is for packages; leave it out")


def _write_no_core_dumps() -> None:
    """The process holds a key: if it crashes, its memory is not written to a file."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
