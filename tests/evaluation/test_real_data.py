"""`eval` on real networks and labelled pictures: top-1 as counted by hand, AP as pycocotools."""

import csv

import numpy as np
import pytest
from tests.evaluation.test_average_precision import theirs
from tests.shared_models import SHARED

import intaglio
from intaglio.evaluation import evaluate
from intaglio.vision import Predictor

pytestmark = pytest.mark.slow
TORCH = {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375), "resize": "crop"}


def test_top1_is_exact():
    data, model = (
        SHARED / "data/imagenet_val1000_256",
        SHARED / "models/onnx/mobilenet_v2_fp32.onnx",
    )
    if not data.exists() or not model.exists():
        pytest.skip(f"{data} or {model} is missing")
    package = intaglio.compile(model)
    found = evaluate(package, data, "top1", limit=200, **TORCH)
    labels = list(csv.reader((data / "labels.csv").open()))[:200]
    with intaglio.open(package) as session:
        predictor = Predictor(session, **TORCH)
        right = 0
        for name, label in labels:
            (logits,) = session.run({predictor.input: predictor.preprocess(data / name)}).values()
            right += int(np.argmax(logits)) == int(label)
    assert found.scores[0].figures["top1"] == right / 200


def test_ap_equals_pycocotools():
    pytest.importorskip("pycocotools", reason="needs pycocotools: pip install it")
    data, model = SHARED / "data/coco128_val", SHARED / "models/onnx/yolox_nano_416.onnx"
    if not data.exists() or not model.exists():
        pytest.skip(f"{data} or {model} is missing")
    package = intaglio.compile(model)
    how = {"color": "bgr", "resize": "letterbox"}
    found = evaluate(package, data, "map", limit=32, **how)
    made = []
    with intaglio.open(package) as session:
        predictor = Predictor(session, confidence=0.001, **how)
        for path in sorted((data / "images").rglob("*.jpg"))[:32]:
            label = data / "labels/val2017" / f"{path.stem}.txt"
            if not label.exists():
                continue
            p = predictor(path)
            w, h = p.size
            truths = []
            for line in label.read_text().splitlines():
                c, x, y, bw, bh = map(float, line.split())
                box = [(x - bw / 2) * w, (y - bh / 2) * h, (x + bw / 2) * w, (y + bh / 2) * h]
                truths.append((int(c), box))
            made.append(
                ([(d.label, d.score, d.box) for d in p.detections], truths, [False] * len(truths))
            )
    assert len(made) == found.scores[0].pictures
    assert found.scores[0].figures == pytest.approx(theirs(made), abs=1e-6)
