"""`intaglio compile`: a model file in, a package out."""

from __future__ import annotations

import time
from typing import Any

import click

from intaglio.cli import options


@click.command("compile")
@click.argument("model", type=click.Path())
@click.option("-o", "out", type=click.Path(), help="Package to write [default: MODEL with .itg].")
@click.option("--target", default="cpu", show_default=True, help="Chip to compile for.")
@click.option(
    "--isa",
    default=None,
    metavar="NAME",
    help="Instruction set of the CPU it will run on: scalar, avx2, avx512, avx512bf16 "
    "[default: this CPU's].",
)
@click.option(
    "--level",
    default=3,
    show_default=True,
    type=click.IntRange(0, 3),
    help="Optimisation: 0 none, 1 exact, 2 may reassociate floats, 3 for the target.",
)
@click.option(
    "--precision",
    default="f32",
    show_default=True,
    metavar="TYPE",
    help="bf16: products in bf16, sums in f32; faster on CPUs with AVX512-BF16.",
)
@click.option(
    "--dump-dir", type=click.Path(file_okay=False), help="Write the graph as text after every pass."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@options.model_options
def command(model: str, out: str | None, target: str, isa: str | None, level: int, precision: str,
            dump_dir: str | None, quiet: bool, **model_options: Any) -> None:  # fmt: skip
    """Compile MODEL into one flat package file.

    \b
    intaglio compile model.onnx                          writes model.itg
    intaglio compile model.onnx --dim batch=1 -o m.itg   fix a symbolic dimension
    intaglio compile model.onnx --isa avx2               for a CPU without AVX-512
    intaglio compile model.onnx --precision bf16         two to three digits, twice the speed
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from intaglio.compiler import trace
    from intaglio.passes.prune import Pruned

    path = options.output_path(model, out)
    start = time.perf_counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, transient=True, disable=quiet) as bar:
        task = bar.add_task("reading the model", total=None)
        made = trace(
            model, target=target, isa=isa, level=level, precision=precision, dump_dir=dump_dir,
            progress=lambda words: bar.update(task, description=words),
            **options.load_arguments(**model_options),
        )  # fmt: skip
        bar.update(task, description=f"writing {path}")
        made.package.save(path)
    if not quiet:
        seconds = time.perf_counter() - start
        size = path.stat().st_size / 1e6
        click.echo(
            f"{path}: {size:.2f} MB, {made.package.steps} steps, compiled in {seconds:.2f} s"
        )
        for saved in (r.result for r in made.records if isinstance(r.result, Pruned)):
            click.echo(f"pruned: {saved}")
        click.echo(f"next: intaglio bench {path}")
