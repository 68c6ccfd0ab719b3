"""What quantising costs: our time and memory beside those of onnxruntime's static quantiser.

python -m benchmarks.calibration [MODEL] [--images 100] [--data FOLDER] [--times 1] [--json FILE]
python -m benchmarks.calibration --detectors [--images 64]

Both read the same JPEGs, each in a process of its own, both with their defaults and all CPUs. Time
runs from the ONNX file and the pictures to the quantised model; memory is the peak of the process.
Without --data the pictures are made up (seeded clouds of colour). --detectors measures four trained
detectors with pictures of COCO, and ours with `fast` too.
"""

from __future__ import annotations

import argparse
import compileall
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine, models, peers
from benchmarks.accuracy import vision
from benchmarks.accuracy.files import shared
from benchmarks.models import ROOT
from benchmarks.peers import OURS
from benchmarks.table import grid

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
ORT = "onnxruntime"
SHARE, MEMORY = 1 / 3, 1024  # of onnxruntime's time, and MB, that we may take
LONGEST = 3600  # seconds
FAST = f"{OURS} --fast"
MOST_SECONDS = 30  # that a detector may take us with 64 pictures on two quiet cores
Normal = tuple[Any, Any]  # mean and std of pixels from 0 to 255
DETECTORS: dict[str, Normal] = {
    "nudenet": (0, 255),
    "yolox_nano": (0, 1),
    "fastestdet": (0, 255),
    "ultraface": (127, 128),
}


def draw(folder: Path, count: int, size: int) -> None:
    """JPEGs that compress like photographs: clouds of many sizes, differently coloured."""
    from PIL import Image

    for i in range(count):
        rng = np.random.default_rng(i)
        made = np.zeros((size, size, 3), np.float32)
        for cells in (4, 16, 64):
            coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
            made += np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), np.float32)
        Image.fromarray((made / 3).astype(np.uint8)).save(folder / f"{i:04}.jpg", quality=90)


# ---- each in its own process ---------------------------------------------------------------------
def _ours(model: Path, images: Path, out: Path, normal: Normal, fast: bool = False) -> float:
    dims = models.dims(model)  # the benchmark's own look into the file, as for the other engine
    mean, std = normal
    start = time.perf_counter()
    made = intaglio.quantize(model, data=images, mean=mean, std=std, fast=fast, dims=dims)
    intaglio.save_onnx(made, out)
    return time.perf_counter() - start


def _onnxruntime(model: Path, images: Path, out: Path, normal: Normal) -> float:
    from PIL import Image

    from benchmarks.peers.int8 import onnxruntime as ort

    graph_input = models.Case(model.stem, model).feeds
    ((name, example),) = graph_input.items()

    def read(file: Path) -> dict[str, np.ndarray]:
        with Image.open(file) as opened:
            pixels = opened.convert("RGB").resize(example.shape[:1:-1], Image.Resampling.BILINEAR)
        made = (np.asarray(pixels, np.float32) - np.float32(normal[0])) / np.float32(normal[1])
        return {name: np.ascontiguousarray(made.transpose(2, 0, 1)[None])}

    ready = ort.prepare(model, out.with_suffix(".float.onnx"))
    start = time.perf_counter()  # its clean-up of the graph is not counted against it
    ort.static(ready, out, map(read, sorted(images.iterdir())))
    return time.perf_counter() - start


ENGINES: dict[str, Callable[[Path, Path, Path, Normal], float]] = {
    OURS: _ours,
    FAST: partial(_ours, fast=True),
    ORT: _onnxruntime,
}


def _child(engine: str, model: str, images: str, out: str, normal: str) -> None:
    mean, std = json.loads(normal)
    seconds = ENGINES[engine](Path(model), Path(images), Path(out), (mean, std))
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime  # of the whole process: what a busy machine hardly changes
    print(json.dumps({"seconds": seconds, "cpu": cpu, "megabytes": used.ru_maxrss / 1024}))


