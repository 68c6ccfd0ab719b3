"""Small models and files for scripts written for RKNN-Toolkit2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 16


def save(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights):
    def infos(of: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in of.items()]

    held = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", infos(inputs), infos(outputs), held)
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def classifier(path: Path, side: Any = SIDE, classes: int = 5) -> None:
    """Two convolutions, a pool and a linear layer: x [1, 3, side, side] to y [1, classes]."""
    rng, node = np.random.default_rng(0), helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], "conv0", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"], "relu0"),
        node("Conv", ["r0", "w1"], ["c1"], "conv1", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c1"], ["r1"], "relu1"),
        node("GlobalAveragePool", ["r1"], ["g"], "pool"),
        node("Flatten", ["g"], ["f"], "flatten"),
        node("Gemm", ["f", "w2"], ["y"], "fc", transB=1),
    ]
    h, w = (side, side) if isinstance(side, int) else side
    save(
        path,
        nodes,
        {"x": [1, 3, h, w]},
        {"y": [1, classes]},
        w0=rng.normal(0, 0.3, (8, 3, 3, 3)),
        b0=rng.normal(0, 0.1, 8),
        w1=rng.normal(0, 0.3, (8, 8, 3, 3)),
        w2=rng.normal(0, 0.5, (classes, 8)),
    )


def detector(path: Path) -> None:
    """A backbone with two heads of grids, as YOLO has: [1, 18, 8, 8] and [1, 18, 4, 4]."""
    rng, node = np.random.default_rng(1), helper.make_node
    nodes = [
        node("Conv", ["images", "w0"], ["c0"], "stem", pads=[1] * 4, strides=[2, 2]),
        node("Sigmoid", ["c0"], ["s0"], "sigmoid"),
        node("Mul", ["c0", "s0"], ["a0"], "silu"),
        node("Conv", ["a0", "w1"], ["c1"], "down", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c1"], ["a1"], "relu"),
        node("Conv", ["a0", "h0"], ["out0"], "head0"),
        node("Conv", ["a1", "h1"], ["out1"], "head1"),
    ]
    save(
        path,
        nodes,
        {"images": [1, 3, SIDE, SIDE]},
        {"out0": [1, 18, 8, 8], "out1": [1, 18, 4, 4]},
        w0=rng.normal(0, 0.3, (8, 3, 3, 3)),
        w1=rng.normal(0, 0.3, (8, 8, 3, 3)),
        h0=rng.normal(0, 0.3, (18, 8, 1, 1)),
        h1=rng.normal(0, 0.3, (18, 8, 1, 1)),
    )


def separable(path: Path, side: Any = SIDE) -> None:
    """A convolution, a depthwise one and a pointwise one, as in MobileNet."""
    rng, node = np.random.default_rng(7), helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"], "relu0"),
        node("Conv", ["r0", "w1"], ["c1"], "depthwise", pads=[1] * 4, group=8),
        node("Relu", ["c1"], ["r1"], "relu1"),
        node("Conv", ["r1", "w2"], ["y"], "pointwise"),
    ]
    spread = np.geomspace(0.02, 2, 8).reshape(-1, 1, 1, 1)  # channels of very different ranges
    h, w = (side, side) if isinstance(side, int) else side
    save(
        path,
        nodes,
        {"x": [1, 3, h, w]},
        {"y": [1, 4, h, w]},
        w0=rng.normal(0, 0.3, (8, 3, 3, 3)) * spread,
        w1=rng.normal(0, 0.3, (8, 1, 3, 3)) / spread,
        w2=rng.normal(0, 0.3, (4, 8, 1, 1)),
    )


def two_inputs(path: Path) -> None:
    """Two feature maps that are concatenated: a and b [1, 4, 8, 8]."""
    rng, node = np.random.default_rng(2), helper.make_node
    nodes = [
        node("Concat", ["a", "b"], ["ab"], "concat", axis=1),
        node("Conv", ["ab", "w"], ["y"], "conv"),
    ]
    shapes = {"a": [1, 4, 8, 8], "b": [1, 4, 8, 8]}
    save(path, nodes, shapes, {"y": [1, 4, 8, 8]}, w=rng.normal(0, 0.5, (4, 8, 1, 1)))


def audio(path: Path) -> None:
    """A net on sequences, as wav2vec: [1, 20, 6] to [1, 20, 4]."""
    rng, node = np.random.default_rng(3), helper.make_node
    nodes = [
        node("MatMul", ["speech", "w0"], ["m0"], "proj"),
        node("Relu", ["m0"], ["r0"], "relu"),
        node("MatMul", ["r0", "w1"], ["logits"], "logits"),
    ]
    weights = {"w0": rng.normal(0, 0.4, (6, 8)), "w1": rng.normal(0, 0.4, (8, 4))}
    save(path, nodes, {"speech": [1, 20, 6]}, {"logits": [1, 20, 4]}, **weights)


def text_detector(path: Path) -> None:
    """A heat map of text: x [1, 3, h, w] to [1, 1, h, w]."""
    rng, node = np.random.default_rng(8), helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "conv0", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"], "relu0"),
        node("Conv", ["r0", "w1"], ["c1"], "conv1", pads=[1] * 4),
        node("Sigmoid", ["c1"], ["maps"], "sigmoid"),
    ]
    weights = {"w0": rng.normal(0, 0.3, (4, 3, 3, 3)), "w1": rng.normal(0, 0.3, (1, 4, 3, 3))}
    save(path, nodes, {"x": [1, 3, "h", "w"]}, {"maps": [1, 1, "h", "w"]}, **weights)


def line_reader(path: Path, classes: int, columns_last: bool) -> None:
    """Scores of characters in the columns of a line [1, 3, 8, 24], for a CTC decoder."""
    rng, node = np.random.default_rng(9), helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "conv0", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c0"], ["r0"], "relu0"),
        node("Conv", ["r0", "w1"], ["c1"], "conv1"),
        node("ReduceMean", ["c1"], ["columns"], "mean", axes=[2], keepdims=0),
    ]
    weights = {"w0": rng.normal(0, 0.3, (8, 3, 3, 3)), "w1": rng.normal(0, 0.5, (classes, 8, 1, 1))}
    if columns_last:
        nodes.append(node("Softmax", ["columns"], ["y"], "softmax", axis=1))
        save(path, nodes, {"x": [1, 3, 8, 24]}, {"y": [1, classes, 12]}, **weights)
        return
    nodes.append(node("Transpose", ["columns"], ["t"], "turn", perm=[0, 2, 1]))
    nodes.append(node("Softmax", ["t"], ["y"], "softmax", axis=2))
    save(path, nodes, {"x": [1, 3, 8, 24]}, {"y": [1, 12, classes]}, **weights)


def text_models(folder: Path) -> None:
    """What ppocr.py and lprnet.py read."""
    text_detector(folder / "ppocr_det.onnx")
    line_reader(folder / "ppocr_rec.onnx", 7, columns_last=False)
    line_reader(folder / "lprnet.onnx", 35, columns_last=True)
    rng = np.random.default_rng(10)
    (folder / "arrays").mkdir(exist_ok=True)
    for i in range(3):
        plate = rng.integers(0, 256, (1, 3, 8, 24)).astype(np.float32)
        np.save(folder / f"arrays/plate{i}.npy", plate)
    (folder / "plates.txt").write_text("".join(f"arrays/plate{i}.npy\n" for i in range(3)))


def custom(path: Path) -> None:
    """The classifier with cstSoftmax behind it."""
    classifier(path)
    model = onnx.load(str(path))
    model.graph.node[-1].output[0] = "logits"
    model.graph.node.append(helper.make_node("cstSoftmax", ["logits"], ["y"], "prob", axis=-1))
    onnx.save(model, path)


def pictures(folder: Path, count: int = 4, side: int = SIDE) -> None:
    """images/N.png of the input's own size, and dataset.txt with their paths."""
    import cv2

    (folder / "images").mkdir(exist_ok=True)
    rng = np.random.default_rng(4)
    for i in range(count):
        # the whole range of pixels, so that no value of another picture is clipped
        pixels = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
        pixels[0, 0], pixels[0, 1] = 0, 255
        cv2.imwrite(str(folder / "images" / f"{i}.png"), pixels)
    lines = "".join(f"./images/{i}.png\n" for i in range(count))
    (folder / "dataset.txt").write_text(lines)


