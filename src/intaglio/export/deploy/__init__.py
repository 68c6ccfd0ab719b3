"""`intaglio.deploy`: a self-contained C project that runs a quantised model on a board."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import intaglio
from intaglio.errors import BadInput
from intaglio.export.deploy import board as boards
from intaglio.export.deploy.calls import Printer
from intaglio.export.deploy.convolutions import Convolution
from intaglio.export.deploy.lowered import lower
from intaglio.export.deploy.project import Contents, Placement, project_files
from intaglio.export.deploy.scratch import place_scratch
from intaglio.export.deploy.sizes import Sizes, is_emulated, require_fit, with_memory
from intaglio.export.deploy.vectors import make_vectors
from intaglio.ir import Array, Graph
from intaglio.plan import Step

OVERREAD_BYTES = 16  # past the last row of weights: a vector of the form Helium
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_SECTION = re.compile(r"\.[A-Za-z0-9_.]{1,60}")


@dataclass(frozen=True)
class Deployed:
    """What `deploy` wrote, and the memory that it needs."""

    folder: Path
    board: str
    sizes: Sizes
    kernels: tuple[str, ...]  # C files of the kernels
    files: tuple[str, ...]
    emulated: bool = True  # QEMU's machine has as much flash and RAM as the part

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "board": self.board,
            **self.sizes.to_dict(),
            "kernels": list(self.kernels),
            "emulated": self.emulated,
        }


def deploy(
    model: str | Path | Graph,
    board: str,
    folder: str | Path,
    *,
    name: str = "model",
    vectors: Sequence[Mapping[str, Array]] = (),
    weights_in: str = Placement.weights,
    weights_section: str = Placement.weights_section,
    arena_section: str = Placement.arena_section,
    flash: int | None = None,
    ram: int | None = None,
    small: bool = False,
    overwrite: bool = False,
    **load: Any,
) -> Deployed:
    """Write a C project that runs an 8-bit model on `board`; nothing is written if it cannot.

    `vectors` are inputs for the test vectors, random ones by default. `weights_in` places the
    weights in "flash", "ram" or, on Linux, a "file". `flash` and `ram` are the bytes of your
    own part. `small` optimises for size on Linux too; other boards are always small.
    Further keywords are those of `intaglio.load`.
    """
    known = boards.load(board)
    chosen = with_memory(known, flash, ram)
    placement = Placement(weights_in, weights_section, arena_section)
    _check(chosen, name, placement)
    folder = Path(folder)
    _refuse_folder(folder, overwrite)
    graph = model if isinstance(model, Graph) else intaglio.load(model, **load)
    lowered = lower(graph)
    plan = lowered.plan
    printer = Printer(chosen.form, pointer_bytes=chosen.pointer_bytes)
    offsets, arena = place_scratch(plan, partial(_scratch, printer))
    for step, at in zip(plan.steps, offsets, strict=True):
        printer.step(step, at)
    if chosen.form == "helium":
        printer.blob.bytes.extend(bytes(OVERREAD_BYTES))
    every = make_vectors(lowered.neutral, vectors)
    order = [v.name for v in lowered.neutral.inputs], lowered.neutral.output_names
    tested = [([i[n] for n in order[0]], [o[n] for n in order[1]]) for i, o in every]
    sizes = Sizes(
        len(printer.blob.bytes),
        arena,
        sum(t.type.bytes for t in plan.inputs if t is not None),
        sum(t.type.bytes for t in plan.outputs),
        sum(a.nbytes for pair in tested for side in pair for a in side),
    )
    require_fit(chosen, sizes, placement.weights == "ram")
    source = graph.name if isinstance(model, Graph) else Path(model).name
    files = project_files(
        Contents(name, source, chosen, plan, printer, sizes, placement, tested, small)
    )
    _write(folder, files)
    kernels = tuple(sorted(printer.kernels))
    return Deployed(folder, chosen.name, sizes, kernels, tuple(files), is_emulated(known, chosen))


def _scratch(printer: Printer, step: Step) -> int:
    if step.op != "micro.conv":
        return 0
    return Convolution(step, printer.form, printer.pointer_bytes).scratch


def _check(board: boards.Board, name: str, placement: Placement) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput(f"name is {name!r}; a C identifier of at most 40 characters is needed")
    places = ("flash", "file") if board.is_linux else ("flash", "ram")
    if placement.weights not in places:
        raise BadInput(
            f"weights_in is {placement.weights!r}; {board.name} has {' and '.join(places)}"
        )
    for section in (placement.weights_section, placement.arena_section):
        if not _SECTION.fullmatch(section):
            raise BadInput(f"section is {section!r}; a name such as .itg_weights is needed")


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    if folder.is_file():
        raise BadInput(f"{folder} is a file; give a folder")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise BadInput(f"{folder} is not empty; give another folder, or overwrite=True")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        for path, data in files.items():
            to = folder / path
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
    except OSError as e:
        raise BadInput(f"cannot write to {folder}: {(e.strerror or str(e)).lower()}") from None
