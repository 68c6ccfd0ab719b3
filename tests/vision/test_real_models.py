"""Real detectors and classifiers on photographs: what is in the picture is found where it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import vision
from intaglio.vision.boxes import overlap

SHARED = Path(os.environ.get("INTAGLIO_SHARED", Path(__file__).parents[3] / "shared"))
MODELS, PICTURES = SHARED / "models", SHARED / "data" / "img"
NUDENET = Path.home() / ".cache/intaglio/bench/accuracy/pypi/nudenet-3.4.2/320n.onnx"
COCO = MODELS / "darknet" / "coco.names"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.exists(), reason=f"there is no {MODELS}"),
]

# Boxes as a person would draw them.
DOG = {"dog": (130, 220, 312, 544), "bicycle": (115, 125, 570, 430), "truck": (465, 75, 692, 170)}
HORSEMAN = {"person": (190, 95, 275, 375), "dog": (65, 265, 205, 350)}
FACES = {"class 0": (900, 100, 1060, 290)}


def best(model: Path, picture: str, load: dict[str, Any], **options: Any) -> vision.Prediction:
    if not model.exists():
        pytest.skip(f"there is no {model}; `python -m benchmarks.accuracy` fetches it")
    with intaglio.open(intaglio.compile(model, **load)) as session:
        return vision.predict(session, PICTURES / picture, **options)


def check(found: vision.Prediction, decoder: str, wanted: dict[str, tuple[float, ...]]) -> None:
    """Each object is found with a box that overlaps the wanted one by at least a half."""
    assert found.decoder == decoder
    for name, box in wanted.items():
        own = np.array([d.box for d in found.detections if d.name == name]).reshape(-1, 4)
        assert overlap(own, np.array([box])).max(initial=0) > 0.5, f"{name}: {found}"


def test_yolox():
    model = MODELS / "onnx" / "yolox_nano_416.onnx"
    check(
        best(model, "dog.jpg", {"color": "bgr", "resize": "letterbox"}, labels=COCO), "yolox", DOG
    )


def test_yolov8():
    """nudenet, an export of Ultralytics: names and preprocessing are in the file."""
    found = best(NUDENET, "zidane.jpg", {"shapes": {"images": (1, 3, 320, 320)}})
    check(found, "yolov8", {"FACE_MALE": FACES["class 0"]})


def test_ssd_in_tflite():
    model = MODELS / "tflite" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
    bus = {"bus": (15, 230, 800, 755), "person": (50, 398, 245, 905)}
    check(best(model, "bus.jpg", {}, labels=COCO), "ssd_nms", bus)


def test_ssd_before_nms():
    model = MODELS / "onnx" / "ultraface_RFB-320.onnx"
    check(best(model, "zidane.jpg", {"mean": 127, "std": 128}), "ssd", FACES)


def test_yunet():
    model = MODELS / "onnx" / "yunet_n_320_320.onnx"
    check(best(model, "zidane.jpg", {"color": "bgr"}), "yunet", FACES)


def test_darknet():
    model = MODELS / "darknet" / "yolo-fastest-1.1-xl.cfg"
    check(best(model, "person.jpg", {"std": 255}, labels=COCO), "darknet", HORSEMAN)


def test_fastestdet():
    model = MODELS / "onnx" / "FastestDet.onnx"
    found = best(model, "dog.jpg", {"std": 255, "color": "bgr"}, labels=COCO, confidence=0.5)
    check(found, "fastestdet", {"dog": DOG["dog"], "bicycle": DOG["bicycle"]})


def test_a_classifier():
    normal = {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375), "resize": "crop"}
    found = best(MODELS / "onnx" / "mobilenet_v2_fp32.onnx", "eagle.jpg", normal)
    assert (found.decoder, found.kind) == ("classifier", "softmax of logits")
    assert found.classes[0].label == 22  # bald eagle
    assert found.classes[0].score > 0.5
