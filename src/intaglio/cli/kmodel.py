"""kmodel files of the K210 on the command line: compile, inspect and run them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable
from intaglio.ir import Array, Type

if TYPE_CHECKING:
    from intaglio.npu.chips.k210.compile import Compiled
    from intaglio.npu.chips.k210.model import Kmodel

ENDING = ".kmodel"
MOST_OPS = 6  # ops after the file that are listed


def is_kmodel(path: str | None) -> bool:
    """Whether a file is named as a kmodel."""
    return path is not None and str(path).endswith(ENDING)


def output_path(model: str, given: str | None) -> Path:
    """The file to write: the given one, or the model's name with the ending of a kmodel."""
    if given is not None and not is_kmodel(given):
        raise BadInput(f"--kmodel writes a kmodel, but -o is {given}; name it *{ENDING}")
    path = Path(given) if given else Path(Path(model).name).with_suffix(ENDING)
    if not given and path.stem.endswith(".int8"):
        path = path.with_name(path.stem.removesuffix(".int8") + ENDING)
    return path


def write(
    model: str,
    path: Path,
    target: str,
    version: int,
    level: int,
    refused: dict[str, Any],
    load: dict[str, Any],
    as_json: bool,
    quiet: bool,
) -> None:
    """Compile a quantised model file into a kmodel."""
    import intaglio
    from intaglio import targets
    from intaglio.npu.chips.k210.compile import compile_kmodel

    chip = targets.find(target).chip
    if chip is None or chip.file != "kmodel":
        raise BadInput(
            f"{path} is a kmodel, but the target is {target}; "
            "give --target k210, or a name that ends in .itg"
        )
    for flag, value in refused.items():
        if value:
            raise BadInput(f"{flag} is for packages; leave it out for a kmodel")
    refuse_unwritable(path)
    start = time.perf_counter()
    with progress_line.shown():
        progress.report("reading the model")
        graph = intaglio.load(model, **load)
        progress.report("compiling for k210")
        made = compile_kmodel(graph, version, level)
        made.save(path)
    seconds = time.perf_counter() - start
    if as_json:
        click.echo(json.dumps(_facts(made, path, seconds), indent=1))
    elif not quiet:
        _print(made, path, seconds)


def _facts(made: Compiled, path: Path, seconds: float) -> dict[str, Any]:
    module = made.model.modules[0]
    return {
        "kmodel": str(path),
        "version": made.model.version,
        "bytes": len(made.data),
        "seconds": seconds,
        "target": "k210",
        "commands": len(made.model.main.commands),
        "memory": module.pools,
        **made.model.about,
        "after": [
            {"op": n.op, "name": n.origin or n.outputs[0].name, "why": why}
            for n, why in made.lowered.after
        ],
    }


def _print(made: Compiled, path: Path, seconds: float) -> None:
    pools, commands = made.model.modules[0].pools, made.model.main.commands
    fitted.echo(
        f"{path}: kmodel {made.model.version}, {len(made.data) / 1e6:.2f} MB, "
        f"{len(commands)} commands, compiled in {seconds:.2f} s"
    )
    fitted.echo(
        f"memory  {pools['kpu']:,} bytes of the KPU's RAM, {pools['data']:,} of main memory"
    )
    kind = "f32, dequantised" if made.model.version == 3 else "u8"
    for title, dtype, ports in (
        ("input", "u8", made.lowered.inputs),
        ("output", kind, made.lowered.outputs),
    ):
        for p in ports:
            dims = "x".join(map(str, p.shape))
            fitted.echo(
                f"{title:7} {p.name}  {dtype} [{dims}]; real = {p.scale:.6g} * (byte - {p.zero})"
            )
    after = [(n, why) for n, why in made.lowered.after]
    for n, why in after[:MOST_OPS]:
        name = n.origin or n.outputs[0].name
        fitted.echo(f"not in the file: {n.op} {name}: {why}")
    if len(after) > MOST_OPS:
        fitted.echo(f"not in the file: {len(after) - MOST_OPS} more ops after these")
    fitted.echo(f"next: intaglio run {path} input.npy")


def load(path: str) -> Kmodel:
    """The kmodel in a file."""
    from intaglio.npu.chips.k210.compile import read

    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise BadInput(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
    return read(data)


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a kmodel."""
    from intaglio.npu.chips.k210 import disassembly

    model = load(path)
    if as_json:
        click.echo(json.dumps(disassembly.facts(model), indent=1))
        return
    for line in disassembly.lines(model, words):
        click.echo(line)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a kmodel, simulated, and their types."""
    from intaglio.npu.chips.k210.simulate import Machine, input_names, output_names

    model = load(path)
    machine = Machine(model)
    ports = zip(input_names(model), model.main.inputs, strict=True)
    types = {name: Type(p.range.dtype, p.shape) for name, p in ports}
    feeds = options.read_feeds(sources, types, fill, seed, {})
    found = zip(output_names(model), model.main.outputs, strict=True)
    return machine.run(feeds), {name: Type(p.range.dtype, p.shape) for name, p in found}
