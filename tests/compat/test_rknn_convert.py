"""python -m rknn.api.rknn_convert: options, YAML files, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat import models

from intaglio.compat.__main__ import main as run
from intaglio.compat.rknn.api.rknn_convert import main
from intaglio.compat.rknnlite.api import RKNNLite

YAML = """
models:
  name: object_detection
  platform: onnx
  model_file_path: ./yolo.onnx
  subgraphs:
    input_size_list:
      - 1,3,16,16
    inputs:
      - images
    outputs:
      - out0
  quantize: true
  dataset: ./dataset.txt
  configs:
    quantized_dtype: asymmetric_quantized-8
    mean_values: [127.5,127.5,127.5]
    std_values: [128.0,128.0,128.0]
    quant_img_RGB2BGR: false
    quantized_algorithm: normal
"""


def test_options_alone(folder: Path, capsys):
    options = "-t rk3588 -i mobilenet.onnx -o out/m.rknn -mean [[0,0,0]] -std [[255,255,255]]"
    assert main([*options.split(), "-do_Quant", "dataset.txt", "-e", "-a", "images/0.png"]) == 0
    printed = capsys.readouterr().out
    assert "Total Operator Elapsed" in printed
    assert "Memory Profile" in printed
    assert "simulator_error" in printed
    assert "wrote out/m.rknn" in printed
    assert RKNNLite().load_rknn("out/m.rknn") == 0
    assert main(["-t", "rk3588", "-i", "out/m.rknn", "-e"]) == 0


def test_shapes_and_outputs(folder: Path):
    options = ["-t", "rk3566", "-i", "dynamic.onnx", "-o", "out", "-onnx_inputs", "{'x':[1,3,8,8]}"]
    assert main([*options, "-onnx_outputs", "['g']"]) == 0
    assert Path("out/dynamic.rknn").exists()


@pytest.mark.usefixtures("names")
def test_a_yaml_file(folder: Path):
    Path("cfg").mkdir()
    Path("model_config.yml").write_text(YAML)
    with pytest.raises(SystemExit) as ended:
        run(
            [
                "-m",
                "rknn.api.rknn_convert",
                "-t",
                "rk3588",
                "-i",
                "./model_config.yml",
                "-o",
                "./out",
            ]
        )
    assert ended.value.code == 0
    lite = RKNNLite()
    assert lite.load_rknn("out/object_detection.rknn") == 0
    assert list(lite.package.outputs) == ["out0"]


@pytest.mark.parametrize(
    ("platform", "lines"),
    [
        ("tflite", "model_file_path: model.tflite"),
        ("pytorch", "pt_file_path: model.pt\n  subgraphs: {input_size_list: ['1,3,16,16']}"),
        ("darknet", "darknet_cfg_path: model.cfg\n  darknet_weights_path: model.weights"),
        ("caffe", "prototxt_file_path: model.prototxt\n  caffemodel_file_path: model.caffemodel"),
        (
            "tensorflow",
            "model_file_path: model.pb\n  subgraphs:\n    input-size-list: ['1,16,16,3']\n"
            "    inputs: [image]\n    outputs: [probs]",
        ),
    ],
)
def test_every_format(folder: Path, platform: str, lines: str):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    config = "\n  configs: {channel_mean_value: '0 0 0 255'}" if platform != "tensorflow" else ""
    Path("m.yml").write_text(f"models:\n  name: m\n  platform: {platform}\n  {lines}{config}\n")
    assert main(["-t", "rk3588", "-i", "m.yml", "-o", "out"]) == 0
    assert Path("out/m.rknn").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "-i is missing"),
        ("-i mobilenet.onnx", "-t is missing"),
        ("-t rk3588 -i nope.onnx", "there is no file 'nope.onnx'"),
        ("-t rk3588 -i nope.yml", "cannot read 'nope.yml'"),
        ("-t rk3588 -i empty.yml", "has no `models:`"),
        ("-t rk3588 -i bad.yml", "platform is 'mxnet'"),
        ("-t rk3588 -i mobilenet.onnx -meen [1]", "did you mean '-mean'?"),
        ("-t rk3588 -i mobilenet.onnx -mean [1", "write a Python list or dict"),
        ("-t rk3588 -i", "-i needs a value"),
        ("-t rk0 -i mobilenet.onnx", "target_platform is 'rk0'"),
    ],
)
def test_mistakes(folder: Path, capsys, options: str, words: str):
    Path("empty.yml").write_text("")
    Path("bad.yml").write_text("models: {platform: mxnet}")
    assert main(options.split()) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
