"""RKNN.build: numbers against the float model, datasets, options of config, mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.compat.models import save, separable

import intaglio
from intaglio.compat.rknn.api import RKNN
from intaglio.quant.weight_only.rounded import rounded_weights


def built(
    model: str, dataset: str | None, *, batch: int | None = None, auto=False, **config
) -> RKNN:
    rknn = RKNN()
    assert rknn.config(**{"target_platform": "rk3588", **config}) == 0
    assert rknn.load_onnx(model) == 0
    assert rknn.build(dataset is not None, dataset, batch, auto) == 0
    assert rknn.init_runtime() == 0
    return rknn


def golden(model: str, **inputs: np.ndarray) -> np.ndarray:
    return next(iter(intaglio.interpret(intaglio.load(model), inputs).values()))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a.ravel() @ b.ravel() / np.linalg.norm(a) / np.linalg.norm(b))


def test_float16_with_mean_and_std(folder: Path, picture: np.ndarray):
    mean, std = [100.0, 110.0, 120.0], [50.0, 60.0, 70.0]
    rknn = built("mobilenet.onnx", None, mean_values=[mean], std_values=[std])
    x = ((picture - np.float32(mean)) / np.float32(std)).transpose(0, 3, 1, 2).astype(np.float32)
    wanted = golden("mobilenet.onnx", x=x)
    found = rknn.inference(inputs=[picture])[0]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.01)
    floats = rknn.inference(inputs=[picture.astype(np.float32)])[0]
    np.testing.assert_array_equal(found, floats)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quantized_algorithm": "mmse"},
        {"quantized_algorithm": "kl_divergence"},
        {"quantized_method": "layer"},
        {"quantized_dtype": "w8a16"},
        {"quantized_dtype": "w16a16i_dfp"},
        {"target_platform": "rv1106"},
        {"optimization_level": 0},
    ],
    ids=str,
)
def test_integers_are_near_to_floats(folder: Path, picture: np.ndarray, config: dict):
    rknn = built(
        "mobilenet.onnx", "dataset.txt", mean_values=[128] * 3, std_values=[128] * 3, **config
    )
    x = ((picture.astype(np.float32) - 128) / 128).transpose(0, 3, 1, 2)
    wanted = golden("mobilenet.onnx", x=x)
    found = rknn.inference(inputs=[picture])[0]
    assert cosine(found, wanted) > 0.99
    assert np.abs(found - wanted).max() > 0  # it is quantised


def test_bgr_of_the_dataset(folder: Path):
    """Swapped pictures give other ranges of the first layer."""
    ranges = []
    for flag in (False, True):
        rknn = built(
            "mobilenet.onnx", "dataset.txt", quant_img_RGB2BGR=flag, std_values=[[255] * 3]
        )
        ranges.append(rknn._built.quantized.scheme.tensors["r0"].scale)
    assert ranges[0] != ranges[1]


def test_two_inputs_on_each_line(folder: Path):
    rknn = built("pair.onnx", "pairs.txt")
    a, b = (np.load(f"arrays/{n}0.npy") for n in "ab")
    wanted = golden("pair.onnx", a=a, b=b)
    found = rknn.inference(inputs=[a, b], data_format=["nchw", "nchw"])[0]
    assert cosine(found, wanted) > 0.999
    turned = [x.transpose(0, 2, 3, 1) for x in (a, b)]
    np.testing.assert_array_equal(rknn.inference(inputs=turned)[0], found)


def test_inputs_without_four_axes(folder: Path):
    rknn = built("wav2vec.onnx", "speech.txt")
    x = np.load("arrays/s0.npy")
    assert cosine(rknn.inference(inputs=[x])[0], golden("wav2vec.onnx", speech=x)) > 0.999
    assert cosine(rknn.inference(inputs=[x[0]])[0], golden("wav2vec.onnx", speech=x)) > 0.999


def test_arrays_of_a_dataset_are_normalised(folder: Path, picture: np.ndarray):
    """float arrays are raw pixels, as those of inference."""
    np.save("raw.npy", picture.transpose(0, 3, 1, 2).astype(np.float32))
    Path("raw.txt").write_text("raw.npy\n")
    rknn = built("mobilenet.onnx", "raw.txt", mean_values=[128] * 3, std_values=[128] * 3)
    scheme = rknn._built.quantized.scheme.tensors["x"]
    assert -1.1 < scheme.lo < -0.9
    assert 0.9 < scheme.hi < 1.1


@pytest.mark.parametrize("quantized", [False, True])
def test_mean_and_std_of_nine_channels(folder: Path, quantized: bool):
    rng = np.random.default_rng(0)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    weights = rng.normal(0, 0.3, (4, 9, 1, 1))
    save(Path("nine.onnx"), [node], {"x": [1, 9, 8, 8]}, {"y": [1, 4, 8, 8]}, w=weights)
    x = rng.normal(0, 3, (1, 9, 8, 8)).astype(np.float32)
    np.save("nine.npy", x)
    Path("nine.txt").write_text("nine.npy\n")
    mean, std = [float(c) for c in range(9)], [2.0] * 9
    dataset = "nine.txt" if quantized else None
    rknn = built("nine.onnx", dataset, mean_values=[mean], std_values=[std])
    ready = (x - np.float32(mean).reshape(-1, 1, 1)) / 2
    found = rknn.inference([x], data_format="nchw")[0]
    assert cosine(found, golden("nine.onnx", x=ready.astype(np.float32))) > 0.999


def test_several_shapes(folder: Path, picture: np.ndarray):
    sets = [[[1, 3, 8, 8]], [[1, 3, 16, 16]]]
    config = {"dynamic_input": sets, "mean_values": [128] * 3, "std_values": [128] * 3}
    for dataset in (None, "dataset.txt"):
        rknn = built("dynamic.onnx", dataset, **config)
        for given in (picture, np.ascontiguousarray(picture[:, :8, :8])):
            x = ((given.astype(np.float32) - 128) / 128).transpose(0, 3, 1, 2)
            wanted = intaglio.load("dynamic.onnx", shapes={"x": x.shape})
            wanted = intaglio.interpret(wanted, {"x": x})["y"]
            assert cosine(rknn.inference(inputs=[given])[0], wanted) > 0.99
        assert rknn.inference(inputs=[picture[:, :4, :4]]) is None
        assert rknn.eval_perf(is_print=False)["total_time"] > 0
        assert rknn.eval_memory(is_print=False)["total_memory"] > 0


def test_several_shapes_of_depthwise_layers(folder: Path, picture: np.ndarray):
    separable(Path("s.onnx"), ("h", "w"))
    config = {"dynamic_input": [[[1, 3, 8, 8]], [[1, 3, 16, 16]]], "std_values": [[255] * 3]}
    rknn = built("s.onnx", "dataset.txt", **config)
    for given in (picture, np.ascontiguousarray(picture[:, :8, :8])):
        x = (given.astype(np.float32) / 255).transpose(0, 3, 1, 2)
        wanted = intaglio.load("s.onnx", shapes={"x": x.shape})
        wanted = intaglio.interpret(wanted, {"x": x})["y"]
        assert cosine(rknn.inference(inputs=[given])[0], wanted) > 0.98


def test_batches(folder: Path, picture: np.ndarray):
    rknn = built("mobilenet.onnx", "dataset.txt", batch=3, std_values=[[255] * 3])
    found = rknn.inference(inputs=[np.repeat(picture, 3, axis=0)])[0]
    assert found.shape == (3, 5)
    np.testing.assert_array_equal(found[0], found[2])
    rknn = built("mobilenet.onnx", "dataset.txt", batch=-1)  # the default of older versions
    assert rknn.inference(inputs=[picture])[0].shape == (1, 5)


def test_auto_hybrid_keeps_the_cosine(folder: Path, picture: np.ndarray):
    config = {"mean_values": [128] * 3, "std_values": [128] * 3, "auto_hybrid_cos_thresh": 0.9999}
    rknn = built("mobilenet.onnx", "dataset.txt", auto=True, **config)
    x = ((picture.astype(np.float32) - 128) / 128).transpose(0, 3, 1, 2)
    assert cosine(rknn.inference(inputs=[picture])[0], golden("mobilenet.onnx", x=x)) > 0.999


def test_layers_of_op_target_are_floats(folder: Path, capsys: pytest.CaptureFixture[str]):
    def floats(**target: str) -> set[str]:
        rknn = built("mobilenet.onnx", "dataset.txt", op_target=target)
        scheme = rknn._built.quantized.scheme
        return {name for name, precision in scheme.layers.items() if precision == "f32"}

    everything = {v.name for n in intaglio.load("mobilenet.onnx").nodes() for v in n.outputs}
    convs = {n.outputs[0].name for n in intaglio.load("mobilenet.onnx").nodes() if n.op == "conv"}
    assert not floats(Conv="npu", x="auto")
    one = sorted(convs)[0]
    assert one in floats(**{one: "cpu"}) <= everything
    assert convs <= floats(Conv="cpu")
    capsys.readouterr()
    assert not floats(nothing="cpu")
    assert "W op_target: no layer is called 'nothing'" in capsys.readouterr().err
    built("mobilenet.onnx", None, op_target={one: "cpu"})
    assert "op_target is for quantised models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "dataset is not given; quantising needs samples"),
        ({"dataset": "nope.txt"}, "cannot read 'nope.txt': no such file"),
        ({"dataset": "void.txt"}, "lists no files"),
        ({"dataset": "missing.txt"}, "line 1: there is no file"),
        ({"dataset": "pairs.txt"}, "line 1: 2 files, the model has 1 inputs"),
        ({"dataset": "speech.txt"}, "has shape [1, 20, 6], input 'x' needs [1, 3, 16, 16] (nchw)"),
        ({"dataset": "images/0.png"}, "is no text file"),
        ({"dataset": 3}, "dataset is 3; give the path"),
        ({"do_quantisation": False}, "did you mean 'do_quantization'?"),
        ({"do_quantization": False, "rknn_batch_size": 0}, "rknn_batch_size is 0"),
    ],
)
def test_mistakes_are_one_line(folder: Path, capsys, given: dict, words: str):
    Path("void.txt").write_text("\n\n")
    Path("missing.txt").write_text("no.png\n")
    rknn = RKNN()
    assert rknn.build() == -1
    assert "there is no model; call load_onnx" in capsys.readouterr().err
    rknn.config(target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    assert rknn.build(**given) == -1
    said = capsys.readouterr().err
    assert said.startswith("E build: ")
    assert words in said
    assert said.count("\n") == 1
    assert rknn.export_rknn("x.rknn") == -1
    assert rknn.init_runtime() == -1


def test_verbose_goes_to_a_file(folder: Path, capsys):
    rknn = RKNN(verbose=True, verbose_file="build.log")
    rknn.config(target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    assert rknn.build(do_quantization=False) == 0
    rknn.release()
    log = Path("build.log").read_text()
    assert "I building done." in log
    assert "input 'x' f32 [1, 3, 16, 16]" in log
    assert "Network Layer Information Table" in capsys.readouterr().out
    assert RKNN(verbose="loud").log.verbose is False


@pytest.mark.parametrize("method", ["channel", "group32"])
def test_weights_of_four_bits(method: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    rknn = RKNN()
    config = {"quantized_dtype": "w4a16", "quantized_method": method, "target_platform": "rk3576"}
    assert rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], **config) == 0
    assert rknn.load_onnx("mobilenet.onnx") == 0
    assert rknn.build(do_quantization=True) == -1  # samples are needed, as for all types
    assert rknn.build(do_quantization=True, dataset="dataset.txt") == 0
    assert rknn.export_rknn("four.rknn") == 0
    assert rknn.init_runtime() == 0
    picture = np.full((1, 16, 16, 3), 200, np.uint8)
    (found,) = rknn.inference([picture])
    x = ((picture - np.float32(128)) / 128).transpose(0, 3, 1, 2).astype(np.float32)
    wanted = intaglio.interpret(intaglio.load("mobilenet.onnx"), {"x": x})["y"]
    off = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 1e-3 < off < 0.3
    assert rknn.accuracy_analysis(["images/0.png"]) == 0
    rows = [r.split() for r in Path("snapshot/error_analysis.txt").read_text().splitlines()]
    cosines = [float(r[2]) for r in rows if r and r[0].startswith("[")]
    assert 0.9 < min(cosines) < 0.9999
    assert rknn.hybrid_quantization_step1("dataset.txt") == -1
    assert "hybrid quantisation is for integer activations" in capsys.readouterr().err


def test_quantize_weight_rounds_the_weights_of_a_float_model(folder: Path):
    picture = np.full((1, 16, 16, 3), 200, np.uint8)
    found = {}
    for rounded in (False, True):
        rknn = RKNN()
        means = {"mean_values": [[128] * 3], "std_values": [[128] * 3]}
        assert rknn.config(**means, target_platform="rk3588", quantize_weight=rounded) == 0
        assert rknn.load_onnx("mobilenet.onnx") == 0
        assert rknn.build(do_quantization=False) == 0
        assert rknn.init_runtime() == 0
        (found[rounded],) = rknn.inference([picture])
    graph = intaglio.load("mobilenet.onnx")
    x = ((picture - np.float32(128)) / 128).transpose(0, 3, 1, 2).astype(np.float32)
    on_grid = intaglio.interpret(rounded_weights(graph, "i8"), {"x": x})["y"]
    size = np.linalg.norm(on_grid)
    assert np.linalg.norm(found[True] - on_grid) < 2e-3 * size
    assert np.linalg.norm(found[True] - found[False]) > 2 * np.linalg.norm(found[True] - on_grid)
