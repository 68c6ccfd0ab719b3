"""Masks of instances: coefficients of kept boxes times prototype maps, in pixels of the picture."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops, vision
from intaglio.ir import Graph, Type, Value, constant
from intaglio.vision import masks

Image = pytest.importorskip("PIL.Image")
cv2 = pytest.importorskip("cv2")
MAPS, SIDE, CELLS = 3, 64, 84
PICTURE = np.full((32, 64, 3), 200, np.uint8)
BOXES = ((32.0, 32.0, 48.0, 16.0), (20.0, 30.0, 20.0, 12.0))  # in the input, centred


def model(kind: str, last: bool = False) -> tuple[intaglio.Package, np.ndarray, np.ndarray]:
    """A detector with two boxes of two classes, whose outputs do not depend on the picture."""
    rng = np.random.default_rng(4)
    maps = rng.standard_normal((MAPS, 16, 16)).astype(np.float32)
    maps[0] = np.where(np.arange(16) < 8, 1, -1)
    weights = rng.standard_normal((2, MAPS)).astype(np.float32)
    weights[0] = 1, 0, 0
    cells = CELLS if kind == "yolov8" else 3 * CELLS
    rows = np.zeros((cells, (6 if kind == "yolov8" else 7) + MAPS), np.float32)
    for i, box in enumerate(BOXES):
        scores = [0.0, 0.0]
        scores[i] = 0.9 - 0.1 * i
        objects = [] if kind == "yolov8" else [1.0]
        rows[5 + i] = *box, *objects, *scores, *weights[i]
    x = Value(Type("f32", (1, 3, SIDE, SIDE)), "x")
    nothing = ops.mul(ops.reduce_max(x, axes=(1, 2, 3), keepdims=False), np.float32(0))
    found = rows.T if kind == "yolov8" else rows
    made = maps.transpose(1, 2, 0) if last else maps
    outputs = [ops.add(nothing, constant(np.ascontiguousarray(a[None]))) for a in (found, made)]
    package = intaglio.compile(Graph([x], outputs, ["found", "maps"]), resize="letterbox", std=255)
    return package, maps, weights


@pytest.mark.parametrize("kind", ["yolov8", "yolov5"])
@pytest.mark.parametrize("last", [False, True])
def test_masks_come_back_to_the_picture(kind: str, last: bool, tmp_path):
    package, maps, weights = model(kind, last)
    with intaglio.open(package) as session:
        made = vision.predict(session, PICTURE)
    assert made.decoder == kind
    assert [d.label for d in made.detections] == [0, 1]
    first = made.detections[0]
    assert first.box == (8.0, 8.0, 56.0, 24.0)
    assert first.mask.shape == (16, 48)
    assert (first.mask == (np.arange(8, 56) < 32)).all()
    for d, w in zip(made.detections, weights, strict=True):
        sums = np.tensordot(w, maps, 1)[4:12]  # without the letterbox
        whole = cv2.resize(sums, (64, 32), interpolation=cv2.INTER_LINEAR) > 0
        left, top, right, bottom = masks.pixels(d.box, (32, 64))
        assert (d.mask == whole[top:bottom, left:right]).mean() > 0.995
    drawn = np.asarray(made.draw(tmp_path / "made.png"))
    assert (drawn[20, 20] != 200).any()
    image = Image.fromarray(PICTURE)
    tinted = np.asarray(masks.tinted(image, [((0, 0, 0), first.mask, first.box)]))
    assert (tinted[8:24, 8:32] == 100).all()
    assert (tinted == 100).sum() == 3 * first.mask.sum()
    told = made.to_dict()["detections"][0]["mask"]
    assert told["size"] == [32, 64]
    flat = np.repeat(np.arange(len(told["counts"])) % 2, told["counts"])
    assert flat.size == 32 * 64
    assert flat.reshape(64, 32).T[8:24, 8:56].astype(bool).tolist() == first.mask.tolist()
    assert flat.sum() == first.mask.sum()


def test_detectors_without_prototypes_have_no_masks():
    assert masks.prototypes([(1, 84, 8400)], (640, 640)) is None
    assert masks.prototypes([(1, 116, 8400), (1, 32, 160, 160)], (640, 640)) == (1, 32)
    assert masks.prototypes([(1, 116, 8400), (1, 120, 160, 32)], (480, 640)) == (1, 32)
    assert masks.prototypes([(1, 25200, 85), (1, 3, 80, 80, 85)], (640, 640)) is None
