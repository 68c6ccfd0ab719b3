"""`intaglio run`: run a model on arrays from files."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from intaglio.cli import model_files, options
from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Array

if TYPE_CHECKING:
    from intaglio.session import Session


@click.command("run", cls=options.ModelCommand)
@click.argument("model", type=click.Path())
@click.argument("arrays", nargs=-1)
@click.option(
    "--fill", type=click.Choice(["random", "zeros"]), help="Values for inputs that are not given."
)
@click.option("--seed", default=0, show_default=True, help="Seed of --fill random.")
@click.option("-o", "out", type=click.Path(), help="Write the outputs to this .npz file.")
@click.option("--top", default=0, metavar="K", help="Print the K largest entries of each output.")
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
@click.option("--json", "as_json", is_flag=True, help="Print the outputs as JSON.")
@options.model_options
def command(
    model: str,
    arrays: tuple[str, ...],
    fill: str | None,
    seed: int,
    out: str | None,
    top: int,
    threads: int | None,
    steps: int | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Run MODEL on ARRAYS. A model file is compiled first.

    ARRAYS are NAME=FILE.npy, or FILE.npy for a single input, or an .npz file with all inputs.

    \b
    intaglio run model.itg image.npy --top 5
    intaglio run model.itg left=l.npy right=r.npy -o outputs.npz
    intaglio run model.onnx --fill random
    intaglio run keywords.tflite frames.npy --steps 50 -o scores.npz
    """
    with model_files.open_model(model, threads, model_options) as session:
        feeds = options.read_feeds(arrays, session.inputs, fill, seed)
        outputs = _several(session, feeds, steps) if steps else session.run(feeds)
    if out:
        _save(out, outputs)
    if as_json:
        click.echo(json.dumps({k: _plain(v) for k, v in outputs.items()}))
        return
    for name, a in outputs.items():
        click.echo(f"{name}: {a.dtype}{list(a.shape)} {_summary(a)}")
        for i in _largest(a, top):
            click.echo(f"  {np.unravel_index(i, a.shape)!s:>12}  {a.flat[i]:.6g}")
    if out:
        click.echo(f"wrote {out}")


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
    made = [session.run({**feeds, **{n: a[i] for n, a in frames.items()}}) for i in range(steps)]
    try:
        return {n: np.stack([m[n] for m in made]) for n in made[0]}
    except ValueError:
        raise BadInput(
            "the outputs of the runs differ in shape; --steps cannot stack them"
        ) from None


def _save(path: str, outputs: dict[str, Array]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)  # type: ignore[arg-type]  # numpy's stub takes a name for allow_pickle
    write_atomically(path, buffer.getvalue())


def _plain(a: Array) -> Any:
    return a.astype(np.float64).tolist() if a.dtype.kind not in "biu" else a.tolist()


def _summary(a: Array) -> str:
    if not a.size:
        return "(empty)"
    x = a.astype(np.float64)
    if a.size <= 8:
        return np.array2string(x.ravel(), precision=5)
    return f"min {x.min():.5g}, mean {x.mean():.5g}, max {x.max():.5g}"


def _largest(a: Array, k: int) -> Any:
    return np.argsort(-a.astype(np.float64), axis=None, kind="stable")[:k]
