"""The files of chip vendors in a package: those that its NPU parts run as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Array
from intaglio.plan import Plan

OPS = ("sophgo.run",)  # their first input is a file
CVIMODEL = b"CviM"  # the first bytes


def ending_of(file: bytes | Array) -> str:
    """The ending of a vendor's file, by its first bytes."""
    return ".cvimodel" if bytes(file[: len(CVIMODEL)]) == CVIMODEL else ".bmodel"


def vendor_files(plans: Sequence[Plan]) -> dict[str, tuple[str, bytes]]:
    """The chip and the bytes of every file, by the name of its NPU part with an ending."""
    found: dict[str, tuple[str, bytes]] = {}
    for number, main in enumerate(plans):
        size = f"size{number}_" if len(plans) > 1 else ""
        steps = [s for p in main.walk() for s in p.steps if s.op in OPS]
        for i, step in enumerate(steps):
            file = step.inputs[0]
            if file is None or file.data is None:
                raise BadInput(f"step '{step.origin}' has no file; compile the package again")
            name = f"{size}npu{i}{ending_of(file.data)}"
            found[name] = str(step.attrs.get("chip", "")), file.data.tobytes()
    return found


def extract(plans: Sequence[Plan], folder: str | Path) -> list[Path]:
    """Write the files into a folder, which is made; BadInput if there are none."""
    found = vendor_files(plans)
    if not found:
        raise BadInput(
            "the package has no files of a chip; "
            "`intaglio compile --target cv181x` puts them in, as for cv180x, bm1684x and bm1688"
        )
    paths = [Path(folder, name) for name in found]
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"cannot write to {folder}: {(e.strerror or str(e)).lower()}") from None
    for path, (_, data) in zip(paths, found.values(), strict=True):
        write_atomically(path, data)
    return paths
