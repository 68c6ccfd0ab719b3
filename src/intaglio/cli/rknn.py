"""Files of Rockchip's compiler on the command line: they are shown, not run."""

from __future__ import annotations

from typing import NoReturn

from intaglio.cli import vendor_files
from intaglio.errors import Unsupported


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a file."""
    from intaglio.npu.chips.rockchip import disassembly
    from intaglio.npu.chips.rockchip.rknn_file import read

    vendor_files.show(disassembly, read(vendor_files.load(path)), words, as_json)


def run(path: str, sources: tuple[str, ...], fill: str | None, seed: int) -> NoReturn:
    """Refuse: Rockchip's files are only read."""
    refuse(path)


def refuse(path: str) -> NoReturn:
    """Say what can be done with a file instead."""
    raise Unsupported(
        f"{path} is a file of Rockchip's compiler; it can be shown (intaglio inspect {path} "
        "--asm), not run; compile the model it was made from for the same target"
    )
