"""The errors that users of nncase meet: here each is a line with a remedy, or no error at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.compat import models, nncase_models

from intaglio.compat.nncase import CompileOptions, Compiler, PTQTensorOptions, Simulator
from intaglio.compat.nncase.refusals import NncaseError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compiler(**given: Any) -> Compiler:
    options = CompileOptions()
    options.dump_asm = False
    for name, value in given.items():
        setattr(options, name, value)
    return Compiler(options)


def plain(**given: Any) -> Compiler:
    nncase_models.plain(Path("m.onnx"))
    found = compiler(**given)
    found.import_onnx(Path("m.onnx").read_bytes())
    return found


def ptq(data: Any, **given: Any) -> PTQTensorOptions:
    made = PTQTensorOptions()
    for name, value in given.items():
        setattr(made, name, value)
    made.set_tensor_data(data)
    return made


def refused(work: Any, *words: str) -> str:
    """The line of a refusal, which names all words."""
    with pytest.raises(NncaseError) as e:
        work()
    line = str(e.value)
    assert isinstance(e.value, RuntimeError)
    assert "\n" not in line
    for word in words:
        assert word in line
    return line


# ---- the ten of docs/migrate-nncase.md -----------------------------------------------------------
def test_1_damaged_and_empty_models():
    nncase_models.plain(Path("m.onnx"))
    content = Path("m.onnx").read_bytes()
    for broken in (content[:300], b"garbage" * 9, b""):
        refused(lambda b=broken: compiler().import_onnx(b), "import_onnx: ")
    refused(lambda: compiler().import_tflite(b"TFL3" * 9), "import_tflite: ")


def test_2_unknown_operators_are_named():
    node = helper.make_node("FooBar", ["x"], ["y"], "my_node")
    models.save(Path("m.onnx"), [node], {"x": [1, 4]}, {"y": [1, 4]})
    refused(lambda: compiler().import_onnx(Path("m.onnx").read_bytes()), "FooBar", "my_node")


def test_3_operators_that_the_npu_lacks_run_on_the_cpu():
    nodes = [
        helper.make_node("Det", ["x"], ["d"]),
        helper.make_node("NonZero", ["d"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=1),
    ]
    models.save(Path("m.onnx"), nodes, {"x": [3, 2, 2]}, {"y": [1, None]})
    found = compiler(target="k230")
    found.import_onnx(Path("m.onnx").read_bytes())
    found.compile()
    sim = Simulator()
    sim.load_model(found.gencode_tobytes())
    sim.set_input_tensor(0, np.float32([np.eye(2), np.zeros((2, 2)), np.eye(2)]))
    sim.run()
    assert sim.get_output_tensor(0).to_numpy().tolist() == [[0, 2]]


def test_4_shapes_that_do_not_fit_are_named():
    node = helper.make_node("Conv", ["x", "w"], ["y"], "bad_conv")
    shapes = {"x": [1, 3, 8, 8]}, {"y": [1, 4, 8, 8]}
    models.save(Path("m.onnx"), [node], *shapes, w=np.zeros((4, 5, 1, 1)))
    refused(lambda: compiler().import_onnx(Path("m.onnx").read_bytes()), "bad_conv", "5", "3")


def test_5_unknown_targets():
    refused(lambda: compiler(target="k320"), "target is 'k320'", "did you mean 'k230'?")
    refused(lambda: compiler(target=""), "cpu, k230, k510, k210")


def test_6_the_number_of_samples(capsys: pytest.CaptureFixture[str]):
    xs = [RNG.normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for _ in range(2)]
    found = plain(target="k230")
    found.use_ptq(ptq([xs]))  # samples_count is 5
    found.compile()
    assert "samples_count is 5, but set_tensor_data got 2 samples" in capsys.readouterr().err
    found.use_ptq(ptq([], samples_count=2))
    refused(found.compile, "no calibration samples", "set_tensor_data")


def test_7_samples_of_another_shape_or_type():
    found = plain(target="k230")
    found.use_ptq(ptq([[np.zeros((1, 3, 8, 8), np.float32)] * 5]))
    refused(found.compile, "[1, 3, 8, 8]", "[1, 3, 16, 16]")
    found.use_ptq(ptq(b"12345", samples_count=1))
    refused(found.compile, "5 bytes", "a sample has 3072")
    bytes_taken = {"preprocess": True, "input_type": "uint8", "input_shape": [1, 3, 16, 16]}
    found = plain(target="k230", input_range=[0, 1], input_layout="NCHW", **bytes_taken)
    found.use_ptq(ptq([[np.zeros((1, 3, 16, 16), np.float32)] * 5]))
    refused(found.compile, "takes uint8", ".astype(np.uint8)")


def test_8_inputs_of_another_shape_or_type():
    found = plain()
    found.compile()
    sim = Simulator()
    sim.load_model(found.gencode_tobytes())
    small = np.zeros((1, 3, 8, 8), np.float32)
    refused(lambda: sim.set_input_tensor(0, small), "[1, 3, 8, 8]", "[1, 3, 16, 16]", "resize")
    wide = np.zeros((1, 3, 16, 16))
    refused(lambda: sim.set_input_tensor(0, wide), "float64", ".astype(np.float32)")
    refused(lambda: sim.set_input_tensor(1, small), "the model has 1 inputs")
    refused(lambda: sim.get_output_desc(-1), "output -1")
    refused(sim.run, "input 0 'x' is not set")


def test_9_a_damaged_kmodel():
    found = plain()
    found.compile()
    data = found.gencode_tobytes()
    for broken in (data[: len(data) // 2], b"LDMK" + bytes(60), b"hello", b""):
        refused(lambda b=broken: Simulator().load_model(b), "load_model: ")
    refused(lambda: Simulator().load_model("m.kmodel"), "open(path, 'rb').read()")
    refused(lambda: Simulator().run(), "call load_model first")


def test_10_quantised_tflite_models_are_read():
    pytest.importorskip("tflite")
    from tests.frontends.tflite_build import T, model, op

    kinds = [T((1, 4), "int8", name="x", scale=0.5, zero=0), T((1, 4), "int8", name="y", scale=0.5)]
    found = compiler(target="k230")
    found.import_tflite(model(kinds, [op("RELU", [0], [1])], [0], [1]))
    found.compile()
    sim = Simulator()
    sim.load_model(found.gencode_tobytes())
    sim.set_input_tensor(0, np.int8([[-3, 0, 1, 2]]))
    sim.run()
    assert sim.get_output_tensor(0).to_numpy().tolist() == [[0, 0, 1, 2]]


# ---- options -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_type": "uint4"}, "input_type is 'uint4'"),
        ({"std": [1, 0, 1]}, "std is [1.0, 0.0, 1.0]"),
        ({"mean": "red"}, "mean is 'red'"),
        ({"mean": [1, 2]}, "mean has 2 numbers and std 3"),
        ({"input_layout": "CHW"}, "input_layout is 'CHW'"),
        ({"input_layout": "0,1,1,2"}, "0,3,1,2"),
        ({"input_shape": [1, 3, 0, 4]}, "input_shape is"),
        ({"input_type": "uint8", "input_range": [1, 0]}, "the smaller first"),
        ({"shape_bucket_segments_count": 0}, "shape_bucket_segments_count is 0"),
        ({"shape_bucket_range_info": {"a": [0, 4]}}, "at least 1"),
        ({"shape_bucket_fix_var_map": {"a": 0}}, "shape_bucket_fix_var_map['a'] is 0"),
        ({"output_type": "int4"}, "output_type is 'int4'"),
        ({"quant_type": "int4"}, "quant_type is 'int4'"),
    ],
)
def test_wrong_options(given: dict[str, Any], words: str):
    refused(lambda: compiler(preprocess=True, **given), "Compiler: ", words)


def test_too_few_numbers_for_the_channels():
    """The first of them was for all channels."""
    words = "mean or std is [1.0, 2.0], the input has 3 channels"
    refused(lambda: plain(preprocess=True, mean=[1, 2], std=[1, 2]).compile(), words)


def test_wrong_ptq_options():
    found = plain(target="k230")
    for name, value in (
        ("calibrate_method", "Entropy"),
        ("finetune_weights_method", "Retrain"),
        ("quant_type", "float16"),
        ("samples_count", -1),
    ):
        refused(lambda n=name, v=value: found.use_ptq(ptq([], **{n: v})), f"{name} is {value!r}")
    refused(lambda: found.use_ptq(None), "PTQTensorOptions")
    refused(lambda: plain(target="k210").use_ptq(ptq([], quant_type="int16")), "8 bits only")
    for data in (7, "x.npy", [1, 2], [[np.zeros(3)], [np.zeros(3), np.zeros(3)]]):
        with pytest.raises(NncaseError, match=r"^(set_tensor_data|from_numpy|compile): "):
            _calibrated(found, data)


def _calibrated(found: Compiler, data: Any) -> None:
    found.use_ptq(ptq(data))
    found.compile()


def test_misspelt_attributes_are_warnings(capsys: pytest.CaptureFixture[str]):
    compiler(inputshape=[1, 3, 8, 8])
    assert "did you mean 'input_shape'?" in capsys.readouterr().err


def test_preprocessing_that_does_not_fit():
    taken = {"preprocess": True, "input_type": "uint8", "input_layout": "NHWC"}
    refused(lambda: plain(input_shape=[1, 3, 16, 16], **taken), "becomes", "change input_shape")


def test_schemes_that_are_wrong():
    found = plain(target="k230")
    Path("a.json").write_text("{")
    Path("b.json").write_text('{"Outputs": [{"Name": "x", "DataType": "i4"}]}')
    row = '{"Name": "%s", "DataType": "u8", "DataRange": [{"Min": 0, "Max": 1}]}'
    Path("c.json").write_text('{"Outputs": [' + row % "nothing" + "]}")
    Path("d.json").write_text('{"Outputs": [' + row % "x" + "]}")
    Path("e.json").write_text('{"Outputs": [' + (row % "x").replace("1}", "-1}") + "]}")
    for name, words in (
        ("a", "is no JSON"),
        ("b", "DataType is 'i4'"),
        ("c", "no tensor is called 'nothing'"),
        ("d", "has no range of"),
        ("e", "Min first"),
        ("z", "there is no file"),
    ):
        strict = name == "c"
        found.use_ptq(ptq([], quant_scheme=f"{name}.json", quant_scheme_strict_mode=strict))
        refused(found.compile, words)


def test_open_dimensions_without_a_size():
    nncase_models.sequence(Path("m.onnx"))
    found = compiler()
    found.import_onnx(Path("m.onnx").read_bytes())
    refused(found.compile, "'seq'", "shape_bucket_fix_var_map = {'seq': 224}")


def test_steps_in_the_wrong_order():
    found = compiler()
    refused(found.compile, "call import_onnx")
    refused(lambda: found.create_evaluator(0), "call import_onnx")
    refused(found.gencode_tobytes, "call compile()")
    refused(lambda: found.import_ncnn(b"", b""), "model_param is empty")
    refused(lambda: found.import_ncnn(b"ncnn", b"x"), "does not begin with 7767517")
    refused(lambda: found.import_onnx("m.onnx"), "open(path, 'rb').read()")
    refused(lambda: plain().gencode("x"), "open(path, 'wb')")
