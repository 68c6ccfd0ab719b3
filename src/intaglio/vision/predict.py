"""From a picture to detections or classes: preprocess, run, decode, and undo the letterbox."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, option
from intaglio.frontends import picture_format
from intaglio.frontends.picture_format import PictureFormat
from intaglio.frontends.preprocess import channels_last, per_channel
from intaglio.ir import Array, Type
from intaglio.open_graph import at_sizes
from intaglio.quant.samples.images import TAKE_PICTURES, Fit, Picture, open_picture, pillow
from intaglio.session import Session
from intaglio.symint import SymInt, range_of
from intaglio.vision import masks, recognize
from intaglio.vision.labels import name_of, names_in, read_labels
from intaglio.vision.prediction import Detection, Prediction, top_classes
from intaglio.vision.recognize import CLASSIFIER, DECODERS

CONFIDENCE = 0.25  # least score of a detection
TOP = 5  # classes of a prediction
SHARES = 2.0  # boxes whose largest coordinate is below are shares of the input's size


class Predictor:
    """A session that takes pictures. Calling it with a picture gives a Prediction.

    The package says how pictures become its input; `mean`, `std`, `color`, `resize` and
    `pad_value` replace what it says. `labels` are names of classes or a file with one on each line;
    without it, the names in the model's metadata are used. `decode` names how the outputs of a
    detector are read, if their shapes do not tell. `confidence` is the least score of a detection,
    `iou` the overlap above which one of two boxes of a class is dropped, `top` the number of
    classes that a classifier's prediction has. A session with open dimensions runs at the extents
    in `sizes`; without them one picture at a time, at the largest height and width.
    """

    def __init__(
        self,
        session: Session,
        *,
        labels: str | Path | Sequence[str] | None = None,
        decode: str | None = None,
        confidence: float = CONFIDENCE,
        iou: float | None = None,
        top: int = TOP,
        sizes: Mapping[str, int] | None = None,
        **preprocessing: Any,
    ):
        self.session, self.confidence, self.iou, self.top = session, confidence, iou, top
        self.input, self.type = _picture_input(session, sizes or {})
        self.format, self.stored = _format(session, self.input, self.type, preprocessing)
        self.taker = _taker(self.input, self.type, self.format)
        own = names_in(session.meta.get("metadata") or {})
        self.labels = _names(labels) or own
        self.inner_size = self.format.inner_size or self.taker.size
        shapes = list(session.output_shapes({self.input: self.type.shape}).values())
        named = len(self.labels) if self.labels else None
        self.facts = recognize.Outputs(shapes, self.inner_size, named)
        given = recognize.named(decode) if decode else None
        self.decoder = given or recognize.recognize(self.facts)
        self.classes = recognize.class_count(self.decoder, self.facts)
        if own and self.classes is not None and self.decoder != CLASSIFIER:
            self.classes = min(self.classes, len(own))  # key points and masks follow the classes
        if self.labels and self.classes not in (None, len(self.labels)):
            _warn_of_labels(len(self.labels), self.classes)

    def preprocess(self, picture: Any) -> Array:
        """The input that a picture becomes: a path, a Pillow image, or bytes [height, width, 3]."""
        result = self.taker.of_image(self._image(picture))
        return np.ascontiguousarray(result.reshape(self.type.shape))

    def __call__(self, picture: Any, name: str | None = None) -> Prediction:
        image = self._image(picture)
        feed = np.ascontiguousarray(self.taker.of_image(image).reshape(self.type.shape))
        outputs = self.session.run({self.input: feed})
        if name is None:
            name = str(picture) if isinstance(picture, str | os.PathLike) else "picture"
        result = Prediction(name, image, self.decoder, outputs)
        if self.decoder is None:
            return result
        real = [
            real_numbers(a, t)
            for a, t in zip(outputs.values(), self._outputs.values(), strict=True)
        ]
        if self.decoder == CLASSIFIER:
            classes, kind = top_classes(real[0], self.top, self.labels)
            return replace(result, classes=classes, kind=kind)
        return replace(result, detections=self._detections(real, (image.height, image.width)))

    @property
    def _outputs(self) -> dict[str, Type]:
        """The types of the outputs at the size of the input."""
        pairs = zip(self.session.outputs.items(), self.facts.shapes, strict=True)
        return {n: t.but(shape=shape, dynamic=()) for (n, t), shape in pairs}

    def describe(self) -> str:
        """The preprocessing in words."""
        f, (h, w) = self.format, self.taker.size
        parts = [f"{f.resize} to {w}x{h}"]
        if self.taker.channels >= 3:
            parts.append(f.color.upper())
        for word, numbers in (("mean", f.mean), ("std", f.std)):
            if numbers is not None:
                parts.append(f"{word} {','.join(f'{n:g}' for n in dict.fromkeys(numbers))}")
        return ", ".join(parts)

    def require_decoder(self) -> None:
        """BadInput if the outputs cannot be decoded."""
        if self.decoder is None:
            raise recognize.unknown(self._outputs)

    def _image(self, picture: Any) -> Any:
        if isinstance(picture, str | os.PathLike):
            return open_picture(os.fspath(picture), self.taker.channels)
        if isinstance(picture, np.ndarray):
            if picture.dtype != np.uint8 or picture.ndim not in (2, 3):
                raise BadInput(
                    f"the picture is {picture.dtype}{list(picture.shape)}; "
                    "give bytes (uint8) as [height, width, channels]"
                )
            return pillow().fromarray(np.ascontiguousarray(picture))
        if hasattr(picture, "convert"):
            return picture
        raise BadInput(
            f"the picture is a {type(picture).__name__}; give a path, an array or a Pillow image"
        )

    def _detections(self, outputs: list[Array], size: tuple[int, int]) -> list[Detection]:
        decoder = DECODERS[str(self.decoder)]
        more: dict[str, Any] = {} if self.iou is None else {"most": self.iou}
        count = recognize.mask_count(self.decoder, self.facts)
        if count:
            more["masks"] = count
        try:
            rows = decoder.decode(
                outputs, self.confidence, size=self.inner_size, classes=self.classes, **more
            )
        except (IndexError, ValueError, StopIteration) as e:
            shown = ", ".join(f"'{n}' {t}" for n, t in self._outputs.items())
            raise BadInput(
                f"outputs {shown} are not those of {decoder.name} ({e or type(e).__name__}); "
                f"give another {option('decode')}: one of {', '.join(recognize.CHOICES)}"
            ) from None
        rows = self._in_picture(rows, size)
        found = self._masks(outputs, rows, size) if count else [None] * len(rows)
        return [
            Detection(
                int(r[0]), name_of(int(r[0]), self.labels), float(r[1]), tuple(r[2:6].tolist()), m
            )
            for r, m in zip(rows, found, strict=True)
        ]

    def _masks(self, outputs: list[Array], rows: Array, size: tuple[int, int]) -> list[Array]:
        """The masks of the kept boxes, in pixels of the picture."""
        found = masks.prototypes(self.facts.shapes, self.inner_size)
        assert found is not None
        maps = outputs[found[0]][0]
        if masks.channels_axis(self.facts.shapes[found[0]], self.inner_size) == 3:
            maps = maps.transpose(2, 0, 1)
        inner, outer = self.inner_size, self.taker.size
        region = masks.region_of(Fit.of(self.format.resize, size, outer), outer)
        if inner != outer:
            fit = Fit.of("letterbox", outer, inner)
            moved = np.array(region) * ((fit.width, fit.height) * 2) + (fit.left, fit.top) * 2
            left, top, right, bottom = (moved / ((inner[1], inner[0]) * 2)).tolist()
            region = left, top, right, bottom
        return masks.instance_masks(rows[:, 6:], maps, rows[:, 2:6], region, size)

    def _in_picture(self, rows: Array, size: tuple[int, int]) -> Array:
        """Boxes in pixels of the picture: resizing and letterbox undone, cut at the edges."""
        rows = rows.astype(np.float64)
        inner, outer = self.inner_size, self.taker.size
        if len(rows) and rows[:, 2:6].max() <= SHARES:
            rows[:, 2:6] *= (inner[1], inner[0]) * 2
        if inner != outer:
            _undo(rows, Fit.of("letterbox", outer, inner), outer)
        _undo(rows, Fit.of(self.format.resize, size, outer), size)
        rows[:, 2:6] = np.clip(rows[:, 2:6], 0, (size[1], size[0]) * 2)
        return rows


def _undo(rows: Array, fit: Fit, size: tuple[int, int]) -> None:
    """Move boxes from an input back into the picture of this size that lies in it."""
    rows[:, 2:6] -= (fit.left, fit.top) * 2
    rows[:, 2:6] *= (size[1] / fit.width, size[0] / fit.height) * 2


def predict(session: Session, picture: Any, **options: Any) -> Prediction:
    """What the model says about a picture: a path, a Pillow image, or bytes [height, width, 3].

    The options are those of `Predictor`, which is faster for many pictures.
    """
    return Predictor(session, **options)(picture)


# ---- labels ----
def _warn_of_labels(names: int, classes: int | None) -> None:
    warnings.warn(
        f"there are {names} names, the model has {classes} classes: names may be wrong",
        stacklevel=3,
    )


# ---- the input ----
def _picture_input(session: Session, sizes: Mapping[str, int]) -> tuple[str, Type]:
    """The input that takes pictures, which must be the only one, at these sizes."""
    known = picture_format.parse(session.meta.get("preprocessing") or {})
    types = session.inputs
    takers = [n for n, t in types.items() if n in known or _takes_pictures(t)]
    if len(types) != 1 or not takers:
        shown = ", ".join(f"'{n}' {t}" for n, t in types.items())
        raise BadInput(
            f"inputs {shown}: a picture needs a model with one input, [N, C, H, W] or "
            "[N, H, W, C] with 1, 3 or 4 channels; give arrays (.npy)"
        )
    name, t = takers[0], types[takers[0]]
    batch: Any = t.shape[0]
    if t.rank == 4 and isinstance(batch, SymInt):
        sizes = {range_of(batch).name: 1, **sizes}
    t = at_sizes(t, sizes)
    if t.rank == 4 and t.shape[0] != 1:
        raise BadInput(
            f"input '{name}' {types[name]} takes {t.shape[0]} pictures at once; "
            "compile the model with batch 1"
        )
    return name, t


def _takes_pictures(t: Type) -> bool:
    return t.dtype in (*TAKE_PICTURES, "i8") and channels_last(t, "auto") is not None


def _format(
    session: Session, name: str, t: Type, given: dict[str, Any]
) -> tuple[PictureFormat, bool]:
    """The format of the input, and whether anybody said it."""
    stored = picture_format.parse(session.meta.get("preprocessing") or {}).get(name)
    asked = {k: v for k, v in given.items() if v is not None}
    if unknown := [k for k in asked if k not in ("mean", "std", "color", "resize", "pad_value")]:
        raise TypeError(f"Predictor() got an unexpected keyword argument '{unknown[0]}'")
    known = _of_exporter(session.meta.get("metadata") or {}) if dtypes.is_float(t.dtype) else {}
    plain = PictureFormat("nhwc" if channels_last(t, "auto") else "nchw")
    made = replace(stored or replace(plain, **known), **asked)
    return made, stored is not None or bool(asked or known)


def _of_exporter(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The preprocessing that every model of an exporter wants; empty if it is not known."""
    if metadata.get("author") != "Ultralytics":
        return {}
    return {
        "std": (255.0,),
        "resize": "crop" if metadata.get("task") == "classify" else "letterbox",
    }


