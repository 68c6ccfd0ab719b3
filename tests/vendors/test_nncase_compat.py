"""The same script under nncase 1.9 and under Intaglio's facade gives the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.compat import nncase_models
from tests.vendors.test_nncase import PYTHON

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="nncase 1.9 is not installed"),
]
SCRIPT = Path(__file__).parents[1] / "compat" / "scripts" / "nncase" / "v1_preprocess.py"
ROOT = Path(__file__).parents[2]
NCHW, NHWC = (1, 3, 16, 16), (1, 16, 16, 3)
USUAL = {"input_type": "uint8", "input_shape": NCHW, "input_layout": "NCHW", "input_range": [0, 1]}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "range": {"input_range": [0, 255], "mean": [100, 110, 120], "std": [50, 60, 70]},
    "symmetric range": {"input_range": [-1, 1]},
    "nhwc": {"input_shape": NHWC, "input_layout": "NHWC"},
    "swap": {"swapRB": True, "mean": [0.1, 0.2, 0.3], "std": [0.5, 1, 2]},
    "letterbox": {"input_shape": (1, 3, 12, 20), "letterbox_value": 0.5},
    "tall": {"input_shape": (1, 40, 24, 3), "input_layout": "NHWC", "letterbox_value": 0.25,
             "mean": [0.4, 0.4, 0.4]},
    "float": {"input_type": "float32", "mean": [10, 20, 30], "std": [9, 8, 7]},
    "output": {"output_layout": "NHWC"},
}  # fmt: skip


def run(command: list[str], folder: Path, given: dict[str, Any], target: str, result: str) -> Any:
    arguments = ["m.onnx", "x.npy", result, target, json.dumps(given)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [*command, str(SCRIPT), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": paths if command[0] == sys.executable else ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return np.load(folder / f"{result}.npy")


def both(folder: Path, given: dict[str, Any], target: str) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of nncase's own tool, and ours."""
    nncase_models.plain(folder / "m.onnx")
    model = onnx.shape_inference.infer_shapes(onnx.load(folder / "m.onnx"))
    onnx.save(model, folder / "m.onnx")  # nncase 1.x needs the shape of every tensor
    options = {**USUAL, **given}
    x = np.random.default_rng(0).integers(0, 256, options["input_shape"])
    np.save(folder / "x.npy", x.astype(options["input_type"]))
    theirs = run([str(PYTHON)], folder, options, target, "theirs")
    ours = run([sys.executable, "-m", "intaglio.compat"], folder, options, target, "ours")
    return theirs, ours


@pytest.mark.parametrize("case", CASES)
def test_preprocessing(case: str, tmp_path: Path):
    theirs, ours = both(tmp_path, CASES[case], "cpu")
    assert theirs.shape == ours.shape
    assert np.allclose(theirs, ours, rtol=2e-3, atol=2e-3 * np.abs(theirs).max())


def test_our_kmodel_in_the_vendors_simulator(tmp_path: Path):
    """The bytes that the file gives are those that our simulator dequantises."""
    given = {"mean": [0.5] * 3, "std": [0.25] * 3}
    theirs, ours = both(tmp_path, given, "k210")
    error = np.linalg.norm(theirs - ours) / np.linalg.norm(theirs)
    assert error < 0.05  # two quantisations of one model
    code = (
        "import nncase, numpy as np\nsim = nncase.Simulator()\n"
        "sim.load_model(open('ours.kmodel', 'rb').read())\n"
        "sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(np.load('x.npy')))\n"
        "sim.run()\nnp.save('bytes.npy', sim.get_output_tensor(0).to_numpy())\n"
    )
    subprocess.run([str(PYTHON), "-c", code], cwd=tmp_path, check=True, timeout=120)
    stored = np.load(tmp_path / "bytes.npy").astype(np.float64).ravel()
    line = np.polyfit(stored, ours.ravel(), 1)  # real = scale * (byte - zero)
    assert np.abs(np.polyval(line, stored) - ours.ravel()).max() < 1e-3 * np.abs(ours).max()
    from intaglio.compat.nncase import Simulator

    vendor = Simulator()  # their file in our simulator
    vendor.load_model((tmp_path / "theirs.kmodel").read_bytes())
    vendor.set_input_tensor(0, np.load(tmp_path / "x.npy"))
    vendor.run()
    assert np.array_equal(vendor.get_output_tensor(0).to_numpy(), theirs)
