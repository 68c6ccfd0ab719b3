"""Move the constants of a package to weight files. `weight_join` brings them back.

In memory, a Package always holds its constants. Only files are split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.package import format as f
from intaglio.package import plan_text
from intaglio.package.read import read, sections
from intaglio.package.weight_file import NewWeightFile, WeightFile
from intaglio.package.write import Constants, image, seal

CONST = 0  # code of the memory
# Smaller constants of a swappable package have blobs of their own, because two that are equal, such
# as biases of zeros, may differ after the next training.
MIN_SHARED_BYTES = 64 << 10


@dataclass(frozen=True)
class Constant:
    """A row of TENS or STAT that refers to a constant."""

    kind: str  # "TENS" or "STAT"
    row: int
    file: int  # 0: CNST; else 1 + row of WGTS
    offset: int
    size: int


@dataclass(frozen=True)
class WeightPlace:
    """A weight file that a package on disk names, and the constants that lie there."""

    name: str
    layout: bytes
    content: bytes
    swappable: bool
    constants: tuple[Constant, ...]  # of the package, those in this file

    @property
    def bytes(self) -> int:
        """Of the constants that the package uses."""
        return sum(size for _, size in {(c.offset, c.size) for c in self.constants})


@dataclass(frozen=True)
class Split:
    """A package without (all of) its constants, and what becomes of them."""

    package: Array
    weights: list[memoryview] | None  # the bytes of its own weight file
    shared_bytes: int  # of constants that lie in files of other packages
    own_bytes: int  # of constants in its own weight file, or left in the package


def constants_of(parts: dict[str, memoryview]) -> Iterator[Constant]:
    """Every reference to a constant."""
    tensors = np.frombuffer(parts["TENS"], f.TENSOR)
    for i in np.flatnonzero(tensors["memory"] == CONST).tolist():
        t = tensors[i]
        yield Constant("TENS", i, int(t["slot"]), int(t["offset"]), int(t["size"]))
    plans, args = np.frombuffer(parts["PLAN"], f.PLAN), np.frombuffer(parts["ARGS"], "<u4")
    for i, s in enumerate(np.frombuffer(parts.get("STAT", b""), f.STATE)):
        if s["initial"] != f.ZEROS:
            t = tensors[args[int(plans[s["plan"]]["inputs"]) + int(s["input"])]]
            yield Constant("STAT", i, int(s["file"]), int(s["initial"]), int(t["size"]))


def split(
    whole: Array, own: str | None, shared: Sequence[WeightFile], swappable: bool = False
) -> Split:
    """Take from `shared` what is there; the rest goes to the new weight file `own`, if given."""
    parts, isa = sections(whole.data, trust=True)
    every = list(constants_of(parts))
    raw = {c: np.frombuffer(parts["CNST"], np.uint8)[c.offset : c.offset + c.size] for c in every}
    held = _held(raw, shared) if shared else {}
    used = [w for w in shared if any(holder is w for holder, _ in held.values())]
    places = {c: (1 + used.index(w), at) for c, (w, at) in held.items()}
    rows = [(w.name, 0, w.layout, w.content) for w in used]
    left, rest, made = [c for c in every if c not in held], Constants(), None
    kept = [c for c in left if own is None or not c.size]
    places |= {c: (0, rest.add(raw[c])[0]) for c in kept}
    if own is not None:
        left = [c for c in left if c.size]
        new, numbers = NewWeightFile(), dict[Any, int]()
        for c in left:
            alone = swappable and c.size < MIN_SHARED_BYTES
            key = c if alone else (c.offset, c.size)
            if key not in numbers:
                numbers[key] = new.add(raw[c])
            places[c] = 1 + len(used), numbers[key]
        offsets = new.offsets
        places |= {c: (1 + len(used), offsets[places[c][1]]) for c in left}
        layout = _layout(whole, [places[c] for c in every])
        made, content = new.pieces(layout)
        flags = f.ANY_CONTENT if swappable else 0
        rows.append((own, flags, layout, bytes(32) if swappable else content))
    package = rewritten(parts, isa, places, rest, rows)
    sizes = {places[c]: c.size for c in every}
    shared_bytes = sum(size for (file, _), size in sizes.items() if 0 < file <= len(used))
    return Split(package, made, shared_bytes, sum(sizes.values()) - shared_bytes)


def _held(
    raw: dict[Constant, Array], shared: Sequence[WeightFile]
) -> dict[Constant, tuple[WeightFile, int]]:
    """The constants that lie in a shared file: which, and where there."""
    known, held = dict[tuple[int, int], bytes](), {}
    for c, data in raw.items():
        place = c.offset, c.size
        if place not in known:
            known[place] = hashlib.sha256(data.data).digest()
        for w in shared if c.size else ():
            if (at := w.places.get((c.size, known[place]))) is not None:
                held[c] = w, at
                break
    return held


def _layout(whole: Array, places: Sequence[tuple[int, int]]) -> bytes:
    """What files that fit the same package have in common: its plan, and where constants lie."""
    plan = plan_text.digest(read(whole.data, trust=True).plans)
    return hashlib.sha256(plan + np.array(places, "<u8").tobytes()).digest()


def refilled(whole: Array, place: WeightPlace) -> list[memoryview]:
    """The bytes of a weight file in the layout of `place`, with the constants of this package."""
    parts, _ = sections(whole.data, trust=True)
    raw = np.frombuffer(parts["CNST"], np.uint8)
    now = {(c.kind, c.row): raw[c.offset : c.offset + c.size] for c in constants_of(parts)}
    blobs: dict[int, Array] = {}
    for c in place.constants:
        data = now[c.kind, c.row]
        if not np.array_equal(blobs.setdefault(c.offset, data), data):
            raise BadInput(
                f"two constants that share a blob of '{place.name}' differ now; compile the model "
                "again, and replace package and weight file"
            )
    new = NewWeightFile()
    for offset in sorted(blobs):
        new.add(blobs[offset])
    if new.offsets != sorted(blobs):
        raise BadInput(f"'{place.name}' has blobs that no constant uses; compile the model again")
    return new.pieces(place.layout)[0]


def rewritten(
    parts: dict[str, memoryview],
    isa: int,
    places: dict[Constant, tuple[int, int]],
    rest: Constants,
    rows: Sequence[tuple[str, int, bytes, bytes]],
) -> Array:
    """The package with constants at these places: the number of a file and an offset."""
    tensors = np.frombuffer(parts["TENS"], f.TENSOR).copy()
    states = np.frombuffer(parts.get("STAT", b""), f.STATE).copy()
    for c, (file, offset) in places.items():
        if c.kind == "TENS":
            tensors["slot"][c.row], tensors["offset"][c.row] = file, offset
        else:
            states["file"][c.row], states["initial"][c.row] = file, offset
    names, table = bytearray(parts["NAME"]), np.zeros(len(rows), f.WEIGHTS)
    for row, (name, flags, layout, content) in zip(table, rows, strict=True):
        row["name"], row["flags"] = len(names), flags
        row["layout"], row["content"] = (np.frombuffer(h, np.uint8) for h in (layout, content))
        names += name.encode() + b"\0"
    changed: dict[str, Any] = {"TENS": tensors.tobytes(), "NAME": bytes(names), "CNST": rest}
    if len(states):
        changed["STAT"] = states.tobytes()
    kept = {k: v for k, v in parts.items() if k not in ("WGTS", "SIGN")}
    if rows:
        changed["WGTS"] = table.tobytes()
    return seal(image(kept | changed, isa))
