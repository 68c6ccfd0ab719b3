"""`intaglio quantize`: a float model and samples in, a model that computes in integers out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio.cli import options
from intaglio.errors import BadInput
from intaglio.files import write_atomically

if TYPE_CHECKING:
    from intaglio.ir import Array, Graph
    from intaglio.quant.data import Samples
    from intaglio.quant.observe import Progress
    from intaglio.quant.quantize import Quantized

COMPARED = 8  # samples that the float and the quantised model are compared on
WORST = 10  # layers that are shown
SECONDS = 0.5  # for which the two take turns


def _numbers(option: str) -> Any:
    """A parser of `1,2,3` for all inputs, or NAME=1,2,3 for each of several."""

    def read(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Any:
        named: dict[str, list[float]] = {}
        for text in given:
            name, _, numbers = text.rpartition("=")
            try:
                found = [float(n) for n in numbers.split(",")]
            except ValueError:
                raise BadInput(f"{option} takes numbers such as 1,2,3, not {numbers!r}") from None
            if not name and len(given) == 1:
                return found
            if not name:
                raise BadInput(f"{option} is given {len(given)} times; say NAME=1,2,3 for each")
            named[name] = found
        return named or None

    return read


@click.command("quantize")
@click.argument("model", type=click.Path())
@click.option("-o", "out", type=click.Path(), help="What to write: .itg to run, .onnx for others "
              "[default: MODEL_int8.itg].")  # fmt: skip
@click.option(
    "--data",
    metavar="PATH",
    help="Samples: a folder of pictures or arrays, a list, a .npy or .npz file.",
)
@click.option("--mean", multiple=True, callback=_numbers("--mean"), metavar="R,G,B",
              help="Taken off each channel of a picture's pixels (0 to 255).")  # fmt: skip
@click.option("--std", multiple=True, callback=_numbers("--std"), metavar="R,G,B",
              help="What each channel is then divided by.")  # fmt: skip
@click.option("--bgr", is_flag=True, help="The model takes blue first; so do --mean and --std.")
@click.option("--layout", default="auto", show_default=True,
              type=click.Choice(["auto", "nchw", "nhwc"]),
              help="Where the model's input has its channels.")  # fmt: skip
@click.option("--resize", default="stretch", show_default=True,
              type=click.Choice(["stretch", "letterbox", "crop"]),
              help="crop: short side to 1/0.875 of the size, then the centre.")  # fmt: skip
@click.option("--pad", default=114.0, show_default=True, help="Pixels beside a letterbox.")
@click.option("--limit", type=int, metavar="N",
              help="Samples to use, spread over all there are [default: at most 100].")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Which samples, where there are more.")
@click.option("--method", metavar="NAME", help="How a range follows from what is seen: minmax, "
              "moving, percentile, kl, mse [default: mse].")  # fmt: skip
@click.option("--weights", metavar="TYPE", help="What weights are stored in: int8 [default: int8].")
@click.option("--scheme", type=click.Path(), metavar="FILE.yaml",
              help="Types, ranges and precisions that you want: docs/quantization.md")  # fmt: skip
@click.option("--strict", is_flag=True, help="Names in --scheme that the model lacks are errors.")
@click.option("--export-scheme", type=click.Path(), metavar="FILE.yaml",
              help="Write every type, range, scale and precision, to read or edit.")  # fmt: skip
@click.option("--target", default="cpu", show_default=True, help="Chip that it is for.")
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Compare with the float model: accuracy layer by layer, and speed on this machine.",
)
@click.option("--layers", is_flag=True, help="Print every layer, not only the worst ten.")
@click.option("--report", type=click.Path(), metavar="FILE.json", help="Write the report there.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and warnings.")
@options.model_options
def command(model: str, out: str | None, data: str | None, bgr: bool, pad: float, limit: int | None,
            method: str | None, weights: str | None, scheme: str | None, strict: bool,
            export_scheme: str | None, target: str, check: bool, layers: bool, report: str | None,
            as_json: bool, quiet: bool, **rest: Any) -> None:  # fmt: skip
    """Quantise MODEL: compute in integers what it computes in floats.

    Give samples like those that it will see, 20 to 200 of them, prepared as it was trained.

    \b
    intaglio quantize model.onnx --data images/ --mean 123.675,116.28,103.53 --std 58.4,57.1,57.4
    intaglio quantize yolo.onnx --data frames/ --std 255 --resize letterbox -o yolo.itg
    intaglio quantize model.onnx --data samples.npz -o model_qdq.onnx     for other tools
    intaglio quantize model.onnx --data list.txt --export-scheme s.yaml   what was chosen
    intaglio quantize model.onnx --data list.txt --scheme s.yaml          after you edited it
    """
    import intaglio
    from intaglio.quant.data import samples
    from intaglio.quant.quantize import Options, calibrate
    from intaglio.quant.scheme import Scheme

    path = Path(out) if out else Path(model).with_name(f"{Path(model).stem}_int8.itg")
    if path.suffix not in (".itg", ".onnx"):
        raise BadInput(f"-o {path}: the ending says what to write; it is .itg or .onnx")
    if strict and not scheme:
        raise BadInput("--strict is for --scheme, which is not given")
    if data is None:
        raise BadInput("--data is missing: quantising needs samples like those that the model "
                       "will see; give a folder of pictures, a list, .npy or .npz")  # fmt: skip
    asked: dict[str, Any] = {"method": method, "weights": weights}
    how = Options(**{k: v for k, v in asked.items() if v is not None})
    wishes = Scheme.load(scheme, strict) if scheme else None
    pixels = {k: rest.pop(k) for k in ("mean", "std", "layout", "resize", "seed")}
    warned: list[str] = []
    start = time.perf_counter()
    with _progress(quiet or as_json) as progress:
        progress("reading the model", 0, None)
        graph = intaglio.load(model, **options.load_arguments(**rest))
        found = samples(
            data, [(v.name, v.type) for v in graph.inputs], color="bgr" if bgr else "rgb",
            pad_value=pad, limit=limit, warn=warned.append, **pixels,
        )  # fmt: skip
        made = calibrate(graph, found, target=target, options=how, scheme=wishes,
                         progress=progress, warn=warned.append)  # fmt: skip
        facts = {"model": model, "samples": len(found), "method": how.method, **_facts(made)}
        progress(f"writing {path}", 0, None)
        if path.suffix == ".onnx":
            intaglio.save_onnx(made.graph, path)
        else:
            intaglio.compile(made.graph, target=target).save(path)
        if check:
            facts |= _checked(made, found, target, progress)
    if export_scheme:
        made.scheme.save(export_scheme)
    facts |= {"output": str(path), "seconds": time.perf_counter() - start}
    for words in warned:
        click.echo(f"intaglio: warning: {words}", err=True)
    if report:
        write_atomically(report, json.dumps(facts, indent=1).encode())
    if as_json:
        click.echo(json.dumps(facts, indent=1))
    elif not quiet:
        _print(facts, layers)
        for written in (export_scheme, report):
            if written:
                click.echo(f"{written}: written")


@contextmanager
def _progress(hidden: bool) -> Iterator[Progress]:
    """A bar on the terminal that follows (words, done, total)."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.BarColumn(),
        progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )  # fmt: skip
    hidden = hidden or not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        yield lambda words, done, total: bar.update(
            task, description=words, completed=done, total=total
        )