# ---- the driver ----------------------------------------------------------------------------------
def measure(engine: str, model: Path, images: Path, folder: Path, normal: Normal) -> dict[str, Any]:
    """Seconds and megabytes, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.calibration", "--child", engine, str(model)]
    done = subprocess.run(
        [*command, str(images), str(folder / "int8.onnx"), json.dumps(normal)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    if done.returncode:
        said = [s for s in done.stderr.splitlines() if s.strip()] or ["it said nothing"]
        return {"failed": said[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run(
    name: str = "resnet50",
    count: int = 100,
    data: Path | None = None,
    times: int = 1,
    json_file: str | Path | None = None,
) -> dict[str, Any]:
    """The engines in turns, `times` times; the least time and the largest memory count."""
    detector = name in DETECTORS
    case = models.Case(name, vision.TASKS[name].file()) if detector else models.case(name)
    package = Path(str(intaglio.__file__)).parent  # once installed it has its bytecode; a checkout
    compileall.compile_dir(package, quiet=2)  # would be parsed anew by every process
    engines = [OURS, *[FAST] * detector, *([] if peers.missing(ORT, "int8") else [ORT])]
    taken: dict[str, list[dict[str, Any]]] = {e: [] for e in engines}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images = folder / "images"
        images.mkdir()
        if data is None and not detector:
            draw(images, count, 224)
        else:
            _link(images, data or shared("data/coco128_val/images/val2017"), count)
        normal = DETECTORS.get(name, (MEAN, STD))
        for _ in range(times):
            for engine in engines:
                taken[engine].append(measure(engine, case.path, images, folder, normal))
                print(f"{engine}: {taken[engine][-1]}", file=sys.stderr, flush=True)
    found = {"machine": machine.describe(), "model": case.name, "images": count, "taken": taken}
    if json_file:
        Path(json_file).write_text(json.dumps(found, indent=1))
    return found


def _link(images: Path, data: Path, count: int) -> None:
    """Links to the first JPEGs of a folder."""
    files = sorted(p for p in data.iterdir() if p.suffix.lower() in (".jpg", ".jpeg"))
    for file in files[:count]:
        (images / file.name).symlink_to(file.resolve())


def report(found: dict[str, Any]) -> str:
    """The table, and whether we keep to what was promised."""
    lines = [["engine", "seconds", "CPU seconds", "images per second", "peak memory, MB"]]
    best: dict[str, tuple[float, float]] = {}
    notes = []
    for engine, runs in found["taken"].items():
        ran = [r for r in runs if "seconds" in r]
        notes += [f"{engine}: {r['failed']}" for r in runs if "failed" in r][:1]
        if ran:
            seconds = min(r["seconds"] for r in ran)
            best[engine] = seconds, max(r["megabytes"] for r in ran)
            cpu = min(r["cpu"] for r in ran)
            figures = f"{seconds:.1f}", f"{cpu:.1f}", f"{found['images'] / seconds:.1f}"
            lines.append([engine, *figures, f"{best[engine][1]:.0f}"])
    if OURS in best and found["model"] in DETECTORS:
        met = "met" if best[OURS][0] <= MOST_SECONDS else "NOT MET"
        notes.append(f"{best[OURS][0]:.1f} s (allowed {MOST_SECONDS} on two quiet cores): {met}")
    elif OURS in best and ORT in best:
        share = best[OURS][0] / best[ORT][0]
        met = "met" if share <= SHARE else "NOT MET"
        notes.append(f"{share:.2f} of onnxruntime's time (allowed {SHARE:.2f}): {met}")
    if OURS in best:
        met = "met" if best[OURS][1] <= MEMORY else "NOT MET"
        notes.append(f"{best[OURS][1]:.0f} MB at the peak (allowed {MEMORY}): {met}")
    head = f"{found['model']}, {found['images']} pictures, {found['machine']['cpus']} CPUs\n\n"
    return head + grid(lines) + "\n\n" + "".join(f"- {n}\n" for n in notes)


def failures(found: dict[str, Any]) -> int:
    """1 if we ourselves failed."""
    return int(any("failed" in r for r in found["taken"][OURS]))


def main(arguments: Sequence[str] | None = None) -> int:
    given_to = list(sys.argv[1:] if arguments is None else arguments)
    if given_to[:1] == ["--child"]:
        _child(*given_to[1:])
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibration",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("model", nargs="?", default="resnet50", metavar="MODEL")
    parser.add_argument("--detectors", action="store_true", help=", ".join(DETECTORS))
    parser.add_argument("--images", type=int, metavar="N", help="default: 100, for detectors 64")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="JPEGs instead of clouds")
    parser.add_argument("--times", type=int, default=1, help="the least of as many runs")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args(given_to)
    names = list(DETECTORS) if given.detectors else [given.model]
    failed, every = 0, []
    for name in names:
        count = given.images or (64 if name in DETECTORS else 100)
        every.append(run(name, count, given.data, given.times))
        print(report(every[-1]), flush=True)
        failed += failures(every[-1])
    if given.json:
        Path(given.json).write_text(json.dumps(every if given.detectors else every[0], indent=1))
    return failed


if __name__ == "__main__":
    sys.exit(main())
