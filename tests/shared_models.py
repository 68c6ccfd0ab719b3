"""Every ONNX model in ../shared/models, ours against onnxruntime, on real data.

    python -m tests.shared_models --engine interpreter --only mobilenet

INTAGLIO_SHARED is the path of the shared folder if it is not beside the checkout.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.onnx_conformance import missing

import intaglio

SHARED = Path(
    os.environ.get("INTAGLIO_SHARED", Path(__file__).resolve().parents[1].parent / "shared")
)
TOLERANCE = 1e-3  # of an output's range
SAMPLES = 2  # inputs per model
Feeds = dict[str, np.ndarray]


# ---- feeds: real data of each model's domain ---------------------------------------------------
FACES = ("zidane.jpg", "grace_hopper.bmp")
STREETS = ("bus.jpg", "dog.jpg")


def photo(index: int, width: int, height: int, names: Sequence[str] = ()) -> np.ndarray:
    """A photograph, of ImageNet if none is named, as float32 height x width x RGB, 0..255."""
    from PIL import Image

    files = [SHARED / "data" / "img" / name for name in names]
    files = files or sorted((SHARED / "data" / "imagenet_val1000_256").glob("*.JPEG"))
    with Image.open(files[index * (1 if names else 7) % len(files)]) as image:
        return np.asarray(image.convert("RGB").resize((width, height)), np.float32)


def _nchw(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)


def torch_photo(index: int, size: int) -> np.ndarray:
    """Normalised by the ImageNet mean and deviation."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return _nchw((photo(index, size, size) / 255 - mean) / std)


def bgr(index: int, size: int, names: Sequence[str], scale: float = 1.0) -> np.ndarray:
    return _nchw(photo(index, size, size, names)[:, :, ::-1] * scale)


def digit(index: int) -> np.ndarray:
    """A test image of MNIST, 0..255."""
    raw = next((SHARED / "data" / "mnist").glob("t10k-images*")).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        import gzip

        raw = gzip.decompress(raw)
    pixels = np.frombuffer(raw, np.uint8, 28 * 28, 16 + index * 28 * 28)
    return pixels.reshape(1, 1, 28, 28).astype(np.float32)


@functools.cache
def speech() -> np.ndarray:
    """A spoken sentence, -1..1."""
    with wave.open(str(SHARED / "data" / "audio" / "speech.wav")) as file:
        raw = file.readframes(file.getnframes())
    return np.frombuffer(raw, np.int16).astype(np.float32) / 32768


def frame(index: int) -> np.ndarray:
    at = len(speech()) // 3 + 128 * index
    return speech()[at : at + 512]


def state(index: int) -> np.ndarray:
    """The carried state of a recurrent model: zeros first, then random values."""
    rng = np.random.default_rng(index)
    return rng.uniform(-0.3, 0.3, (1, 2, 128, 2)).astype(np.float32) * (index > 0)


def _tracker(i: int) -> Feeds:
    return {"template": torch_photo(i, 128), "search": torch_photo(i, 256)}


def _denoise1(i: int) -> Feeds:
    magnitude = np.abs(np.fft.rfft(frame(i))).astype(np.float32)
    return {"input_2": magnitude.reshape(1, 1, 257), "input_3": state(i)}


@dataclass(frozen=True)
class Model:
    """One model: its inputs, and bindings of its open dimensions."""

    feeds: Callable[[int], Feeds]
    dims: tuple[tuple[str, int], ...] = ()


MODELS = {
    "FastestDet": Model(lambda i: {"input.1": bgr(i, 352, STREETS, 1 / 255)}),
    "dtln_model_1": Model(_denoise1),
    "dtln_model_2": Model(lambda i: {"input_4": frame(i)[None, None], "input_5": state(i)}),
    "mnist_cntk_26k": Model(lambda i: {"Input3": digit(i)}),
    "mobilenet_v2_fp32": Model(lambda i: {"input": torch_photo(i, 224)}),
    "mobilenetv2-12-qdq": Model(
        lambda i: {"input": torch_photo(i, 224)}, dims=(("batch_size", 1),)
    ),
    "shufflenet-v2-12-int8": Model(lambda i: {"input": torch_photo(i, 224)}),
    "super_resolution": Model(
        lambda i: {"input": _nchw(photo(i, 224, 224).mean(-1, keepdims=True) / 255)},
        dims=(("batch_size", 1),),
    ),
    "ultraface_RFB-320": Model(lambda i: {"input": _nchw((photo(i, 320, 240, FACES) - 127) / 128)}),
    "vitTracker": Model(_tracker),
    "yolox_nano_416": Model(lambda i: {"images": bgr(i, 416, STREETS)}),
    "yunet_n_320_320": Model(lambda i: {"input": bgr(i, 320, FACES)}),
}


# ---- running and comparing ---------------------------------------------------------------------
@dataclass
class Row:
    """One line of the table."""

    model: str
    engine: str
    nodes: int = 0
    load: float = 0.0  # seconds to load (and compile, for the native engine)
    run: float = 0.0  # seconds of the quickest run
    onnxruntime: float = 0.0
    error: float = float("inf")  # largest |difference| as a share of the output's range
    argmax: bool = False
    why: str = ""

    @property
    def ok(self) -> bool:
        return not self.why and self.argmax and self.error <= TOLERANCE

    def __str__(self) -> str:
        head = f"{self.model:22} {self.engine:11}"
        if self.why:
            return f"{head} FAILED: {self.why}"
        return (
            f"{head} {self.nodes:5} {1e3 * self.load:8.0f} {1e3 * self.run:9.2f} "
            f"{1e3 * self.onnxruntime:9.2f}   {self.error:8.1e}   "
            f"{'equal' if self.argmax else 'DIFFERS':7}  {'ok' if self.ok else 'WRONG'}"
        )


