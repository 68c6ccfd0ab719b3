"""Average precision equals pycocotools' on the same detections."""

import contextlib
import io

import numpy as np
import pytest

from intaglio.evaluation import AveragePrecision


def pictures(seed, count=12, classes=3):
    """True boxes with crowds, and detections near some of them."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        truths, found, crowds = [], [], []
        for _ in range(rng.integers(0, 8)):
            label, corner = int(rng.integers(classes)), rng.uniform(0, 200, 2)
            box = np.concatenate([corner, corner + rng.uniform(5, 80, 2)])
            truths.append((label, box.tolist()))
            crowds.append(bool(rng.random() < 0.1))
            for _ in range(rng.integers(0, 3)):
                near = box + rng.normal(0, 5, 4)
                near[2:] = np.maximum(near[2:], near[:2] + 1)
                label = label if rng.random() < 0.9 else int(rng.integers(classes))
                found.append((label, float(rng.random()), near.tolist()))
        for _ in range(rng.integers(0, 5)):
            corner = rng.uniform(0, 200, 2)
            box = np.concatenate([corner, corner + rng.uniform(5, 80, 2)]).tolist()
            found.append((int(rng.integers(classes)), float(rng.random()), box))
        made.append((found, truths, crowds))
    return made


def ours(made):
    result = AveragePrecision()
    for found, truths, crowds in made:
        result.add(found, truths, crowds)
    return result.figures()


def theirs(made):
    coco = pytest.importorskip("pycocotools.coco", reason="needs pycocotools: pip install it")
    from pycocotools.cocoeval import COCOeval

    images, annotations, results = [], [], []
    for i, (found, truths, crowds) in enumerate(made, 1):
        images.append({"id": i})
        for (label, (a, b, c, d)), crowd in zip(truths, crowds, strict=True):
            annotations.append(
                {"id": len(annotations) + 1, "image_id": i, "category_id": label + 1,
                 "bbox": [a, b, c - a, d - b], "area": (c - a) * (d - b), "iscrowd": int(crowd)}
            )  # fmt: skip
        for label, score, (a, b, c, d) in found:
            box = [a, b, c - a, d - b]
            results.append({"image_id": i, "category_id": label + 1, "bbox": box, "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        categories = [{"id": i + 1, "name": str(i)} for i in range(100)]
        truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return dict(zip(("AP", "AP50", "AP75"), run.stats[:3].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_equals_pycocotools(seed):
    made = pictures(seed)
    assert ours(made) == pytest.approx(theirs(made), abs=1e-9)


def test_figures_of_a_fixed_set():
    """Recorded from pycocotools 2.0.10, for machines without it."""
    figures = ours(pictures(0))
    assert figures == pytest.approx(RECORDED, abs=1e-6)


def test_a_perfect_and_an_empty_detector():
    truths = [(0, [0, 0, 10, 10]), (1, [5, 5, 20, 20])]
    perfect, empty, none = AveragePrecision(), AveragePrecision(), AveragePrecision()
    perfect.add([(c, 0.9, box) for c, box in truths], truths)
    empty.add([], truths)
    none.add([(0, 0.5, [0, 0, 1, 1])], [])
    assert perfect.figures()["AP"] == pytest.approx(1.0)
    assert empty.figures()["AP"] == 0
    assert np.isnan(none.figures()["AP"])


RECORDED = {"AP": 0.09044256599572999, "AP50": 0.18552355235523552, "AP75": 0.06383029607308556}
