"""Choose a bound of the search for int8 settings by leaving one model out.

python -m benchmarks.policy --field score_scale --values 0.125,0.18,0.25,0.35 [MODEL ...]
                            [--samples 16] [--json FILE] [--markdown FILE]

Every model is quantised with every value. For each model the value is chosen on all the others:
the fastest whose mean score is within 0.25 points of the best. The score of the model with
the value that the others chose is what the benchmark reports. Time is what the target's costs
predict for the products, relative to all layers in int8.

Scores compare with the float model, so that no labels are needed. A detector's score is the average
precision at an overlap of 0.5 against the float model's own detections. A classifier's score is the
probability that it shares with the float model: the sum over classes of the smaller of both
probabilities, as a mean over samples in percent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import Array, Run, Task, data, detect, vision
from benchmarks.accuracy.one import TASKS
from benchmarks.models import ROOT

SLACK = 0.25  # points of the mean score that a faster value may cost
PICTURES = 100  # of ImageNet, beside 48 of COCO, for detectors
CLASSIFIED = 100  # samples for classifiers; each has two views or more
LONGEST = 1800  # seconds for one model and one value
DETECTORS: dict[str, tuple[Callable[..., Array], float]] = {  # how to decode, and the threshold
    "yolox_nano": (detect.yolox, 0.3),
    "fastestdet": (detect.fastestdet, 0.3),
    "nudenet": (detect.yolov8, 0.25),
    "ultraface": (detect.ultraface, 0.6),
    "ultraface_slim": (detect.ultraface_anchors, 0.6),
    "yunet": (detect.yunet, 0.6),
    "yolo_fastest": (detect.darknet, 0.3),
    "yolo_fastest_xl": (detect.darknet, 0.3),
}
CLASSIFIERS = (
    "mobilenet_v2",
    "efficientnet_lite0",
    "mobilenet_v1_0.25",
    "ic_resnet8",
    "vww_mobilenet",
    "kws_dscnn",
)
MODELS = (*DETECTORS, *CLASSIFIERS)
Row = dict[str, Any]


def pictures(calibration: bool, count: int) -> list[Any]:
    """COCO's pictures first, then ImageNet's."""
    coco = data.coco_split(calibration, min(count, 48))
    return coco + data.imagenet_split(calibration, 1000)[: max(count - len(coco), 0)]


def measure(name: str, changes: dict[str, float], samples: int) -> Row:
    """Quantise one model with a changed policy; its score, time and layers in float."""
    import intaglio
    from intaglio.quant import Policy, calibrate

    task = TASKS[name]
    if task.feed is not None:
        calibration = [task.feed(p) for p in pictures(True, samples)]
    else:
        calibration = list(task.calibration(samples))
    graph = intaglio.load(task.file())
    kinds = {k: type(getattr(Policy(), k)) for k in changes}
    policy = Policy(**{k: kinds[k](v) for k, v in changes.items()})
    start = time.process_time()
    made = calibrate(graph, calibration, policy=policy)
    seconds = time.process_time() - start
    with (
        intaglio.open(intaglio.compile(made.graph), threads=1) as ours,
        intaglio.open(intaglio.compile(graph), threads=1) as floats,
    ):
        runs = [lambda x, s=s: [a.copy() for a in s.run(x).values()] for s in (ours, floats)]
        score = detected(name, *runs) if name in DETECTORS else shared(task, *runs)
    kept = [p for p in made.curve if p.kept]
    return {
        "model": name,
        **changes,
        "samples": samples,
        "score": score,
        "time": kept[-1].time if kept else 1.0,
        "float_layers": len(made.floats),
        "cpu_seconds": seconds,
    }


def detected(name: str, ours: Run, floats: Run) -> float:
    """Average precision at an overlap of 0.5 against the float model's detections, in percent."""
    feed, (decode, least) = TASKS[name].feed, DETECTORS[name]
    assert feed is not None
    found, truth = [], []
    for picture in pictures(False, 48 + PICTURES):
        feeds = feed(picture)
        truth.append(np.delete(decode(floats(feeds), least), 1, axis=1))
        found.append(decode(ours(feeds), vision.FAINT))
    return detect.average_precision(found, truth)[1]


