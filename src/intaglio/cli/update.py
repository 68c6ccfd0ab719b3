"""`intaglio update`: the weights of another training into a package, which keeps its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from intaglio.cli import fitted, model_files, progress_line
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable


@click.command("update")
@click.argument("package", type=click.Path())
@click.option(
    "--weights",
    "new",
    required=True,
    type=click.Path(),
    metavar="MODEL",
    help="Model file with the new weights: the same network, trained otherwise.",
)
@click.option(
    "-o",
    "out",
    type=click.Path(),
    help="File to write: a weight file, or a whole package if it ends in .itg [default: the weight "
    "file of a swappable PACKAGE, else PACKAGE itself].",
)
@click.option(
    "--blobs",
    type=click.Path(),
    metavar="FILE",
    help="Weights file of a Caffe or Darknet model, if its name differs.",
)
def command(package: str, new: str, out: str | None, blobs: str | None) -> None:
    """Give PACKAGE the weights of another training. Its plan stays as it is.

    MODEL is compiled with the options that PACKAGE was compiled with. If its plan would differ,
    for example because channels were pruned, it says where and writes nothing.

    \b
    intaglio compile a.onnx -o m.itg --weights-file m.weights --swappable
    intaglio update m.itg --weights b.onnx            writes m.weights
    intaglio update m.itg --weights b.onnx -o b.itg   writes a whole package
    """
    from intaglio.package import Package

    if not model_files.starts_as_package(package):
        raise BadInput(f"{package} is no package; compile it first")
    old = Package.load(package)
    path, swaps = _destination(old, package, out)
    refuse_unwritable(path)
    with progress_line.shown():
        made = old.with_weights(new, **({"weights": blobs} if blobs else {}))
        made.save_weights(path) if swaps else made.save(path)
    fitted.echo(f"{path}: {path.stat().st_size / 1e6:.2f} MB, {_changed(old, made)}")
    if swaps:
        how = f"; rename {path} over its weight file" if out else ""
        fitted.echo(f"{package} stays as it is{how}")


def _destination(old: Any, package: str, out: str | None) -> tuple[Path, bool]:
    """The file to write, and whether it is a weight file."""
    name = next((p.name for p in old.weight_files if p.swappable), None)
    if out:
        return Path(out), name is not None and not out.endswith(".itg")
    if name:
        return Path(package).parent / name, True
    if old.weight_files:
        raise BadInput(
            f"{package} takes exactly the contents of '{old.weight_files[0].name}'; write a whole "
            "package with -o NEW.itg, or make it with --swappable"
        )
    return Path(package), False


def _changed(old: Any, made: Any) -> str:
    """How many constants differ."""
    pairs = [
        (a.data, b.data)
        for before, after in zip(old.plans, made.plans, strict=True)
        for a, b in zip(before.tensors(), after.tensors(), strict=True)
        if a.memory == "const"
    ]
    changed = sum(a.tobytes() != b.tobytes() for a, b in pairs)
    return f"{changed} of {len(pairs)} constants changed, the plan is the same"
