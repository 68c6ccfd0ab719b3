"""True masks and their average precision, against pycocotools."""

import json

import numpy as np
import pytest

import intaglio
from intaglio.errors import BadInput
from intaglio.evaluation.average_precision import AveragePrecision
from intaglio.evaluation.outlines import pixels_of

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")
mask = pytest.importorskip("pycocotools.mask")
SIZE = (37, 53)


def polygon(rng):
    centre, count = rng.uniform(5, 40, 2), rng.integers(3, 9)
    angles = np.sort(rng.uniform(0, 2 * np.pi, count))
    corners = centre + rng.uniform(2, 20, (count, 1)) * np.stack(
        [np.cos(angles), np.sin(angles)], 1
    )
    return corners.ravel().round(2).tolist()


def test_polygons_and_run_lengths_are_those_of_pycocotools():
    rng = np.random.default_rng(0)
    for _ in range(60):
        shape = [np.clip(polygon(rng), 0, None).tolist() for _ in range(rng.integers(1, 3))]
        packed = mask.merge(mask.frPyObjects(shape, *SIZE))
        wanted = mask.decode(packed).astype(bool)
        assert (pixels_of(shape, SIZE) == wanted).all()
        assert (pixels_of(packed, SIZE) == wanted).all()


def test_average_precision_of_masks_is_that_of_pycocotools(capsys):
    rng, ours = np.random.default_rng(1), AveragePrecision()
    images, annotations, results = [], [], []
    for image in range(1, 9):
        images.append({"id": image, "height": SIZE[0], "width": SIZE[1]})
        truths, found, crowds = [], [], []
        for n in range(5):
            shape = [np.clip(polygon(rng), 0, None).tolist()]
            pixels = pixels_of(shape, SIZE)
            label, crowd = int(rng.integers(2)), n == 4
            packed = mask.encode(np.asfortranarray(pixels.astype(np.uint8)))
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": label}
                | {"segmentation": packed, "area": int(pixels.sum()), "iscrowd": int(crowd)}
                | {"bbox": mask.toBbox(packed).tolist()}
            )
            truths.append((label, pixels))
            crowds.append(crowd)
            moved = np.roll(pixels, rng.integers(-1, 2, 2), (0, 1))
            score = float(rng.uniform())
            found.append((label, score, moved))
            packed = mask.encode(np.asfortranarray(moved.astype(np.uint8)))
            results.append(
                {"image_id": image, "category_id": label, "score": score} | {"segmentation": packed}
            )
        ours.add(found, truths, crowds)
    truth = coco.COCO()
    truth.dataset = {"images": images, "annotations": annotations, "info": {}}
    truth.dataset["categories"] = [{"id": i, "name": str(i)} for i in range(2)]
    truth.createIndex()
    theirs = cocoeval.COCOeval(truth, truth.loadRes(results), "segm")
    theirs.evaluate()
    theirs.accumulate()
    theirs.summarize()
    made = ours.figures()
    np.testing.assert_allclose(
        [made["AP"], made["AP50"], made["AP75"]], theirs.stats[:3], atol=1e-9
    )
    assert 0.1 < made["AP"] < 0.95
    capsys.readouterr()


def test_eval_scores_the_masks_of_a_model(tmp_path):
    from PIL import Image
    from tests.vision.test_masks import PICTURE, model

    (tmp_path / "images").mkdir()
    Image.fromarray(PICTURE).save(tmp_path / "images" / "a.png")
    left_half = [[8, 8, 32, 8, 32, 24, 8, 24]]  # of the first box, where its mask is
    rows = [{"id": 1, "image_id": 1, "category_id": 0, "bbox": [8, 8, 24, 16], "iscrowd": 0}]
    rows[0] |= {"segmentation": left_half, "area": 384}
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 32, "width": 64}]}
    content |= {"annotations": rows, "categories": [{"id": i, "name": str(i)} for i in range(2)]}
    (tmp_path / "truth.json").write_text(json.dumps(content))
    package, _, _ = model("yolov8")
    given = {"truth": tmp_path / "truth.json", "metric": "segm"}
    found = intaglio.evaluate(package, tmp_path / "images", **given)
    assert found.to_dict()["models"][0]["figures"]["AP"] == pytest.approx(1.0)
    del rows[0]["segmentation"]
    (tmp_path / "truth.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="has a box alone"):
        intaglio.evaluate(package, tmp_path / "images", **given)
