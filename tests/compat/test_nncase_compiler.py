"""nncase's compiler: options, imports, samples, types, schemes, buckets and files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compat import models, nncase_models

import intaglio
from intaglio.compat.nncase import (
    CompileOptions,
    Compiler,
    DumpRangeTensorOptions,
    GraphEvaluator,
    ImportOptions,
    PTQTensorOptions,
    RuntimeTensor,
    ShapeBucketOptions,
    Simulator,
    check_target,
    test_target,
)
from intaglio.compat.nncase.options import COMPILE, PTQ

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def options(**given: Any) -> CompileOptions:
    made = CompileOptions()
    made.dump_asm = False
    for name, value in given.items():
        setattr(made, name, value)
    return made


def ptq(data: Any, **given: Any) -> PTQTensorOptions:
    made = PTQTensorOptions()
    made.calibrate_method = "NoClip"
    for name, value in given.items():
        setattr(made, name, value)
    made.set_tensor_data(data)
    return made


def compiled(model: Path, quantized: PTQTensorOptions | None = None, **given: Any) -> Compiler:
    compiler = Compiler(options(**given))
    compiler.import_onnx(model.read_bytes(), ImportOptions())
    if quantized is not None:
        compiler.use_ptq(quantized)
    compiler.compile()
    return compiler


def simulated(compiler: Compiler, *inputs: np.ndarray) -> np.ndarray:
    sim = Simulator()
    sim.load_model(compiler.gencode_tobytes())
    for i, x in enumerate(inputs):
        sim.set_input_tensor(i, RuntimeTensor.from_numpy(x))
    sim.run()
    return sim.get_output_tensor(0).to_numpy()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a.ravel() @ b.ravel() / (np.linalg.norm(a) * np.linalg.norm(b)))


def batch(count: int, *shape: int) -> list[np.ndarray]:
    return [RNG.normal(0, 1, shape).astype(np.float32) for _ in range(count)]


def test_defaults_are_those_of_the_vendor():
    made = CompileOptions()
    assert {n: getattr(made, n) for n in COMPILE} == {n: d for n, (d, _) in COMPILE.items()}
    documented = """target preprocess swapRB input_type input_shape input_range input_file mean std
        input_layout output_layout letterbox_value dump_asm dump_ir dump_dir shape_bucket_enable
        shape_bucket_range_info shape_bucket_segments_count shape_bucket_fix_var_map
        quant_type w_quant_type use_mse_quant_w split_w_to_act output_range output_type model_layout
        is_fpga dump_quant_error dump_import_op_range benchmark_only"""
    assert set(documented.split()) <= set(COMPILE)
    assert (made.input_type, made.dump_asm, made.mean, made.std) == (
        "float32", True, [0, 0, 0], [1, 1, 1],
    )  # fmt: skip
    assert made.shape_bucket_segments_count == ShapeBucketOptions().segments_count == 2
    ours = PTQTensorOptions()
    assert (ours.calibrate_method, ours.samples_count, ours.quant_type) == ("Kld", 5, "uint8")
    assert (ours.input_mean, ours.finetune_weights_method) == (0.5, "NoFineTuneWeights")
    assert set(vars(ours)) - {"_given"} == set(PTQ)
    assert CompileOptions().mean is not CompileOptions().mean
    made.anything = 1  # unknown attributes are accepted
    assert ImportOptions().output_arrays == ""


def test_targets():
    assert all(check_target(t) and test_target(t) for t in ("cpu", "k230", "k510", "k210"))
    assert not check_target("xpu")
    assert not test_target("")


@pytest.mark.parametrize("form", ["by input", "by sample", "array", "plain list", "bytes"])
def test_forms_of_samples(form: str):
    nncase_models.plain(Path("m.onnx"))
    xs = batch(3, 1, 3, 16, 16)
    data: Any = {
        "by input": [xs],
        "by sample": [[x] for x in xs],
        "array": np.array([[x] for x in xs]),
        "plain list": xs,
        "bytes": np.concatenate(xs).tobytes(),
    }[form]
    found = simulated(compiled(Path("m.onnx"), ptq(data, samples_count=3)), xs[0])
    wanted = intaglio.interpret(intaglio.load("m.onnx"), {"x": xs[0]})["y"]
    assert cosine(found, wanted) > 0.999


def test_samples_of_two_inputs_by_input_or_by_sample():
    models.two_inputs(Path("m.onnx"))
    a, b = batch(2, 1, 4, 8, 8), [4 * x for x in batch(2, 1, 4, 8, 8)]
    by_input = compiled(Path("m.onnx"), ptq([a, b], samples_count=2))
    found = simulated(by_input, a[0], b[0])
    four = ptq([[x, y] for x, y in zip(a * 2, b * 2, strict=True)], samples_count=4)
    assert cosine(found, simulated(compiled(Path("m.onnx"), four), a[0], b[0])) > 0.99999
    packed = np.concatenate([*a, *b]).tobytes()  # all of the first input, then the second
    by_bytes = compiled(Path("m.onnx"), ptq(packed, samples_count=2))
    assert np.array_equal(found, simulated(by_bytes, a[0], b[0]))


def test_output_arrays_cut_the_model():
    models.classifier(Path("m.onnx"))
    compiler = Compiler(options())
    cut = ImportOptions()
    cut.output_arrays = "r0"
    compiler.import_onnx(io.BytesIO(Path("m.onnx").read_bytes()), cut)
    compiler.compile()
    assert simulated(compiler, batch(1, 1, 3, 16, 16)[0]).shape == (1, 8, 16, 16)


def test_tflite_caffe_and_evaluator():
    pytest.importorskip("tflite")
    nncase_models.tflite(Path("m.tflite"))
    compiler = Compiler(options())
    compiler.import_tflite(Path("m.tflite").read_bytes(), ImportOptions())
    x = batch(1, 1, 16, 16, 3)[0]
    evaluator = compiler.create_evaluator(3)
    assert isinstance(evaluator, GraphEvaluator)
    evaluator.set_input_tensor(0, RuntimeTensor.from_numpy(x))
    evaluator.run()
    compiler.compile()
    found = evaluator.get_output_tensor(0).to_numpy()
    assert np.allclose(found, simulated(compiler, x), atol=1e-5)
    evaluator.set_output_tensor(0, RuntimeTensor.from_numpy(np.zeros_like(found)))
    evaluator.run()
    assert evaluator.get_input_tensor(0).shape == [1, 16, 16, 3]
    nncase_models.caffe(Path())
    weights, text = (Path(n).read_bytes() for n in ("model.caffemodel", "model.prototxt"))
    for first, second in ((weights, text), (text, weights)):  # users swap them
        compiler.import_caffe(first, second)
        compiler.compile()
        assert simulated(compiler, batch(1, 1, 3, 16, 16)[0]).shape == (1, 3, 4, 4)
    assert [v.name for v in compiler.module.entry.inputs] == ["data"]


def test_a_model_without_products_stays_in_floats(capsys: pytest.CaptureFixture[str]):
    models.save(
        Path("m.onnx"),
        [models.helper.make_node("Relu", ["x"], ["y"])],
        {"x": [1, 4]},
        {"y": [1, 4]},
    )
    found = compiled(Path("m.onnx"), ptq([batch(2, 1, 4)], samples_count=2), target="k230")
    assert simulated(found, np.float32([[-1, 0, 1, 2]])).tolist() == [[0, 0, 1, 2]]
    assert "nothing to quantise" in capsys.readouterr().err


def test_a_compiler_compiles_again():
    nncase_models.plain(Path("m.onnx"))
    compiler = compiled(Path("m.onnx"), target="k210")
    floats = compiler.gencode_tobytes()
    compiler.use_ptq(ptq([batch(2, 1, 3, 16, 16)], samples_count=2))
    compiler.compile()
    assert (floats[:4], compiler.gencode_tobytes()[:4]) == (b"ITG1", b"LDMK")


def test_mixed_types_by_use_mix_quant():
    models.separable(Path("m.onnx"))
    xs = batch(3, 1, 3, 16, 16)
    mixed = compiled(Path("m.onnx"), ptq([xs], samples_count=3, use_mix_quant=True), target="k230")
    wanted = intaglio.interpret(intaglio.load("m.onnx"), {"x": xs[0]})["y"]
    assert cosine(simulated(mixed, xs[0]), wanted) > 0.99


def test_the_scheme_says_i16_and_ranges():
    models.detector(Path("m.onnx"))
    xs = batch(3, 1, 3, 16, 16)
    compiled(Path("m.onnx"), ptq([xs], samples_count=3, export_quant_scheme=True), target="k230")
    content = json.loads(Path("tmp/QuantScheme.json").read_text())
    rows = {r["Name"]: r for r in content["Outputs"]}
    assert content["Model"] is None
    assert set(rows["images"]["DataRange"][0]) == {"Min", "Max", "IsFull"}
    assert rows["w0"]["DataRangeMode"] == "by_tensor"
    low = min(x.min() for x in xs)
    assert rows["images"]["DataRange"][0]["Min"] == pytest.approx(low, rel=1e-3)
    for name in ("a0", "a1"):
        rows[name]["DataType"] = "i16"
    Path("edited.json").write_text(json.dumps(content))
    given = ptq([], quant_scheme="edited.json", export_quant_scheme=True)
    wider = compiled(Path("m.onnx"), given, target="k230", dump_dir="again")
    again = json.loads(Path("again/QuantScheme.json").read_text())["Outputs"]
    assert {r["Name"]: r["DataType"] for r in again}["a1"] == "i16"
    wanted = intaglio.interpret(intaglio.load("m.onnx"), {"images": xs[0]})["out0"]
    assert cosine(simulated(wider, xs[0]), wanted) > 0.999


def test_open_dimensions():
    nncase_models.sequence(Path("m.onnx"))
    x = batch(1, 1, 7, 6)[0]
    wanted = intaglio.interpret(intaglio.load("m.onnx", dims={"batch": 1, "seq": 7}), {"tokens": x})
    fixed = compiled(Path("m.onnx"), shape_bucket_fix_var_map={"seq": 7})
    assert np.allclose(simulated(fixed, x), wanted["logits"], atol=1e-5)
    by_samples = compiled(Path("m.onnx"), ptq([[x]], samples_count=1))
    assert cosine(simulated(by_samples, x), wanted["logits"]) > 0.999
    sim = Simulator()
    given = {"shape_bucket_enable": True, "shape_bucket_range_info": {"seq": [2, 9]}}
    sim.load_model(compiled(Path("m.onnx"), **given).gencode_tobytes())
    assert sim.get_input_shape(0) == sim.get_input_tensor(0).shape == [1, 9, 6]


def test_shape_bucket_options_as_the_guide_shows_them():
    nncase_models.sequence(Path("m.onnx"))
    buckets = ShapeBucketOptions()
    buckets.shape_bucket_enable = True
    buckets.shape_bucket_range_info = {"seq": [1, 5]}
    buckets.shape_bucket_fix_var_map = {"batch": 2}
    sim = Simulator()
    sim.load_model(compiled(Path("m.onnx"), shape_bucket_options=buckets).gencode_tobytes())
    assert sim.get_input_shape(0) == [2, 5, 6]


def test_the_open_dimension_of_a_tflite_model_is_called_minus_one():
    pytest.importorskip("tflite")
    from tests.frontends.tflite_build import T, model, op

    kinds = [T((-1, 4), name="x"), T((-1, 4), name="y")]
    content = model(kinds, [op("RELU", [0], [1])], [0], [1])
    ranges = {"shape_bucket_enable": True, "shape_bucket_range_info": {"-1": [1, 8]}}
    compiler = Compiler(options(**ranges))
    compiler.import_tflite(content, ImportOptions())
    compiler.compile()
    for rows in (3, 8):
        assert simulated(compiler, np.full((rows, 4), -1, np.float32)).shape == (rows, 4)


def test_output_type_of_1_x():
    nncase_models.plain(Path("m.onnx"))
    xs = batch(2, 1, 3, 16, 16)
    given = ptq([xs], samples_count=2)
    found = compiled(
        Path("m.onnx"), given, target="k510", output_type="uint8", output_range=[-8, 8]
    )
    y = simulated(found, xs[0])
    assert y.dtype == np.uint8
    wanted = intaglio.interpret(intaglio.load("m.onnx"), {"x": xs[0]})["y"]
    assert cosine((y.astype(np.float32) - 128) * 16 / 255, wanted) > 0.99


def test_files_that_are_written():
    nncase_models.plain(Path("m.onnx"))
    given = ptq([batch(2, 1, 3, 16, 16)], samples_count=2, dump_quant_error=True)
    dumped = {"dump_asm": True, "dump_ir": True, "dump_dir": "d"}
    compiler = compiled(Path("m.onnx"), given, target="k210", **dumped)
    compiler.dump_range_options(DumpRangeTensorOptions())
    DumpRangeTensorOptions().set_tensor_data(b"")
    names = {p.name for p in Path("d").iterdir()}
    assert names == {"ir", "kmodel.asm", "kmodel_info.txt", "quant_error.csv"}
    assert "conv" in Path("d/kmodel.asm").read_text()
    stream = io.BytesIO()
    compiler.gencode(stream)
    assert stream.getvalue() == compiler.gencode_tobytes()
    compiler.dump("e")
    assert Path("e/kmodel.asm").exists()


def test_what_the_kpu_does_not_run_becomes_a_package(capsys: pytest.CaptureFixture[str]):
    nncase_models.plain(Path("m.onnx"))
    model = models.onnx.load("m.onnx")
    model.graph.node[-1].output[0] = "logits"
    model.graph.node.append(models.helper.make_node("Softmax", ["logits"], ["y"], "prob", axis=1))
    models.onnx.save(model, "m.onnx")
    xs = batch(2, 1, 3, 16, 16)
    found = compiled(Path("m.onnx"), ptq([xs], samples_count=2), target="k210")
    assert np.allclose(simulated(found, xs[0]).sum(1), 1, atol=1e-3)
    assert found.gencode_tobytes()[:4] == b"ITG1"
    assert "import_options.output_arrays" in capsys.readouterr().err


NCNN = """\
7767517
4 4
Input in 0 1 in 0=8 1=8 2=3
Convolution c 1 1 in c 0=4 1=3 4=1 5=1 6=108 9=1
Pooling p 1 1 c p 0=1 4=1
InnerProduct f 1 1 p out 0=5 1=1 2=20
"""


def test_ncnn_models_are_imported_quantised_and_run():
    w, b, m, c = (RNG.normal(size=s).astype(np.float32) for s in ((4, 3, 3, 3), (4,), (5, 4), (5,)))
    data = bytes(4) + w.tobytes() + b.tobytes() + bytes(4) + m.tobytes() + c.tobytes()
    samples = [RNG.normal(size=(1, 3, 8, 8)).astype(np.float32) for _ in range(8)]
    given = PTQTensorOptions()
    given.samples_count = len(samples)
    given.set_tensor_data([x] for x in samples)  # a generator, sample by sample
    found = []
    for target, ptq in (("cpu", False), ("k230", True)):
        compiler = Compiler(options(target=target))
        compiler.import_ncnn(NCNN.encode(), data, ImportOptions())
        if ptq:
            compiler.use_ptq(given)
        compiler.compile()
        simulator = Simulator()
        simulator.load_model(compiler.gencode_tobytes())
        simulator.set_input_tensor(0, RuntimeTensor.from_numpy(samples[0]))
        simulator.run()
        found.append(simulator.get_output_tensor(0).to_numpy())
    x = np.pad(samples[0][0], ((0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    y = np.maximum(np.einsum("chwij,ocij->ohw", view, w) + b[:, None, None], 0)
    wanted = m @ y.mean(axis=(1, 2)) + c
    np.testing.assert_allclose(found[0][0], wanted, rtol=1e-4, atol=1e-4)
    assert np.linalg.norm(found[1][0] - wanted) < 0.1 * np.linalg.norm(wanted)