def shared(task: Task, ours: Run, floats: Run) -> float:
    """The probability that a classifier shares with the float model, in percent."""
    each = [
        np.minimum(probabilities(ours(feeds)[0]), probabilities(floats(feeds)[0])).sum()
        for feeds in task.evaluation(CLASSIFIED)
    ]
    return 100 * float(np.mean(each))


def probabilities(a: Array) -> Array:
    """The classes' probabilities of one sample; logits go through a softmax."""
    a = a.ravel().astype(np.float64)
    if a.min() >= 0 and abs(a.sum() - 1) < 0.02:
        return a / a.sum()
    powers = np.exp(a - a.max())
    return np.asarray(powers / powers.sum())


def choose(rows: Sequence[Row], field: str) -> float:
    """The fastest value whose mean score is within SLACK of the best."""
    values = sorted({row[field] for row in rows})

    def mean(value: float, what: str) -> float:
        return float(np.mean([row[what] for row in rows if row[field] == value]))

    best = max(mean(v, "score") for v in values)
    good = [v for v in values if mean(v, "score") >= best - SLACK]
    return min(good, key=lambda v: mean(v, "time"))


def left_out(rows: Sequence[Row], field: str) -> list[Row]:
    """For each model the value that the other models choose, and what it gives on this one."""
    made = []
    for name in dict.fromkeys(row["model"] for row in rows):
        value = choose([row for row in rows if row["model"] != name], field)
        made.append(next(r for r in rows if r["model"] == name and r[field] == value))
    return made


def markdown(rows: Sequence[Row], field: str) -> str:
    """A table: the score and time with each value, and what the others chose."""
    values = sorted({row[field] for row in rows})
    chosen = {row["model"]: row for row in left_out(rows, field)}
    lines = [
        f"| model | {' | '.join(f'{field} {v:g}' for v in values)} "
        "| left out: value | score % | time |",
        "|---" * (len(values) + 4) + "|",
    ]
    for name, row in chosen.items():
        each = {r[field]: r for r in rows if r["model"] == name}
        cells = [f"{each[v]['score']:.2f} ({each[v]['time']:.2f})" for v in values]
        ends = f"{row[field]:g} | {row['score']:.2f} | {row['time']:.2f}"
        lines.append(f"| {name} | {' | '.join(cells)} | {ends} |")
    means = [
        f"{np.mean([r['score'] for r in rows if r[field] == v]):.2f} "
        f"({np.mean([r['time'] for r in rows if r[field] == v]):.2f})"
        for v in values
    ]
    ends = " | ".join(f"{np.mean([r[k] for r in chosen.values()]):.2f}" for k in ("score", "time"))
    return "\n".join([*lines, f"| mean | {' | '.join(means)} | - | {ends} |"])


def _in_process(name: str, changes: dict[str, float], samples: int) -> Row:
    """`measure` in a process of its own: memory and caches of one model do not touch the next."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = json.dumps([name, changes, samples])
        command = [sys.executable, "-m", "benchmarks.policy", "--one", words, "--json", file.name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
        row: Row = json.loads(Path(file.name).read_text())
        return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--field", default="score_scale", help="the bound of the policy to vary")
    parser.add_argument("--values", default="0.125,0.18,0.25,0.35")
    parser.add_argument("--samples", type=int, default=16, help="calibration pictures")
    parser.add_argument("--json", help="write the rows, and go on from those that are there")
    parser.add_argument("--markdown", help="write the table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        Path(args.json).write_text(json.dumps(measure(*json.loads(args.one))))
        return
    if unknown := sorted(set(args.models) - set(MODELS)):
        sys.exit(f"no such models: {', '.join(unknown)}; known are {', '.join(MODELS)}")
    file = Path(args.json) if args.json else None
    rows: list[Row] = json.loads(file.read_text()) if file and file.exists() else []
    for name in args.models or MODELS:
        for value in map(float, args.values.split(",")):
            known = [r for r in rows if r["model"] == name and r.get(args.field) == value]
            if not any(r["samples"] == args.samples for r in known):
                rows.append(_in_process(name, {args.field: value}, args.samples))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                if file:
                    file.write_text(json.dumps(rows, indent=1))
    mine = [r for r in rows if args.field in r and r["samples"] == args.samples]
    table = markdown(mine, args.field)
    print(table)
    if args.markdown:
        Path(args.markdown).write_text(table + "\n")


if __name__ == "__main__":
    main()
