"""Our cvimodels on the register-level simulator of tpu_mlir: every byte equals our interpreter's.

`make test-vendors` installs tpu_mlir into an environment of its own, which needs Python 3.10.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.bm1684x.networks import yolov8n
from tests.npu.chips.cv18xx.matrix_products import random_matmul
from tests.npu.chips.cv18xx.networks import NETWORKS
from tests.npu.chips.cv18xx.padded_means import random_padded_mean
from tests.npu.chips.cv18xx.paired_layers import random_product
from tests.npu.chips.cv18xx.quantized_layers import random_layer, random_network
from tests.npu.chips.cv18xx.unsigned_layers import random_unsigned
from tests.npu.chips.cv18xx.unusual_scales import random_scales
from tests.npu.chips.cv18xx.upsampling_layers import random_upsampling
from tests.npu.chips.cv18xx.wide_layers import wide_layer
from tests.npu.chips.k210.mobilenets import mobilenet_v2
from tests.shared_models import SHARED

import intaglio
from intaglio import dtypes
from intaglio.batches import rebatched
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.compile import Compiled, compile_cvimodel
from intaglio.npu.chips.cv18xx.simulate import Machine

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("INTAGLIO_SOPHGO", ROOT / ".venv-vendors" / "bin" / "python"))
RUNNER = Path(__file__).with_name("cvi_runner.py")
CHIPS = ("cv181x", "cv180x")
LAYERS = 300
RANDOM_NETWORKS = 50
LATER = [
    random_matmul,
    random_product,
    random_upsampling,
    random_unsigned,
    random_padded_mean,
    random_scales,
]
OF_EACH = 60


def _installed() -> bool:
    found = "import importlib.util as u, sys; sys.exit(u.find_spec('tpu_mlir') is None)"
    return (
        PYTHON.exists() and not subprocess.run([str(PYTHON), "-c", found], check=False).returncode
    )


pytestmark = pytest.mark.skipif(
    not _installed(), reason="tpu_mlir is not installed: run `make test-vendors`"
)


class Folder:
    """Files for one run of the simulator, and what our interpreter makes of their inputs."""

    def __init__(self, path: Path, chip: str):
        self.path, self.chip = path, chip
        self.expected: dict[str, list[np.ndarray]] = {}

    def add(self, name: str, made: Compiled, pictures: int = 2, seed: int = 0) -> None:
        made.save(self.path / f"{name}.cvimodel")
        rng, given = np.random.default_rng(seed), {}
        for i, p in enumerate(made.lowered.inputs):
            low, high = dtypes.limits(p.dtype)
            given[str(i)] = rng.integers(low, high + 1, (pictures, *p.shape)).astype(
                p.dtype[0] + "1"
            )
        np.savez(self.path / f"{name}.in.npz", **given)
        runs = []
        for picture in zip(*given.values(), strict=True):
            feeds = {p.name: x for p, x in zip(made.lowered.inputs, picture, strict=True)}
            runs.append(list(intaglio.interpret(made.graph, feeds).values()))
        self.expected[name] = [np.stack(one) for one in zip(*runs, strict=True)]

    def differing(self) -> list[str]:
        """The models of which an output differs, or which the simulator refuses."""
        command = [str(PYTHON), str(RUNNER), self.chip, str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        report = self.path / "report.json"
        assert report.exists(), done.stderr[-1000:]
        seconds = json.loads(report.read_text())
        return [n for n in self.expected if not (n in seconds and self._equal(n))]

    def _equal(self, name: str) -> bool:
        path = self.path / f"{name}.out.npz"
        if not path.exists():
            return False
        with np.load(path) as found:
            pairs = zip(self.expected[name], found.values(), strict=True)
            return all(a.tobytes() == b.astype(a.dtype).tobytes() for a, b in pairs)


@pytest.mark.parametrize("chip", CHIPS)
def test_random_layers(chip, tmp_path):
    folder = Folder(tmp_path, chip)
    for seed in range(LAYERS):
        folder.add(f"{seed:03}", compile_cvimodel(random_layer(seed), chip), seed=seed)
    assert len(folder.expected) == LAYERS
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("build", LATER)
def test_random_products_upsampling_bytes_and_means(chip, build, tmp_path):
    folder = Folder(tmp_path, chip)
    for seed in range(OF_EACH):
        folder.add(f"{seed:03}", compile_cvimodel(build(seed), chip), seed=seed)
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_random_networks(chip, tmp_path):
    folder = Folder(tmp_path, chip)
    for seed in range(RANDOM_NETWORKS):
        folder.add(f"{seed:03}", compile_cvimodel(random_network(seed), chip), seed=seed)
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_several_images_at_once(chip, tmp_path):
    folder = Folder(tmp_path, chip)
    for seed in range(10):
        graph = rebatched(random_network(seed), 2 + seed % 3)
        folder.add(f"{seed:03}", compile_cvimodel(graph, chip), seed=seed)
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_networks(chip, tmp_path):
    folder = Folder(tmp_path, chip)
    for name, build in NETWORKS.items():
        folder.add(name, compile_cvimodel(build(), chip))
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_our_simulator_is_50_times_as_fast(chip, tmp_path):
    """By the time of the CPU for one run of MobileNetV2, theirs without its start-up."""
    made = compile_cvimodel(mobilenet_v2(), chip)
    folder = Folder(tmp_path, chip)
    folder.add("mv2", made, pictures=1)
    assert folder.differing() == []
    theirs = json.loads((tmp_path / "report.json").read_text())["mv2"]
    machine, ours = Machine(cvimodel.read(made.data)), []
    (port,) = machine.inputs
    picture = np.random.default_rng(0).integers(-128, 128, port.shape).astype(np.int8)
    for _ in range(6):
        start = time.process_time()
        machine.run({port.name: picture})
        ours.append(time.process_time() - start)
    assert theirs >= 50 * min(ours), (theirs, ours)


# model, and the samples that calibrate it: a file of arrays or random numbers between two bounds
MODELS = {
    "onnx/mobilenet_v2_fp32.onnx": (-2.0, 2.5),
    "onnx/ultraface_RFB-320.onnx": (-1.0, 1.0),
    "onnx/yunet_n_320_320.onnx": (0.0, 255.0),
    "tflite/mobilenet_v1_0.25_224_float.tflite": (-1.0, 1.0),
    "tflite/pretrainedResnet.tflite": (0.0, 255.0),
    "tflite/vww_96_float.tflite": (0.0, 1.0),
    "tflite/kws_ref_model_float32.tflite": (-60.0, 60.0),
    "tflite/ad01_fp32.tflite": (-20.0, 20.0),
}


def test_layers_that_are_split_by_channels(tmp_path):
    folder = Folder(tmp_path, "cv180x")
    for seed in range(20):
        folder.add(f"{seed:03}", compile_cvimodel(wide_layer(seed), "cv180x"), seed=seed)
    assert folder.differing() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_a_detector(chip, tmp_path):
    """YOLOv8n to its heads. CV180x has no room for all rows of its pooled maps at once."""
    folder = Folder(tmp_path, chip)
    folder.add("yolov8n", compile_cvimodel(yolov8n(), chip), pictures=1)
    assert folder.differing() == []


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_trained_networks(chip, tmp_path):
    if not (SHARED / "models").exists():
        pytest.skip(f"{SHARED / 'models'} is not there")
    folder = Folder(tmp_path, chip)
    for name, (low, high) in MODELS.items():
        graph = intaglio.load(str(SHARED / "models" / name))
        (x,) = graph.inputs
        rng = np.random.default_rng(0)
        samples = [{x.name: rng.uniform(low, high, x.shape).astype(np.float32)} for _ in range(4)]
        small = intaglio.quantize(graph, data=samples, target=chip, accuracy=None, method="minmax")
        folder.add(Path(name).stem, compile_cvimodel(getattr(small, "graph", small), chip))
    assert folder.differing() == []
