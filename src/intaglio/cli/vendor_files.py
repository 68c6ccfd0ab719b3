"""Model files of chip vendors on the command line: a table by ending, and how they are written."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from intaglio import progress
from intaglio.cli import fitted, progress_line
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable
from intaglio.ir import Node

MOST_OPS = 6  # ops after the file that are listed


@dataclass(frozen=True, slots=True)
class VendorFile:
    """A kind of file. Its module has these functions:

    `make(graph, chip, level, **options)` compiles; the result has `data`, `lowered` and `save`.
    `facts(made)` are the kind's own facts for --json, `summary(made)` lines after the first one.
    `about(made)` says what was written, in the first line; `types(made)` the types of its ports.
    `inspect(path, words, as_json)` prints a file; `run(path, sources, fill, seed)` simulates it.
    """

    ending: str
    chips: str  # the targets that have it, for error messages
    module: str  # under intaglio.cli
    magic: bytes  # the first bytes
    reads: str  # what inputs are arrays of
    batches: bool = False  # whether one file may take several images at once

    @property
    def name(self) -> str:
        return self.ending.removeprefix(".")

    def functions(self) -> Any:
        return import_module(f"intaglio.cli.{self.module}")


FILES = {
    f.ending: f
    for f in (
        VendorFile(".kmodel", "k210", "kmodel", b"LDMK", "bytes"),
        VendorFile(
            ".bmodel",
            "bm1684, bm1684x, bm1688 or sg2260",
            "bmodel",
            b"\xee\xaa\x55\xff",
            "numbers",
            True,
        ),
        VendorFile(".cvimodel", "cv181x or cv180x", "cvimodel", b"CviM", "bytes", True),
        VendorFile(
            ".rkjob",
            "rk3588, rk3566, rk3568, rk3562, rk3576, rv1103 or rv1106",
            "rkjob",
            b"RKJ1",
            "bytes",
        ),
    )
}

# Read only, and by the first bytes: packages may have this ending, too.
RKNN = VendorFile(".rknn", "", "rknn", b"RKNN", "")


def kind_of(path: str | None) -> VendorFile | None:
    """The kind of vendor's file that a path names; None: it names none."""
    return next(
        (f for f in FILES.values() if path is not None and str(path).endswith(f.ending)), None
    )


def find(path: str) -> VendorFile | None:
    """The kind of an existing file, by its ending or its first bytes."""
    if kind := kind_of(path):
        return kind
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError:
        return None
    return next((f for f in (*FILES.values(), RKNN) if f.magic == start), None)


def output_path(model: str, given: str | None, kind: VendorFile) -> Path:
    """The file to write: the given one, or the model's name with the ending of its kind."""
    if given is not None and kind_of(given) is not kind:
        raise BadInput(
            f"--{kind.name} writes a {kind.name}, but -o is {given}; name it *{kind.ending}"
        )
    path = Path(given) if given else Path(Path(model).name).with_suffix(kind.ending)
    if not given and path.stem.endswith(".int8"):
        path = path.with_name(path.stem.removesuffix(".int8") + kind.ending)
    return path


def write(
    model: str,
    path: Path,
    kind: VendorFile,
    target: str,
    level: int,
    refused: dict[str, Any],
    load: dict[str, Any],
    as_json: bool,
    quiet: bool,
    extra: dict[str, Any],
    batch: Any = None,
) -> None:
    """Compile a quantised model file into a vendor's file; `extra` are options of its kind."""
    import intaglio
    from intaglio import targets
    from intaglio.batches import load_batch

    chip = targets.find(target).chip
    if chip is None or chip.file != kind.name:
        raise BadInput(
            f"{path} is a {kind.name}, but the target is {target}; "
            f"give --target {kind.chips}, or a name that ends in .itg"
        )
    if batch is not None and not (kind.batches and isinstance(batch, int)):
        many = "a number" if kind.batches else "one image at a time"
        raise BadInput(f"--batch is {batch}; a {kind.name} takes {many}; packages take more")
    for flag, value in refused.items():
        if value:
            raise BadInput(f"{flag} is for packages; leave it out for a {kind.name}")
    refuse_unwritable(path)
    of_kind = kind.functions()
    start = time.perf_counter()
    with progress_line.shown():
        progress.report("reading the model")
        graph = load_batch(model, load, batch) if batch else intaglio.load(model, **load)
        progress.report(f"compiling for {chip.name}")
        made = of_kind.make(graph, chip, level, **extra)
        made.save(path)
    seconds = time.perf_counter() - start
    if as_json:
        facts = {kind.name: str(path), "bytes": len(made.data), "seconds": seconds}
        facts |= {"target": chip.name} | of_kind.facts(made) | {"after": _after(made)}
        click.echo(json.dumps(facts, indent=1))
    elif not quiet:
        _print(made, of_kind, path, seconds)


def _after(made: Any) -> list[dict[str, str]]:
    return [
        {"op": n.op, "name": n.origin or n.outputs[0].name, "why": why}
        for n, why in made.lowered.after
    ]


def _print(made: Any, of_kind: Any, path: Path, seconds: float) -> None:
    fitted.echo(f"{path}: {of_kind.about(made)}, compiled in {seconds:.2f} s")
    for line in of_kind.summary(made):
        fitted.echo(line)
    ports = ("input", made.lowered.inputs), ("output", made.lowered.outputs)
    for (title, group), types in zip(ports, of_kind.types(made), strict=True):
        for p, dtype in zip(group, types, strict=True):
            dims = "x".join(map(str, p.shape))
            words = f"; real = {p.scale:.6g} * (byte - {p.zero})" if dtype != "f32" else ""
            fitted.echo(f"{title:7} {p.name}  {dtype} [{dims}]{words}")
    for n in made.lowered.before:
        if isinstance(n, Node) and n.op not in ("quantize_linear", "reshape", "transpose"):
            name = n.origin or n.outputs[0].name
            fitted.echo(f"not in the file: {n.op} {name}: it comes before the first layer")
    after = _after(made)
    for row in after[:MOST_OPS]:
        fitted.echo(f"not in the file: {row['op']} {row['name']}: {row['why']}")
    if len(after) > MOST_OPS:
        fitted.echo(f"not in the file: {len(after) - MOST_OPS} more ops after these")
    fitted.echo(f"next: intaglio run {path} input.npy")


def load(path: str) -> bytes:
    """The bytes of a vendor's file."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise BadInput(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None


def show(disassembly: Any, model: Any, words: bool, as_json: bool) -> None:
    """Print a file by the `facts` and `lines` of its kind's disassembly."""
    if as_json:
        click.echo(json.dumps(disassembly.facts(model), indent=1))
        return
    for line in disassembly.lines(model, words):
        click.echo(line)