def _facts(made: Quantized) -> dict[str, Any]:
    """What is quantised, and how much smaller it is."""
    from collections import Counter

    from intaglio.analysis import summary

    sizes = [summary.of_graph(g)["parameter_bytes"] for g in (made.float_graph, made.graph)]
    return {
        "layers": dict(Counter(made.scheme.layers.values()).most_common()),
        "floats": made.floats,
        "notes": made.notes,
        "parameter_bytes": sizes,
    }


def _checked(made: Quantized, found: Samples, target: str, progress: Progress) -> dict[str, Any]:
    """How accurate it is, and how fast, beside the float model."""
    from intaglio.analysis import accuracy

    some = found.take(COMPARED)
    compared = accuracy.compare(
        made.float_graph, made.graph, some, observations=made.observations, progress=progress
    )
    facts: dict[str, Any] = {"accuracy": compared.to_dict() | {"samples": len(some)}}
    if target == "cpu":
        progress("measuring the speed", 0, None)
        facts["milliseconds"] = _speed([made.float_graph, made.graph], some[0])
    return facts


def _speed(graphs: Sequence[Graph], sample: dict[str, Array]) -> list[float]:
    """The fastest run of each on one thread; they take turns, so that both meet the same noise."""
    import intaglio

    sessions = [intaglio.open(intaglio.compile(g), threads=1) for g in graphs]
    best = [float("inf")] * len(graphs)
    end = time.perf_counter() + SECONDS
    runs = 0
    while runs < 3 or (runs < 100 and time.perf_counter() < end):
        for i, session in enumerate(sessions):
            start = time.perf_counter()
            session.run(sample)
            best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
        runs += 1
    return best