def arrays(folder: Path) -> None:
    """pairs.txt with two arrays on each line, and speech.txt with one."""
    rng = np.random.default_rng(5)
    (folder / "arrays").mkdir(exist_ok=True)
    pairs, speech = [], []
    for i in range(3):
        for name in "ab":
            np.save(folder / f"arrays/{name}{i}.npy", rng.normal(0, 1, (1, 4, 8, 8)).astype("f"))
        np.save(folder / f"arrays/s{i}.npy", rng.normal(0, 1, (1, 20, 6)).astype("f"))
        pairs.append(f"arrays/a{i}.npy arrays/b{i}.npy\n")
        speech.append(f"arrays/s{i}.npy\n")
    (folder / "pairs.txt").write_text("".join(pairs))
    (folder / "speech.txt").write_text("".join(speech))


DARKNET = """[net]
width=16
height=16
channels=3
[convolutional]
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky
[convolutional]
filters=14
size=1
activation=linear
"""
PROTOTXT = """name: "net"
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 1 dim: 3 dim: 16 dim: 16 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 1 bias_term: false } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: AVE kernel_size: 4 stride: 4 } }
"""
TORCH = """class Net(Module):
  __parameters__ = []
  def forward(self: __torch__.Net,
    image: Tensor) -> Tensor:
    return torch.relu(torch.sub(image, 3))
"""


