"""Kmodels that nncase 1.9 itself compiles: our simulator gives the outputs of nncase's."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.k210 import mobilenets
from tests.vendors.test_nncase import PYTHON, prepare, vendor

from intaglio.errors import IntaglioError
from intaglio.npu.chips.k210 import disassembly
from intaglio.npu.chips.k210.compile import read
from intaglio.npu.chips.k210.simulate import Machine, input_names

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="nncase 1.9 is not installed: run `make test-vendors`"
)
RNG = np.random.default_rng(0)
CHANNELS, SIZE = 8, 16


def conv(x: str, name: str, kernel: int = 3, stride: int = 1, group: int = 1):
    inputs = [x, f"w{name}", f"b{name}"]
    window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
    return onnx.helper.make_node("Conv", inputs, [name], **window, group=group)


def weights(name: str, outputs: int, inputs: int, kernel: int) -> dict[str, np.ndarray]:
    shapes = {f"w{name}": (outputs, inputs, kernel, kernel), f"b{name}": (outputs,)}
    return {k: RNG.normal(0, 0.3, s).astype(np.float32) for k, s in shapes.items()}


def node(op: str, inputs: str, output: str, **attrs):
    return onnx.helper.make_node(op, inputs.split(), [output], **attrs)


def save(folder: Path, name: str, nodes: list, constants: dict, output: str, size: int) -> None:
    """An ONNX file and samples for its calibration."""
    info = onnx.helper.make_tensor_value_info
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, [1, 3, size, size])], [info(output, 1, None)], tensors
    )
    opset = [onnx.helper.make_opsetid("", 11)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=6)
    model = onnx.shape_inference.infer_shapes(model)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    samples = RNG.uniform(-1, 1, (3, 1, 3, size, size)).astype(np.float32)
    if name.startswith("pictures"):
        samples = RNG.integers(0, 256, samples.shape).astype(np.uint8)
    np.save(folder / f"{name}.in.npy", samples)


def tails() -> dict[str, tuple[list, dict]]:
    """The ends of small networks: ONNX nodes that read "r" and write "y", and their constants."""
    c, numbers = CHANNELS, lambda *n: np.array(n, np.int64)
    one = weights("c", c, c, 1)
    dense = {
        "wf": RNG.normal(0, 1, (10, c)).astype(np.float32),
        "bf": RNG.normal(0, 1, 10).astype(np.float32),
    }
    resize = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return {
        "plain": ([node("Identity", "r", "y")], {}),
        "classify": (
            [
                node("GlobalAveragePool", "r", "p"),
                node("Flatten", "p", "f"),
                node("Gemm", "f wf bf", "o", transB=1),
                node("Softmax", "o", "y", axis=1),
            ],
            dense,
        ),
        "residual": ([conv("r", "c", 1), node("Add", "c r", "a"), node("Relu", "a", "y")], one),
        "concat": ([conv("r", "c", 1), node("Concat", "c r", "y", axis=1)], one),
        "sigmoid": (
            [node("LeakyRelu", "r", "l", alpha=0.1), conv("l", "c", 1), node("Sigmoid", "c", "y")],
            one,
        ),
        "upsample": (
            [node("Resize", "r roi scales", "u", **resize), conv("u", "y")],
            {
                "roi": np.zeros(0, np.float32),
                "scales": np.array([1, 1, 2, 2], np.float32),
                **weights("y", c, c, 3),
            },
        ),
        "pool": (
            [
                node("MaxPool", "r", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
                node("Transpose", "m", "t", perm=[0, 2, 3, 1]),
                node("Reshape", "t shape", "y"),
            ],
            {"shape": numbers(1, -1, c)},
        ),
        "average": (
            [node("AveragePool", "r", "y", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)],
            {},
        ),
        "slice": (
            [node("Slice", "r first last axes", "s"), conv("s", "y")],
            {"first": numbers(1, 1), "last": numbers(7, 7), "axes": numbers(2, 3)}
            | weights("y", c, c, 3),
        ),
        "conv5": ([conv("r", "y", 5)], weights("y", c, c, 5)),
        "grouped": ([conv("r", "y", 3, group=2)], weights("y", c, c // 2, 3)),
        "mean": ([node("ReduceMean", "r", "y", axes=[2, 3], keepdims=1)], {}),
        "binary": (
            [
                conv("r", "c", 1),
                node("Mul", "c r", "m"),
                node("Tanh", "m", "t"),
                node("Sub", "t c", "y"),
            ],
            one,
        ),
    }


def small_network(folder: Path, name: str, tail: tuple[list, dict]) -> None:
    """Two convolutions before the tail."""
    nodes = [conv("x", "0"), node("Relu", "0", "a"), conv("a", "1", 3, 2), node("Relu", "1", "r")]
    constants = weights("0", CHANNELS, 3, 3) | weights("1", CHANNELS, CHANNELS, 3)
    save(folder, name, nodes + tail[0], constants | tail[1], "y", SIZE)


def detector(folder: Path) -> None:
    """A detector with two heads, in the manner of YOLOv3-tiny."""
    nodes, constants, x, channels = [], {}, "x", 3
    kept = {}
    for i, outputs in enumerate((8, 16, 32, 64, 64)):
        constants |= weights(f"n{i}", outputs, channels, 3)
        nodes += [conv(x, f"n{i}"), node("LeakyRelu", f"n{i}", f"a{i}", alpha=0.1)]
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        if i == 4:
            window = {"kernel_shape": [2, 2], "strides": [1, 1], "auto_pad": "SAME_UPPER"}
        nodes.append(node("MaxPool", f"a{i}", f"p{i}", **window))
        kept[i], x, channels = f"a{i}", f"p{i}", outputs
    resize = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    nodes += [
        conv(x, "h", 1),
        conv(x, "s", 1),
        node("Resize", "s roi scales", "u", **resize, nearest_mode="floor"),
        node("Concat", f"u {kept[3]}", "j", axis=1),
        conv("j", "k", 1),
        node("Flatten", "h", "hf"),
        node("Flatten", "k", "kf"),
        node("Concat", "hf kf", "c", axis=1),
        node("Sigmoid", "c", "y"),
    ]
    constants |= weights("h", 18, 64, 1) | weights("s", 16, 64, 1) | weights("k", 18, 80, 1)
    constants |= {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    save(folder, "detector", nodes, constants, "y", 128)


def mobilenet(folder: Path, size: int = 128) -> None:
    """MobileNetV2 with random weights."""
    nodes, constants, x, count = [], {}, "x", 0

    def layer(x: str, channels: int, outputs: int, kernel: int, stride: int, group: int, act: bool):
        nonlocal count
        name, count = f"n{count}", count + 1
        nodes.append(conv(x, name, kernel, stride, group))
        deep = channels // group * kernel * kernel
        for k, v in weights(name, outputs, channels // group, kernel).items():
            constants[k] = v * np.float32(4 / deep**0.5) if k[0] == "w" else v
        if not act:
            return name
        nodes.append(node("Clip", f"{name} low high", f"{name}a"))
        return f"{name}a"

    x, channels = layer(x, 3, 32, 3, 2, 1, True), 32
    for expansion, outputs, repeats, stride in mobilenets.V2:
        for i in range(repeats):
            wide = channels * expansion
            y = layer(x, channels, wide, 1, 1, 1, True) if expansion > 1 else x
            y = layer(y, wide, wide, 3, stride if i == 0 else 1, wide, True)
            y = layer(y, wide, outputs, 1, 1, 1, False)
            if i:
                nodes.append(node("Add", f"{x} {y}", f"{y}s"))
                y = f"{y}s"
            x, channels = y, outputs
    x = layer(x, channels, 1280, 1, 1, 1, True)
    nodes.extend(
        [
            node("GlobalAveragePool", x, "p"),
            node("Flatten", "p", "f"),
            node("Gemm", "f wf bf", "y", transB=1),
        ]
    )
    constants |= {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
    constants["wf"] = RNG.normal(0, 0.1, (1000, 1280)).astype(np.float32)
    constants["bf"] = RNG.normal(0, 0.1, 1000).astype(np.float32)
    save(folder, "mobilenet_v2", nodes, constants, "y", size)


def compare(folder: Path) -> None:
    """Every kmodel of nncase on its samples, in its simulator and in ours."""
    compiled = vendor("compile", folder)
    assert not [n for n, e in compiled.items() if isinstance(e, str)], compiled
    vendor("simulate", folder)
    for name in compiled:
        model = read((folder / f"{name}.kmodel").read_bytes())
        assert model.modules[model.entry[0]].kind == "stackvm"
        assert "tensor.call" in "\n".join(disassembly.lines(model)), name
        chip, (port,) = Machine(model), input_names(model)
        with np.load(folder / f"{name}.out.npz") as found:
            for i, x in enumerate(np.load(folder / f"{name}.in.npy")):
                pairs = zip(chip.run({port: x}).values(), found.values(), strict=True)
                for ours, all_of_theirs in pairs:
                    theirs = all_of_theirs[i].reshape(ours.shape)
                    limit = 1e-5 * max(1.0, float(np.abs(theirs).max()))
                    assert np.abs(ours - theirs).max() <= limit, name
                    if ours.dtype == np.uint8:
                        assert np.array_equal(ours, theirs), name


def test_small_networks_of_nncase_give_its_outputs(tmp_path):
    for name, tail in tails().items():
        small_network(tmp_path, name, tail)
    for name in ("classify", "upsample"):
        small_network(tmp_path, f"pictures_{name}", tails()[name])
    compare(tmp_path)


def test_a_detector_of_nncase_gives_its_outputs(tmp_path):
    detector(tmp_path)
    compare(tmp_path)


def test_mobilenet_of_nncase_gives_its_outputs(tmp_path):
    mobilenet(tmp_path)
    compare(tmp_path)


def outcome(data: bytes, x: np.ndarray) -> str | None:
    """The words of the error, or None if the file runs."""
    try:
        model = read(data)
        list(disassembly.lines(model, True))
        with np.errstate(all="ignore"):
            Machine(model).run({input_names(model)[0]: x})
    except IntaglioError as e:
        return str(e)
    return None


def test_mutated_files_of_nncase_are_refused_or_run(tmp_path):
    """5,000 mutations: an IntaglioError of one line, or outputs, within 10 seconds each."""
    chosen = ("classify", "residual", "upsample", "pool", "slice")
    for name in chosen:
        small_network(tmp_path, name, tails()[name])
    vendor("compile", tmp_path)
    rng, refused, longest = np.random.default_rng(1), 0, 0.0
    for name in chosen:
        good = (tmp_path / f"{name}.kmodel").read_bytes()
        x = np.load(tmp_path / f"{name}.in.npy")[0]
        assert outcome(good, x) is None
        for _ in range(1000):
            data = bytearray(good)
            for at in rng.integers(0, len(data), int(rng.integers(1, 4))):
                data[at] = int(rng.integers(256))
            if rng.random() < 0.1:
                del data[int(rng.integers(len(data))) :]
            start = time.perf_counter()
            words = outcome(bytes(data), x)
            longest = max(longest, time.perf_counter() - start)
            refused += words is not None
            assert "\n" not in (words or "")
    assert refused > 500
    assert longest < 10


@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2"])
def test_our_simulator_is_50_times_as_fast(name, tmp_path):
    prepare(getattr(mobilenets, name)(), tmp_path, name, 1)
    model = read((tmp_path / f"{name}.kmodel").read_bytes())
    chip, (port,) = Machine(model), input_names(model)
    given, ours = {port: np.load(tmp_path / f"{name}.in.npy")[0]}, []
    theirs = float(vendor("time", tmp_path)[name])
    for _ in range(30):
        start = time.process_time()
        chip.run(given)
        ours.append(time.process_time() - start)
    print(f"{name}: nncase {1e3 * theirs:.0f} ms, ours {1e3 * min(ours):.1f} ms")
    assert theirs >= 50 * min(ours)
