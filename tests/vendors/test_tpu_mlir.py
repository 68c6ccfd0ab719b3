"""Files of `intaglio compat model_deploy` in the vendor's own model_runner and model_tool.

`make test-vendors` installs tpu_mlir into an environment of its own, which needs Python 3.10.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.compat import models
from tests.compat.command_line import run
from tests.vendors.test_sophgo import PYTHON, pytestmark  # noqa: F401


def vendor(tool: str, arguments: str) -> str:
    """What a tool of tpu_mlir prints."""
    path = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(PYTHON.parent / tool), *arguments.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    return done.stdout


@pytest.mark.parametrize("chip", ["bm1684x", "cv181x", "cv180x"])
@pytest.mark.parametrize("options", ["", "--quant_output", "--fuse_preprocess"])
def test_floats_go_in_and_come_out_as_in_our_runner(
    chip: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    models.classifier(Path("net.onnx"))
    models.pictures(tmp_path)
    ending = "cvimodel" if chip.startswith("cv") else "bmodel"
    scale = "--mean 127,120,110 --scale 0.008,0.008,0.008 --pixel_format rgb"
    test = "--test_input images/0.png --test_result top.npz"
    line = f"model_transform --model_name net --model_def net.onnx --mlir net.mlir {scale} {test}"
    assert run(line) == 0
    assert run(f"run_calibration net.mlir --dataset images --chip {chip} -o table") == 0
    line = f"model_deploy --mlir net.mlir --quantize INT8 --chip {chip} --calibration_table table"
    assert run(f"{line} {options} --model net.{ending}") == 0
    if "fuse" in options:
        pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 16, 16), np.uint8)
        np.savez("net_in_f32.npz", x=pixels)
    given = f"--input net_in_f32.npz --model net.{ending} --output"
    assert run(f"model_runner {given} ours.npz") == 0
    vendor("model_runner", f"{given} theirs.npz")
    ours, theirs = np.load("ours.npz"), np.load("theirs.npz")
    assert ours.files
    for name in ours.files:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("quantize", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("options", ["--customization_format BGR_PACKED", "--quant_output"])
def test_files_in_floats_take_pixels_as_in_our_runner(
    quantize: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    models.classifier(Path("net.onnx"))
    scale = "--mean 9,19,29 --scale 0.0039,0.0037,0.0035 --pixel_format rgb"
    line = f"model_transform --model_name net --model_def net.onnx --mlir net.mlir {scale}"
    assert run(line) == 0
    line = f"model_deploy --mlir net.mlir --quantize {quantize} --chip bm1684x --fuse_preprocess"
    assert run(f"{line} {options} --model net.bmodel") == 0
    shape = (1, 16, 16, 3) if "PACKED" in options else (1, 3, 16, 16)
    np.savez("pixels.npz", x=np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    given = "--input pixels.npz --model net.bmodel --output"
    assert run(f"model_runner {given} ours.npz") == 0
    vendor("model_runner", f"{given} theirs.npz")
    ours, theirs = np.load("ours.npz"), np.load("theirs.npz")
    assert ours.files
    for name in ours.files:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_combined_files_are_read_by_the_vendors_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    models.classifier(Path("one.onnx"))
    models.detector(Path("two.onnx"))
    models.pictures(tmp_path)
    for name in ("one", "two"):
        line = f"model_transform --model_name {name} --model_def {name}.onnx --mlir net.mlir"
        assert run(line) == 0
        assert run("run_calibration net.mlir --dataset images -o table") == 0
        line = "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x"
        assert run(f"{line} --calibration_table table --model {name}.bmodel") == 0
    assert run("model_tool --combine one.bmodel two.bmodel -o both.bmodel") == 0
    text = vendor("model_tool", "--info both.bmodel")
    assert "net 0: [one]  static" in text
    assert "net 1: [two]  static" in text
