"""The runs of one model side by side: float, int8 on this CPU, and a chip's simulator."""

from __future__ import annotations

import base64
import io
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import intaglio
from intaglio.analysis.tensor_error import TensorError
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.package import Package
from intaglio.quant.samples.images import pillow
from intaglio.session import Session
from intaglio.vision import Predictor, draw

SHOWN = 100  # detections of a picture
MOST_PIXELS = 64 << 20  # of a picture
MOST_UNPACKED = 256 << 20  # bytes of the arrays of a .npz
MOST_SHOWN = 1024  # pixels of a side of drawn masks
FEW = 8  # values of an output that are shown


@dataclass
class Engine:
    """A package that is open, and a Predictor if it takes pictures."""

    name: str
    package: Package
    predicted: float | None = None  # milliseconds on the chip; None: runs are timed
    options: Mapping[str, Any] = field(default_factory=dict)  # of the Predictor
    session: Session = field(init=False, repr=False)
    predictor: Predictor | None = field(init=False, default=None, repr=False)
    why_none: str = ""  # why pictures cannot be taken

    def __post_init__(self) -> None:
        self.session = intaglio.open(self.package)
        try:
            self.predictor = Predictor(self.session, **self.options)
        except BadInput as e:
            self.why_none = str(e)

    def close(self) -> None:
        self.session.close()


def read_drop(data: bytes) -> Any:
    """What was dropped: a picture, or arrays from a .npy or .npz file."""
    if data[:6] == b"\x93NUMPY" or data[:4] == b"PK\x03\x04":
        try:
            if data[:2] == b"PK":
                _refuse_bomb(data)
            found = np.load(io.BytesIO(data), allow_pickle=False)
            return dict(found) if hasattr(found, "files") else found
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as e:
            raise BadInput(f"the file is no array: {e}; drop a picture, .npy or .npz") from None
    library = pillow()
    try:
        image = library.open(io.BytesIO(data))
        if image.width * image.height > MOST_PIXELS:
            raise BadInput(f"the picture has {image.width}x{image.height} pixels; make it smaller")
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, library.DecompressionBombError):
        raise BadInput(
            "the file is no picture that can be read; drop a .jpg, .png, .bmp, .webp, .npy or .npz"
        ) from None


def _refuse_bomb(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        size = sum(i.file_size for i in parts.infolist())
    if size > MOST_UNPACKED:
        raise BadInput(f"the arrays have {size:,} bytes; drop at most {MOST_UNPACKED:,}")


def run_all(engines: Mapping[str, Engine], data: bytes) -> dict[str, Any]:
    """What every engine says about a dropped file, and how near it is to the first engine."""
    given = read_drop(data)
    results, first = [], None
    size = list(given.size) if hasattr(given, "convert") else None
    for engine in engines.values():
        outputs, shown, seconds = _run(engine, given)
        row: dict[str, Any] = {"engine": engine.name, **shown}
        row["milliseconds"] = seconds * 1e3 if engine.predicted is None else engine.predicted
        row["predicted"] = engine.predicted is not None
        if first is None:
            first = outputs
        else:
            row["cosine"] = _cosine(first, outputs)
        results.append(row)
    return {"size": size, "results": results}


def _run(engine: Engine, given: Any) -> tuple[dict[str, Array], dict[str, Any], float]:
    if hasattr(given, "convert"):
        if engine.predictor is None:
            raise BadInput(f"the model takes no pictures ({engine.why_none}); drop .npy or .npz")
        made = engine.predictor(given, "picture")
        seconds = 0.0
        if engine.predicted is None:  # the model alone, without reading and resizing the picture
            feeds = {engine.predictor.input: engine.predictor.preprocess(given)}
            start = time.perf_counter()
            engine.session.run(feeds)
            seconds = time.perf_counter() - start
        shown: dict[str, Any] = {
            "classes": [c.to_dict() for c in made.classes],
            "detections": [
                d.to_dict() | {"colour": "rgb({},{},{})".format(*draw.colour(d.label))}
                for d in made.detections[:SHOWN]
            ],
        }
        if (tints := made.masks()) is not None:
            shown["masks"] = _data_url(tints)
        if made.decoder is None:
            shown["outputs"] = _summary(made.outputs)
        return dict(made.outputs), shown, seconds
    feeds = given if isinstance(given, dict) else {next(iter(engine.session.inputs)): given}
    start = time.perf_counter()
    outputs = engine.session.run(feeds)
    return outputs, {"outputs": _summary(outputs)}, time.perf_counter() - start


def _data_url(image: Any) -> str:
    """A Pillow image, at most as large as a screen shows it, as a PNG in an address."""
    image.thumbnail((MOST_SHOWN, MOST_SHOWN), resample=0)  # the nearest pixel: edges stay sharp
    data = io.BytesIO()
    image.save(data, "PNG")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"


def _summary(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    rows = []
    for name, a in outputs.items():
        flat = a.astype(np.float64).ravel()
        finite = flat[np.isfinite(flat)]
        known = {"low": float(finite.min()), "high": float(finite.max())} if finite.size else {}
        first = [float(x) if np.isfinite(x) else None for x in flat[:FEW]]
        rows.append({"name": name, "shape": list(a.shape), "first": first, **known})
    return rows


def _cosine(golden: Mapping[str, Array], found: Mapping[str, Array]) -> float | None:
    """The least cosine of an output that both have; by order if names differ."""
    pairs = [(golden[n], a) for n, a in found.items() if n in golden]
    pairs = pairs or list(zip(golden.values(), found.values(), strict=False))
    results = []
    for a, b in pairs:
        if a.size == b.size and a.dtype.kind != "b":
            error = TensorError()
            error.add(a.reshape(-1), b.reshape(-1))
            results.append(error.cosine)
    return min(results, default=None)
