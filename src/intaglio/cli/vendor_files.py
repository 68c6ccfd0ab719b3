"""Files of chip vendors on the command line, by their endings: kmodel, bmodel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from intaglio.cli import bmodel, kmodel
from intaglio.ir import Array, Type

Outputs = tuple[dict[str, Array], dict[str, Type]]


@dataclass(frozen=True)
class VendorFile:
    """One kind of file: its name, its first bytes, and how it is inspected and run."""

    name: str
    magic: bytes
    reads: str  # what its inputs are
    inspect: Callable[[str, bool, bool], None]
    run: Callable[[str, tuple[str, ...], str | None, int], Outputs]


FILES = {
    kmodel.ENDING: VendorFile("kmodel", b"LDMK", "bytes", kmodel.inspect, kmodel.run),
    bmodel.ENDING: VendorFile("bmodel", b"\xee\xaa\x55\xff", "numbers", bmodel.inspect, bmodel.run),
}


def find(path: str) -> VendorFile | None:
    """The kind of a file, by its ending or its first bytes; None: none of these."""
    kind = FILES.get(Path(path).suffix)
    if kind:
        return kind
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError:
        return None
    return next((k for k in FILES.values() if k.magic == start), None)
