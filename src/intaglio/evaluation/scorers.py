"""How each metric scores a picture and sums up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import BadInput, option
from intaglio.evaluation.average_precision import AveragePrecision, names_to_indices
from intaglio.evaluation.measures import (
    RESAMPLES,
    class_map,
    confusion,
    ctc_text,
    edit_distance,
    interval,
    mean_iou,
)
from intaglio.evaluation.outlines import pixels_of
from intaglio.evaluation.truth import Boxes, Truth
from intaglio.ir import Array
from intaglio.quant.samples.images import Fit, pillow
from intaglio.vision import Prediction, Predictor, draw
from intaglio.vision.masks import whole
from intaglio.vision.predict import real_numbers
from intaglio.vision.recognize import CLASSIFIER, mask_count

FEW_RESAMPLES = 100  # of average precision, which is slow
MAX_CLASSES = 1024  # of a segmentation


class Scorer:
    """Scores pictures one by one."""

    kind = ""  # of labels

    def __init__(self, name: str, predictor: Predictor):
        self.name, self.predictor = name, predictor
        self.values: list[float] = []

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        """Refuse a model that does not fit the labels."""

    def add(self, path: Path, label: Any) -> Any:
        """Score a picture; returns what `draw` needs."""
        raise NotImplementedError

    def draw(self, made: Any, path: Path) -> None:
        """Write the picture with its boxes or classes."""
        made.draw(path)

    resamples = RESAMPLES  # of the bootstrap

    def figure(self, picked: Array) -> float:
        """The first figure, of some of the pictures."""
        return float(np.array(self.values)[picked].mean())

    @property
    def count(self) -> int:
        """The number of pictures."""
        return len(self.values)

    def figures(self) -> dict[str, float]:
        """The metric over all pictures."""
        return {self.name: self.figure(np.arange(self.count))}

    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of the first figure."""
        return {next(iter(self.figures())): interval(self.figure, self.count, self.resamples)}

    def change_from(self, first: Scorer) -> tuple[float, float]:
        """The 95 % interval of the difference from another model on the same pictures."""

        def change(picked: Array) -> float:
            return self.figure(picked) - first.figure(picked)

        return interval(change, self.count, self.resamples)


class Custom(Scorer):
    """The user's function."""

    def __init__(self, name: str, predictor: Predictor, function: Callable[..., float]):
        super().__init__(name, predictor)
        self.function = function

    def add(self, path: Path, label: Any) -> Prediction:
        made = self.predictor(path)
        try:
            self.values.append(float(self.function(made, label)))
        except Exception as e:
            raise BadInput(
                f"the metric '{self.name}' failed on {path.name}: {type(e).__name__}: {e}; it is "
                "to return a number for a prediction and its label"
            ) from None
        return made


class TopK(Scorer):
    """Is the true class among the best k?"""

    kind = "class"

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        if self.predictor.decoder != CLASSIFIER:
            shapes = ", ".join("x".join(map(str, s)) for s in self.predictor.facts.shapes)
            raise BadInput(
                f"the model's outputs ({shapes}) are no class scores; give "
                f"{option('metric', 'map')} for a detector, {option('metric', 'iou')} for masks"
            )
        self.best = int(self.name.removeprefix("top"))
        self.predictor.top = max(self.predictor.top, self.best)
        most = max(truth.labels.values())
        count = math.prod(self.predictor.facts.shapes[0])
        if most >= count:
            raise BadInput(
                f"a label is class {most}, the model has {count} classes; give its own labels"
            )
        if self.best > count:
            raise BadInput(f"{option('metric', self.name)}: the model has {count} classes")
        self.shift = 1 if count == 1001 and most < 1000 else 0  # a background class comes first

    def add(self, path: Path, label: Any) -> Prediction:
        made = self.predictor(path)
        found = [c.label - self.shift for c in made.classes[: self.best]]
        self.values.append(float(label in found))
        return made


class MeanAP(Scorer):
    """Average precision as COCO defines it."""

    kind = "boxes"

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        if self.predictor.decoder in (None, CLASSIFIER):
            self.predictor.require_decoder()
            raise BadInput(
                "the model's outputs are class scores, no boxes; give the metric top1, or name "
                f"the decoder: {option('decode', 'yolov8')}"
            )
        self.precision = AveragePrecision()
        names, known = self.predictor.labels, truth.names
        self.classes = names_to_indices(names, known) if names and known else None
        if names and known and not self.classes:
            raise BadInput(
                f"none of the model's classes ({', '.join(names[:3])}, ...) is among those of the "
                f"labels ({', '.join(known[:3])}, ...); give their names with {option('labels')}"
            )

    def add(self, path: Path, label: Boxes) -> Prediction:
        made = self.predictor(path)
        w, h = made.size
        scale = (w, h, w, h) if label.relative else (1, 1, 1, 1)
        truths = [(c, [x * s for x, s in zip(box, scale, strict=True)]) for c, box in label.rows]
        found = [(d.label, d.score, d.box) for d in made.detections]
        if self.classes is not None:
            found = [(self.classes[c], s, b) for c, s, b in found if c in self.classes]
        self.precision.add(found, truths, label.crowds)
        return made

    def figures(self) -> dict[str, float]:
        return self.precision.figures()

    resamples = FEW_RESAMPLES

    def figure(self, picked: Array) -> float:
        return self.precision.figures([int(i) for i in picked])["AP"]

    @property
    def count(self) -> int:
        return len(self.precision.pictures)


