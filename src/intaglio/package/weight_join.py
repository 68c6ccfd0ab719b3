"""Find the weight files of a package, and put their constants into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from intaglio.arguments import described
from intaglio.errors import BadFile, BadInput, BadKey, option
from intaglio.ir import Array
from intaglio.package import format as f
from intaglio.package.read import inconsistent, sections
from intaglio.package.weight_file import WeightFile, find
from intaglio.package.weight_split import WeightPlace, constants_of, rewritten
from intaglio.package.write import Constants

# A weight file, the folder that holds the files under their names, or the bytes of one.
WeightsSource: TypeAlias = "str | Path | bytes | Array"


def attach(
    data: Array, folder: str | Path | None, weights: WeightsSource | None, signed: bool
) -> tuple[Array, list[WeightPlace]]:
    """The package with all of its constants, and where they lay.

    Weight files lie in `folder`, or are given. Those of a `signed` package must be the signed ones.
    """
    places = weight_places(data)
    if not places:
        if weights is not None:
            raise BadInput(
                f"package holds its weights itself, but {option('weights')} was given; leave it out"
            )
        return data, []
    if len(places) > f.MAX_WEIGHT_FILES:
        raise BadFile(
            f"package names {len(places)} weight files; at most {f.MAX_WEIGHT_FILES} are allowed"
        )
    given = None
    if weights is not None:
        given, folder = _given(weights, folder, signed)
    found = [_found(p, given, folder, signed, len(places) == 1) for p in places]
    if given is not None and given not in found:
        raise BadFile(
            f"weight file that was given is none of the {len(places)} that the package names"
        )
    return _join(data, found), places


def _given(
    weights: WeightsSource, folder: str | Path | None, signed: bool
) -> tuple[WeightFile | None, str | Path | None]:
    """The file that was given, and the folder of those that were not."""
    if isinstance(weights, bytes | bytearray | memoryview | np.ndarray):
        return WeightFile(np.frombuffer(weights, np.uint8), "weights", signed), folder
    if not isinstance(weights, str | os.PathLike) or not os.fspath(weights):
        raise BadInput(
            f"{option('weights')} is {described(weights)}; give the path of a weight file, of the "
            "folder that holds it, or its bytes"
        )
    if os.path.isdir(weights):
        return None, weights
    return WeightFile.open(weights, signed), folder


def _found(
    place: WeightPlace,
    given: WeightFile | None,
    folder: str | Path | None,
    signed: bool,
    only: bool,
) -> WeightFile:
    if signed and place.swappable:
        raise BadKey(
            f"package takes any contents of weight file '{place.name}', so its signature does not "
            "cover them; save it without swappable=, or leave public_key= out"
        )
    if given is not None:
        words = misfit(place, given)
        if words and only:
            raise BadFile(f"weight file that was given {words}; get the one of this package")
        if not words:
            return given
    file = find(place.name, folder, signed)
    if words := misfit(place, file):
        raise BadFile(f"weight file '{place.name}' {words}; get the one of this package")
    return file


def misfit(place: WeightPlace, file: WeightFile) -> str:
    """Why a package cannot use this file; "" if it can."""
    if place.layout != file.layout:
        return "was made for another model"
    if not place.swappable and place.content != file.content:
        return "has other contents than the package was made with"
    return ""


def weight_places(data: Array) -> list[WeightPlace]:
    """The weight files that a package names; none if it holds its constants itself."""
    parts, _ = sections(data.data, trust=True)
    if "WGTS" not in parts:
        return []
    with inconsistent():
        every, found = list(constants_of(parts)), []
        for i, row in enumerate(np.frombuffer(parts["WGTS"], f.WEIGHTS)):
            text = bytes(parts["NAME"][int(row["name"]) :][:4096])
            name = text[: text.index(0)].decode("utf-8", "replace")
            hashes = row["layout"].tobytes(), row["content"].tobytes()
            mine = tuple(c for c in every if c.file == i + 1)
            found.append(WeightPlace(name, *hashes, bool(row["flags"] & f.ANY_CONTENT), mine))
    return found


def _join(data: Array, files: Sequence[WeightFile]) -> Array:
    """The package with the constants of its weight files in it."""
    parts, isa = sections(data.data)
    stored = [np.frombuffer(parts["CNST"], np.uint8), *(w.data for w in files)]
    rest, places = Constants(), {}
    with inconsistent():
        for c in constants_of(parts):
            held = stored[c.file]
            if c.offset % f.ALIGN or c.offset + c.size > len(held):
                raise ValueError("a constant lies outside of its weight file")
            places[c] = 0, rest.add(held[c.offset : c.offset + c.size])[0]
        return rewritten(parts, isa, places, rest, [])
