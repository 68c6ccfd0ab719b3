"""`intaglio memory`: the use of a CPU's or chip's memories by a model."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import fitted, key_options, model_files, options, progress_line
from intaglio.cli.chip_names import TARGET
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically

GROUPS = {  # of --help
    "Chip": "--target",
    "Assumptions": "--cores --sram --batch --dtype --sparse",
    "Output": "--json --svg",
    **key_options.GROUP,
}


@click.command("memory", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option("--target", type=TARGET, help="Chip to compile MODEL for [default: this CPU].")
@click.option(
    "--cores", type=int, default=1, show_default=True, help="Number of cores that share the work."
)
@click.option("--sram", type=int, metavar="BYTES", help="Assume this much on-chip memory per core.")
@click.option("--batch", type=int, metavar="N", help="Assume a batch of N samples.")
@click.option(
    "--dtype", metavar="TYPE", help="Assume elements of this type: int8, int16, fp16, ..."
)
@click.option("--sparse", metavar="FORM", help="Assume pruned weights: 2:4 in, 16:4, ...")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option(
    "--svg", type=click.Path(dir_okay=False), help="Write a drawing of the memory over time."
)
@key_options.package_options
@options.model_options
def command(
    model: str,
    target: str | None,
    cores: int,
    sram: int | None,
    batch: int | None,
    dtype: str | None,
    sparse: str | None,
    as_json: bool,
    svg: str | None,
    **model_options: Any,
) -> None:
    """Show the memory of weights, feature maps, inputs and outputs, on a CPU or a chip.

    The last lines name the cause of the peak of internal memory, and what would lower it.

    \b
    intaglio memory model.itg
    intaglio memory model.onnx --svg memory.svg            on this CPU
    intaglio memory model.onnx --target rk3588
    intaglio memory model.onnx --target rk3588 --batch 4   compared to batch 1
    """
    from intaglio.analysis.memory import memory, picture
    from intaglio.analysis.whatif import WhatIf

    what, usual = WhatIf(sram=sram, cores=cores, batch=batch, dtype=dtype, sparse=sparse), None
    what.check()
    refuse_unwritable(svg)
    if model_files.is_package(model):
        if target is not None:
            raise BadInput("a package is for one chip; leave out --target, or give the model file")
        if what != WhatIf():
            raise BadInput(
                "a package is compiled already; assumptions need the model file and --target"
            )
        found = memory(model_files.load_package(model))
    elif target in (None, "cpu"):
        if what != WhatIf():
            raise BadInput(f"{what}: assumptions are about a chip; give --target NAME")
        found = memory(model_files.read_package(model, model_options))
    else:
        load = options.load_arguments(**model_options)
        with progress_line.shown():
            source = model_files.integer_model(model, load)
            found = source.memory(target, what)
            usual = source.memory(target, WhatIf()) if what != WhatIf() else None
    if svg:
        write_atomically(svg, picture(found).encode())
    if as_json:
        plain = found.to_dict()
        if usual is not None:
            plain |= {"what_if": str(what), "usual": {"total": usual.total, "moved": _moved(usual)}}
        click.echo(json.dumps(plain, indent=1))
        return
    fitted.echo(str(found))
    if usual is not None:
        fitted.echo(
            f"\nwith {what}: {usual.total} -> {found.total} bytes of DDR "
            f"({found.total / usual.total:.2f} times); traffic of a run "
            f"{_moved(usual)} -> {_moved(found)} bytes"
        )


def _moved(report: Any) -> int:
    return sum(m.traffic for m in report.modules)
