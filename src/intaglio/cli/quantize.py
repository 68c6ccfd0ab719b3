"""`intaglio quantize`: read a float model and samples, write a model that computes in integers."""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.cli.chip_names import TARGET
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from intaglio.ir import Graph
    from intaglio.quant import Options, Quantized
    from intaglio.quant.search.strategies import Automatic


GROUPS = {  # of --help
    "Samples": "--data --bgr --resize --limit --seed",
    "Method": "--mode --method --accuracy --rounding --equalize --smooth --auto --fast --resume",
    "Types": "--target --weights --activations --symmetric --per --weight-zeros "
    "--integer-results --floats --group",
    "Scheme": "--scheme --strict --export-scheme",
    "Output": "-o --check --layers --report --json --quiet",
}


@click.command("quantize", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "out",
    type=click.Path(),
    help="Output file: .itg to run, .onnx (QDQ) for other tools [default: MODEL_int8.itg].",
)
@click.option(
    "--data",
    metavar="PATH",
    help="Samples: a folder of pictures or arrays, a text list, a .npy or .npz file.",
)
@click.option(
    "--bgr", is_flag=True, help="The model takes BGR pictures; --mean and --std are in that order."
)
@click.option(
    "--resize",
    default="stretch",
    show_default=True,
    type=click.Choice(["stretch", "letterbox", "crop"]),
    help="How pictures are resized. crop: short side to 1/0.875 of the size, then the centre.",
)
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help="Number of samples, evenly spread over all [default: at most 100, fewer if the "
    "ranges settle].",
)
@click.option("--seed", default=0, show_default=True, help="Chooses the samples if there are more.")
@click.option(
    "--method",
    metavar="NAME",
    help="Range method: minmax, moving, percentile (percentile:99.9), kl, mse, or auto: the "
    "one with the least output error [default: auto].",
)
@click.option(
    "--accuracy",
    metavar="cosine=C",
    help="Cosine to the float model that every part of every output keeps; layers that stand "
    "in the way stay in floats; none: no limit [default: cosine=0.995].",
)
@click.option(
    "--rounding",
    type=click.Choice(["auto", "nearest", "squant", "data"]),
    help="Rounding of weights; auto: squant, or fitted to the samples where that matters "
    "[default: auto].",
)
@click.option("--equalize", is_flag=True, help="Cross-layer equalisation between convolutions.")
@click.option(
    "--smooth",
    is_flag=True,
    help="Move outlier channels after norms into the weights (SmoothQuant).",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Quantise in less time: at most 32 samples, a shorter search (settings are tried on 8 "
    "samples; one range method for all tensors; weights are not fitted to the samples), and no "
    "comparison with the float model unless --check is given.",
)
@click.option(
    "--resume",
    type=click.Path(),
    metavar="FILE.json",
    help="Save trials there; an interrupted search continues from it.",
)
@click.option(
    "--auto", is_flag=True, help="Try several strategies, keep the best and print a table."
)
@click.option(
    "--mode",
    default="static",
    show_default=True,
    type=click.Choice(["static", "dynamic", "weights"]),
    help="dynamic: matrix products in int8, activations quantised at run time; weights: only "
    "the weights are integers. Neither needs --data.",
)
@click.option(
    "--weights",
    metavar="TYPE",
    help="Type of weights: int8, uint8, int4, uint4 or, with int16 activations, int16 "
    "[default: int8].",
)
@click.option(
    "--activations",
    metavar="TYPE",
    help="Type of activations: int8, uint8 or int16 [default: the target's choice].",
)
@click.option(
    "--symmetric/--asymmetric",
    default=None,
    help="Activations without or with zero points [default: with, if of 8 bits].",
)
@click.option(
    "--per",
    type=click.Choice(["channel", "tensor"]),
    help="Weights that share a scale: an output channel or the whole tensor [default: channel].",
)
@click.option("--weight-zeros", is_flag=True, help="Weights have zero points too.")
@click.option(
    "--integer-results",
    is_flag=True,
    help="Results of the model are integers, too, as files of chips need them.",
)
@click.option(
    "--floats",
    metavar="TYPE",
    help="Type of layers that are not quantised: f32, f16 or bf16 [default: f32].",
)
@click.option(
    "--group",
    type=int,
    metavar="N",
    help="--mode weights: number of weights that share a scale; 0: a whole column "
    "[default: 32 for 4 bits, else 0].",
)
@click.option(
    "--scheme",
    type=click.Path(),
    metavar="FILE.yaml",
    help="Types, ranges and precisions that you fix: docs/quantization.md",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Names in --scheme that the model lacks are errors, not warnings.",
)
@click.option(
    "--export-scheme",
    type=click.Path(),
    metavar="FILE.yaml",
    help="Write every type, range, scale and precision to a file that you can edit.",
)
@click.option(
    "--target", type=TARGET, default="cpu", show_default=True, help="CPU or chip to quantise for."
)
@click.option(
    "--check/--no-check",
    default=None,
    help="Compare accuracy, layer by layer, and speed with the float model "
    "[default: yes, unless --fast].",
)
@click.option(
    "--layers", "every_layer", is_flag=True, help="Print every layer, not only the worst ten."
)
@click.option(
    "--report",
    type=click.Path(),
    metavar="FILE",
    help="Write the report: .html for a browser, .json as data.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and warnings.")
@options.model_options
def command(
    model: str,
    out: str | None,
    data: str | None,
    auto: bool,
    export_scheme: str | None,
    check: bool | None,
    every_layer: bool,
    report: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Quantise MODEL to integers.

    Give 20 to 200 samples like the real inputs, prepared as in training.

    \b
    intaglio quantize model.onnx --data images/ --std 255
    intaglio quantize m.onnx --data images/ --mean 124,116,104 --std 58,57,57
    intaglio quantize yolo.onnx --data frames/ --std 255 --resize letterbox
    intaglio quantize m.onnx --data images/ --std 255 --input-type uint8
    intaglio quantize m.onnx --data samples.npz -o qdq.onnx    for other tools
    intaglio quantize m.onnx --data x.npz --accuracy cosine=0.999    stricter
    intaglio quantize bert.onnx --mode dynamic                 needs no samples
    intaglio quantize gpt.onnx --mode weights --weights int4 --group 64
    intaglio quantize m.onnx --data x.npz --export-scheme s.yaml    write choices
    intaglio quantize m.onnx --data x.npz --scheme s.yaml      read them, edited
    """
    from intaglio.analysis import quantized
    from intaglio.analysis.page import page

    path = Path(out) if out else Path(model).parent / f"{Path(model).stem}_int8.itg"
    mode = given["mode"]
    _refuse_paths(model, path, mode, report)
    for flag, wanted in (("--export-scheme", export_scheme), ("--auto", auto)):
        if wanted and mode != "static":
            raise BadInput(f"{flag} has no meaning in --mode {mode}; leave it out")
    refuse_unwritable(path, report, export_scheme, given["resume"])
    how, load = _options(given)
    warned: list[str] = []
    start = time.perf_counter()
    with progress_line.shown():
        result, tried = _quantized(model, data, auto, how, warned.append, load)
        with progress.inside(f"writing {path}"):
            _write(result.graph, path, str(how.target))
        facts = {"model": model, "mode": mode, **_facts(result, tried, how)}
        if check or (check is None and not how.fast):
            with progress.inside("comparing with the float model"):
                facts |= quantized.check(result, str(how.target), progress.report)
    if export_scheme:
        result.scheme.save(export_scheme)
    facts |= {"output": str(path), "seconds": time.perf_counter() - start}
    facts = _plain(facts)
    for words in dict.fromkeys(warned):
        warnings.warn(words, stacklevel=1)
    if report:
        html = Path(report).suffix == ".html"
        write_atomically(report, (page(facts) if html else _json(facts)).encode())
    if as_json:
        click.echo(_json(facts))
    elif not quiet:
        _print(facts, tried, path, every_layer, [f for f in (export_scheme, report) if f])


def _refuse_paths(model: str, path: Path, mode: str, report: str | None) -> None:
    """BadInput if a file to write has a wrong ending, or is the model itself."""
    if path.suffix not in (".itg", ".onnx"):
        raise BadInput(f"-o {path}: the ending says what to write; it is .itg or .onnx")
    if mode == "dynamic" and path.suffix == ".onnx":
        raise BadInput(
            f"-o {path}: ONNX cannot express dynamic int8 as we compute it; "
            "write an .itg, or use --mode weights"
        )
    if report and Path(report).suffix not in (".html", ".json"):
        raise BadInput(f"--report {report}: the ending says what to write; it is .html or .json")
    if Path(model).exists() and path.exists() and path.samefile(model):
        raise BadInput(f"-o {path} is the model itself; give another name")


def _options(given: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
    """The options of quantisation, and the keywords of `intaglio.load`, from the flags."""
    from intaglio.quant import Options

    own = {f.name: given.pop(f.name) for f in fields(Options) if f.name in given}
    own["color"] = "bgr" if given.pop("bgr") else "rgb"
    accuracy = own.pop("accuracy")
    own = {name: value for name, value in own.items() if value is not None}
    if accuracy is not None:
        own["accuracy"] = _cosine(accuracy)
    return Options(**own), options.load_arguments(**given)


def _quantized(
    model: str,
    data: str | None,
    auto: bool,
    how: Options,
    warn: Callable[[str], None],
    load: dict[str, Any],
) -> tuple[Quantized, Automatic | None]:
    """The quantised model and, with --auto, the strategies that were tried."""
    from intaglio.quant import auto as search_strategies
    from intaglio.quant import calibrate

    if auto:
        tried = search_strategies(model, data, options=how, warn=warn, **load)
        return tried.best, tried
    return calibrate(model, data, options=how, warn=warn, **load), None


def _write(graph: Graph, path: Path, target: str) -> None:
    import intaglio

    if path.suffix == ".onnx":
        intaglio.save_onnx(graph, path)
    else:
        intaglio.compile(graph, target=target).save(path)


def _facts(made: Quantized, tried: Automatic | None, how: Options) -> dict[str, Any]:
    """The facts of the report, without the comparison with the float model."""
    from intaglio.analysis import quantized

    facts = quantized.facts(made, how.target)
    if made.dataset is not None:
        facts["samples"] = made.samples or len(made.dataset)
    if how.mode == "static":
        facts |= {"method": how.method, "goal": how.accuracy}
    return facts | (tried.to_dict() if tried else {})


def _print(
    facts: dict[str, Any],
    tried: Automatic | None,
    path: Path,
    every_layer: bool,
    written: Sequence[str],
) -> None:
    from rich.console import Console

    from intaglio.analysis import quantized

    size = path.stat().st_size / 1e6
    took = f" from {facts['samples']} samples" if "samples" in facts else ""
    if tried:
        Console().print(tried)
    fitted.echo(quantized.text(facts, every_layer))
    fitted.echo(f"{path}: {size:.2f} MB,{took} in {facts['seconds']:.1f} s")
    for name in written:
        fitted.echo(f"{name}: written")
    if path.suffix == ".itg":
        fitted.echo(f"next: intaglio bench {path}")


def _cosine(words: str) -> float | None:
    """The cosine that `--accuracy` gives; None for `none`."""
    if words == "none":
        return None
    with contextlib.suppress(ValueError):
        cosine = float(words.removeprefix("cosine="))
        if 0 < cosine < 1:
            return cosine
    raise BadInput(
        f"--accuracy {words}: give a cosine between 0 and 1, such as cosine=0.995, or none"
    )


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=1)


def _plain(content: Any) -> Any:
    """The data with None for NaN and infinity, which JSON lacks."""
    if isinstance(content, dict):
        return {k: _plain(v) for k, v in content.items()}
    if isinstance(content, list):
        return [_plain(v) for v in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
