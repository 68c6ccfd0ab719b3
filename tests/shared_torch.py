"""Every PyTorch model in ../shared/models, ours against torch, on the data that it was made for.

    python -m tests.shared_torch               # outputs
    python -m tests.shared_torch --accuracy    # top-1 on labelled data, beside the figure of torch

Reading needs no torch; the comparison does (`pip install intaglio[torch]`).
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.shared_models import SAMPLES, SHARED, TOLERANCE, Feeds, Row, digit, torch_photo

import intaglio

POINTS = 0.3  # by which the accuracy may differ from torch's
SENTENCES = (b"How do I teach my dog to fetch?", b"Stocks fell sharply after the report today")


def sentence(index: int) -> np.ndarray:
    """Bytes of a sentence, cut to the length that the model is compiled for."""
    return np.frombuffer(SENTENCES[index], np.uint8)[None, :30].copy()


@dataclass(frozen=True)
class Model:
    """One model: how to make its inputs, and what its file does not say."""

    feeds: Callable[[int], Feeds]
    load: dict[str, Any] = field(default_factory=dict)


MODELS = {
    "mobilenet_v2_fp32_traced": Model(lambda i: {"x": torch_photo(i, 224)}),
    "reddit_bytelstm": Model(
        lambda i: {"byte_input": sentence(i)},
        {"shapes": {"byte_input": (1, 30)}, "dtypes": {"byte_input": "u8"}},
    ),
    "vit4mnist_dynq": Model(
        lambda i: {"img": ((digit(i) / 255 - 0.1307) / 0.3081).astype(np.float32)},
        {"shapes": {"img": (1, 1, 28, 28)}},
    ),
}


def paths() -> dict[str, Path]:
    return {p.stem: p for p in sorted((SHARED / "models" / "torchscript").glob("*.pt"))}


def absent() -> str | None:
    """Why nothing can be compared here; None if it can."""
    if not paths():
        return f"there are no models in {SHARED / 'models' / 'torchscript'}; set INTAGLIO_SHARED"
    return None if importlib.util.find_spec("torch") else "torch is not installed"


def compare(name: str, engine: str) -> Row:
    """Load, run and compare one model; the column for the reference is torch's time."""
    import torch

    row = Row(name, engine)
    try:
        model, path = MODELS[name], paths()[name]
        feeds = [model.feeds(i) for i in range(SAMPLES)]
        module = torch.jit.load(str(path)).eval()
        start = time.perf_counter()
        graph = intaglio.load(path, **model.load)
        run: Callable[[Feeds], Feeds] = lambda f: intaglio.interpret(graph, f)  # noqa: E731
        row.nodes = sum(1 for _ in graph.nodes())
        if engine == "native":
            package = intaglio.compile(graph)
            session, row.nodes = intaglio.open(package), len(package.plan.steps)
            run = lambda f: {n: np.array(a) for n, a in session.run(f).items()}  # noqa: E731
        row.load = time.perf_counter() - start
        times: list[tuple[float, float]] = []
        errors, tops = [], []
        for f in feeds:
            begin = time.perf_counter()
            with torch.no_grad():
                want = module(*(torch.from_numpy(a) for a in f.values())).numpy()
            middle = time.perf_counter()
            got = next(iter(run(f).values()))
            times.append((time.perf_counter() - middle, middle - begin))
            assert got.shape == want.shape
            errors.append(float(np.abs(got - want).max() / (np.ptp(want) or 1)))
            tops.append(int(got.argmax()) == int(want.argmax()))
        row.run, row.onnxruntime = (min(t) for t in zip(*times, strict=True))
        row.error, row.argmax = max(errors), all(tops)
    except Exception as e:
        row.why = " ".join(f"{type(e).__name__}: {e}".split())[:300]
    return row


def accuracy() -> int:
    """Top-1 of the classifiers; the reference figures are torch's on the same data."""
    from benchmarks.accuracy import data

    pixels, digits = data.mnist()
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])

    def written(i: int) -> tuple[np.ndarray, int]:
        x = (pixels[i].reshape(1, 1, 28, 28) / 255 - 0.1307) / 0.3081
        return x.astype(np.float32), int(digits[i])

    pictures = data.imagenet()

    def seen(i: int) -> tuple[np.ndarray, int]:
        file, label = pictures[i]
        x = ((data.crop(file, 224) / 255 - mean) / std).transpose(2, 0, 1)[None]
        return np.ascontiguousarray(x, np.float32), label

    wrong = 0
    for name, sample, count, reference in (
        ("vit4mnist_dynq", written, 2000, 97.15),
        ("mobilenet_v2_fp32_traced", seen, len(pictures), 69.1),
    ):
        graph = intaglio.load(paths()[name], **MODELS[name].load)
        right = 0
        with intaglio.open(intaglio.compile(graph)) as session:
            for i in range(count):
                x, label = sample(i)
                scores = next(iter(session.run({graph.inputs[0].name: x}).values()))
                right += int(scores.argmax()) == label
        got = 100 * right / count
        wrong += abs(got - reference) > POINTS
        print(f"{name:26} top-1 {got:6.2f} % of {count}, torch {reference:6.2f} %", flush=True)
    return int(wrong > 0)


def main() -> int:
    if sys.argv[1:] == ["--accuracy"]:
        return accuracy()
    if why := absent():
        print(f"skipped: {why}")
        return 0
    print(f"{'model':22} {'engine':11} {'nodes':>5} {'load ms':>8} {'run ms':>9} {'torch ms':>9}   "
          f"{'max|Δ|':>8}   argmax")  # fmt: skip
    rows = [compare(name, engine) for name in paths() for engine in ("interpreter", "native")]
    for row in rows:
        print(row)
    print(f"{sum(r.ok for r in rows)} of {len(rows)} agree with torch within {TOLERANCE:g}")
    return int(not all(r.ok for r in rows))


if __name__ == "__main__":
    sys.exit(main())
