"""The K210's files in nncase 1.9's own simulator, and our words beside those of its compiler.

`make test-vendors` installs nncase into an environment of its own, which needs Python 3.10.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.k210 import mobilenets
from tests.npu.chips.k210.quantized_cnn import (
    Cnn,
    byte_weights,
    grouped,
    joined_outputs,
    large_linear,
    max_around,
    negative_scales,
    odd_sizes,
    random_cnn,
    small_maps,
    upsampling,
    wide_expansion,
)

import intaglio
from intaglio.npu.chips.k210 import layer, ram
from intaglio.npu.chips.k210.compile import compile_kmodel, read
from intaglio.npu.chips.k210.model import Conv

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("INTAGLIO_NNCASE", ROOT / ".venv-vendors" / "bin" / "python"))
RUNNER = Path(__file__).with_name("nncase_runner.py")
PICTURES = 3

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="nncase 1.9 is not installed: run `make test-vendors`"
)


def vendor(what: str, folder: Path) -> dict[str, float | str]:
    """What the vendor's tools did with the files of a folder."""
    command = [str(PYTHON), str(RUNNER), what, str(folder)]
    # nncase writes kmodel_info.txt to the folder where it runs
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    found: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def prepare(graph, folder: Path, name: str, pictures: int = PICTURES) -> list[np.ndarray]:
    """Write a kmodel and its inputs; returns the outputs of our interpreter, stacked."""
    made = compile_kmodel(graph)
    made.save(folder / f"{name}.kmodel")
    rng = np.random.default_rng(sum(map(ord, name)))
    (port,) = made.lowered.inputs
    given = rng.integers(0, 256, (pictures, *port.shape)).astype(np.uint8)
    np.save(folder / f"{name}.in.npy", given)
    runs = [list(intaglio.interpret(made.graph, {port.name: x}).values()) for x in given]
    return [np.stack(one) for one in zip(*runs, strict=True)]


def all_bytes_equal(folder: Path, name: str, expected: list[np.ndarray]) -> bool:
    with np.load(folder / f"{name}.out.npz") as found:
        pairs = zip(expected, found.values(), strict=True)
        return all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs)