def _taker(name: str, t: Type, f: PictureFormat) -> Picture:
    last = f.layout == "nhwc"
    if t.rank not in (3, 4):
        raise BadInput(f"input '{name}' {t} has {t.rank} axes; pictures need 3 or 4")
    channels = t.shape[-1 if last else -3]
    mean, std = (per_channel(w, g, name, channels) for w, g in (("mean", f.mean), ("std", f.std)))
    if not dtypes.is_float(t.dtype) and (mean is not None or std is not None):
        if not _are_bytes(t, mean, std):
            raise BadInput(
                f"input '{name}' {t} takes bytes; leave out {option('mean')} and {option('std')}"
            )
        mean = std = None
    return Picture(name, t, last, mean, std, f.color == "bgr", f.resize, f.pad_value)


def _are_bytes(t: Type, mean: Array | None, std: Array | None) -> bool:
    """Whether the integers of an input stand for (pixel - mean) / std where they are the pixels."""
    if t.quant is None or t.quant.axis is not None or t.dtype not in ("u8", "i8"):
        return False
    first = 0 if t.dtype == "u8" else -128
    real = (np.array([0.0, 255.0]) + first - t.quant.zero[0]) * t.quant.scale[0]
    each = np.ones(1) if std is None else np.ravel(std)
    low = (0.0 if mean is None else np.ravel(mean)) / each
    wanted = np.stack(np.broadcast_arrays(-low, 255 / each - low))
    return bool(np.abs(wanted - real[:, None]).max() <= 2 * abs(t.quant.scale[0]))


def real_numbers(a: Array, t: Type) -> Array:
    """An output as real numbers: integers with a scale are multiplied by it."""
    if t.quant is None or dtypes.is_float(t.dtype):
        return a if a.dtype.kind in "fiub" else a.astype(np.float32)
    scale, zero = (np.asarray(n, np.float32) for n in (t.quant.scale, t.quant.zero))
    if t.quant.axis is not None:
        along = [1] * a.ndim
        along[t.quant.axis] = -1
        scale, zero = scale.reshape(along), zero.reshape(along)
    return (a.astype(np.float32) - zero) * scale


def _names(labels: str | Path | Sequence[str] | None) -> list[str] | None:
    if labels is None:
        return None
    return read_labels(labels) if isinstance(labels, str | os.PathLike) else [*map(str, labels)]
