"""examples/c/detect.c finds the boxes that Python finds, by both ways of building it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import native

ROOT = Path(__file__).parents[1]
BUILD = Path(native.library()._name).parent
HEIGHT, WIDTH, CLASSES, THRESHOLD, OVERLAP = 64, 96, 3, 0.25, 0.45


def detector(path: Path, v5: bool) -> Path:
    """A small network with random weights and the output of YOLOv8, or of YOLOv5."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    rng = np.random.default_rng(5)
    fields = (5 if v5 else 4) + CLASSES
    scale = np.ones((1, fields, 1), np.float32)
    scale[0, :4, 0] = WIDTH, HEIGHT, WIDTH / 2, HEIGHT / 2
    constants = {
        "w0": rng.normal(0, 0.4, (8, 3, 3, 3)),
        "w1": rng.normal(0, 2.0, (fields, 8, 1, 1)),
        "shape": np.array([1, fields, -1]),
        "scale": scale,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], strides=[8, 8], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Reshape", ["d", "shape"], ["e"]),
        helper.make_node("Mul", ["e", "scale"], ["f"]),
        helper.make_node("Transpose", ["f"], ["y"], perm=[0, 2, 1] if v5 else [0, 1, 2]),
    ]
    float32 = onnx.TensorProto.FLOAT
    weights = [
        numpy_helper.from_array(v if n == "shape" else v.astype(np.float32), n)
        for n, v in constants.items()
    ]
    x = helper.make_tensor_value_info("x", float32, [1, 3, HEIGHT, WIDTH])
    y = helper.make_tensor_value_info("y", float32, None)
    graph = helper.make_graph(nodes, "detector", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def picture(height: int, width: int) -> np.ndarray:
    """Coloured blobs, so that resizing loses little."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (7 + 3 * c)) * np.cos(y / (5 + 2 * c)) for c in range(3)]
    return np.round(127 + 120 * np.stack(waves, -1)).astype(np.uint8)


def fitted(image: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    """The picture in the middle of the input, as floats of 0 to 255; its scale, left and top."""
    h, w = image.shape[:2]
    scale = min(WIDTH / w, HEIGHT / h)
    left, top = np.floor((WIDTH - scale * w) / 2), np.floor((HEIGHT - scale * h) / 2)
    u, v = (np.arange(WIDTH) + 0.5 - left) / scale, (np.arange(HEIGHT) + 0.5 - top) / scale
    x, y = np.clip(u - 0.5, 0, w - 1), np.clip(v - 0.5, 0, h - 1)
    x0, y0 = x.astype(int), y.astype(int)
    x1, y1 = np.minimum(x0 + 1, w - 1), np.minimum(y0 + 1, h - 1)
    a, b = (x - x0)[None, :, None], (y - y0)[:, None, None]
    rows = image.astype(float)
    upper = rows[y0][:, x0] * (1 - a) + rows[y0][:, x1] * a
    lower = rows[y1][:, x0] * (1 - a) + rows[y1][:, x1] * a
    inside = ((u >= 0) & (u <= w))[None, :, None] & ((v >= 0) & (v <= h))[:, None, None]
    return np.where(inside, upper * (1 - b) + lower * b, 114.0), scale, left, top


def intersection_over_union(a: np.ndarray, b: np.ndarray) -> float:
    both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    return float(both / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both))


def boxes(output: np.ndarray, v5: bool) -> list[tuple[int, float, np.ndarray]]:
    """Class, score and corners after greedy suppression, class by class."""
    rows = output[0] if v5 else output[0].T
    scores = rows[:, 5:] * rows[:, 4:5] if v5 else rows[:, 4:]
    kept: list[tuple[int, float, np.ndarray]] = []
    for i in np.argsort(-scores.max(1), kind="stable"):
        k, score, (x, y, w, h) = int(scores[i].argmax()), float(scores[i].max()), rows[i, :4]
        corners = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
        if score > THRESHOLD and not any(
            k == other and intersection_over_union(corners, at) > OVERLAP for other, _, at in kept
        ):
            kept.append((k, score, corners))
    return kept


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """Built by the line in its comment."""
    if shutil.which("cc") is None or BUILD != ROOT / "build":
        pytest.skip("there is no cc here, or no build of the checkout")
    made = tmp_path_factory.mktemp("detect") / "detect"
    text = (ROOT / "examples/c/detect.c").read_text()
    (line,) = re.findall(r"^//   (cc .*)$", text, re.M)
    command = line.replace("-o detect", f"-o {made}").split()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return made


def detect(program: Path, model: Path, file: Path) -> list[tuple[int, float, np.ndarray]]:
    command = [program, model, file, str(THRESHOLD)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    pattern = r"class (\d+) score (\S+) box (\S+) (\S+) (\S+) (\S+)\n"
    found = re.findall(pattern, done.stdout)
    assert len(found) == done.stdout.count("\n")
    return [(int(k), float(s), np.array(at, float)) for k, s, *at in found]


def assert_same(got, want, slack: float) -> None:
    assert len(want) > 3
    assert len({k for k, *_ in want}) > 1
    assert [k for k, *_ in got] == [k for k, *_ in want]
    for (_, score, at), (_, right, place) in zip(got, want, strict=True):
        assert abs(score - right) < slack / 50
        np.testing.assert_allclose(at, place, atol=slack)


@pytest.mark.parametrize("kind", ["floats", "bytes", "v5"])
def test_boxes_of_a_picture(kind, program, tmp_path):
    v5, as_bytes = kind == "v5", kind == "bytes"
    onnx = detector(tmp_path / "d.onnx", v5)
    how = {"input_type": "uint8", "input_layout": "NHWC", "mean": (0,) * 3, "std": (255,) * 3}
    package = intaglio.compile(onnx, **(how if as_bytes else {}))
    package.save(tmp_path / "d.itg")
    image = picture(100, 110)
    (tmp_path / "p.ppm").write_bytes(b"P6\n# made here\n110 100\n255\n" + image.tobytes())
    pixels, scale, left, top = fitted(image)
    x = np.rint(pixels).astype(np.uint8) if as_bytes else (pixels / 255).astype(np.float32)
    x = x[None] if as_bytes else np.ascontiguousarray(x.transpose(2, 0, 1)[None])
    with intaglio.open(package) as session:
        (output,) = session.run({"x": x}).values()
    move = np.array([left, top, left, top])
    want = [(k, s, (at - move) / scale) for k, s, at in boxes(output, v5)]
    assert_same(detect(program, tmp_path / "d.itg", tmp_path / "p.ppm"), want, 0.1)
    (tmp_path / "raw.bin").write_bytes(x.tobytes())  # the input itself
    raw = detect(BUILD / "example_detect", tmp_path / "d.itg", tmp_path / "raw.bin")
    assert_same(raw, boxes(output, v5), 0.01)


def test_wrong_pictures_are_refused(program, tmp_path):
    intaglio.compile(detector(tmp_path / "d.onnx", False)).save(tmp_path / "d.itg")
    for data in (b"", b"P6", b"P6 4 4 255\n1234", b"P6 99999999999 1 255\n", b"P5 1 1 255\n1"):
        (tmp_path / "p.ppm").write_bytes(data)
        command = [program, tmp_path / "d.itg", tmp_path / "p.ppm"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "detect: the picture is no binary PPM" in done.stderr