class MaskAP(MeanAP):
    """Average precision of the masks of instances, as COCO's `segm`."""

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        super().prepare(truth, characters, blank)
        if not mask_count(self.predictor.decoder, self.predictor.facts):
            raise BadInput(
                "the model makes boxes without masks; give the metric map, or a model with "
                "prototype maps (-seg)"
            )

    def add(self, path: Path, label: Boxes) -> Prediction:
        if len(label.outlines) != len(label.rows) or None in label.outlines:
            raise BadInput(
                f"{path.name}: an object has a box alone; give annotations of COCO with "
                "segmentation, or polygons of YOLO, or the metric map"
            )
        made = self.predictor(path)
        w, h = made.size
        truths = []
        for (c, _), outline in zip(label.rows, label.outlines, strict=True):
            scaled = outline
            if label.relative:
                scaled = [[x * (w, h)[i % 2] for i, x in enumerate(p)] for p in outline]
            truths.append((c, pixels_of(scaled, (h, w))))
        found = []
        for d in made.detections:
            known = d.label if self.classes is None else self.classes.get(d.label)
            if known is not None and d.mask is not None:
                found.append((known, d.score, whole(d.mask, d.box, (h, w))))
        self.precision.add(found, truths, label.crowds)
        return made


class Segmentation(Scorer):
    """Mean intersection over union of pixels."""

    kind = "mask"

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        shape = self.predictor.facts.shapes[0]
        if len(shape) not in (3, 4):
            raise BadInput(
                f"the model's first output is {'x'.join(map(str, shape))}, no map of classes; IoU "
                "needs [1, C, H, W], [1, H, W, C] or [1, H, W]"
            )
        self.tables: list[Array] = []

    def add(self, path: Path, label: Path) -> tuple[Any, Array]:
        image = self.predictor._image(path)
        outputs = self.predictor.session.run(
            {self.predictor.input: self.predictor.preprocess(path)}
        )
        name, array = next(iter(outputs.items()))
        found = class_map(real_numbers(array, self.predictor._outputs[name]))
        found = self._in_picture(found, image.size)
        truth = np.asarray(pillow().open(label))
        truth = truth[..., 0] if truth.ndim == 3 else truth
        if truth.shape != found.shape:
            raise BadInput(
                f"{label}: {truth.shape[1]}x{truth.shape[0]} pixels, the picture has "
                f"{found.shape[1]}x{found.shape[0]}; give masks of the pictures' sizes"
            )
        classes = int(max(found.max(), truth[truth != 255].max(initial=0))) + 1
        if classes > MAX_CLASSES:
            raise BadInput(f"{label}: class {classes - 1}; at most {MAX_CLASSES} are supported")
        self.tables.append(confusion(found, truth.astype(np.int64), classes))
        return image, found

    def _in_picture(self, found: Array, size: tuple[int, int]) -> Array:
        """The map at the size of the picture: letterbox undone, nearest neighbours."""
        (h, w), (width, height) = self.predictor.taker.size, size
        fit = Fit.of(self.predictor.format.resize, (height, width), (h, w))
        rows = (np.arange(height) + 0.5) / height * fit.height + fit.top
        columns = (np.arange(width) + 0.5) / width * fit.width + fit.left
        y = np.clip((rows / h * found.shape[0]).astype(int), 0, found.shape[0] - 1)
        x = np.clip((columns / w * found.shape[1]).astype(int), 0, found.shape[1] - 1)
        result: Array = found[y[:, None], x[None]]
        return result

    def draw(self, made: tuple[Any, Array], path: Path) -> None:
        image, found = made
        colours = np.random.default_rng(3).integers(60, 256, (MAX_CLASSES, 3))
        base = np.asarray(image.convert("RGB"), np.float32)
        shade = np.where((found > 0)[..., None], colours[found], base)
        mixed = (0.5 * base + 0.5 * shade).astype(np.uint8)
        draw.save_picture(pillow().fromarray(mixed), path)

    def figure(self, picked: Array) -> float:
        size = max(len(self.tables[i]) for i in picked)
        total = np.zeros((size, size), np.int64)
        for i in picked:
            n = len(self.tables[i])
            total[:n, :n] += self.tables[i]
        return mean_iou(total)

    @property
    def count(self) -> int:
        return len(self.tables)

    def figures(self) -> dict[str, float]:
        return {"mIoU": self.figure(np.arange(self.count))}


class Characters(Scorer):
    """Character error rate: edits relative to the characters of all texts."""

    kind = "text"

    def prepare(self, truth: Truth, characters: Sequence[str] | None, blank: int) -> None:
        if not characters:
            raise BadInput(
                f"the characters of the model are not known; give {option('characters')} with one "
                "on each line, without the blank"
            )
        self.characters, self.blank = list(characters), blank
        self.edits: list[int] = []
        self.lengths: list[int] = []

    def add(self, path: Path, label: str) -> Any:
        outputs = self.predictor.session.run(
            {self.predictor.input: self.predictor.preprocess(path)}
        )
        text = ctc_text(next(iter(outputs.values())), self.characters, self.blank)
        self.edits.append(edit_distance(text, label))
        self.lengths.append(len(label))
        return self.predictor._image(path), text

    def draw(self, made: tuple[Any, str], path: Path) -> None:
        draw.save_picture(draw.draw_lines(made[0], [made[1]]), path)

    def figure(self, picked: Array) -> float:
        total = int(np.array(self.lengths)[picked].sum())
        return float(np.array(self.edits)[picked].sum()) / total if total else math.nan

    @property
    def count(self) -> int:
        return len(self.edits)

    def figures(self) -> dict[str, float]:
        return {"CER": self.figure(np.arange(self.count))}


SCORERS: dict[str, type[Scorer]] = {
    "top1": TopK,
    "map": MeanAP,
    "segm": MaskAP,
    "iou": Segmentation,
    "cer": Characters,
}
