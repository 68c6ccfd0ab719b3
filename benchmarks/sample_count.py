"""What the number of calibration pictures changes: detections kept, time, and layers in floats.

python -m benchmarks.sample_count [MODEL] [--counts 12,24,64,200] [--fast] [--json FILE]

One detector is quantised with each number of pictures, COCO's first and then ImageNet's. Every
package answers the same 148 other pictures. A detection of the float model is kept if int8 has a
box of its class that overlaps it by half, above the same threshold. Runs of float and of all
packages are interleaved; the least CPU time of each counts, because other programs disturb it less.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks.accuracy import Array, data, detect, vision
from benchmarks.policy import DETECTORS, PICTURES, pictures
from benchmarks.table import grid
from intaglio.quant import calibrate
from intaglio.session import Session

COUNTS = "12,24,64,200"
OVERLAP = 0.5  # of boxes that count as the same
ROUNDS = 40  # interleaved runs
Row = dict[str, Any]


def calibration_pictures(count: int) -> list[Any]:
    """The first `count` pictures; those beyond the calibration split are the last of the others."""
    first = pictures(True, count)
    more = data.imagenet_split(False, 1000)[PICTURES:]
    return first + more[len(more) - (count - len(first)) :] if count > len(first) else first


def quantise(name: str, count: int, **options: Any) -> tuple[Row, Session]:
    """One detector with this many pictures: what the search chose, and a session."""
    task = vision.TASKS[name]
    assert task.feed is not None
    samples = [task.feed(p) for p in calibration_pictures(count)]
    graph = intaglio.load(task.file())
    start, cpu = time.perf_counter(), time.process_time()
    made = calibrate(graph, samples, warn=lambda words: None, **options)
    row: Row = {
        "pictures": count,
        "used": made.samples,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "float_layers": len(made.floats),
        "predicted": next((p.time for p in reversed(made.curve) if p.kept), 1.0),
    }
    return row, intaglio.open(intaglio.compile(made.graph), threads=1)


def kept(truth: Sequence[Array], found: Sequence[Array], least: float) -> int:
    """The float model's detections (class, score, box) that are found above the threshold too."""
    count = 0
    for wanted, made in zip(truth, found, strict=True):
        sure = made[made[:, 1] >= least]
        for one in wanted:
            same = sure[sure[:, 0] == one[0]]
            near = detect.overlap(one[None, 2:], same[:, 2:])
            count += int((near > OVERLAP).any())
    return count


def measure(name: str, counts: Sequence[int], **options: Any) -> list[Row]:
    """A row for the float model, then one for each number of pictures."""
    task, (decode, least) = vision.TASKS[name], DETECTORS[name]
    assert task.feed is not None
    rows: list[Row] = [{"pictures": 0}]
    sessions = [intaglio.open(intaglio.compile(intaglio.load(task.file())), threads=1)]
    for count in counts:
        row, session = quantise(name, count, **options)
        rows.append(row)
        sessions.append(session)
    answers: list[list[Array]] = [[] for _ in sessions]
    feeds = {}
    for picture in pictures(False, 48 + PICTURES):
        feeds = task.feed(picture)
        for found, session in zip(answers, sessions, strict=True):
            outputs = [a.copy() for a in session.run(feeds).values()]
            found.append(decode(outputs, vision.FAINT))
    truth = [d[d[:, 1] >= least] for d in answers[0]]
    labels = [np.delete(d, 1, axis=1) for d in truth]
    for row, found, fastest in zip(rows, answers, _fastest(sessions, feeds), strict=True):
        row["detections"] = sum(map(len, truth))
        row["kept"] = kept(truth, found, least)
        row["ap50"] = detect.average_precision(found, labels)[1]
        row["milliseconds"] = fastest
    return rows


def _fastest(sessions: Sequence[Session], feeds: dict[str, Array]) -> list[float]:
    best = [float("inf")] * len(sessions)
    for _ in range(ROUNDS):
        for i, session in enumerate(sessions):
            start = time.thread_time()
            session.run(feeds)
            best[i] = min(best[i], 1e3 * (time.thread_time() - start))
    return best


def markdown(rows: Sequence[Row]) -> str:
    head = ["pictures", "used", "layers in floats", "predicted time", "ms", "kept", "AP50 %"]
    lines = [[*head, "seconds to quantise", "CPU seconds"]]
    for row in rows:
        ends = [f"{row['milliseconds']:.2f}", f"{row['kept']} of {row['detections']}"]
        ends.append(f"{row['ap50']:.2f}")
        if not row["pictures"]:
            lines.append(["float", "-", "-", "-", *ends, "-", "-"])
            continue
        settings = [row["pictures"], row["used"], row["float_layers"], f"{row['predicted']:.2f}"]
        times = [f"{row['seconds']:.1f}", f"{row['cpu_seconds']:.1f}"]
        lines.append([*map(str, settings), *ends, *times])
    return grid(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sample_count",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", default="nudenet", choices=sorted(DETECTORS))
    parser.add_argument("--counts", default=COUNTS, help="default: %(default)s")
    parser.add_argument("--fast", action="store_true", help="the same as of `intaglio quantize`")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    options = {"fast": True} if args.fast else {}
    rows = measure(args.model, [int(n) for n in args.counts.split(",")], **options)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))
    print(markdown(rows))


if __name__ == "__main__":
    main()