def _print(facts: dict[str, Any], every_layer: bool) -> None:
    layers = ", ".join(f"{n} {precision}" for precision, n in facts["layers"].items())
    click.echo(f"{'layers':11} {layers}")
    for name, why in facts["floats"].items():
        click.echo(f"{'':11} '{name}' stays in floats: {why}")
    for words in facts["notes"]:
        click.echo(f"{'note':11} {words}")
    if "accuracy" in facts:
        _print_accuracy(facts["accuracy"], every_layer)
    before, after = facts["parameter_bytes"]
    click.echo(f"{'parameters':11} {before / 1e6:.2f} MB -> {after / 1e6:.2f} MB")
    if "milliseconds" in facts:
        before, after = facts["milliseconds"]
        click.echo(f"{'speed':11} {before:.3f} ms -> {after:.3f} ms on one thread of this CPU, "
                   f"{before / after:.2f} times as fast")  # fmt: skip
    path = facts["output"]
    size = Path(path).stat().st_size / 1e6
    click.echo(
        f"{path}: {size:.2f} MB, from {facts['samples']} samples in {facts['seconds']:.1f} s"
    )
    if path.endswith(".itg"):
        click.echo(f"next: intaglio bench {path}")


def _print_accuracy(accuracy: dict[str, Any], every: bool) -> None:
    """A table of layers: as they come out, and each by itself on the float model's inputs."""
    layers = accuracy["layers"]
    shown = layers
    if not every:
        alone = [m for m in layers if "single_error" in m]
        worst = sorted(alone, key=lambda m: -m["single_error"])[:WORST]
        shown = [m for m in layers if m in worst]
    rows = [(m["name"], m["op"], m["cosine"], m["error"], m.get("single_cosine"),
             m.get("single_error")) for m in shown]  # fmt: skip
    rows += [(m["output"], "output", m["cosine"], m["error"], None, None)
             for m in accuracy["outputs"]]  # fmt: skip
    name = max(len(r[0]) for r in rows)
    op = max(len(r[1]) for r in rows)
    what = "every layer" if every else f"the {len(shown)} layers of {len(layers)} that err most"
    click.echo(f"\nbeside the float model on {accuracy['samples']} samples, {what}; "
               "alone: on the float model's own inputs")  # fmt: skip
    click.echo(
        f"{'tensor':{name}}  {'':{op}}  {'cosine':>8} {'error':>8}  {'alone':>8} {'error':>8}"
    )
    for title, kind, *figures in rows:
        a, b, c, d = ("" if f is None else f"{f:.5f}" for f in figures)
        click.echo(f"{title:{name}}  {kind:{op}}  {a:>8} {b:>8}  {c:>8} {d:>8}".rstrip())
    for words in accuracy["warnings"]:
        click.echo(f"{'note':11} {words}")
    click.echo()
