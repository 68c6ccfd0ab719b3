"""docs/operators.md is up to date with the importers, kernels and units."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.ops.registry import REGISTRY

pytest.importorskip("onnx")
pytest.importorskip("tflite")

from intaglio.analysis.npu_coverage import units
from intaglio.analysis.operators import COMMAND, document, importers

PATH = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_committed_file_is_current():
    assert PATH.read_text() == document(), f"docs/operators.md is out of date: run `{COMMAND}`"


@pytest.mark.parametrize(
    ("framework", "name", "op"),
    [
        ("onnx", "Conv", "conv"),
        ("onnx", "Relu", "relu"),
        ("tflite", "CONV_2D", "conv"),
        ("tflite", "RELU6", "clip"),
        ("torch", "linear", "gemm"),
        ("tensorflow", "MatMul", "gemm"),
        ("caffe", "InnerProduct", "gemm"),
        ("caffe", "DetectionOutput", "non_max_suppression"),
        ("caffe", "Sigmoid", "sigmoid"),
        ("darknet", "gru", "gru"),
    ],
)
def test_importers_list_the_operators_that_they_build(framework: str, name: str, op: str):
    direct, reached = importers(framework)[name]
    assert op in (direct or reached)
    assert direct <= reached


def test_every_op_has_a_row_and_runs():
    text = document()
    for op in REGISTRY:
        if "." not in op:
            row = next(line for line in text.splitlines() if line.startswith(f"| `{op}` |"))
            assert "kernel" in row or "lowered" in row


def test_units_of_chips():
    found = units("rk3588", ["conv", "add", "sigmoid", "max_pool", "softmax", "batch_norm"])
    assert found == {
        "conv": "conv",
        "add": "eltwise",
        "sigmoid": "lut",
        "max_pool": "pool",
        "batch_norm": "in conv",
    }
    assert "add" not in units("k210", ["add"])  # it has no such unit
