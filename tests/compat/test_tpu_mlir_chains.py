"""Ten chains of tpu-mlir commands, as its manual writes them, on small networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.compat import models
from tests.compat.command_line import refused, run

import intaglio
from intaglio.compat.tpu_mlir import module_file
from intaglio.compat.tpu_mlir.tables import read_qtable
from intaglio.npu.chips.bm1684x import bmodel, simulate
from intaglio.npu.chips.cv18xx import cvimodel

PICTURES = "--mean 127.5,127.5,127.5 --scale 0.0078,0.0078,0.0078 --pixel_format rgb"


def transform(model: str, rest: str = "") -> None:
    line = f"model_transform.py --model_name net --model_def {model} --mlir net.mlir {rest}"
    assert run(line) == 0


def calibrate(chip: str = "bm1684x", rest: str = "") -> None:
    line = f"run_calibration.py net.mlir --dataset images --input_num 4 --chip {chip} -o table"
    assert run(f"{line} {rest}") == 0


def test_1_classifier_for_bm1684x(folder: Path):
    transform(
        "mobilenet.onnx",
        f"--input_shapes [[1,3,16,16]] {PICTURES} --test_input images/0.png "
        "--test_result net_top.npz --keep_aspect_ratio",
    )
    top = np.load("net_top.npz")
    assert {"x", "r0_Relu", "r1_Relu", "y_Gemm"} <= set(top.files)
    assert np.load("net_in_f32.npz")["x"].shape == (1, 3, 16, 16)
    calibrate()
    deploy = (
        "model_deploy.py --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --compare_all "
        "--tolerance 0.85,0.45 --model net.bmodel"
    )
    assert run(deploy) == 0
    file = bmodel.read(Path("net.bmodel").read_bytes())
    (stage,) = file.nets[0].stages
    assert (file.chip, file.nets[0].name) == ("BM1684X", "net")
    assert [(t.name, t.shape) for t in stage.outputs] == [("y_Gemm_f32", (1, 5))]
    tpu, model = (np.load(f"net_bm1684x_int8_sym_{k}_outputs.npz") for k in ("tpu", "model"))
    np.testing.assert_array_equal(tpu["y_Gemm"], model["y_Gemm_f32"])


ONE_MEAN = "--mean 9,9,9 --scale 0.0039,0.0039,0.0039 --pixel_format rgb"
BY_CHANNEL = "--mean 9,19,29 --scale 0.0039,0.0037,0.0035 --pixel_format rgb"


@pytest.mark.parametrize(
    ("how", "pixels"),
    [
        (PICTURES, "BGR_PLANAR"),
        (BY_CHANNEL, "RGB_PACKED"),
        (ONE_MEAN, "BGR_PACKED"),
        (BY_CHANNEL, "BGR_PACKED"),
    ],
)
def test_2_fused_preprocessing_takes_pixels(folder: Path, how: str, pixels: str):
    transform("mobilenet.onnx", f"{how} --test_input images/0.png --test_result net_top.npz")
    calibrate()
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --processor bm1684x "
        f"--calibration_table table --fuse_preprocess --customization_format {pixels} "
        "--test_input images/0.png --test_reference net_top.npz --model net.bmodel"
    )
    assert run(deploy) == 0
    (tensor,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages[0].inputs
    assert bmodel.TYPES[tensor.type][0] == "u8"
    from PIL import Image

    rgb = np.asarray(Image.open("images/0.png").convert("RGB"))
    frame = rgb[:, :, ::-1] if "BGR" in pixels else rgb
    frame = frame if "PACKED" in pixels else frame.transpose(2, 0, 1)
    assert tensor.shape == frame[None].shape
    np.savez("pixels.npz", x=frame[None])
    assert run("model_runner --input pixels.npz --model net.bmodel --output out.npz") == 0
    top, out = np.load("net_top.npz")["y_Gemm"], np.load("out.npz")["y_Gemm_f32"]
    assert np.corrcoef(top.ravel(), out.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("chip", ["bm1688", "bm1690"])
def test_3_detector_to_named_outputs(folder: Path, chip: str, monkeypatch: pytest.MonkeyPatch):
    transform("yolo.onnx", "--output_names c1 --channel_format none")
    assert [v.name for v in intaglio.load("yolo.onnx").outputs] != ["c1"]
    transform(
        "yolo.onnx",
        "--output_names out0,out1 --scale 0.0039,0.0039,0.0039 --pixel_format rgb "
        "--test_input images/1.png --test_result net_top.npz",
    )
    calibrate(rest="--cali_method mse")
    deploy = (
        f"model_deploy --mlir net.mlir --quantize INT8 --chip {chip} --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --asymmetric --quant_output "
        "--model net.bmodel"
    )
    simulated: list[str] = []
    machine_run = simulate.Machine.run

    def noted(machine: simulate.Machine, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        simulated.append(machine.chip.title)
        return machine_run(machine, feeds)

    monkeypatch.setattr(simulate.Machine, "run", noted)
    assert run(deploy) == 0
    assert simulated == [chip.upper()]
    assert run("model_runner --input net_in_f32.npz --model net.bmodel --output out.npz") == 0
    made, out = np.load(f"net_{chip}_int8_asym_model_outputs.npz"), np.load("out.npz")
    for name in ("out0_Conv", "out1_Conv"):
        np.testing.assert_array_equal(out[name], made[name])
    (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
    assert [t.name for t in stage.outputs] == ["out0_Conv", "out1_Conv"]
    assert {bmodel.TYPES[t.type][0] for t in stage.outputs} == {"i8"}
    assert run(f"{deploy} --num_core 2") == 0
    (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
    assert stage.cores == 2
    assert run(f"{deploy} --num_core 9") == 2


def test_4_mixed_precision_by_a_table(folder: Path, capsys: pytest.CaptureFixture[str]):
    transform("mobilenet.onnx", f"{PICTURES} --test_input images/0.png --test_result net_top.npz")
    calibrate(rest="--search search_qtable --quantize_table q0 --expected_cos 0.999")
    line = "run_qtable net.mlir --dataset images --calibration_table table --chip bm1684x -o qtable"
    assert run(f"{line} --expected_cos 0.99999 --max_float_layers 2") == 0
    Path("mine").write_text("# op_name   quantize_mode\nc0_Conv F32\n")
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--quantize_table mine --test_input net_in_f32.npz --test_reference net_top.npz --model"
    )
    assert run(f"{deploy} net.bmodel") == 0
    (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
    assert {bmodel.TYPES[t.type][0] for t in stage.inputs} == {"f32"}  # the first layer is F32
    assert run(f"{deploy} net.itg") == 0
    assert run("model_runner --input net_in_f32.npz --model net.itg --output out.npz") == 0
    top, out = np.load("net_top.npz")["y_Gemm"], np.load("out.npz")["y_Gemm"]
    assert np.corrcoef(top.ravel(), out.ravel())[0, 1] > 0.99


def test_float_layers_by_their_place(folder: Path, capsys: pytest.CaptureFixture[str]):
    """fp_forward: before, after and between layers; its table is one for model_deploy."""
    transform("mobilenet.onnx", PICTURES)
    names = [v.name for n in module_file.read("net.mlir").graph.nodes() for v in n.outputs]
    line = "fp_forward net.mlir --quantize INT8 --processor bm1684x -o table"

    def table(rest: str) -> list[str]:
        assert run(f"{line} {rest}") == 0
        assert set(read_qtable("table").values()) == {"f16"}
        return list(read_qtable("table"))

    assert table(f"--fpfwd_inputs {names[2]}") == names[:3]
    assert table(f"--fpfwd_outputs {names[-2]}") == names[-2:]
    assert table(f"--fpfwd_blocks {names[1]}:{names[3]}") == names[1:4]
    capsys.readouterr()
    for rest, words in (
        ("", "no layer is chosen"),
        ("--fpfwd_outputs nothing", "no layer is called 'nothing'"),
        (f"--fpfwd_blocks {names[1]}", "START:END"),
        (f"--fpfwd_blocks {names[3]}:{names[1]}", "no path"),
    ):
        assert run(f"{line} {rest}") == 2
        assert words in capsys.readouterr().err


def test_a_softmax_after_int8_layers(folder: Path):
    """It has no integer form on a TPU: the file computes it in floats."""
    net = onnx.load("mobilenet.onnx")
    name = net.graph.output[0].name
    net.graph.node.append(onnx.helper.make_node("Softmax", [name], ["probability"], axis=1))
    net.graph.output[0].name = "probability"
    onnx.save(net, "soft.onnx")
    transform("soft.onnx", f"{PICTURES} --test_input images/0.png --test_result net_top.npz")
    calibrate()
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --tolerance 0.9,0.6 "
        "--model net.bmodel"
    )
    assert run(deploy) == 0
    assert run("model_runner --input net_in_f32.npz --model net.bmodel --output out.npz") == 0
    out, top = np.load("out.npz")["probability_Softmax_f32"], np.load("net_top.npz")
    assert abs(float(out.sum()) - 1) < 1e-3
    assert np.abs(out - top["probability_Softmax"]).max() < 0.05
    assert run(deploy.replace("bm1684x", "cv181x").replace(".bmodel", ".cvimodel")) == 2


def test_5_tflite(folder: Path):
    from tests.frontends.tflite_build import T, model, op

    rng = np.random.default_rng(2)
    w = rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)
    kinds = [
        T((1, 16, 16, 3), name="image"),
        T(data=w, name="w"),
        T(data=np.zeros(8, np.float32), name="b"),
        T((1, 16, 16, 8), name="features"),
    ]
    node = op("CONV_2D", [0, 1, 2], [3], padding="SAME", stride_w=1, stride_h=1)
    Path("net.tflite").write_bytes(model(kinds, [node], [0], [3]))
    transform(
        "net.tflite",
        f"{PICTURES} --channel_format nhwc --test_input images/0.png --test_result net_top.npz",
    )
    assert np.load("net_in_f32.npz")["image"].shape == (1, 16, 16, 3)
    calibrate()
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz"
    )
    assert run(f"{deploy} --model net.itg") == 0


def test_6_caffe(folder: Path):
    models.other_formats(folder)
    transform(
        "model.prototxt",
        f"--model_data model.caffemodel {PICTURES} --test_input images/0.png "
        "--test_result net_top.npz",
    )
    calibrate()
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --model net.bmodel"
    )
    assert run(deploy) == 0


@pytest.mark.parametrize("chip", ["cv181x", "cv180x"])
def test_7_and_8_cvimodels(folder: Path, chip: str):
    transform("mobilenet.onnx", f"{PICTURES} --test_input images/0.png --test_result net_top.npz")
    calibrate(chip)
    deploy = (
        f"model_deploy --mlir net.mlir --quantize INT8 --chip {chip} --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --quant_input "
        "--model net.cvimodel"
    )
    assert run(deploy) == 0
    program = cvimodel.read(Path("net.cvimodel").read_bytes()).programs[0]
    assert (program.inputs, program.outputs) == (["x"], ["y_Gemm"])
    assert run("model_runner --input net_in_f32.npz --model net.cvimodel --output out.npz") == 0
    made = np.load(f"net_{chip}_int8_sym_model_outputs.npz")["y_Gemm"]
    np.testing.assert_array_equal(np.load("out.npz")["y_Gemm"], made)


def test_9_comparisons_pass_and_fail(folder: Path, capsys: pytest.CaptureFixture[str]):
    transform("mobilenet.onnx", f"{PICTURES} --test_input images/0.png --test_result net_top.npz")
    calibrate()
    deploy = (
        "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table "
        "--test_input net_in_f32.npz --test_reference net_top.npz --model net.bmodel --tolerance"
    )
    assert run(f"{deploy} 0.9,0.5") == 0
    assert "npz compare PASSED" in capsys.readouterr().out
    assert run(f"{deploy} 0.999999,0.999999") == 1
    assert "npz compare FAILED" in capsys.readouterr().out
    assert run(f"{deploy} 0.999999,0.999999 --excepts y_Gemm") == 1  # nothing is left to compare
    assert run(f"{deploy} 0.999999,0.999999 --skip_validation") == 0
    other = dict(np.load("net_top.npz"))
    other["y_Gemm"] = -other["y_Gemm"]
    np.savez("other.npz", **other)
    assert run("npz_tool.py compare net_top.npz net_top.npz --tolerance 0.99,0.99 -vv") == 0
    assert run("npz_tool.py compare other.npz net_top.npz --tolerance 0.99,0.99 -vv") == 1
    assert run("npz_tool.py compare other.npz net_top.npz --excepts y_Gemm") == 0


def test_10_model_tool_and_model_runner(folder: Path, capsys: pytest.CaptureFixture[str]):
    for name, model in (("one", "mobilenet.onnx"), ("two", "yolo.onnx")):
        head = f"model_transform --model_name {name} --model_def {model} --mlir net.mlir"
        assert run(f"{head} {PICTURES} --test_input images/0.png --test_result net_top.npz") == 0
        calibrate()
        deploy = "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table"
        assert run(f"{deploy} table --model {name}.bmodel") == 0
    assert run("model_tool --combine one.bmodel two.bmodel -o both.bmodel") == 0
    capsys.readouterr()
    assert run("model_tool --info both.bmodel") == 0
    text = capsys.readouterr().out
    assert "net 0: [one]  static" in text
    assert "net 1: [two]  static" in text
    assert "output: y_Gemm_f32, [1, 5], float32" in text
    assert "'one' with input shapes" in refused(
        "model_tool --combine one.bmodel one.bmodel -o x", capsys
    )
    assert run("model_tool --extract both.bmodel") == 0
    assert Path("bm_net1_stage0.bmodel").read_bytes() == Path("two.bmodel").read_bytes()
    runner = "model_runner --input two_in_f32.npz --model"
    for model in ("yolo.onnx", "net.mlir", "bm_net1_stage0.bmodel"):
        assert run(f"{runner} {model} --output {model}.npz") == 0
    a, b, c = (np.load(f"{m}.npz") for m in ("yolo.onnx", "net.mlir", "bm_net1_stage0.bmodel"))
    np.testing.assert_allclose(a["out0_Conv"], b["out0_Conv"], rtol=1e-4, atol=1e-5)
    flat = a["out0_Conv"].ravel(), c["out0_Conv_f32"].ravel()
    assert np.corrcoef(*flat)[0, 1] > 0.99
    assert run(f"{runner} net.mlir --dump_all_tensors --output all.npz") == 0
    assert len(np.load("all.npz").files) > len(b.files)


@pytest.mark.parametrize("quantize", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("pixels", ["RGB_PLANAR", "BGR_PLANAR", "BGR_PACKED", "RGB_PACKED"])
def test_files_in_floats_take_pixels(folder: Path, quantize: str, pixels: str):
    transform("mobilenet.onnx", f"{BY_CHANNEL} --test_input images/0.png --test_result top.npz")
    deploy = (
        f"model_deploy --mlir net.mlir --quantize {quantize} --chip bm1684x --fuse_preprocess "
        f"--customization_format {pixels} --test_input images/0.png --test_reference top.npz "
        "--model net.bmodel"
    )
    assert run(deploy) == 0
    (tensor,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages[0].inputs
    assert bmodel.TYPES[tensor.type][0] == "u8"
    from PIL import Image

    rgb = np.asarray(Image.open("images/0.png").convert("RGB"))
    frame = rgb[:, :, ::-1] if "BGR" in pixels else rgb
    frame = frame if "PACKED" in pixels else frame.transpose(2, 0, 1)
    assert tensor.shape == frame[None].shape
    np.savez("pixels.npz", x=frame[None])
    assert run("model_runner --input pixels.npz --model net.bmodel --output out.npz") == 0
    top, out = np.load("top.npz")["y_Gemm"], np.load("out.npz")["y_Gemm_f32"]
    assert np.abs(out - top).max() < {"F32": 1e-5, "F16": 2e-3, "BF16": 2e-2}[quantize] * 5


def types_of(tensors: list[bmodel.Tensor]) -> list[str]:
    return [bmodel.TYPES[t.type][0] for t in tensors]


def test_a_table_names_layers_of_another_float_type(folder: Path, capsys):
    transform("mobilenet.onnx", f"{PICTURES} --test_input images/0.png --test_result top.npz")
    assert run("fp_forward.py net.mlir --fpfwd_outputs c0_Conv --fp_type F32 -o every") == 0
    assert run("fp_forward.py net.mlir --fpfwd_outputs c1_Conv --fp_type F32 -o some") == 0
    deploy = (
        "model_deploy --mlir net.mlir --chip bm1684x --test_input net_in_f32.npz "
        "--test_reference top.npz --tolerance 0.99,0.9"
    )
    found = {}
    for name, types in {
        "f32": "F32",
        "bf16": "BF16",
        "every": "BF16 --quantize_table every",
        "some": "BF16 --quantize_table some",
    }.items():
        assert run(f"{deploy} --model {name}.bmodel --quantize {types}") == 0
        assert run(f"model_runner --input net_in_f32.npz --model {name}.bmodel") == 0
        found[name] = np.load("_output.npz")["y_Gemm_f32"]
    np.testing.assert_array_equal(found["every"], found["f32"])
    assert (found["some"] != found["f32"]).any()
    assert (found["some"] != found["bf16"]).any()
    deploy += " --quantize BF16 --model"
    Path("q").write_text("c1_Conv F32\nc9_Conv F32\n")
    assert "did you mean 'c1_Conv'?" in refused(f"{deploy} a.bmodel --quantize_table q", capsys)
    Path("q").write_text("c1_Conv INT8\n")
    assert "--quantize INT8" in refused(f"{deploy} a.bmodel --quantize_table q", capsys)


@pytest.mark.parametrize("quantize", ["F16", "BF16"])
def test_ports_of_16_bits(folder: Path, quantize: str, capsys):
    transform("yolo.onnx", "--test_input images/0.png --test_result top.npz")
    deploy = (
        f"model_deploy --mlir net.mlir --quantize {quantize} --chip bm1684x --test_input "
        "net_in_f32.npz --test_reference top.npz --model net.bmodel"
    )
    kind = quantize.lower()
    for options, wanted in (
        ("--quant_input --quant_output", ([kind], [kind, kind])),
        ("--quant_output_list 2", (["f32"], ["f32", kind])),
        ("--quant_input_list 1 --quant_output --quant_output_list 1", ([kind], [kind, "f32"])),
    ):
        assert run(f"{deploy} {options}") == 0
        (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
        assert (types_of(stage.inputs), types_of(stage.outputs)) == wanted
        assert run("model_runner --input net_in_f32.npz --model net.bmodel --output out.npz") == 0
        top, out = np.load("top.npz"), np.load("out.npz")
        for tensor, name in zip(stage.outputs, ("out0_Conv", "out1_Conv"), strict=True):
            assert np.abs(out[tensor.name] - top[name]).max() < 0.02 * np.abs(top[name]).max()
    assert "from 1 to 2" in refused(f"{deploy} --quant_output_list 3", capsys)


def test_some_outputs_are_bytes(folder: Path):
    transform("yolo.onnx", "--test_input images/0.png --test_result top.npz")
    calibrate()
    deploy = "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table table"
    assert run(f"{deploy} --quant_output_list 2 --model net.bmodel") == 0
    (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
    assert types_of(stage.outputs) == ["f32", "i8"]


@pytest.mark.parametrize("chip", ["bm1684", "cv186x"])
def test_packages_of_further_chips(folder: Path, chip: str, capsys):
    transform("mobilenet.onnx", f"{PICTURES} --test_input images/0.png --test_result top.npz")
    calibrate(chip)
    deploy = f"model_deploy --mlir net.mlir --chip {chip} --test_input net_in_f32.npz"
    rest = "--test_reference top.npz --tolerance 0.85,0.45 --model net.itg"
    for types in ("--quantize INT8 --calibration_table table", "--quantize F32"):
        assert run(f"{deploy} {types} {rest}") == 0
        with intaglio.open("net.itg") as session:
            assert session.meta["target"] == chip
    line = refused(f"{deploy} --quantize F32 --model net.bmodel", capsys)
    assert "--model NAME.itg" in line
    assert "use --chip cv181x" in refused(f"{deploy} --chip cv183x --model a.cvimodel", capsys)


def test_a_file_for_bm1684(folder: Path):
    models.separable(folder / "net.onnx")
    transform("net.onnx", f"{PICTURES} --test_input images/0.png --test_result top.npz")
    calibrate("bm1684")
    deploy = (
        "model_deploy --mlir net.mlir --chip bm1684 --quantize INT8 --calibration_table table "
        "--test_input net_in_f32.npz --test_reference top.npz --tolerance 0.9,0.6"
    )
    assert run(f"{deploy} --model net.bmodel") == 0
    file = bmodel.read(Path("net.bmodel").read_bytes())
    assert file.chip == "BM1684"
    assert types_of(file.nets[0].stages[0].inputs) == ["i8"]
    assert run("model_runner --input net_in_f32.npz --model net.bmodel --output out.npz") == 0
    (name,) = np.load("out.npz").files
    made = np.load("net_bm1684_int8_sym_model_outputs.npz")[name]
    np.testing.assert_array_equal(np.load("out.npz")[name], made)
    assert run("model_tool --info net.bmodel") == 0


def test_types_of_the_inputs_of_torch(folder: Path, capsys):
    models.other_formats(folder)
    line = "model_transform --model_name net --model_def model.pt --input_shapes [[1,16,16,3]]"
    line += " --channel_format none --mlir net.mlir"
    for word, dtype in (("int32", "i32"), ("[int16]", "i16"), ("'[\"float32\"]'", "f32")):
        assert run(f"{line} --input_types {word}") == 0
        (given,) = module_file.read("net.mlir").graph.inputs
        assert given.dtype == dtype
    assert "is one of float32" in refused(f"{line} --input_types int5", capsys)
    line = "model_transform --model_name net --model_def mobilenet.onnx --mlir net.mlir"
    assert "leave it out" in refused(f"{line} --input_types int32", capsys)
