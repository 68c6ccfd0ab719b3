"""MNIST and the four nets of MLPerf Tiny: pictures, persons, words and a machine's sounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.accuracy import Array, Feeds, Score, Task, data, files
from benchmarks.accuracy.vision import mirrored, top1

SPLIT = 10  # every tenth sample is for calibration
WINDOW, STEP = 640, 128  # of the sounds that an autoencoder is to know
KWS_SCALE, KWS_ZERO = 0.5847029089927673, 83  # of the bytes in the files of MLPerf Tiny


def classifier(
    file: Callable[[], Path],
    read: Callable[[], tuple[Array, Array]],
    name: str,
    normal: Callable[[Array], Array],
    quick: int = 100,
    views: Sequence[Callable[[Array], Array]] = (),
) -> Task:
    """Percent of all samples but every tenth that get their label; a row of x is one feed, and what
    other `views` make of it are others that count together with it."""

    def places(calibration: bool, count: int) -> list[int]:
        kept = [i for i in range(len(read()[1])) if (i % SPLIT == 0) == calibration]
        return data.spread(kept, count)

    def feeds(i: int) -> Iterator[Feeds]:
        for view in (np.asarray, *views):
            yield {name: np.ascontiguousarray(normal(view(read()[0][i]))[None], np.float32)}

    return Task(
        "top-1 %",
        file,
        lambda n: [next(feeds(i)) for i in places(True, n)],
        lambda n: chain.from_iterable(map(feeds, places(False, n))),
        top1(lambda n: [int(read()[1][i]) for i in places(False, n)], 1 + len(views)),
        samples=1_000_000,
        quick=quick,
        calibrate=100,
    )


def later(x: Array, frames: int) -> Array:
    """A sound's frames, each that much later; the first or the last stands for what is missing."""
    return x[np.clip(np.arange(len(x)) - frames, 0, len(x) - 1)]


# ---- anomalies -----------------------------------------------------------------------------------
def _windows(i: int) -> Feeds:
    """Every window of one sound."""
    x = data.arrays("ad01_31")[0][i]
    rows = [x[at : at + WINDOW] for at in range(0, len(x) - WINDOW + 1, STEP)]
    return {"input_1": np.stack(rows).astype(np.float32)}


def _sounds(calibration: bool) -> list[int]:
    normal = np.flatnonzero(data.arrays("ad01_31")[1] == 0)
    known = set(normal[::4].tolist())
    return [i for i in range(len(data.arrays("ad01_31")[1])) if (i in known) == calibration]


def area_under_curve(scores: Array, labels: Array) -> float:
    """How often one of label 1 has the higher score than one of label 0."""
    ones, zeros = scores[labels == 1], scores[labels == 0]
    above = (ones[:, None] > zeros).mean() + (ones[:, None] == zeros).mean() / 2
    return float(above)


def _auc(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    kept = data.spread(_sounds(False), len(answers))
    errors = [
        ((a[0] - _windows(i)["input_1"]) ** 2).mean() for a, i in zip(answers, kept, strict=True)
    ]
    return Score(100 * area_under_curve(np.array(errors), data.arrays("ad01_31")[1][kept]))


TASKS = {
    "mnist_cntk": classifier(
        partial(files.onnx_model, "mnist_cntk_26k"), data.mnist, "Input3", lambda x: x[None], 1000
    ),
    "ic_resnet8": classifier(
        partial(files.tflite, "pretrainedResnet"),
        lambda: data.arrays("cifar10_test_first1000_lossless"),
        "input_1",
        lambda x: x,
        views=[mirrored],
    ),
    "vww_mobilenet": classifier(
        partial(files.tflite, "vww_96_float"),
        lambda: data.arrays("vww01_200"),
        "input_1",
        lambda x: x / 255,
        views=[mirrored],
    ),
    "kws_dscnn": classifier(
        partial(files.tflite, "kws_ref_model_float32"),
        lambda: data.tiny("kws01", (49, 10, 1), "int8"),
        "input_1",
        lambda x: (x.astype(np.float32) - KWS_ZERO) * KWS_SCALE,
        views=[partial(later, frames=f) for f in (-2, -1, 1, 2)],
    ),
    "ad_autoencoder": Task(
        "AUC %",
        lambda: files.tflite("ad01_fp32", {"input_1": (196, WINDOW)}),
        lambda n: [_windows(i) for i in _sounds(True)][:n],
        lambda n: map(_windows, data.spread(_sounds(False), n)),
        _auc,
        samples=31,
        quick=31,
        calibrate=4,
    ),
}
