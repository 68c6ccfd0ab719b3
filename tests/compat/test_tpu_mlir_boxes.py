"""model_transform --add_postprocess: the boxes of yolo_post against their definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat.command_line import refused, run
from tests.compat.nncase_models import Net

import intaglio
from intaglio.array_files import read_npz

SIDE, CLASSES = 64, 2
ANCHORS = [10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326]


def grids(path: Path, objectness: float = 2) -> None:
    """A stem and three heads with three anchors: names g8, g16 and g32."""
    net, outputs = Net(), {}
    x = net.conv("images", 3, 8, 3, 2)
    x = net.conv(x, 8, 8, 3, 2)
    for stride in (8, 16, 32):
        x = net.conv(x, 8, 8, 3, 2)
        net.conv(x, 8, 3 * (5 + CLASSES), act=False)
        head = net.nodes[-1]
        bias, weight = head.input[2], head.input[1]
        net.weights[weight] = net.weights[weight] * 4
        net.weights[bias] = np.tile(np.float32([0, 0, -1, -1, objectness, 0.5, -0.5]), 3)
        head.output[0] = f"g{stride}"
        outputs[f"g{stride}"] = [1, 3 * (5 + CLASSES), SIDE // stride, SIDE // stride]
    net.save(path, {"images": [1, 3, SIDE, SIDE]}, outputs)


def columns(path: Path) -> None:
    """A column for each of 256 boxes, in pixels: [1, 4 + classes, 256]."""
    net = Net()
    x = net.conv("images", 3, 8, 3, 2)
    x = net.conv(x, 8, 8, 3, 2)
    sides = net.conv(x, 8, 4, act=False)
    sides = net.node("Mul", net.node("Sigmoid", sides), net.constant(np.float32(24)))
    ys, xs = np.mgrid[0:16, 0:16].astype(np.float32) * 4
    sides = net.node("Add", sides, net.constant(np.stack([xs, ys, 0 * xs, 0 * xs])[None]))
    scores = net.node("Sigmoid", net.conv(x, 8, CLASSES, act=False))
    joined = net.node("Concat", sides, scores, axis=1)
    shape = net.constant(np.int64([1, 4 + CLASSES, 256]))
    net.node("Reshape", joined, shape)
    net.nodes[-1].output[0] = "y"
    net.save(path, {"images": [1, 3, SIDE, SIDE]}, {"y": [1, 4 + CLASSES, 256]})


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def candidates(tensors: dict[str, np.ndarray], kind: str) -> list[list[float]]:
    """[class, score, x, y, width, height] of all boxes, one by one."""
    found = []
    if kind in ("yolov8", "yolov11"):
        for column in tensors["y_Reshape"][0].T:
            found += [[k, column[4 + k], *column[:4]] for k in range(CLASSES)]
        return found
    for level, stride in enumerate((8, 16, 32)):
        head = tensors[f"g{stride}_Conv"][0]
        for a, j, i in np.ndindex(3, *head.shape[1:]):
            t = head[a * (5 + CLASSES) : (a + 1) * (5 + CLASSES), j, i]
            p, (w, h) = sigmoid(t), ANCHORS[level * 6 + 2 * a :][:2]
            if kind == "yolov3":
                box = [(p[0] + i) * stride, (p[1] + j) * stride]
                box += [np.exp(float(t[2])) * w, np.exp(float(t[3])) * h]
            else:
                box = [(2 * p[0] - 0.5 + i) * stride, (2 * p[1] - 0.5 + j) * stride]
                box += [(2 * p[2]) ** 2 * w, (2 * p[3]) ** 2 * h]
            found += [[k, p[4] * p[5 + k], *box] for k in range(CLASSES)]
    return found


def overlap(a: list[float], b: list[float]) -> float:
    """The shared part of two boxes of the same class; 0 of others."""
    low = [max(p[k] - p[k + 2] / 2 for p in (a, b)) for k in (2, 3)]
    high = [min(p[k] + p[k + 2] / 2 for p in (a, b)) for k in (2, 3)]
    shared = max(high[0] - low[0], 0) * max(high[1] - low[1], 0)
    return (a[0] == b[0]) * shared / (a[4] * a[5] + b[4] * b[5] - shared)


def check(rows: np.ndarray, boxes: list[list[float]]) -> None:
    """The rows are what greedy suppression keeps of the boxes."""
    left = sorted((b for b in boxes if b[1] > 0.5), key=lambda b: -b[1])
    kept: list[list[float]] = []
    for box in left:
        if all(overlap(box, k) <= 0.5 for k in kept):
            kept.append(box)
    assert 3 < len(kept) < len(left)
    kept = kept[:200]
    assert rows.shape == (1, 1, len(kept), 7)
    assert (rows[..., 0] == 0).all()
    assert (np.diff(rows[0, 0, :, 2]) <= 0).all()
    np.testing.assert_allclose(rows[0, 0, :, 1:], np.array(kept), rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("kind", ["yolov3", "yolov5", "yolov8", "yolov11"])
def test_boxes_follow_from_the_heads(folder: Path, kind: str, capsys):
    grid = kind in ("yolov3", "yolov5")
    (grids if grid else columns)(folder / "net.onnx")
    line = (
        "model_transform --model_name net --model_def net.onnx --mlir net.mlir --scale "
        "0.0039,0.0039,0.0039 --pixel_format rgb --test_input images/0.png --test_result top.npz"
    )
    assert run(f"{line} --add_postprocess {kind}") == 0
    top = read_npz("top.npz")
    check(top["yolo_post"], candidates(dict(top), kind))
    deploy = "model_deploy --mlir net.mlir --chip bm1684x"
    test = "--test_input net_in_f32.npz --test_reference top.npz --excepts yolo_post"
    assert run(f"{deploy} --quantize F16 {test} --model half.itg") == 0
    calibrate = "run_calibration net.mlir --dataset images --input_num 4 -o table"
    assert run(calibrate) == 0
    int8 = f"{deploy} --quantize INT8 --calibration_table table"
    assert run(f"{int8} --fuse_preprocess --model int8.itg") == 0
    with intaglio.open("half.itg") as session:
        rows = session.run(dict(read_npz("net_in_f32.npz")))["yolo_post"]
    assert abs(rows.shape[2] - top["yolo_post"].shape[2]) <= 3
    with intaglio.open("int8.itg") as session:
        (pixels,) = session.inputs.values()
        assert pixels.dtype == "u8"
        assert session.run({"images": np.zeros(pixels.shape, np.uint8)})["yolo_post"].shape[3] == 7
    assert "--model NAME.itg" in refused(f"{int8} --model net.bmodel", capsys)


def test_no_box_is_no_row(folder: Path):
    grids(folder / "net.onnx", objectness=-100)
    line = "model_transform --model_name net --model_def net.onnx --mlir net.mlir"
    test = "--scale 0.0039,0.0039,0.0039 --test_input images/0.png --test_result top.npz"
    assert run(f"{line} {test} --add_postprocess yolov5") == 0
    assert read_npz("top.npz")["yolo_post"].shape == (1, 1, 0, 7)
    assert run("run_calibration net.mlir --dataset images --input_num 4 -o table") == 0


def test_outputs_that_are_no_heads(folder: Path, capsys):
    line = "model_transform --model_name net --model_def yolo.onnx --mlir net.mlir"
    assert "three grids; the outputs are f32[" in refused(
        f"{line} --add_postprocess yolov5", capsys
    )
    assert "N x 4+classes" in refused(f"{line} --add_postprocess yolov8", capsys)
    assert "is one of yolov3, yolov5" in refused(f"{line} --add_postprocess ssd", capsys)
