"""Chains of tpu-mlir commands on trained networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests import shared_models
from tests.compat.command_line import run

SHARED = shared_models.SHARED
MODELS, IMAGES = SHARED / "models", SHARED / "data" / "img"
CALIBRATION = SHARED / "data" / "imagenet_val1000_256"
PICTURES = "--mean 123.675,116.28,103.53 --scale 0.0171,0.0175,0.0174 --pixel_format rgb"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.exists(), reason=f"no shared models in {MODELS}"),
]


def chain(model: str, chip: str, options: str, picture: str, deploy: str = "") -> None:
    """Transform, calibrate and deploy with all comparisons."""
    ending = "cvimodel" if chip.startswith("cv") else "bmodel"
    test = f"--test_input {IMAGES / picture} --test_result top.npz"
    head = f"model_transform --model_name net --model_def {MODELS / model} --mlir net.mlir"
    assert run(f"{head} {options} {test}") == 0
    line = f"run_calibration net.mlir --dataset {CALIBRATION} --input_num 32 --chip {chip} -o table"
    assert run(line) == 0
    line = f"model_deploy --mlir net.mlir --quantize INT8 --chip {chip} --calibration_table table"
    rest = f"--test_input net_in_f32.npz --test_reference top.npz --model net.{ending} {deploy}"
    assert run(f"{line} {rest}") == 0


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("chip", ["bm1684x", "cv181x"])
def test_mobilenet(chip: str):
    chain("onnx/mobilenet_v2_fp32.onnx", chip, PICTURES, "dog.jpg")
    outputs = np.load(f"net_{chip}_int8_sym_model_outputs.npz")
    top = np.load("top.npz")["logits_Gemm"]
    (found,) = (outputs[n] for n in outputs.files)
    assert found.argmax() == top.argmax()


def test_mobilenet_with_fused_preprocessing():
    chain("onnx/mobilenet_v2_fp32.onnx", "bm1684x", PICTURES, "dog.jpg", "--fuse_preprocess")


def test_yolox_to_its_heads():
    names = _heads(MODELS / "onnx" / "yolox_nano_416.onnx")
    options = f"--output_names {','.join(names)} --keep_aspect_ratio --pad_value 114"
    chain("onnx/yolox_nano_416.onnx", "bm1684x", options, "bus.jpg", "--tolerance 0.9,0.6")


def _heads(path: Path) -> list[str]:
    """The convolutions of a detector that no other convolution follows."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    readers: dict[str, list[onnx.NodeProto]] = {}
    for n in graph.node:
        for name in n.input:
            readers.setdefault(name, []).append(n)

    def last(name: str) -> bool:
        after = readers.get(name, [])
        return all(n.op_type != "Conv" and all(map(last, n.output)) for n in after)

    return [n.output[0] for n in graph.node if n.op_type == "Conv" and last(n.output[0])]


def test_caffe_to_its_heads():
    model = "caffe/ultraface/slim-320.prototxt"
    data = MODELS / "caffe/ultraface/slim-320.caffemodel"
    names = "246,292,332,232,278,318"
    options = f"--model_data {data} --mean 127,127,127 --scale 0.0078,0.0078,0.0078"
    options += f" --pixel_format rgb --output_names {names}"
    chain(model, "bm1684x", options, "zidane.jpg", "--tolerance 0.9,0.6")


def test_tflite():
    model = "tflite/mobilenet_v1_0.25_224_float.tflite"
    options = "--mean 127.5,127.5,127.5 --scale 0.0078,0.0078,0.0078 --pixel_format rgb"
    options += " --channel_format nhwc --output_names MobilenetV1/Logits/SpatialSqueeze"
    chain(model, "bm1684x", options, "dog.jpg", "--tolerance 0.9,0.6")


def test_quantised_tflite_needs_no_table():
    model = MODELS / "tflite/mobilenet_v1_0.25_224_quant.tflite"
    options = "--mean 127.5,127.5,127.5 --scale 0.0078,0.0078,0.0078 --pixel_format rgb"
    options += " --channel_format nhwc --output_names MobilenetV1/Logits/SpatialSqueeze"
    test = f"--test_input {IMAGES / 'dog.jpg'} --test_result top.npz"
    line = f"model_transform --model_name net --model_def {model} --mlir net.mlir {options} {test}"
    assert run(line) == 0
    line = "model_deploy --mlir net.mlir --quantize INT8 --asymmetric --chip bm1684x"
    rest = "--test_input net_in_f32.npz --test_reference top.npz --model net.bmodel"
    assert run(f"{line} {rest} --tolerance 0.9999,0.999") == 0
