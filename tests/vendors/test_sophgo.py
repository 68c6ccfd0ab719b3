"""bmodel files in Sophgo's own runtime and chip models (tpu_mlir), equal to our interpreter.

`make test-vendors` installs tpu_mlir into an environment of its own, which needs Python 3.10.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests import shared_models
from tests.npu.chips.bm1684x import float_networks, networks
from tests.npu.chips.k210 import mobilenets
from tests.npu.chips.k210.quantized_cnn import joined_outputs, random_cnn

import intaglio
from intaglio import dtypes, targets
from intaglio.batches import rebatched
from intaglio.errors import Unsupported
from intaglio.npu.chips.bm1684x.compile import compile_bmodel

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("INTAGLIO_SOPHGO", ROOT / ".venv-vendors" / "bin" / "python"))
RUNNER = Path(__file__).with_name("sophgo_runner.py")
CHIP = "bm1684x"
PACKAGES = PYTHON.parents[1] / "lib" / "python3.10" / "site-packages"
WHOLE = {
    "mobilenet_v1": mobilenets.mobilenet_v1,
    "mobilenet_v2": mobilenets.mobilenet_v2,
    "tiny_yolo": mobilenets.tiny_yolo,
    "resnet18": partial(networks.resnet, 18),
    "resnet50": partial(networks.resnet, 50),
    "yolov8n": networks.yolov8n,
}
FIRMWARE = {"sg2260": PACKAGES / "tpu_mlir" / "lib" / "libbm1690_kernel_module.so"}


def _installed() -> bool:
    found = "import importlib.util as u, sys; sys.exit(u.find_spec('tpu_mlir') is None)"
    return (
        PYTHON.exists() and not subprocess.run([str(PYTHON), "-c", found], check=False).returncode
    )


pytestmark = pytest.mark.skipif(
    not _installed(), reason="tpu_mlir is not installed: run `make test-vendors`"
)


def vendor(folder: Path, chip: str = CHIP) -> dict[str, float | str]:
    """What the vendor's simulator did with the files of a folder."""
    command = [str(PYTHON), str(RUNNER), chip, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    found: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def prepare(
    graph, folder: Path, name: str, pictures: int, chip: str, cores: int = 1
) -> list[np.ndarray]:
    """Write a bmodel and its inputs; returns the outputs of our interpreter, stacked."""
    made = compile_bmodel(graph, targets.find(chip).chip, firmware=FIRMWARE.get(chip), cores=cores)
    made.save(folder / f"{name}.bmodel")
    rng = np.random.default_rng(sum(map(ord, name)))
    feeds = {}
    for p in made.lowered.inputs:
        low, high = dtypes.limits(p.dtype)
        feeds[p.name] = rng.integers(low, high + 1, (pictures, *p.shape)).astype(
            dtypes.numpy_of(p.dtype)
        )
    np.savez(folder / f"{name}.in.npz", **{str(i): x for i, x in enumerate(feeds.values())})
    runs = [
        list(intaglio.interpret(made.graph, {k: x[i] for k, x in feeds.items()}).values())
        for i in range(pictures)
    ]
    return [np.stack(one) for one in zip(*runs, strict=True)]


def difference(folder: Path, name: str, expected: list[np.ndarray], ran: float | str) -> str:
    """How the vendor's outputs differ from ours; empty: not at all."""
    if isinstance(ran, str):
        return f"{name}: {ran}"
    with np.load(folder / f"{name}.out.npz") as found:
        pairs = zip(expected, found.values(), strict=True)
        same = [np.mean(_bytes(a) == _bytes(b)) for a, b in pairs]
    return "" if min(same) == 1 else f"{name}: {min(same):.2%} of the bytes are equal"


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def compare(graphs: dict, folder: Path, pictures: int = 1, chip: str = CHIP, cores: int = 1) -> int:
    """Compare all networks; returns how many were compiled, the others were refused in words."""
    expected = {}
    for name, graph in graphs.items():
        try:
            expected[name] = prepare(graph, folder, name, pictures, chip, cores)
        except Unsupported as e:
            print(f"{name}: {e}")
    ran = vendor(folder, chip)
    wrong = [w for n, e in expected.items() if (w := difference(folder, n, e, ran[n]))]
    assert not wrong, f"{len(wrong)} of {len(expected)} differ: {wrong[:5]}"
    return len(expected)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_layers_are_equal(first, tmp_path):
    identity = 126  # a max pool of 1x1, of which nothing is left
    seeds = [s if s != identity else 300 for s in range(first, first + 50)]
    assert compare({f"layer{s}": networks.random_layer(s) for s in seeds}, tmp_path) == 50


def test_random_networks_are_equal(tmp_path):
    nets = {f"net{s}": networks.random_network(s) for s in range(50)}
    nets |= {f"cnn{s}": random_cnn(s) for s in range(10)}
    nets |= {f"relu{s}": networks.relu_cnn(s) for s in range(20)}
    assert compare({**nets, "joined": joined_outputs()}, tmp_path) >= 75


@pytest.mark.parametrize("name", WHOLE)
def test_whole_networks_are_equal(name, tmp_path):
    assert compare({name: WHOLE[name]()}, tmp_path, pictures=10) == 1


@pytest.mark.parametrize("chip", ["bm1688", "sg2260"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_whole_networks_are_equal_on_other_chips(name, chip, tmp_path):
    graph = networks.resnet(18) if name == "resnet18" else mobilenets.mobilenet_v2()
    assert compare({name: graph}, tmp_path, pictures=10, chip=chip) == 1


@pytest.mark.parametrize(("chip", "cores"), [("bm1688", 2), ("sg2260", 8)])
def test_networks_on_several_cores_are_equal(chip, cores, tmp_path):
    nets = {f"net{s}": networks.random_network(s) for s in range(20)}
    nets |= {f"cnn{s}": random_cnn(s) for s in range(10)}
    nets |= {"mobilenet_v2": mobilenets.mobilenet_v2(), "resnet18": networks.resnet(18)}
    assert compare(nets, tmp_path, chip=chip, cores=cores) >= 28


@pytest.mark.parametrize("chip", ["bm1688", "sg2260"])
def test_random_layers_and_networks_are_equal_on_other_chips(chip, tmp_path):
    nets = {f"layer{s}": networks.random_layer(s) for s in range(400, 460)}
    nets |= {f"net{s}": networks.random_network(s) for s in range(20)}
    nets |= {f"relu{s}": networks.relu_cnn(s) for s in range(20)}
    assert compare(nets, tmp_path, chip=chip) >= 90


def test_several_images_at_once_are_equal(tmp_path):
    nets = {f"cnn{s}": rebatched(random_cnn(s), 2 + s % 3) for s in range(10)}
    assert compare(nets, tmp_path) == 10


def test_quantised_upsampling_is_equal(tmp_path):
    nets = {}
    for seed in range(30):
        graph = float_networks.upsampling(seed)
        rng, (x,) = np.random.default_rng(seed), graph.inputs
        samples = [{x.name: rng.standard_normal(x.shape).astype(np.float32)} for _ in range(3)]
        nets[f"up{seed}"] = intaglio.quantize(
            graph, samples, target=CHIP, accuracy=None, method="minmax"
        )
    assert compare(nets, tmp_path) == 30


def _feeds(name: str, count: int) -> list[np.ndarray]:
    if name.startswith("yunet"):
        faces = [shared_models.bgr(i, 320, shared_models.FACES) for i in range(2)]
        return faces + [shared_models.bgr(i, 320, ()) for i in range(count - 2)]
    return [shared_models.torch_photo(i, 224) for i in range(count)]


@pytest.mark.parametrize("name", ["mobilenet_v2_fp32", "yunet_n_320_320"])
def test_trained_networks_are_equal_on_pictures(name, tmp_path):
    path = shared_models.SHARED / "models" / "onnx" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there: set INTAGLIO_SHARED")
    graph = intaglio.load(path)
    key = graph.inputs[0].name
    feeds = _feeds(name, 10)
    quantized = intaglio.quantize(graph, [{key: x} for x in feeds], target=CHIP)
    made = compile_bmodel(quantized, targets.find(CHIP).chip)
    (port,) = made.lowered.inputs
    low, high = dtypes.limits(port.dtype)
    codes = [np.clip(np.rint(x / np.float32(port.scale)) + port.zero, low, high) for x in feeds]
    given = np.stack(codes).astype(dtypes.numpy_of(port.dtype))
    made.save(tmp_path / f"{name}.bmodel")
    np.savez(tmp_path / f"{name}.in.npz", **{"0": given})
    runs = [list(intaglio.interpret(made.graph, {port.name: x}).values()) for x in given]
    expected = [np.stack(one) for one in zip(*runs, strict=True)]
    assert not difference(tmp_path, name, expected, vendor(tmp_path)[name])


@pytest.mark.parametrize("name", ["random", *WHOLE])
def test_the_vendor_disassembles_every_command(name, tmp_path):
    graph = networks.random_network(3) if name == "random" else WHOLE[name]()
    made = compile_bmodel(graph, targets.find(CHIP).chip)
    made.save(tmp_path / "net.bmodel")
    tool = PYTHON.with_name("bmodel_dis")
    done = subprocess.run(
        [str(tool), "net.bmodel"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    tiu, dma = (sum(c.engine == e for c in made.commands) for e in ("tiu", "dma"))
    assert sum("%B" in line.split("=")[0] for line in done.stdout.splitlines()) >= tiu
    assert sum("%D" in line.split("=")[0] for line in done.stdout.splitlines()) >= dma
