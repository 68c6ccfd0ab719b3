"""`intaglio ui`: the live page of a model, served on this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import fitted, key_options, model_files, options, progress_line, sample_options
from intaglio.cli.chip_names import TARGET

GROUPS = {  # of --help
    "Server": "--host --port --json",
    "Model": "--golden --target --data --samples --seed --bgr --resize",
    "Predictions": "--labels --decode --confidence --iou",
    **key_options.GROUP,
}


@click.command("ui", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", default=8001, show_default=True, help="Port; 0: any free one.")
@sample_options.golden
@click.option("--target", type=TARGET, help="Chip: adds its simulator [default: this CPU].")
@sample_options.samples
@click.option("--labels", type=click.Path(), metavar="FILE", help="Names of the model's classes.")
@click.option(
    "--decode", metavar="NAME", help="How to read a detector's outputs [default: by their shapes]."
)
@click.option("--confidence", type=click.FloatRange(0, 1), help="Least score of a detection.")
@click.option("--iou", type=click.FloatRange(0, 1), help="Overlap of suppression.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
@key_options.package_options
@options.model_options
def command(
    model: str,
    host: str,
    port: int,
    golden: str | None,
    target: str | None,
    labels: str | None,
    decode: str | None,
    confidence: float | None,
    iou: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Serve the report of MODEL as a page on which you can try pictures and precisions.

    Drop a picture: it runs in float, in int8 and in the chip's simulator, side by side. Change the
    precision of a layer: accuracy and time follow. Export the scheme for `intaglio quantize`.

    \b
    intaglio ui model.itg                                 on http://127.0.0.1:8001
    intaglio ui model.itg --golden model.onnx             beside its float model
    intaglio ui model.onnx --data images/ --std 255       precisions by layer
    intaglio ui yolo.onnx --data images/ --std 255 --target rk3588
    intaglio ui model.itg --host 0.0.0.0                  other machines: by token
    """
    from intaglio.ui.server import LivePage, refuse_port
    from intaglio.ui.workbench import Workbench

    refuse_port(host, port)
    read, load = sample_options.arguments(given)
    named = {"labels": labels, "decode": decode, "confidence": confidence, "iou": iou}
    kept = {k: v for k, v in read["reading"].items() if k not in ("layout",)}
    prediction = {k: v for k, v in (named | _pictures(kept)).items() if v is not None}
    with progress_line.shown():
        package = model_files.load_package(model) if model_files.is_package(model) else None
        bench = Workbench(
            model, golden, target=target, prediction=prediction, package=package, **read, **load
        )
        page = LivePage(bench, host, port)
    try:
        with page:
            if as_json:
                click.echo(json.dumps({"url": page.url, "port": page.port}))
            else:
                fitted.echo(str(bench.report))
                click.echo(f"serving {page.url} ; Ctrl-C ends")
            page.wait()
    except KeyboardInterrupt:
        return


def _pictures(reading: dict[str, Any]) -> dict[str, Any]:
    """How pictures become inputs, where the user says it; a package knows by itself."""
    usual = {"resize": "stretch", "pad_value": 114.0}
    return {k: v for k, v in reading.items() if usual.get(k) != v}