HEAD = (
    f"{'model':22} {'engine':11} {'nodes':>5} {'load ms':>8} {'run ms':>9} {'ort ms':>9}   "
    f"{'max|Δ|':>8}   argmax"
)


def paths() -> dict[str, Path]:
    """The ONNX models of the shared folder, by name."""
    return {p.stem: p for p in sorted((SHARED / "models" / "onnx").glob("*.onnx"))}


def absent() -> str | None:
    """Why nothing can be compared here; None if it can."""
    if not paths():
        return f"there are no models in {SHARED / 'models' / 'onnx'}; set INTAGLIO_SHARED"
    return missing("onnxruntime")


def compare(name: str, engine: str) -> Row:
    """Load, run and compare one model."""
    row = Row(name, engine)
    try:
        path = paths()[name]
        model = MODELS[name]
        feeds = [model.feeds(i) for i in range(SAMPLES)]
        want, row.onnxruntime = _reference(path, feeds, literal=engine == "interpreter")
        start = time.perf_counter()
        run, row.nodes = _ENGINES[engine](path, dict(model.dims))
        row.load = time.perf_counter() - start
        got, row.run = _timed(run, feeds)
        row.error = max(_error(g, w) for g, w in zip(got, want, strict=True))
        row.argmax = all(_same_argmax(g, w) for g, w in zip(got, want, strict=True))
    except Exception as e:
        row.why = " ".join(f"{type(e).__name__}: {e}".split())[:300]
    return row


Run = Callable[[Feeds], Feeds]


def _timed(run: Run, feeds: Sequence[Feeds]) -> tuple[list[Feeds], float]:
    outputs, times = [], []
    for f in feeds:
        start = time.perf_counter()
        outputs.append(run(f))
        times.append(time.perf_counter() - start)
    return outputs, min(times)


def _reference(path: Path, feeds: Sequence[Feeds], literal: bool) -> tuple[list[Feeds], float]:
    """What onnxruntime makes of the inputs, and the time that it takes at its best.

    At its best it computes quantised layers in integers, as our compiled models do, and then
    differs by up to a tenth of the output's range from what the model spells out in floats.
    `literal` asks for the latter, which is what our interpreter does.
    """
    import onnxruntime as ort

    def session(level: Any) -> Run:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = level
        made = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in made.get_outputs()]
        return lambda f: dict(zip(names, made.run(None, f), strict=True))

    outputs, seconds = _timed(session(ort.GraphOptimizationLevel.ORT_ENABLE_ALL), feeds)
    if literal:
        outputs, _ = _timed(session(ort.GraphOptimizationLevel.ORT_ENABLE_BASIC), feeds)
    return outputs, seconds


def _interpreter(path: Path, dims: dict[str, int]) -> tuple[Run, int]:
    graph = intaglio.load(path, dims=dims)
    return lambda f: intaglio.interpret(graph, f), sum(1 for _ in graph.nodes())


def _native(path: Path, dims: dict[str, int]) -> tuple[Run, int]:
    import tempfile

    package = intaglio.compile(path, target="cpu", dims=dims)
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "model.itg"
    package.save(file)
    session = intaglio.open(file)

    def run(feeds: Feeds) -> Feeds:
        assert folder  # keeps the file for as long as the session
        return {name: np.array(a) for name, a in session.run(feeds).items()}

    return run, len(package.plan.steps)


_ENGINES: dict[str, Callable[[Path, dict[str, int]], tuple[Run, int]]] = {
    "interpreter": _interpreter,
    "native": _native,
}


def _error(got: Feeds, want: Feeds) -> float:
    assert list(got) == list(want), f"outputs {list(got)}, onnxruntime has {list(want)}"
    worst = 0.0
    for name, w in want.items():
        g = got[name]
        assert g.shape == w.shape, f"output '{name}' has shape {g.shape}, onnxruntime {w.shape}"
        assert g.dtype == w.dtype, f"output '{name}' is {g.dtype}, onnxruntime has {w.dtype}"
        extent = float(w.max() - w.min()) or 1.0
        worst = max(worst, float(np.abs(g.astype(np.float64) - w).max()) / extent)
    return worst


def _same_argmax(got: Feeds, want: Feeds) -> bool:
    return all(int(got[name].argmax()) == int(w.argmax()) for name, w in want.items())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.shared_models", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=[*_ENGINES], action="append", help="default: all")
    parser.add_argument("--only", default="", help="models whose name contains this")
    options = parser.parse_args(argv)
    if why := absent():
        print(f"skipped: {why}")
        return 0
    engines: list[str] = []
    for engine in options.engine or _ENGINES:
        if why := missing(engine):
            print(f"{engine} skipped: {why}")
        else:
            engines.append(engine)
    print(HEAD)
    rows: list[Row] = []
    for name in paths():
        for engine in engines if options.only in name else ():
            rows.append(compare(name, engine))
            print(rows[-1], flush=True)
    print(f"{sum(r.ok for r in rows)} of {len(rows)} agree with onnxruntime within {TOLERANCE:g}")
    return int(not all(r.ok for r in rows))


if __name__ == "__main__":
    sys.exit(main())
