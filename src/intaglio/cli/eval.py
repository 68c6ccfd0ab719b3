"""`intaglio eval`: the accuracy of models on labelled pictures."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio.cli import key_options, model_files, options, progress_line
from intaglio.cli.run_pictures import format_options

GROUPS = {  # of --help
    "Data": "--data --truth --limit",
    "Metric": "--metric --decode --labels --confidence --iou --characters --blank",
    "Pictures": "--resize --bgr",
    "Output": "--draw --json",
    **key_options.GROUP,
}


@click.command("eval", cls=options.ModelCommand, groups=GROUPS)
@click.argument("models", type=click.Path(), nargs=-1, required=True)
@click.option("--data", required=True, metavar="DIR", help="Folder of pictures.")
@click.option(
    "--truth",
    type=click.Path(),
    metavar="PATH",
    help="Labels, if not beside the pictures: labels.csv, COCO's .json, a folder of YOLO's .txt "
    "or of masks.",
)
@click.option(
    "--metric",
    default="top1",
    show_default=True,
    help="top1, top5, any topK, map (COCO AP), segm (AP of masks), iou, cer, or "
    "FILE.py:FUNCTION(prediction, label).",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Use the first N pictures.")
@click.option(
    "--decode", metavar="NAME", help="How to read a detector's outputs [default: by their shapes]."
)
@click.option("--labels", type=click.Path(), metavar="FILE", help="Names of the model's classes.")
@click.option("--confidence", type=click.FloatRange(0, 1), help="Least score [map: 0.001].")
@click.option("--iou", type=click.FloatRange(0, 1), help="Overlap of suppression.")
@click.option(
    "--characters", type=click.Path(), metavar="FILE", help="cer: one character on each line."
)
@click.option("--blank", default=0, show_default=True, help="cer: number of the blank class.")
@format_options
@click.option("--draw", type=click.Path(), metavar="DIR", help="Write pictures with results.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
@options.model_options
def command(
    models: tuple[str, ...],
    data: str,
    truth: str | None,
    metric: str,
    limit: int | None,
    decode: str | None,
    labels: str | None,
    confidence: float | None,
    iou: float | None,
    characters: str | None,
    blank: int,
    color: str | None,
    resize: str | None,
    draw: str | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Evaluate MODELS (packages or model files) on labelled pictures, side by side.

    \b
    intaglio eval float.onnx int8.itg --data val/ --std 255
    intaglio eval yolo.onnx yolo_int8.itg --data images/ --metric map
    intaglio eval seg.itg --data images/ --truth masks/ --metric iou
    intaglio eval model.itg --data val/ --metric mine.py:score
    """
    import intaglio
    from intaglio.evaluation import evaluate
    from intaglio.evaluation.truth import read_names

    load = options.load_arguments(**model_options)
    reading: dict[str, Any] = {k: load.pop(k) for k in ("mean", "std", "pad_value") if k in load}
    reading |= {"color": color, "resize": resize}
    given = {"decode": decode, "labels": labels, "confidence": confidence, "iou": iou}
    keywords = {k: v for k, v in {**given, **reading}.items() if v is not None}
    with progress_line.shown():
        opened: list[Any] = []
        for path in models:
            if model_files.is_package(path):
                opened.append(model_files.load_package(path))
            else:
                opened.append(intaglio.compile(path, **load))
        found = evaluate(
            opened,
            data,
            metric,
            truth=truth,
            limit=limit,
            draw=draw,
            characters=read_names(characters),
            blank=blank,
            names=list(models),
            **keywords,
        )
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else str(found))