def other_formats(folder: Path) -> None:
    """model.tflite, model.pb, model.pt, model.cfg with weights, and model.prototxt."""
    from tests.frontends.tf_build import GraphDef, Kind
    from tests.frontends.tflite_build import T, model, op
    from tests.frontends.torch_build import Object, script

    kinds = [T((1, SIDE, SIDE, 3), name="image"), T((1, SIDE, SIDE, 3), name="relu")]
    made = model(kinds, [op("RELU", [0], [1])], [0], [1])
    (folder / "model.tflite").write_bytes(made)
    graph = GraphDef()
    graph.placeholder("image", (-1, SIDE, SIDE, 3))
    graph.add("probs", "Softmax", "image", T=Kind("float32"))
    graph.save(folder / "model.pb")
    root = Object("__torch__.Net", {})
    (folder / "model.pt").write_bytes(script({"__torch__": TORCH}, root))
    (folder / "model.cfg").write_text(DARKNET)
    rng = np.random.default_rng(6)
    head = np.array([0, 2, 5, 0, 0], np.int32).tobytes()
    numbers = [
        rng.normal(0, 0.1, 8), np.ones(8), np.zeros(8), np.ones(8),
        rng.normal(0, 0.2, 8 * 27), rng.normal(0, 0.1, 14), rng.normal(0, 0.2, 14 * 8),
    ]  # fmt: skip
    weights = b"".join(np.asarray(n, np.float32).tobytes() for n in numbers)
    (folder / "model.weights").write_bytes(head + weights)
    (folder / "model.prototxt").write_text(PROTOTXT)
    identity = np.eye(3, dtype="<f4").tobytes()
    blob = _field(7, _field(1, bytes([3, 3, 1, 1]))) + _field(5, identity)
    made = _field(100, _field(1, b"conv") + _field(7, blob))
    (folder / "model.caffemodel").write_bytes(made)


def _field(number: int, data: bytes) -> bytes:
    """A field of a protocol buffer with fewer than 128 bytes."""
    key = number << 3 | 2
    tag = bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
    return tag + bytes([len(data)]) + data


def workspace(folder: Path) -> None:
    """Everything that the scripts read."""
    classifier(folder / "mobilenet.onnx")
    classifier(folder / "dynamic.onnx", ("h", "w"))
    detector(folder / "yolo.onnx")
    two_inputs(folder / "pair.onnx")
    audio(folder / "wav2vec.onnx")
    custom(folder / "custom.onnx")
    pictures(folder)
    arrays(folder)
