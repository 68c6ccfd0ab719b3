"""RKNN.load_*: formats, shapes, cut points, and one line for each mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.compat import models

from intaglio.compat.rknn.api import RKNN


@pytest.fixture
def rknn() -> Iterator[RKNN]:
    made = RKNN()
    assert made.config(target_platform="rk3588") == 0
    yield made
    made.release()


def outputs(rknn: RKNN, *inputs: np.ndarray, **keywords) -> list[np.ndarray]:
    assert rknn.build(do_quantization=False) == 0
    assert rknn.init_runtime() == 0
    return rknn.inference(inputs=list(inputs), **keywords)


def last_error(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("E ")
    return said[0]


def test_onnx_with_cut_points(rknn: RKNN, folder: Path):
    assert (
        rknn.load_onnx(
            "mobilenet.onnx", inputs=["r0"], input_size_list=[[1, 8, 16, 16]], outputs=["g"]
        )
        == 0
    )
    found = outputs(rknn, np.ones((1, 16, 16, 8), np.float32))
    assert [o.shape for o in found] == [(1, 8, 1, 1)]


def test_onnx_with_a_constant_input(rknn: RKNN, folder: Path):
    held = np.full((1, 4, 8, 8), 2, np.float32)
    assert rknn.load_onnx("pair.onnx", input_initial_val=[None, held]) == 0
    given = np.ones((1, 8, 8, 4), np.float32)
    constant = outputs(rknn, given)[0]
    assert rknn.load_onnx("pair.onnx") == 0
    both = outputs(rknn, given, held.transpose(0, 2, 3, 1))[0]
    np.testing.assert_allclose(constant, both, rtol=1e-2, atol=1e-2)


def test_a_new_opset(rknn: RKNN, folder: Path):
    model = onnx.load("mobilenet.onnx")
    model.opset_import[0].version = 21
    onnx.save(model, "new.onnx")
    assert rknn.load_onnx("new.onnx") == 0


def test_open_dimensions_need_sizes(rknn: RKNN, folder: Path, capsys):
    assert rknn.load_onnx("dynamic.onnx") == -1
    said = last_error(capsys)
    assert "'x' 1x3x?x?" in said
    assert "input_size_list=[[1, 3, 1, 1]]" in said
    assert rknn.load_onnx("dynamic.onnx", inputs=["x"], input_size_list=[[1, 3, 16, 16]]) == 0


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("load_onnx", {"model": "nope.onnx"}, "there is no file 'nope.onnx'"),
        ("load_onnx", {"model": 3}, "model is 3; give the path"),
        ("load_onnx", {"model": "empty.onnx"}, "'empty.onnx' is empty"),
        ("load_onnx", {"model": "cut.onnx"}, "cut.onnx"),
        ("load_onnx", {"model": "model.tflite"}, "is a file for load_tflite, not for load_onnx"),
        ("load_tflite", {"model": "mobilenet.onnx"}, "is a file for load_onnx, not for"),
        ("load_onnx", {"model": "mobilenet.onnx", "input_size_list": [[1], [2]]}, "has 2 shapes"),
        ("load_onnx", {"model": "mobilenet.onnx", "outputs": ["nope"]}, "nope"),
        ("load_onnx", {"modle": "mobilenet.onnx"}, "argument 'modle'; did you mean 'model'?"),
        ("load_caffe", {"model": "model.prototxt", "blobs": "no"}, "there is no file 'no'"),
        ("load_darknet", {"model": "model.cfg", "weight": "no"}, "there is no file 'no'"),
        ("load_tensorflow", {"tf_pb": "model.pb", "inputs": "image", "outputs": ["probs"],
          "input_size_list": [[1, 16, 16, 3]]}, "inputs is 'image'; give a list"),
        ("load_pytorch", {"model": "model.pt", "input_size_list": [[1, 3], [1]]}, "has 2 shapes"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(rknn: RKNN, folder: Path, capsys, method, given, words):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "cut.onnx").write_bytes((folder / "mobilenet.onnx").read_bytes()[:400])
    assert getattr(rknn, method)(**given) == -1
    said = last_error(capsys)
    assert said.startswith(f"E {method}: ")
    assert words in said


def test_mean_of_another_length_is_refused(folder: Path, capsys):
    rknn = RKNN()
    assert rknn.config(mean_values=[[1, 2]], target_platform="rk3588") == 0
    assert rknn.load_onnx("mobilenet.onnx") == -1
    assert "has 2 numbers for input 'x', which has 3 channels" in last_error(capsys)


def test_means_of_more_or_fewer_inputs(folder: Path, capsys):
    rknn = RKNN()
    assert rknn.config(mean_values=[[0] * 3, [0] * 3], target_platform="rk3588") == 0
    assert rknn.load_onnx("mobilenet.onnx") == 0
    said = capsys.readouterr().err
    assert "has lists for 2 inputs, the model's inputs are 1: x; the rest is ignored" in said
    assert rknn.config(mean_values=[[1] * 4], target_platform="rk3588") == 0
    assert rknn.load_onnx("pair.onnx") == 0
    assert "lists for 1 inputs, the model's inputs are 2: a, b; b stay as they are" in (
        capsys.readouterr().err
    )
    assert rknn.build(do_quantization=False) == 0
    assert [i.mean for i in rknn.infos] == [(1.0,) * 4, ()]


def test_inputs_in_the_order_of_load_onnx(folder: Path):
    a, b = (np.full((1, 4, 8, 8), n, np.float32) for n in (1, 2))
    found = []
    for names in (["a", "b"], ["b", "a"]):
        rknn = RKNN()
        rknn.config(target_platform="rk3588")
        sizes = [[1, 4, 8, 8]] * 2
        assert rknn.load_onnx("pair.onnx", inputs=names, input_size_list=sizes) == 0
        assert rknn.build(do_quantization=False) == 0
        assert rknn.init_runtime() == 0
        by_name = {"a": a, "b": b}
        found.append(rknn.inference([by_name[n] for n in names], data_format="nchw")[0])
        rknn.release()
    np.testing.assert_array_equal(*found)


def test_sizes_without_a_batch(rknn: RKNN, folder: Path):
    assert rknn.load_onnx("mobilenet.onnx", inputs=["x"], input_size_list=[[3, 16, 16]]) == 0
    assert rknn.build(do_quantization=False) == 0
    assert rknn.infos[0].shape == (1, 3, 16, 16)


def test_tflite(rknn: RKNN, folder: Path):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    assert rknn.load_tflite("model.tflite") == 0
    x = np.random.default_rng(0).normal(0, 1, (1, 16, 16, 3)).astype(np.float32)
    np.testing.assert_allclose(outputs(rknn, x)[0], np.maximum(x, 0), atol=2e-3)
    turned = rknn.inference([x.transpose(0, 3, 1, 2)], data_format="nchw")[0]
    np.testing.assert_allclose(turned, np.maximum(x, 0), atol=2e-3)


def test_a_quantised_tflite_takes_pixels_as_they_are(folder: Path, capsys):
    pytest.importorskip("tflite")
    from tests.frontends.tflite_build import T, model, op

    kinds = [T((1, 4, 4, 3), np.uint8, scale=[1 / 128], zero=[128], name="image") for _ in "ab"]
    kinds[1].name = "relu"
    Path("q.tflite").write_bytes(model(kinds, [op("RELU", [0], [1])], [0], [1]))
    rknn = RKNN()
    rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], target_platform="rk3588")
    assert rknn.load_tflite("q.tflite") == 0
    assert "'image' takes u8; it has no mean and std" in capsys.readouterr().err
    x = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3) * 5
    found = outputs(rknn, x)[0]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.maximum(x, 128))


def test_tensorflow(rknn: RKNN, folder: Path):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    sizes = [[1, 16, 16, 3]]
    assert (
        rknn.load_tensorflow("model.pb", inputs=["image"], input_size_list=sizes, outputs=["probs"])
        == 0
    )
    found = outputs(rknn, np.zeros((1, 16, 16, 3), np.float32))[0]
    np.testing.assert_allclose(found, 1 / 3, atol=1e-3)


def test_pytorch(rknn: RKNN, folder: Path):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    assert rknn.load_pytorch("model.pt", input_size_list=[[1, 3, 16, 16]]) == 0
    found = outputs(rknn, np.full((1, 16, 16, 3), 5, np.uint8))[0]
    assert found.shape == (1, 3, 16, 16)
    np.testing.assert_allclose(found, 2)


def test_darknet_and_caffe(rknn: RKNN, folder: Path):
    pytest.importorskip("tflite")
    models.other_formats(folder)
    assert rknn.load_darknet("model.cfg", "model.weights") == 0
    assert outputs(rknn, np.zeros((1, 16, 16, 3), np.uint8))[0].shape[1] == 14
    assert rknn.load_caffe("model.prototxt") == 0
    found = outputs(rknn, np.full((1, 16, 16, 3), 7, np.uint8))[0]
    np.testing.assert_allclose(found, np.full((1, 3, 4, 4), 7), atol=1e-2)


def test_input_name_orders_the_inputs_of_a_caffe_net(folder: Path, capsys):
    text = "".join(f'input: "{n}"\n' + "input_dim: 1\ninput_dim: 3\n" * 2 for n in "ab")
    text += 'layer { name: "c" type: "Eltwise" bottom: "a" bottom: "b" top: "y" '
    text += "eltwise_param { operation: SUM coeff: 2 coeff: -1 } }\n"
    (folder / "two.prototxt").write_text(text)
    pytest.importorskip("tflite")
    models.other_formats(folder)
    (folder / "two.caffemodel").write_bytes((folder / "model.caffemodel").read_bytes())
    rknn = RKNN()
    rknn.config(target_platform="rk3588")
    assert rknn.load_caffe("two.prototxt", input_name=["b", "a"]) == 0
    assert rknn.build(do_quantization=False) == 0
    assert [i.name for i in rknn.infos] == ["b", "a"]
    assert rknn.load_caffe("two.prototxt", input_name=["b", "z"]) == -1
    assert "'z'" in last_error(capsys)
