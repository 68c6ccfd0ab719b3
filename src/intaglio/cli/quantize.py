"""`intaglio quantize`: a float model and samples in, a model that computes in integers out."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio.cli import options
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from intaglio.quant.ranges.observe import Progress


@click.command("quantize")
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "out",
    type=click.Path(),
    help="What to write: .itg to run, .onnx for others [default: MODEL_int8.itg].",
)
@click.option(
    "--data",
    metavar="PATH",
    help="Samples: a folder of pictures or arrays, a list, a .npy or .npz file.",
)
@click.option("--bgr", is_flag=True, help="The model takes blue first; so do --mean and --std.")
@click.option(
    "--resize",
    default="stretch",
    show_default=True,
    type=click.Choice(["stretch", "letterbox", "crop"]),
    help="crop: short side to 1/0.875 of the size, then the centre.",
)
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help="Samples to use, spread over all there are [default: as many of 100 as it "
    "takes for ranges to settle].",
)
@click.option("--seed", default=0, show_default=True, help="Which samples, where there are more.")
@click.option(
    "--method",
    metavar="NAME",
    help="How a range follows from what is seen: minmax, "
    "moving, percentile (percentile:99.9), kl, mse, or auto: what errs least "
    "[default: auto].",
)
@click.option(
    "--accuracy",
    metavar="cosine=C",
    help="What every part of every output is to keep; "
    "layers that stand in the way stay in floats; none: nothing "
    "[default: cosine=0.995].",
)
@click.option(
    "--rounding",
    type=click.Choice(["auto", "nearest", "squant", "data"]),
    help="Of weights: together without data (squant), or by it where that matters [default: auto].",
)
@click.option("--equalize", is_flag=True, help="Share out channels' sizes between convolutions.")
@click.option("--smooth", is_flag=True, help="Move outlier channels after norms into weights.")
@click.option(
    "--resume",
    type=click.Path(),
    metavar="FILE.json",
    help="Keep what was tried there, and go on from it.",
)
@click.option(
    "--auto",
    "try_all",
    is_flag=True,
    help="Try strategies, keep the best and print a table of them.",
)
@click.option(
    "--mode",
    default="static",
    show_default=True,
    type=click.Choice(["static", "dynamic", "weights"]),
    help="dynamic: matrix products in int8, rows quantised as they come; weights: only "
    "the weights are integers. Neither needs --data.",
)
@click.option(
    "--weights",
    metavar="TYPE",
    help="What weights are stored in: int8, uint8, int4, "
    "uint4 or, with int16 tensors, int16 [default: int8].",
)
@click.option(
    "--activations",
    metavar="TYPE",
    help="What tensors are stored in: int8, uint8 or int16 [default: what the target is best at].",
)
@click.option(
    "--symmetric/--asymmetric",
    default=None,
    help="Tensors without or with zero points [default: with, if 8 bits].",
)
@click.option(
    "--per",
    type=click.Choice(["channel", "tensor"]),
    help="What of a weight shares a scale [default: channel].",
)
@click.option("--weight-zeros", is_flag=True, help="Weights have zero points too.")
@click.option(
    "--floats",
    metavar="TYPE",
    help="What layers compute in that are not quantised: f32, f16 or bf16 [default: f32].",
)
@click.option(
    "--group",
    type=int,
    metavar="N",
    help="Weights in mode weights that share a scale, "
    "0 for a whole column [default: 32 of 4 bits, else 0].",
)
@click.option(
    "--scheme",
    type=click.Path(),
    metavar="FILE.yaml",
    help="Types, ranges and precisions that you want: docs/quantization.md",
)
@click.option("--strict", is_flag=True, help="Names in --scheme that the model lacks are errors.")
@click.option(
    "--export-scheme",
    type=click.Path(),
    metavar="FILE.yaml",
    help="Write every type, range, scale and precision, to read or edit.",
)
@click.option("--target", default="cpu", show_default=True, help="Chip that it is for.")
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Compare with the float model: accuracy layer by layer, and speed on this machine.",
)
@click.option("--layers", is_flag=True, help="Print every layer, not only the worst ten.")
@click.option(
    "--report",
    type=click.Path(),
    metavar="FILE",
    help="Write the report there: .html to look at, .json as data.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and warnings.")
@options.model_options
def command(
    model: str,
    out: str | None,
    data: str | None,
    bgr: bool,
    limit: int | None,
    method: str | None,
    mode: str,
    weights: str | None,
    group: int | None,
    scheme: str | None,
    strict: bool,
    export_scheme: str | None,
    target: str,
    check: bool,
    layers: bool,
    report: str | None,
    as_json: bool,
    quiet: bool,
    accuracy: str | None,
    rounding: str | None,
    equalize: bool,
    smooth: bool,
    resume: str | None,
    try_all: bool,
    activations: str | None,
    symmetric: bool | None,
    per: str | None,
    weight_zeros: bool,
    floats: str | None,
    resize: str,
    seed: int,
    **rest: Any,
) -> None:
    """Quantise MODEL: compute in integers what it computes in floats.

    Give samples like those that it will see, 20 to 200 of them, prepared as it was trained.

    \b
    intaglio quantize model.onnx --data images/ --mean 123.675,116.28,103.53 --std 58.4,57.1,57.4
    intaglio quantize yolo.onnx --data frames/ --std 255 --resize letterbox -o yolo.itg
    intaglio quantize model.onnx --data images/ --std 255 --input-type uint8    bytes in
    intaglio quantize model.onnx --data samples.npz -o model_qdq.onnx     for other tools
    intaglio quantize model.onnx --data images/ --std 255 --accuracy cosine=0.995    what it takes
    intaglio quantize bert.onnx --mode dynamic                            no samples needed
    intaglio quantize gpt.onnx --mode weights --weights int4 --group 64
    intaglio quantize model.onnx --data list.txt --export-scheme s.yaml   what was chosen
    intaglio quantize model.onnx --data list.txt --scheme s.yaml          after you edited it
    """
    from rich.console import Console

    import intaglio
    from intaglio.analysis import quantized
    from intaglio.analysis.page import page
    from intaglio.frontends.preprocess import OPTIONS, preprocess
    from intaglio.quant.options import Options
    from intaglio.quant.pipeline import calibrate
    from intaglio.quant.placement.scheme import Scheme
    from intaglio.quant.prepare import embedded_preprocessing
    from intaglio.quant.samples.dataset import samples
    from intaglio.quant.samples.streaming import given_inputs
    from intaglio.quant.search.strategies import Automatic, auto
    from intaglio.quant.weight_only.datafree import without_data

    path = Path(out) if out else Path(model).with_name(f"{Path(model).stem}_int8.itg")
    if path.suffix not in (".itg", ".onnx"):
        raise BadInput(f"-o {path}: the ending says what to write; it is .itg or .onnx")
    if mode == "dynamic" and path.suffix == ".onnx":
        raise BadInput(
            f"-o {path}: ONNX has no form of rows that are quantised as they come; "
            "write an .itg, or use --mode weights"
        )
    if report and Path(report).suffix not in (".html", ".json"):
        raise BadInput(f"--report {report}: the ending says what to write; it is .html or .json")
    if data == "":
        raise BadInput("--data is empty; give a folder, a list, .npy or .npz")
    if Path(model).exists() and path.exists() and path.samefile(model):
        raise BadInput(f"-o {path} is the model itself; give another name")
    refuse_unwritable(path, report, export_scheme, resume)
    if strict and not scheme:
        raise BadInput("--strict is for --scheme, which is not given")
    static = mode == "static"
    if data is None and static:
        raise BadInput(
            "--data is missing: quantising needs samples like those that the model "
            "will see; give a folder of pictures, a list, .npy or .npz"
        )
    for option, given, wrong in (
        ("--method", method, not static),
        ("--export-scheme", export_scheme, not static),
        ("--accuracy", accuracy, not static),
        ("--rounding", rounding, not static),
        ("--resume", resume, not static),
        ("--auto", try_all or None, not static),
        ("--equalize", equalize or None, not static),
        ("--smooth", smooth or None, not static),
        ("--group", group, mode != "weights"),
        ("--activations", activations, not static),
        ("--symmetric", symmetric, not static),
        ("--per", per, not static),
        ("--weight-zeros", weight_zeros or None, not static),
        ("--floats", floats, not static),
    ):
        if given is not None and wrong:
            why = ": layers of integers add up products of one scale; use --mode weights"
            hint = why if option == "--group" else "; leave it out"
            raise BadInput(f"{option} has no meaning in --mode {mode}{hint}")
    asked: dict[str, Any] = {
        "method": method,
        "weights": weights,
        "rounding": rounding,
        "equalize": equalize,
        "smooth": smooth,
        "resume": resume,
        "activations": activations,
        "symmetric": symmetric,
        "per": per,
        "weight_zeros": weight_zeros,
        "floats": floats,
    }
    if accuracy is not None:
        asked["accuracy"] = _cosine(accuracy)
    kept = {k: v for k, v in asked.items() if v is not None or k == "accuracy"}
    how = Options(**kept) if static else None
    wishes = Scheme.load(scheme, strict) if scheme else None
    camera: dict[str, Any] = {k: rest.pop(k) for k in OPTIONS}
    pixels = {k: camera[k] for k in ("mean", "std", "layout", "pad_value")}
    pictures = embedded_preprocessing(
        options.picture_arguments(camera), camera["mean"], camera["std"]
    )
    warned: list[str] = []
    start = time.perf_counter()
    with _progress(quiet or as_json) as progress:
        progress("reading the model", 0, None)
        graph = intaglio.load(model, **options.load_arguments(**rest))
        preprocess(graph.copy(), **pictures)  # says what is wrong with it before the long work
        found = (
            None
            if data is None
            else samples(
                data,
                given_inputs(graph),
                color="bgr" if bgr else "rgb",
                resize=resize,
                seed=seed,
                limit=limit,
                warn=warned.append,
                **pixels,
            )
        )
        common: dict[str, Any] = {"target": target, "scheme": wishes, "warn": warned.append}
        tried: Automatic | None = None
        if how is not None and try_all:
            tried = auto(graph, found, options=how, progress=progress, **common)
            made = tried.best
        elif how is not None:
            made = calibrate(graph, found, options=how, progress=progress, **common)
        else:
            made = without_data(
                graph, mode, weights=weights or "int8", group=group, data=found, **common
            )
        facts: dict[str, Any] = {"model": model, "mode": mode, **quantized.facts(made, target)}
        facts |= {"samples": made.samples or len(found)} if found is not None else {}
        facts |= {"method": how.method, "goal": how.accuracy} if how is not None else {}
        facts |= tried.to_dict() if tried else {}
        progress(f"writing {path}", 0, None)
        result = made.graph
        if pictures:
            result = made.graph.copy()
            preprocess(result, **pictures)
        if path.suffix == ".onnx":
            intaglio.save_onnx(result, path)
        else:
            intaglio.compile(result, target=target).save(path)
        if check:
            facts |= quantized.check(made, found, target, progress)
    if export_scheme:
        made.scheme.save(export_scheme)
    facts |= {"output": str(path), "seconds": time.perf_counter() - start}
    facts = _plain(facts)
    plain = json.dumps(facts, indent=1)
    for words in dict.fromkeys(warned):
        click.echo(f"intaglio: warning: {words}", err=True)
    if report:
        text = page(facts) if Path(report).suffix == ".html" else plain
        write_atomically(report, text.encode())
    if as_json:
        click.echo(plain)
    elif not quiet:
        size = path.stat().st_size / 1e6
        took = f" from {facts['samples']} samples" if found is not None else ""
        if tried:
            Console().print(tried)
        click.echo(quantized.text(facts, layers))
        click.echo(f"{path}: {size:.2f} MB,{took} in {facts['seconds']:.1f} s")
        for written in (export_scheme, report):
            if written:
                click.echo(f"{written}: written")
        if path.suffix == ".itg":
            click.echo(f"next: intaglio bench {path}")


def _cosine(words: str) -> float | None:
    """What `--accuracy` asks for."""
    if words == "none":
        return None
    try:
        return float(words.removeprefix("cosine="))
    except ValueError:
        raise BadInput(f"--accuracy {words}: give cosine=0.995, say, or none") from None


@contextmanager
def _progress(hidden: bool) -> Iterator[Progress]:
    """A bar on the terminal that follows (words, done, total)."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    hidden = hidden or not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        yield lambda words, done, total: bar.update(
            task, description=words, completed=done, total=total
        )


def _plain(content: Any) -> Any:
    """With null for what is not finite, which JSON has no number for."""
    if isinstance(content, dict):
        return {k: _plain(v) for k, v in content.items()}
    if isinstance(content, list):
        return [_plain(v) for v in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
