"""Small models for scripts written for nncase: a detector as YOLOv8 is, and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.compat.models import PROTOTXT, _field, save

BINS = 4  # of the distribution of a box's side
CLASSES = 3


class Net:
    """Collects the nodes and weights of an ONNX model."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.rng = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, names[0], **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def conv(self, x: str, cin: int, cout: int, k: int = 1, s: int = 1, act: bool = True) -> str:
        spread = 1.2 / np.sqrt(cin * k * k)
        w = self.constant(self.rng.normal(0, spread, (cout, cin, k, k)).astype(np.float32))
        b = self.constant(self.rng.normal(0, 0.1, cout).astype(np.float32))
        y = self.node("Conv", x, w, b, kernel_shape=[k, k], strides=[s, s], pads=[k // 2] * 4)
        return self.node("Mul", y, self.node("Sigmoid", y)) if act else y

    def save(self, path: Path, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        def infos(of: dict[str, Any]) -> list[Any]:
            return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in of.items()]

        held = [numpy_helper.from_array(w, n) for n, w in self.weights.items()]
        graph = helper.make_graph(self.nodes, "net", infos(inputs), infos(outputs), held)
        opsets = [helper.make_opsetid("", 13)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def yolov8(path: Path, side: int = 32, width: int = 8) -> None:
    """Stem, C2f, SPPF, upsampling and a head with boxes from distributions: [1, 4 + C, N]."""
    net = Net()
    x = net.conv("images", 3, width, 3, 2)
    a = _c2f(net, net.conv(x, width, width, 3, 2), width)
    b = _c2f(net, net.conv(a, width, 2 * width, 3, 2), 2 * width)
    b = _sppf(net, b, 2 * width)
    up = net.node("Resize", b, "", net.constant(np.float32([1, 1, 2, 2])), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    a = net.conv(net.node("Concat", up, a, axis=1), 3 * width, width)
    parts = []
    for x, channels, stride in ((a, width, 4), (b, 2 * width, 8)):
        box = net.conv(x, channels, 4 * BINS, act=False)
        score = net.conv(x, channels, CLASSES, act=False)
        both = net.node("Concat", box, score, axis=1)
        count = (side // stride) ** 2
        shape = net.constant(np.int64([1, 4 * BINS + CLASSES, count]))
        parts.append((net.node("Reshape", both, shape), stride, count))
    joined = net.node("Concat", *(p for p, _, _ in parts), axis=2)
    sizes = net.constant(np.int64([4 * BINS, CLASSES]))
    box, score = net.node("Split", joined, sizes, outputs=2, axis=1)
    total = sum(c for _, _, c in parts)
    box = net.node("Reshape", box, net.constant(np.int64([1, 4, BINS, total])))
    box = net.node("Softmax", net.node("Transpose", box, perm=[0, 2, 1, 3]), axis=1)
    bins = net.constant(np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    box = net.node("Conv", box, net.constant(net.weights[bins]))
    box = net.node("Reshape", box, net.constant(np.int64([1, 4, total])))
    near, far = net.node("Split", box, net.constant(np.int64([2, 2])), outputs=2, axis=1)
    anchors = net.constant(np.concatenate([_anchors(side // s) for _, s, _ in parts], 1)[None])
    lo, hi = net.node("Sub", anchors, near), net.node("Add", anchors, far)
    half = net.constant(np.float32(2))
    centre = net.node("Div", net.node("Add", lo, hi), half)
    boxes = net.node("Concat", centre, net.node("Sub", hi, lo), axis=1)
    strides = np.concatenate([np.full(c, s, np.float32) for _, s, c in parts])[None, None]
    boxes = net.node("Mul", boxes, net.constant(strides))
    net.nodes.append(
        helper.make_node("Concat", [boxes, net.node("Sigmoid", score)], ["output0"], "out", axis=1)
    )
    net.save(path, {"images": [1, 3, side, side]}, {"output0": [1, 4 + CLASSES, total]})


def _c2f(net: Net, x: str, channels: int) -> str:
    half = channels // 2
    x = net.conv(x, channels, channels)
    a, b = net.node("Split", x, net.constant(np.int64([half, half])), outputs=2, axis=1)
    c = net.node("Add", b, net.conv(net.conv(b, half, half, 3), half, half, 3))
    return net.conv(net.node("Concat", a, b, c, axis=1), 3 * half, channels)


def _sppf(net: Net, x: str, channels: int) -> str:
    half = channels // 2
    x = net.conv(x, channels, half)
    all_of = [x]
    for _ in range(3):
        x = net.node("MaxPool", x, kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
        all_of.append(x)
    return net.conv(net.node("Concat", *all_of, axis=1), 4 * half, channels)


def _anchors(side: int) -> np.ndarray:
    ys, xs = np.mgrid[0:side, 0:side]
    return np.stack([xs.ravel(), ys.ravel()]).astype(np.float32) + np.float32(0.5)


def plain(path: Path, side: Any = 16, channels: int = 3) -> None:
    """Two convolutions and a pool that the K210 runs: x [1, C, side, side] to y [1, 4, ...]."""
    rng, node = np.random.default_rng(3), helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], "conv0", pads=[1] * 4, kernel_shape=[3, 3]),
        node("Relu", ["c0"], ["r0"], "relu0"),
        node("MaxPool", ["r0"], ["p0"], "pool0", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1"], ["y"], "conv1", kernel_shape=[1, 1]),
    ]
    half = side // 2 if isinstance(side, int) else "half"
    save(
        path,
        nodes,
        {"x": [1, channels, side, side]},
        {"y": [1, 4, half, half]},
        w0=rng.normal(0, 0.3, (8, channels, 3, 3)),
        b0=rng.normal(0, 0.1, 8),
        w1=rng.normal(0, 0.3, (4, 8, 1, 1)),
    )


def sequence(path: Path, length: Any = "seq") -> None:
    """Two linear layers on tokens: tokens [batch, seq, 6] to logits [batch, seq, 4]."""
    rng, node = np.random.default_rng(4), helper.make_node
    nodes = [
        node("MatMul", ["tokens", "w0"], ["m0"], "proj"),
        node("Relu", ["m0"], ["r0"], "relu"),
        node("MatMul", ["r0", "w1"], ["logits"], "head"),
    ]
    weights = {"w0": rng.normal(0, 0.4, (6, 8)), "w1": rng.normal(0, 0.4, (8, 4))}
    shapes = {"tokens": ["batch", length, 6]}, {"logits": ["batch", length, 4]}
    save(path, nodes, *shapes, **weights)


def tflite(path: Path, side: int = 16) -> None:
    """One convolution with ReLU in NHWC: image [1, side, side, 3] to [1, side, side, 4]."""
    from tests.frontends.tflite_build import T, model, op

    rng = np.random.default_rng(5)
    kinds = [
        T((1, side, side, 3), name="image"),
        T((4, 1, 1, 3), data=rng.normal(0, 0.5, (4, 1, 1, 3)).astype(np.float32), name="w"),
        T((4,), data=rng.normal(0, 0.1, 4).astype(np.float32), name="b"),
        T((1, side, side, 4), name="features"),
    ]
    layer = op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", Padding=1, StrideW=1, StrideH=1,
               FusedActivationFunction=1, DilationWFactor=1, DilationHFactor=1)  # fmt: skip
    path.write_bytes(model(kinds, [layer], [0], [3]))


def caffe(folder: Path) -> None:
    """model.prototxt and model.caffemodel: a 1x1 convolution and a pool."""
    weights = np.float32([[0.5, 0.1, 0], [0, 1, 0.2], [0.3, 0, 0.8]]).astype("<f4").tobytes()
    blob = _field(7, _field(1, bytes([3, 3, 1, 1]))) + _field(5, weights)
    (folder / "model.prototxt").write_text(PROTOTXT)
    (folder / "model.caffemodel").write_bytes(_field(100, _field(1, b"conv") + _field(7, blob)))


def pictures(folder: Path, count: int = 10, side: int = 40) -> None:
    """images/N.png."""
    from PIL import Image

    (folder / "images").mkdir(exist_ok=True)
    rng = np.random.default_rng(6)
    for i in range(count):
        pixels = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
