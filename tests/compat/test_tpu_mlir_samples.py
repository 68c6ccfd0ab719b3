"""Scripts with the functions of tpu-mlir's samples: one script for models of all kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat.command_line import run
from tests.compat.test_rknn_scripts import run as run_script
from tests.compat.test_tpu_mlir_chains import PICTURES, calibrate, transform


@pytest.mark.usefixtures("names")
def test_one_sample_runs_models_of_all_kinds(folder: Path, capsys: pytest.CaptureFixture[str]):
    transform("mobilenet.onnx", f"--input_shapes [[1,3,16,16]] {PICTURES}")
    calibrate()
    deploy = "model_deploy.py --mlir net.mlir --quantize INT8 --calibration_table table --chip"
    assert run(f"{deploy} bm1684x --model net.bmodel --skip_validation") == 0
    assert run(f"{deploy} cv181x --model net.cvimodel --skip_validation") == 0
    capsys.readouterr()
    found = {}
    for model in ("mobilenet.onnx", "net.mlir", "net.bmodel", "net.cvimodel"):
        printed = run_script("tpu_mlir/classify", f"--input images/0.png --model {model}", capsys)
        assert "class" in printed
        found[model] = np.load(Path(model).with_name(f"{Path(model).stem}_scores.npy"))
    names = ("y_Gemm", "y_Gemm_f32")
    assert any(n in printed for n in names)
    exact = found["mobilenet.onnx"]
    assert exact.shape == (1, 5)
    np.testing.assert_allclose(found["net.mlir"], exact, rtol=1e-4, atol=1e-5)
    for model in ("net.bmodel", "net.cvimodel"):
        assert np.linalg.norm(found[model].ravel() - exact.ravel()) < 0.15 * np.linalg.norm(exact)


@pytest.mark.usefixtures("names")
def test_missing_files_are_one_line(folder: Path):
    from tools.model_runner import model_inference, onnx_inference

    from intaglio.errors import BadFile

    with pytest.raises(BadFile, match=r"there is no file 'nope\.onnx'"):
        onnx_inference({}, "nope.onnx")
    with pytest.raises(BadFile, match=r"mobilenet\.onnx is no \.bmodel"):
        model_inference({}, "mobilenet.onnx")
