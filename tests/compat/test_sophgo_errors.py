"""The ten errors of docs/migrate-sophgo.md, and other mistakes: one line, exit code 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.compat import models
from tests.compat.command_line import refused, run

TRANSFORM = "model_transform --model_name net --mlir net.mlir --model_def"
DEPLOY = "model_deploy --mlir net.mlir --chip bm1684x --model net.bmodel"


@pytest.fixture
def module(folder: Path) -> Path:
    """net.mlir and a table for it."""
    assert run(f"{TRANSFORM} mobilenet.onnx --scale 0.01,0.01,0.01") == 0
    assert run("run_calibration net.mlir --dataset images -o table") == 0
    return folder


def test_1_a_missing_model_is_named(folder: Path, capsys):
    assert "there is no file 'nope.onnx'" in refused(f"{TRANSFORM} nope.onnx", capsys)


def test_2_a_damaged_model_is_one_line(folder: Path, capsys):
    Path("cut.onnx").write_bytes(Path("mobilenet.onnx").read_bytes()[:300])
    assert "cut.onnx" in refused(f"{TRANSFORM} cut.onnx", capsys)
    Path("empty.onnx").write_bytes(b"")
    assert "empty.onnx" in refused(f"{TRANSFORM} empty.onnx", capsys)


def test_3_an_unknown_operator_is_named(folder: Path, capsys):
    models.save(
        Path("foo.onnx"),
        [helper.make_node("FooBar", ["x"], ["y"], "foo")],
        {"x": [1, 4]},
        {"y": [1, 4]},
    )
    assert "FooBar" in refused(f"{TRANSFORM} foo.onnx", capsys)


def test_4_wrong_channels_are_refused(folder: Path, capsys):
    model = onnx.load("mobilenet.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(model, "wrong.onnx")
    assert "conv0" in refused(f"{TRANSFORM} wrong.onnx", capsys)


def test_5_int8_without_a_table_says_how_to_make_one(module: Path, capsys):
    words = refused(f"{DEPLOY} --quantize INT8", capsys)
    assert "run_calibration net.mlir --dataset FOLDER -o TABLE" in words


def test_6_floats_name_the_remedy(module: Path, capsys):
    assert run(f"{DEPLOY} --quantize F16") == 0
    cv = DEPLOY.replace("bm1684x", "cv181x").replace(".bmodel", ".cvimodel")
    words = refused(f"{DEPLOY} --quantize INT4", capsys)
    assert "files for bm1684x are written in INT8, F16, BF16, F32 and W8F16" in words
    words = refused(f"{cv} --quantize F16", capsys)
    assert "--quantize INT8" in words
    assert "--model NAME.itg" in words
    line = DEPLOY.replace(".bmodel", ".itg")
    assert run(f"{line} --quantize F16") == 0
    assert run(f"{line} --quantize F32") == 0


def test_7_chips_without_files_name_the_nearest(module: Path, capsys):
    words = refused(DEPLOY.replace("bm1684x", "cv183x").replace(".bmodel", ".cvimodel"), capsys)
    assert "use --chip cv181x" in words
    words = refused(f"{DEPLOY.replace('bm1684x', 'cv181x')} --quantize INT8", capsys)
    assert "ends in .cvimodel" in words


def test_8_layers_that_the_tpu_lacks_name_the_cut(folder: Path, capsys):
    node = helper.make_node
    models.save(
        Path("soft.onnx"),
        [
            node("Conv", ["x", "w"], ["c"], "conv"),
            node("Flatten", ["c"], ["f"], "flat"),
            node("Erf", ["f"], ["e"], "erf"),
            node("CumSum", ["e", "axis"], ["y"], "sums"),
        ],
        {"x": [1, 3, 8, 8]},
        {"y": [1, 256]},
        w=np.random.default_rng(0).normal(0, 0.3, (4, 3, 1, 1)),
        axis=np.array(1.0),
    )
    model = onnx.load("soft.onnx")
    axis = next(t for t in model.graph.initializer if t.name == "axis")
    axis.CopyFrom(onnx.numpy_helper.from_array(np.array(1, np.int64), "axis"))
    onnx.save(model, "soft.onnx")
    assert run(f"{TRANSFORM} soft.onnx") == 0
    np.savez("s.npz", x=np.random.default_rng(1).normal(0, 1, (1, 3, 8, 8)).astype(np.float32))
    Path("list").write_text("s.npz\n")
    assert run("run_calibration net.mlir --data_list list -o table") == 0
    words = refused(f"{DEPLOY} --quantize INT8 --calibration_table table", capsys)
    assert "sums" in words
    assert "--output_names" in words


def test_9_a_table_of_another_network(module: Path, capsys):
    Path("other").write_text("foo_Conv 1.0 -1.0 1.0\n")
    line = f"{DEPLOY} --quantize INT8 --calibration_table other"
    assert "no tensor of the network is in it" in refused(line, capsys)
    Path("other").write_text("foo_Conv 1.0 nan\n")
    assert "other, line 1" in refused(line, capsys)


def test_10_samples_of_a_wrong_shape(module: Path, capsys):
    np.savez("s.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    Path("list").write_text("s.npz\n")
    words = refused("run_calibration net.mlir --data_list list -o t", capsys)
    assert "[1, 3, 8, 8]" in words
    assert "[1, 3, 16, 16]" in words
    assert "cannot read 'nope'" in refused("run_calibration net.mlir --data_list nope -o t", capsys)


def test_open_dimensions_name_the_option(folder: Path, capsys):
    words = refused(f"{TRANSFORM} dynamic.onnx", capsys)
    assert "--input_shapes [[1,3,1,1]]" in words
    assert run(f"{TRANSFORM} dynamic.onnx --input_shapes [[1,3,16,16]]") == 0


def test_a_quantised_model_needs_no_table(folder: Path, capsys):
    import intaglio

    rng = np.random.default_rng(3)
    samples = [{"x": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    made = intaglio.quantize("mobilenet.onnx", samples, target="bm1684x")
    intaglio.save_onnx(made, "int8.onnx")
    np.savez("s.npz", **samples[0])
    assert run(f"{TRANSFORM} int8.onnx --test_input s.npz --test_result top.npz") == 0
    test = "--test_input s.npz --test_reference top.npz"
    assert run(f"{DEPLOY} --quantize QDQ {test}") == 0
    assert "already" in refused(f"{DEPLOY} --quantize QDQ --fuse_preprocess", capsys)


def test_packed_pixels_with_one_table(folder: Path, capsys):
    how = "--scale 0.01,0.01,0.01 --pixel_format rgb"
    assert run(f"{TRANSFORM} mobilenet.onnx {how}") == 0
    assert run("run_calibration net.mlir --dataset images --input_num 2 -o table") == 0
    said = refused(
        f"{DEPLOY} --quantize INT8 --calibration_table table --fuse_preprocess "
        "--customization_format RGB_PACKED",
        capsys,
    )
    assert "give BGR_PACKED, or RGB_PLANAR" in said


def test_options(module: Path, capsys):
    assert "--quantize" in refused(f"{DEPLOY} --quantise INT8", capsys)
    assert "--aligned_input: rows" in refused(f"{DEPLOY} --aligned_input", capsys)
    assert "missing: --chip" in refused("model_deploy --mlir net.mlir --model a.bmodel", capsys)
    assert "has 1 shapes" in refused(f"{TRANSFORM} pair.onnx --input_shapes [[1,2]]", capsys)
    assert "[[1,3,224,224],[10]]" in refused(f"{TRANSFORM} pair.onnx --input_shapes 1,a", capsys)
    assert run("model_transform --help") == 0
    assert "--pixel_format" in capsys.readouterr().out
    assert run("model_deplo") == 2
    assert "model_deploy" in capsys.readouterr().err
    assert run(f"{DEPLOY} --quantize INT8 --calibration_table table --opt 3") == 0
    assert "--opt is ignored" in capsys.readouterr().err


def test_files_of_the_vendor_and_damaged_ones(module: Path, capsys):
    Path("vendor.mlir").write_text("#loc = loc(unknown)\nmodule @net attributes {} {\n")
    words = refused("run_calibration vendor.mlir --dataset images -o t", capsys)
    assert "written by tpu-mlir" in words
    data = Path("net.mlir").read_bytes()
    assert data.startswith(b"// Intaglio module 1")
    for cut in (100, 400, len(data) // 2):
        Path("net.mlir").write_bytes(data[:cut])
        assert "net.mlir" in refused("run_calibration net.mlir --dataset images -o t", capsys)
    Path("net.mlir").write_bytes(data.replace(b'"pad_value": 0', b'"pad_value": "a'))
    assert "second line" in refused("run_calibration net.mlir --dataset images -o t", capsys)