def random_layer(seed: int):
    """One layer of any shape: many channels, odd sizes, all strides and pools."""
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(4, 80, 2))
    channels, outputs = (int(2 ** rng.uniform(0, 8)) for _ in range(2))
    while 4 * ram.lines(max(channels, outputs), high, wide) > ram.LINES:
        channels, outputs = -(-channels // 2), -(-outputs // 2)
    halves = rng.random() < 0.4
    if halves:
        high, wide = max(high & ~1, 4), max(wide & ~1, 4)
    net = Cnn(seed, (1, channels, high, wide), str(rng.choice(["i8", "u8"])))
    kernel = int(rng.choice([1, 3]))
    kind = rng.choice(["plain", "depthwise", "pool", "table", "add"])
    if kind == "depthwise" and channels > 1:
        return net.graph(net.conv(net.input, channels, 3, 2 if halves else 1, depthwise=True))
    if kind == "add":
        first = net.conv(net.input, outputs, kernel)
        return net.graph(net.add(first, net.conv(net.input, outputs, 1)))
    x = net.conv(net.input, outputs, kernel, 2 if halves and kind != "pool" else 1)
    if kind == "pool":
        x = net.max_pool(x) if halves else net.max_pool(x, 2, 1, (0, 0, 1, 1))
    return net.graph(net.table(x) if kind == "table" else x)


def compare(graphs: dict, folder: Path, pictures: int = PICTURES) -> dict[str, float | str]:
    expected = {name: prepare(g, folder, name, pictures) for name, g in graphs.items()}
    ran = vendor("simulate", folder)
    wrong = [n for n, e in expected.items() if not all_bytes_equal(folder, n, e)]
    assert not wrong, f"{len(wrong)} of {len(expected)} differ: {wrong[:5]}"
    return ran


def test_random_layers_are_equal(tmp_path):
    compare({f"layer{seed}": random_layer(seed) for seed in range(300)}, tmp_path, 1)


def test_random_networks_are_equal(tmp_path):
    seeds = [s for s in range(60) if s != 15]  # 15 takes means of maps that are too large
    nets = {f"net{seed}": random_cnn(seed) for seed in seeds}
    compare({**nets, "joined": joined_outputs()}, tmp_path)


def test_large_linear_layers_and_groups_are_equal(tmp_path):
    graphs = {f"linear{n}": large_linear(n) for n in (1025, 1280, 1288, 9216)}
    shapes = ((8, 8, 2, 3), (12, 6, 3, 1), (6, 12, 6, 3), (20, 40, 4, 3))
    compare(graphs | {f"groups{s}": grouped(*s) for s in shapes}, tmp_path)


def test_odd_sizes_and_upsampling_are_equal(tmp_path):
    graphs = {f"odd{seed}": odd_sizes(seed) for seed in range(30)}
    compare(graphs | {f"up{seed}": upsampling(seed) for seed in range(20)}, tmp_path, 1)


def test_maps_below_4x4_are_equal(tmp_path):
    compare({f"small{seed}": small_maps(seed) for seed in range(100)}, tmp_path, 1)


def test_maximum_pools_with_odd_windows_are_equal(tmp_path):
    compare({f"around{seed}": max_around(seed) for seed in range(40)}, tmp_path, 1)


def test_weights_of_other_kinds_and_wide_expansions_are_equal(tmp_path):
    graphs = {f"bytes{zero}": byte_weights(zero) for zero in (0, 90, 121, 128, 150, 255)}
    graphs |= {f"negative{seed}": negative_scales(seed) for seed in range(20)}
    compare(graphs | {"wide": wide_expansion()}, tmp_path)


@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2", "tiny_yolo"])
def test_whole_networks_are_equal(name, tmp_path):
    compare({name: getattr(mobilenets, name)()}, tmp_path)


def onnx_layer(folder: Path, name: str, seed: int) -> None:
    """A float convolution for nncase's compiler, with samples for its calibration."""
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(4, 100, 2))
    channels, outputs = (int(2 ** rng.uniform(0, 8)) for _ in range(2))
    kernel, depthwise = int(rng.choice([1, 3])), rng.random() < 0.3
    stride, pool = int(rng.choice([1, 1, 2])), rng.random() < 0.3
    if depthwise:
        kernel, outputs, stride = 3, channels, 1
    if stride == 2 or pool:
        high, wide = max(high & ~1, 8), max(wide & ~1, 8)
    w = rng.normal(0, 1, (outputs, 1 if depthwise else channels, kernel, kernel))
    b = rng.normal(0, 1, outputs)
    window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
    group = channels if depthwise else 1
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"], **window, group=group)]
    shape = [1, outputs, high // stride, wide // stride]
    inner = onnx.helper.make_tensor_value_info("c", 1, shape)
    last, pooled = inner, stride == 1 and pool and not depthwise
    if pooled:
        halving = {"kernel_shape": [2, 2], "strides": [2, 2]}
        nodes.append(onnx.helper.make_node("MaxPool", ["c"], ["y"], **halving))
        last = onnx.helper.make_tensor_value_info("y", 1, [1, outputs, high // 2, wide // 2])
    first = onnx.helper.make_tensor_value_info("x", 1, [1, channels, high, wide])
    constants = [
        onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in (("w", w), ("b", b))
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [first], [last], constants, value_info=[inner] if pooled else []
    )
    opset = [onnx.helper.make_opsetid("", 11)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=6)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    samples = rng.uniform(-1, 1, (2, 1, channels, high, wide)).astype(np.float32)
    np.save(folder / f"{name}.in.npy", samples)


def test_words_are_those_of_nncase(tmp_path):
    """All 12 words of the layers that nncase compiles, for at least 300 shapes."""
    for seed in range(320):
        onnx_layer(tmp_path, f"{seed:03}", seed)
    done = vendor("compile", tmp_path)
    compared = 0
    for name, seconds in done.items():
        if isinstance(seconds, str):
            continue
        for module in read((tmp_path / f"{name}.kmodel").read_bytes()).modules:
            for command in (c for f in module.functions for c in f.commands):
                if isinstance(command, Conv):
                    assert np.array_equal(layer.read(command.words).words(), command.words), name
                    compared += 1
    assert compared >= 300, f"nncase compiled {compared} layers only"
