"""`intaglio compile`: a model file in, a package out."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio import progress
from intaglio.cli import (
    fitted,
    key_options,
    model_files,
    options,
    progress_line,
    run_pictures,
    runs_on,
    vendor_files,
    weights,
)
from intaglio.cli.chip_names import TARGET
from intaglio.compile_options import LEVELS, NPU_CODES, CompileOptions, split_options
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable

if TYPE_CHECKING:
    from intaglio.compiler import Compiled


GROUPS = {  # of --help
    "Target": "--target --isa --precision --cores --by-layer --npu-code --kmodel --firmware",
    "Optimisation": "--level --tune --tune-seconds --tune-threads",
    "Pictures": "--resize --bgr",
    "Weights": "--weights-file --weights-from --swappable",
    "Protection": "--encrypt --key-file --key-env --sign",
    "Output": "-o --json --quiet --explain --dump-dir",
}


@click.command("compile", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "out",
    type=click.Path(),
    help="Package to write [default: MODEL with .itg], or a .kmodel for k210, a .bmodel for "
    "bm1684 and bm1684x, a .cvimodel for cv181x and cv180x, a .rkjob for rk3588, rk3576, rk3568, "
    "rk3566, rk3562, rv1106 and rv1103.",
)
@click.option(
    "--target",
    type=TARGET,
    default="cpu",
    show_default=True,
    help="CPU or chip to compile for; `intaglio targets` lists them.",
)
@click.option(
    "--isa",
    default=None,
    metavar="NAME",
    help="Instruction set of the CPU that runs the package: scalar, avx2, avx512, or avx512 with "
    "features, as in avx512-vnni-bf16-vbmi; neon, armv7, rvv "
    "[default: this CPU's; scalar beside an NPU].",
)
@click.option(
    "--level",
    default=CompileOptions.level,
    show_default=True,
    type=click.IntRange(0, 3),
    help=f"Optimisation: {', '.join(f'{k} {v}' for k, v in LEVELS.items())}.",
)
@click.option(
    "--precision",
    default="f32",
    show_default=True,
    metavar="TYPE",
    help="f32, bf16 or fp16. bf16: products in bf16, sums in f32; faster on CPUs with AVX512-BF16. "
    "fp16: weights and activations stored in f16, computed in f32 (in f16 with --isa neon-fp16 or "
    "rvv-fp16); half the memory. NPUs with fp16 units compute float layers in fp16.",
)
@click.option(
    "--batch",
    callback=options.batch,
    metavar="N|1..N|N,N",
    help="Images that the package takes at once, for a model that is made for one image or leaves "
    "its batch open. Each number of a list gets its own plan. Says which layer mixes images, if "
    "one does.",
)
@click.option(
    "--cores",
    default=CompileOptions.cores,
    show_default=True,
    metavar="N",
    help="Number of NPU cores that share the work.",
)
@click.option(
    "--by-layer", is_flag=True, help="Compile each layer into its own NPU program, for debugging."
)
@click.option(
    "--npu-code",
    type=click.Choice(NPU_CODES),
    default=CompileOptions.npu_code,
    show_default=True,
    help="What NPU parts of a package become. chip: files of the chip (cv181x, cv180x, bm1684x, "
    "bm1688), which the board and our simulators run. own: programs of Intaglio's instruction set, "
    "which only our simulator runs. auto: chip for these four, unless --cores or --by-layer is "
    "given.",
)
@click.option(
    "--kmodel",
    type=click.Choice(["5", "3"]),
    help="Version of a kmodel, for --target k210: 5 for nncase's runtime, 3 for the SDK and MaixPy "
    "[default: 5, if -o ends in .kmodel].",
)
@click.option(
    "--firmware",
    metavar="FILE",
    help="Sophgo's kernel module to put into a .bmodel; the runtime of sg2260 needs one.",
)
@click.option(
    "--disable", multiple=True, metavar="RULE", help="Leave out a rewrite rule; may be repeated."
)
@click.option(
    "--dump-dir", type=click.Path(file_okay=False), help="Write the graph as text after every pass."
)
@click.option(
    "--tune",
    is_flag=True,
    help="Time all implementations of each layer on this machine and keep the fastest. Times are "
    "cached; Ctrl-C stops measuring and compiles with the times measured so far.",
)
@click.option(
    "--tune-seconds", type=float, metavar="SECONDS", help="Time limit of --tune [default: 60]."
)
@click.option(
    "--tune-threads", type=int, metavar="N", help="Number of threads for --tune [default: 1]."
)
@click.option(
    "--explain", is_flag=True, help="Print the chosen implementation of each layer, and times."
)
@weights.split_options
@click.option(
    "--encrypt",
    metavar="LEVEL",
    type=click.Choice(["weights", "graph", "all"]),
    help="Encrypt the package with --key-file or --key-env: weights, graph (all sections) or all.",
)
@click.option(
    "--sign", metavar="FILE", help="Sign the package with this Ed25519 private key (PEM)."
)
@key_options.key_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@run_pictures.format_options
@options.model_options
def command(
    model: str,
    out: str | None,
    target: str,
    tune: bool,
    tune_seconds: float | None,
    tune_threads: int | None,
    explain: bool,
    encrypt: str | None,
    sign: str | None,
    weights_file: str | None,
    weights_from: tuple[str, ...],
    swappable: bool,
    kmodel: str | None,
    firmware: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Compile MODEL into a package (.itg), or a vendor's file.

    \b
    intaglio compile model.onnx                          writes model.itg
    intaglio compile model.onnx --dim batch=1 -o m.itg   fix a symbolic dimension
    intaglio compile model.onnx --dim seq=1..512         all lengths in one file
    intaglio compile model.onnx --shapes ids=1x16,1x64   two shapes in one file
    intaglio compile model.onnx --batch 4                4 images at once
    intaglio compile model.onnx --batch 1,4,16           3 batches in one file
    intaglio compile model.onnx --isa avx2               for a CPU without AVX-512
    intaglio compile model.int8.onnx --target rk3588     for a chip with an NPU
    intaglio compile model.onnx --target rk3588 --precision fp16 --cores 3
    intaglio compile model.int8.onnx --target k210 -o m.kmodel
    intaglio compile model.int8.onnx --target bm1684x -o m.bmodel
    intaglio compile model.onnx --target bm1684x --precision fp16 -o m.bmodel
    intaglio compile model.int8.onnx --target cv181x -o m.cvimodel
    intaglio compile model.int8.onnx --target rk3588 -o m.rkjob
    intaglio compile model.int8.onnx --target cv181x -o m.itg
    intaglio compile model.onnx --precision bf16         up to 1.7x as fast
    intaglio compile model.onnx --precision fp16         half the size
    intaglio compile model.onnx --tune --explain         measures implementations
    intaglio compile model.onnx --encrypt all --key-file model.key
    intaglio compile model.onnx --weights-file model.weights    in a second file
    intaglio compile other.onnx --weights-from model.weights    share weights
    """
    from intaglio.compiler import trace
    from intaglio.package.weight_save import refuse_protected
    from intaglio.tune import Tuning

    for name, value in (("seconds", tune_seconds), ("threads", tune_threads)):
        if value is not None and not tune:
            raise BadInput(f"--tune-{name} needs --tune; add --tune, or leave it out")
    protection = _protection(encrypt, sign)
    if weights_file or weights_from:
        refuse_protected(bool(encrypt), bool(sign), swappable)
    where = {"weights": weights_file, "weights_from": weights_from, "swappable": swappable}
    settings, model_options = split_options(given)
    kind = vendor_files.FILES[".kmodel"] if kmodel else vendor_files.kind_of(out)
    if firmware and (kind is None or kind.name != "bmodel"):
        raise BadInput("--firmware is for bmodels; give -o m.bmodel, or leave it out")
    if kind is not None:
        packaging = {
            "--tune": tune,
            "--encrypt": encrypt,
            "--sign": sign,
            "--weights-file": weights_file,
            "--weights-from": weights_from,
            "--explain": explain,
            "--isa": settings.isa,
            "--by-layer": settings.by_layer,
            "--npu-code": settings.npu_code != CompileOptions.npu_code,
            "--disable": settings.disable,
            "--dump-dir": settings.dump_dir,
            "--cores": settings.cores != 1 and kind.name != "bmodel",
            "--precision": settings.precision not in (None, "f32") and kind.name != "bmodel",
        }
        to = vendor_files.output_path(model, out, kind)
        load = options.load_arguments(**model_options)
        extra: dict[str, Any] = {"version": int(kmodel)} if kmodel else {}
        extra |= {"firmware": firmware} if firmware else {}
        if kind.name == "bmodel":
            extra |= {"cores": settings.cores, "precision": settings.precision or "f32"}
        given_as = target, settings.level, packaging, load
        vendor_files.write(model, to, kind, *given_as, as_json, quiet, extra, settings.batch)
        return
    path = model_files.output_path(model, out)
    refuse_unwritable(path)
    start = time.perf_counter()
    warned: list[str] = []
    how = Tuning(
        60.0 if tune_seconds is None else tune_seconds,
        1 if tune_threads is None else tune_threads,
        warn=warned.append,
    )
    load = options.load_arguments(**model_options)
    with progress_line.shown():
        made = trace(model, target, settings, tune=how if tune else False, **load)
        progress.report(f"writing {path}")
        made.package.save(path, **protection, **where)  # type: ignore[arg-type]
    for words in warned:
        click.echo(f"intaglio: warning: {words}", err=True)
    seconds = time.perf_counter() - start
    if as_json:
        facts = _facts(made, path, seconds) | {"encrypted": encrypt, "signed": bool(sign)}
        facts["weight_files"] = weights.facts(path)
        click.echo(json.dumps(facts, indent=1))
    elif not quiet:
        _print(made, path, seconds, explain)
        if weights_file or weights_from:
            fitted.echo(weights.words(path))
        if encrypt or sign:
            made_safe = [f"encrypted (level {encrypt})"] if encrypt else []
            made_safe += ["signed"] if sign else []
            fitted.echo(f"package is {' and '.join(made_safe)}")
        _print_next(made, path)


