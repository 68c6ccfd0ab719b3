"""Save packages without weights: which files are written, and which are shared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from intaglio.arguments import described, file_path
from intaglio.errors import BadInput, option
from intaglio.files import write_atomically
from intaglio.ir import Array
from intaglio.package import format as f
from intaglio.package.stored import read_bytes
from intaglio.package.weight_file import WeightFile, find, weight_file_name
from intaglio.package.weight_join import misfit, weight_places
from intaglio.package.weight_split import split

Paths: TypeAlias = "str | Path | Sequence[str | Path]"


def separate(
    whole: Array, path: str, weights: str | Path | None, weights_from: Paths, swappable: bool
) -> Array:
    """The package without the constants that lie in weight files; writes its own weight file.

    `path` is that of the package. Weight files lie beside it.
    """
    if swappable and weights is None:
        raise BadInput("swappable is for a package with a weight file of its own; name that file")
    folder = os.path.dirname(path)
    own = None if weights is None else _own_name(folder, weights)
    shared = [w for one in _listed(weights_from) for w in _shared(folder, one)]
    if own is not None and (own == os.path.basename(path) or own in (w.name for w in shared)):
        raise BadInput(f"weight file '{own}' is the package or a shared weight file; name another")
    if len(shared) >= f.MAX_WEIGHT_FILES:
        raise BadInput(
            f"{len(shared)} weight files are shared; fewer than {f.MAX_WEIGHT_FILES} are allowed"
        )
    made = split(whole, own, shared, swappable)
    if own is not None and made.weights is not None:
        write_atomically(os.path.join(folder, own), made.weights)
    return made.package


def refuse_protected(encrypted: bool, signed: bool, swappable: bool) -> None:
    """BadInput where weight files and the protection of a package exclude each other."""
    if encrypted:
        raise BadInput(
            "weight files are not encrypted: an encrypted package holds its own weights; leave out "
            "weight files or encryption"
        )
    if signed and swappable:
        raise BadInput(
            "swappable weights may change after the signature; leave out signature or swappable"
        )


def _own_name(folder: str, weights: str | Path) -> str:
    given = file_path("save", weights, 'a name such as "model.weights"')
    name = weight_file_name(given)
    if os.path.dirname(given) and not _same_folder(os.path.dirname(given), folder):
        raise BadInput(
            f"weight file {given!r} does not lie beside the package; give its name alone: {name!r}"
        )
    return name


def _listed(weights_from: Paths) -> list[str | Path]:
    if isinstance(weights_from, str | os.PathLike):
        return [weights_from]
    if not isinstance(weights_from, Iterable):
        raise BadInput(
            f"{option('weights_from')} is {described(weights_from)}; give paths of packages or "
            "weight files"
        )
    return list(weights_from)


def _shared(folder: str, source: str | Path) -> list[WeightFile]:
    """A weight file, or those of a package; they must lie beside the package that is written."""
    where = file_path("weights_from", source, 'a name such as "model.weights"')
    if not _same_folder(os.path.dirname(where), folder):
        raise BadInput(
            f"{where!r} does not lie in the folder of the package that is written; packages find "
            "weight files beside them; write the package there"
        )
    data = read_bytes(where)
    if bytes(data[:4]) != f.MAGIC:
        weight_file_name(where)
        return [WeightFile.open(where)]
    places = weight_places(data)
    if not places:
        suffixed = Path(where).with_suffix(".weights").name
        raise BadInput(
            f"{where!r} holds its weights itself; move them to a file first: "
            f"`intaglio weights {where} --weights-file {suffixed}`"
        )
    files = [find(p.name, folder, False) for p in places]
    for place, file in zip(places, files, strict=True):
        if words := misfit(place, file):
            raise BadInput(f"weight file '{file.name}' of {where!r} {words}")
    return files


def _same_folder(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a or ".", b or ".")
    except OSError:
        return False
