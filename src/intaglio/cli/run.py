"""`intaglio run`: run a model on arrays from files, or on pictures."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from intaglio.cli import key_options, model_files, options, run_pictures, vendor_files
from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Array

if TYPE_CHECKING:
    from intaglio.session import Session

SHORT = 8  # elements of an output that are all printed
GROUPS = {  # of --help
    "Pictures": "--labels --draw --decode --confidence --iou --frames --resize --bgr",
    "Arrays": "--fill --seed --steps",
    "Output": "-o --top --json",
    **key_options.GROUP,
}


@click.command("run", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.argument("sources", metavar="[INPUTS]...", nargs=-1)
@click.option(
    "--fill", type=click.Choice(["random", "zeros"]), help="Values for inputs that are not given."
)
@click.option("--seed", default=0, show_default=True, help="Seed of --fill random.")
@click.option("-o", "out", type=click.Path(), help="Write the outputs to this .npz file.")
@click.option(
    "--top",
    type=click.IntRange(0),
    metavar="K",
    help="Print the K best classes with their names, or the K largest entries of each output "
    "[default: 5 for pictures].",
)
@run_pictures.picture_options
@click.option(
    "--threads",
    default=None,
    type=click.IntRange(1, 256),
    help="Number of threads [default: all CPUs]",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    metavar="N",
    help="Run N times and carry the state along. An array with one more axis than its input holds "
    "one frame per run.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the outputs as JSON; for pictures one object on each line.",
)
@key_options.package_options
@options.model_options
def command(
    model: str,
    sources: tuple[str, ...],
    fill: str | None,
    seed: int,
    out: str | None,
    top: int | None,
    threads: int | None,
    steps: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run MODEL on INPUTS. A model file is compiled first.

    INPUTS are pictures, or arrays: NAME=FILE.npy, FILE.npy for a single input, or an .npz file with
    all inputs. Pictures are files, folders, patterns ('frames/*.png'), videos or the index of a
    camera. They are prepared as the package says, where `quantize` and `compile` keep it.

    \b
    intaglio run model.itg picture.jpg --labels names.txt --draw out.png
    intaglio run model.itg frames/ --draw drawn/ --json
    intaglio run yolo.onnx a.jpg --std 255 --resize letterbox --draw out.png
    intaglio run model.itg 0 --frames 100 --draw drawn/      camera 0
    intaglio run model.itg image.npy --top 5
    intaglio run model.itg left=l.npy right=r.npy -o outputs.npz
    intaglio run model.onnx --fill random
    intaglio run keywords.tflite frames.npy --steps 50 -o scores.npz
    """
    asked, model_options = run_pictures.split_options(given)
    if vendor := vendor_files.find(model):
        if steps or run_pictures.are_pictures(sources):
            reads = f"a {vendor.name}, which reads arrays of {vendor.reads}"
            raise BadInput(f"{model} is {reads}: give FILE.npy")
        labels = run_pictures.refuse_for_arrays(asked)
        outputs, types = vendor.functions().run(model, sources, fill, seed)
        _show(outputs, types, out, top, labels, as_json)
        return
    if run_pictures.are_pictures(sources):
        if fill or steps:
            flag = "--fill" if fill else "--steps"
            raise BadInput(f"{flag} is for arrays; leave it out with pictures")
        run_pictures.run(model, sources, asked, model_options, threads, top, out, as_json)
        return
    labels = run_pictures.refuse_for_arrays(asked)
    loaded = {**model_options, **run_pictures.load_options(asked)}
    with model_files.open_model(model, threads, loaded) as session:
        sizes = model_files.run_sizes(model_options)
        feeds = options.read_feeds(sources, session.inputs, fill, seed, sizes)
        outputs = _several(session, feeds, steps) if steps else session.run(feeds)
        types = session.outputs
        labels = labels or run_pictures.model_labels(session)
    _show(outputs, types, out, top, labels, as_json)


def _show(
    outputs: dict[str, Array],
    types: Any,
    out: str | None,
    top: int | None,
    labels: list[str] | None,
    as_json: bool,
) -> None:
    """Write and print the outputs."""
    if out:
        save_outputs(out, outputs)
    if as_json:
        click.echo(json.dumps({k: _plain(v) for k, v in outputs.items()}))
        return
    print_outputs(outputs, types, top or 0, labels)
    if out:
        click.echo(f"wrote {out}")


def print_outputs(
    outputs: dict[str, Array], types: Any, top: int, labels: list[str] | None
) -> None:
    """A line for each output, and its best classes or largest entries."""
    from intaglio.vision.predict import real_numbers
    from intaglio.vision.prediction import top_classes
    from intaglio.vision.recognize import is_classifier

    lone = len(outputs) == 1
    for name, a in outputs.items():
        click.echo(f"{name}: {a.dtype}{list(a.shape)} {_summary(a)}")
        if top and lone and is_classifier(a.shape):
            classes, kind = top_classes(real_numbers(a, types[name]), top, labels)
            click.echo(f"  top {len(classes)} ({kind})")
            for c in classes:
                click.echo(f"  {c.name:16} {c.score:.6f}")
            continue
        for i in np.argsort(-a.astype(np.float64), axis=None, kind="stable")[:top]:
            place = ",".join(str(int(n)) for n in np.unravel_index(i, a.shape))
            click.echo(f"  [{place}]  {a.flat[i]:.6g}")


def _several(session: Session, feeds: dict[str, Array], steps: int) -> dict[str, Array]:
    """The stacked outputs of `steps` runs; arrays with one more axis hold a frame per run."""
    frames = {
        n: a
        for n, a in feeds.items()
        if n in session.inputs and a.ndim == session.inputs[n].rank + 1
    }
    for name, a in frames.items():
        if len(a) < steps:
            raise BadInput(f"input '{name}' has {len(a)} frames; --steps {steps} needs {steps}")
    results = [session.run({**feeds, **{n: a[i] for n, a in frames.items()}}) for i in range(steps)]
    try:
        return {n: np.stack([m[n] for m in results]) for n in results[0]}
    except ValueError:
        raise BadInput(
            "the outputs of the runs differ in shape; --steps cannot stack them"
        ) from None


def save_outputs(path: str, outputs: dict[str, Array]) -> None:
    """Write outputs to an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)  # type: ignore[arg-type]  # numpy's stub takes a name for allow_pickle
    write_atomically(path, buffer.getvalue())


def _plain(a: Array) -> Any:
    return a.astype(np.float64).tolist() if a.dtype.kind not in "biu" else a.tolist()


def _summary(a: Array) -> str:
    if not a.size:
        return "(empty)"
    x = a.astype(np.float64)
    if a.size <= SHORT:
        return " ".join(f"{n:.5g}" for n in x.ravel())
    return f"min {x.min():.5g}, mean {x.mean():.5g}, max {x.max():.5g}"