def _protection(encrypt: str | None, sign: str | None) -> dict[str, Any]:
    """The arguments of `Package.save`; the keys are read, so that a wrong one is told at once."""
    from intaglio.package.keys import Key
    from intaglio.package.signing import private_key_of

    key = key_options.required_key() if encrypt else key_options.given_keys().get("key")
    if key and not encrypt:
        raise BadInput("a key is given without --encrypt; add --encrypt LEVEL, or leave it out")
    if key:
        with Key(key).revealed():
            pass
    return {"encrypt": encrypt, "key": key, "sign": private_key_of(sign) if sign else None}


def _facts(made: Compiled, path: Path, seconds: float) -> dict[str, Any]:
    """The facts of --json."""
    from intaglio.analysis import summary

    return {
        "package": str(path),
        "bytes": path.stat().st_size,
        "seconds": seconds,
        "target": made.package.meta["target"],
        "isa": made.package.isa,
        "simulated": runs_on.chip_of(made.package) is not None,
        **summary.of_plan(made.plan),
        "pruned": made.pruned.to_dict() if made.pruned else None,
        "partition": made.partition.to_dict() if made.partition else None,
        "tuned": asdict(made.tuned) if made.tuned else None,
        "choices": [d.to_dict() for d in made.decisions],
    }


def _print(made: Compiled, path: Path, seconds: float, explain: bool) -> None:
    from intaglio.analysis import choices

    size = path.stat().st_size / 1e6
    fitted.echo(f"{path}: {size:.2f} MB, {made.package.steps} steps, compiled in {seconds:.2f} s")
    fitted.echo(runs_on.words(made.package))
    if made.pruned:
        fitted.echo(f"pruned: {made.pruned}")
    if made.partition:
        fitted.echo(str(made.partition))
    if made.tuned:
        changed = sum(d.choice != d.estimate for d in made.decisions)
        fitted.echo(f"tuned: {made.tuned}; {changed} of {len(made.decisions)} choices changed")
    if explain:
        fitted.echo(choices.table([d.to_dict() for d in made.decisions]))


def _print_next(made: Compiled, path: Path) -> None:
    next_command = "perf" if runs_on.chip_of(made.package) else "bench"
    if made.package.vendor_files():
        next_command = "run"
    fitted.echo(f"next: intaglio {next_command} {path}{key_options.as_typed()}")
