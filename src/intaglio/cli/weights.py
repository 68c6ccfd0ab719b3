"""`intaglio weights`: where the weights of a package lie; move, share or bring them back.

`split_options` are the options of other commands that write packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from intaglio.cli import fitted, key_options, model_files
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable

F = TypeVar("F", bound=Callable[..., Any])

_SPLIT = [
    click.option(
        "--weights-file",
        metavar="NAME",
        help="Write the weights to this file beside the package, which then holds graph and plan.",
    ),
    click.option(
        "--weights-from",
        multiple=True,
        metavar="FILE",
        help="Share the weights of this weight file or package beside it: those that are equal are "
        "taken from there. May be repeated.",
    ),
    click.option(
        "--swappable",
        is_flag=True,
        help="Let weights of another training replace the weight file (`intaglio update`); else "
        "the package takes no other contents.",
    ),
]


def split_options(command: F) -> F:
    """Add the options of a package without weights."""
    for add in reversed(_SPLIT):
        command = add(command)
    return command


def facts(path: str | Path) -> list[dict[str, Any]]:
    """The weight files that a package names."""
    from intaglio.package import read_bytes
    from intaglio.package.encryption import is_encrypted
    from intaglio.package.weight_join import weight_places

    data = read_bytes(path)
    return [
        {
            "name": p.name,
            "constants": len(p.constants),
            "bytes": p.bytes,
            "swappable": p.swappable,
            "content": None if p.swappable else p.content.hex(),
            "layout": p.layout.hex(),
        }
        for p in ([] if is_encrypted(data) else weight_places(data))
    ]


def words(path: str | Path, title: str = "weights") -> str:
    """A line for each weight file of a package."""
    lines = [
        f"{title:11} {p['bytes']:,} bytes of {p['constants']} constants in {p['name']}, "
        + ("which may be swapped" if p["swappable"] else f"content {p['content'][:16]}...")
        for p in facts(path)
    ]
    return "\n".join(lines) or f"{title:11} in the package; no constant lies in another file"


@click.command("weights")
@click.argument("package", type=click.Path())
@click.option("-o", "out", type=click.Path(), help="Package to write [default: PACKAGE itself].")
@split_options
@click.option("--inline", is_flag=True, help="Bring all weights back into the package.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
def command(
    package: str,
    out: str | None,
    weights_file: str | None,
    weights_from: tuple[str, ...],
    swappable: bool,
    inline: bool,
    as_json: bool,
) -> None:
    """Show where the weights of PACKAGE lie, or move them.

    \b
    intaglio weights model.itg                                show
    intaglio weights model.itg --weights-file model.weights   move them out
    intaglio weights head.itg --weights-from model.weights    share them
    intaglio weights model.itg --inline -o whole.itg          bring them back
    """
    if not model_files.starts_as_package(package):
        raise BadInput(f"{package} is no package; compile it first")
    split = bool(weights_file or weights_from or swappable)
    if split and inline:
        raise BadInput("--inline brings weights back, the other options move them out; give one")
    path = out or package
    if split or inline:
        refuse_unwritable(path)
        made = model_files.load_package(package)
        made.save(path, weights=weights_file, weights_from=weights_from, swappable=swappable)
    elif out:
        raise BadInput(
            "-o is given, but nothing to do; add --weights-file, --weights-from, --inline"
        )
    if as_json:
        click.echo(json.dumps(facts(path), indent=1))
        return
    fitted.echo(f"package     {path}, {Path(path).stat().st_size:,} bytes")
    fitted.echo(words(path))
