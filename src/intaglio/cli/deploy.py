"""`intaglio deploy`: write a C project that runs a quantised model on a board."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.errors import BadInput


def _bytes(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """256K, 1M or a number of bytes."""
    if text is None:
        return None
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdecimal() or not 1024 <= int(digits) * unit <= 1 << 32:
        raise BadInput(f"{parameter.opts[0]} is {text!r}; give bytes, such as 65536, 256K or 1M")
    return int(digits) * unit


@click.command("deploy", cls=options.ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--board", required=True, help="Name of a board, or a TOML file that describes one.")
@click.option("-o", "out", type=click.Path(), required=True, help="Folder to write.")
@click.option("--name", default="model", show_default=True, help="Prefix of C names and files.")
@click.option("--flash", callback=_bytes, help="Flash of your own part, e.g. 512K.")
@click.option("--ram", callback=_bytes, help="RAM of your own part, e.g. 128K.")
@click.option(
    "--weights-in",
    type=click.Choice(["flash", "ram", "file"]),
    default="flash",
    show_default=True,
    help="Weights as constants, copied to RAM at start, or on Linux in a file.",
)
@click.option("--weights-section", default=".itg_weights", show_default=True, help="Its section.")
@click.option("--arena-section", default=".itg_arena", show_default=True, help="Its section.")
@click.option(
    "--small",
    is_flag=True,
    help="On Linux: optimise for size. Boards without Linux are always small.",
)
@click.option("--vectors", "files", multiple=True, type=click.Path(), help="Inputs (.npz, .npy).")
@click.option("--overwrite", is_flag=True, help="Write into a folder that is not empty.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@options.model_options
def command(
    model: str,
    board: str,
    out: str,
    name: str,
    flash: int | None,
    ram: int | None,
    weights_in: str,
    weights_section: str,
    arena_section: str,
    small: bool,
    files: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Write a C project that runs an 8-bit MODEL on a board, without libraries.

    \b
    intaglio deploy model.int8.onnx --board cortex-m4 -o project
    intaglio deploy m.tflite --board cortex-m55 --ram 256K --flash 1M -o project
    intaglio deploy m.tflite --board linux-aarch64 --weights-in file -o project
    Then: make -C project run
    """
    from intaglio.export.deploy import deploy
    from intaglio.export.deploy.vectors import read_vectors

    with progress_line.shown():
        progress.report("reading the model")
        made = deploy(
            model,
            board,
            out,
            name=name,
            vectors=[read_vectors(f) for f in files],
            weights_in=weights_in,
            weights_section=weights_section,
            arena_section=arena_section,
            flash=flash,
            ram=ram,
            small=small,
            overwrite=overwrite,
            **options.load_arguments(**model_options),
        )
    if as_json:
        click.echo(json.dumps(made.to_dict(), indent=1))
        return
    s = made.sizes
    fitted.echo(f"{out}: C project for {made.board}; kernels {', '.join(made.kernels)}")
    fitted.echo(f"weights {s.weights:,} bytes in {weights_in}")
    fitted.echo(
        f"RAM {s.ram:,} bytes: arena {s.arena:,}, inputs {s.inputs:,}, outputs {s.outputs:,}"
    )
    if not made.emulated:
        fitted.echo("QEMU's machine has less memory than your part: run it there")
    fitted.echo(f"next: make -C {out} {'run' if made.emulated else 'size'}")
