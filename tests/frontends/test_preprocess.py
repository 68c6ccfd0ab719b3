"""Preprocessing inside of the graph, against the same preprocessing in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.cli import main
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph, Quant, Type, Value, constant

RNG = np.random.default_rng(0)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
WEIGHTS = np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype(np.float32)


def net(shape: tuple[int, ...] = (1, 3, 12, 16), pad: int = 0) -> Graph:
    """One convolution over an image in either layout; the output has the layout of the input."""
    x = Value(Type("f32", shape), "x")
    last = shape[1] != 3
    image = ops.transpose(x, perm=(0, 3, 1, 2)) if last else x
    y = ops.conv(
        image, constant(WEIGHTS), None, stride=(1, 1), pad=(pad,) * 4, dilation=(1, 1), groups=1
    )
    y = ops.transpose(y, perm=(0, 2, 3, 1)) if last else y
    return Graph([x], [y], ["y"])


def run(graph: Graph, x: np.ndarray) -> np.ndarray:
    """Outputs of the compiled graph, which must equal those of numpy."""
    meant = intaglio.interpret(graph, {"x": x})["y"]
    with intaglio.open(intaglio.compile(graph)) as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], meant, rtol=1e-4, atol=1e-3)
    return meant


def check(how: dict, given: np.ndarray, prepared: np.ndarray, pad: int = 0) -> Graph:
    """A net with preprocessing on `given` equals the plain net on `prepared`."""
    shape = prepared.shape
    graph = net(shape, pad)
    assert preprocess(graph, **how) == ["x"]
    assert graph.inputs[0].shape == given.shape
    want = intaglio.interpret(net(shape, pad), {"x": prepared.astype(np.float32)})["y"]
    np.testing.assert_allclose(run(graph, given), want, rtol=1e-4, atol=1e-3)
    return graph


def channels(numbers: tuple[float, ...], axis: int = 1) -> np.ndarray:
    shape = [1] * 4
    shape[axis] = len(numbers)
    return np.array(numbers, np.float32).reshape(shape)


BYTES = RNG.integers(0, 256, (1, 3, 12, 16)).astype(np.uint8)
LAST = np.ascontiguousarray(BYTES.transpose(0, 2, 3, 1))
NORMAL = (BYTES - channels(MEAN)) / channels(STD)


@pytest.mark.parametrize("pad", [0, 1])
def test_mean_and_deviation(pad: int):
    graph = check({"input_type": "uint8", "mean": MEAN, "std": STD}, BYTES, NORMAL, pad)
    left = [n.op for n in intaglio.optimize(graph, level=2).nodes()]
    # Without padding, mean and std are folded into the convolution; with padding, only std.
    assert left == (["cast", "conv"] if pad == 0 else ["cast", "add", "conv"])
    floats = BYTES.astype(np.float32)
    check({"mean": MEAN, "std": STD}, floats, NORMAL, pad)
    check({"mean": 127.5, "std": [127.5]}, floats, floats / 127.5 - 1, pad)


def test_all_of_it_in_order():
    """Layout, swap, bytes, mean and std; mean and std are in the model's channel order."""
    how = {"input_type": "uint8", "mean": MEAN, "std": STD, "swap_rb": True, "input_layout": "NHWC"}
    swapped = (BYTES[:, ::-1] - channels(MEAN)) / channels(STD)
    graph = check(how, LAST, swapped)
    assert "gather" not in {n.op for n in intaglio.optimize(graph, level=2).nodes()}
    check({**how, "input_layout": (0, 3, 1, 2)}, LAST, swapped)


def test_models_with_channels_last():
    normal = NORMAL.transpose(0, 2, 3, 1)
    check({"input_type": "uint8", "mean": MEAN, "std": STD}, LAST, normal)
    how = {"input_type": "uint8", "mean": MEAN, "std": STD, "input_layout": "nchw"}
    check(how, BYTES, normal)
    check({**how, "swap_rb": True}, BYTES[:, ::-1].copy(), normal)


@pytest.mark.parametrize("layout", [None, "nhwc", "nchw", "0,2,3,1"])
def test_models_that_turn_their_input_at_once(layout: str | None):
    graph = net((1, 12, 16, 3))
    how = {"input_type": "uint8", "mean": MEAN, "std": STD, "swap_rb": True}
    preprocess(graph, input_layout=layout, **how)
    left = [n.op for n in intaglio.optimize(graph, level=2).nodes()]
    assert set(left) == {"cast", "conv", "transpose"}  # everything else is folded into the weights
    given = LAST if layout in (None, "nhwc") else BYTES
    assert graph.inputs[0].shape == given.shape
    swapped = ((LAST[..., ::-1] - channels(MEAN, 3)) / channels(STD, 3)).astype(np.float32)
    want = intaglio.interpret(net((1, 12, 16, 3)), {"x": swapped})["y"]
    np.testing.assert_allclose(run(graph, given), want, rtol=1e-4, atol=1e-3)
    plain = net((1, 12, 16, 3))
    preprocess(plain, input_layout=layout)
    want = intaglio.interpret(net((1, 12, 16, 3)), {"x": LAST.astype(np.float32)})["y"]
    np.testing.assert_allclose(run(plain, given.astype(np.float32)), want, rtol=1e-4, atol=1e-3)


def test_what_bytes_mean():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    how = {"input_type": "uint8", "mean": mean, "std": std}
    check({**how, "input_range": (0, 1)}, BYTES, (BYTES / 255 - channels(mean)) / channels(std))
    check({"input_type": "uint8", "input_range": (-1, 1)}, BYTES, BYTES / 127.5 - 1)


def bilinear(x: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Bilinear interpolation with half-pixel centres along one axis."""
    at = ((np.arange(size) + 0.5) * x.shape[axis] / size - 0.5).clip(0, x.shape[axis] - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    share = (at - low).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    return x.take(low, axis) * (1 - share) + x.take(high, axis) * share


@pytest.mark.parametrize(
    ("size", "inner"), [((24, 20), (12, 10)), ((6, 16), (6, 16)), ((9, 9), (12, 12))]
)
def test_letterbox(size: tuple[int, int], inner: tuple[int, int]):
    given = RNG.integers(0, 256, (1, *size, 3)).astype(np.uint8)
    planes = given.transpose(0, 3, 1, 2).astype(np.float64)
    resized = bilinear(bilinear(planes, inner[0], 2), inner[1], 3)
    boxed = np.full((1, 3, 12, 16), 114.0)
    top, left = (12 - inner[0]) // 2, (16 - inner[1]) // 2
    boxed[:, :, top : top + inner[0], left : left + inner[1]] = resized
    how = {"input_type": "uint8", "mean": MEAN, "std": STD, "input_layout": "nhwc"}
    want = (boxed - channels(MEAN)) / channels(STD)
    check({**how, "letterbox": size}, given, want)
    if inner == size:
        boxed = np.pad(planes, ((0, 0), (0, 0), (3, 3), (0, 0)))
        want = (boxed - channels(MEAN)) / channels(STD)
        check({**how, "letterbox": size, "pad_value": 0}, given, want)


def test_layout_of_outputs():
    graph = net()
    assert preprocess(graph, output_layout="nhwc") == []
    assert graph.outputs[0].shape == (1, 10, 14, 5)
    want = intaglio.interpret(net(), {"x": BYTES.astype(np.float32)})["y"].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(run(graph, BYTES.astype(np.float32)), want)
    for words in ("nchw", "same", "0,1,2,3"):
        graph = net()
        preprocess(graph, output_layout=words)
        assert graph.outputs[0].shape == (1, 5, 10, 14)
    graph = net((1, 12, 16, 3))
    preprocess(graph, output_layout="NCHW")
    assert graph.outputs[0].shape == (1, 5, 10, 14)


def test_integer_models_take_pictures_too():
    """The int8 input is quantised inside of the graph, as it would be outside."""
    scale, zero = 0.0081, -1  # no byte is halfway between two steps
    x = Value(Type("i8", (1, 12, 16, 3), Quant((scale,), (zero,))), "x")
    y = ops.dequantize_linear(x, constant(scale, dtype="f32"), constant(zero, dtype="i8"))
    graph = Graph([x], [y], ["y"])
    preprocess(graph, input_type="uint8", mean=127, std=128)
    stored = np.clip(np.rint((LAST - 127.0) / 128 / scale) + zero, -128, 127)
    np.testing.assert_allclose(run(graph, LAST), (stored - zero) * scale, atol=1e-6)


def two() -> Graph:
    a, b = (Value(Type("f32", (1, 3, 8, 8)), n) for n in "ab")
    c = Value(Type("f32", (1, 7)), "c")
    return Graph([a, b, c], [ops.sub(a, b), ops.relu(c)], ["y", "z"])


def test_several_inputs_by_name():
    graph = two()
    assert preprocess(graph, input_type={"b": "uint8"}, mean={"a": [1, 2, 3], "b": 9}) == ["a", "b"]
    assert [v.dtype for v in graph.inputs] == ["f32", "u8", "f32"]
    feeds = {
        "a": np.zeros((1, 3, 8, 8), np.float32),
        "b": np.full((1, 3, 8, 8), 10, np.uint8),
        "c": np.zeros((1, 7), np.float32),
    }
    got = intaglio.interpret(graph, feeds)["y"]
    np.testing.assert_array_equal(got[0, :, 0, 0], [-2, -3, -4])
    graph = two()
    assert preprocess(graph, input_type="uint8") == ["a", "b"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"mean": [1, 2]}, "mean has 2 numbers, input 'x' has 3 channels"),
        ({"std": [1, 0, 1]}, "std is 1, 0, 1; it must be finite and above 0"),
        ({"mean": {"z": 1}}, "mean is given for 'z'; inputs are x"),
        ({"input_type": {"z": "uint8"}}, "input_type is given for 'z'; inputs are x"),
        ({"input_type": "int3"}, "input_type is 'int3'; use one of"),
        ({"input_layout": "nwhc"}, "input_layout is 'nwhc'"),
        ({"input_layout": "0,1,2"}, "a permutation of the 4 axes"),
        ({"output_layout": "0,3"}, "no output has as many axes: 'y'"),
        ({"letterbox": (0, 4)}, "give the height and width"),
        ({"letterbox": (4,)}, "give the height and width"),
        ({"input_range": (0, 1)}, "input_range is given without input_type 'uint8'"),
        ({"input_type": "uint8", "input_range": (1, 0)}, "the values of bytes 0 and 255"),
        ({"layout": "chwn"}, "layout is 'chwn'"),
    ],
)
def test_what_is_wrong_is_named(how: dict, words: str):
    with pytest.raises(BadInput, match=words):
        preprocess(net(), **how)


def test_models_without_pictures():
    def words() -> Graph:
        x = Value(Type("f32", (1, 7, 9)), "x")
        return Graph([x], [ops.relu(x)], ["y"])

    for how, why in (
        ({"input_layout": "nhwc"}, "a permutation of the 3 axes"),
        ({"swap_rb": True}, "swap_rb needs 3 or 4 channels"),
        ({"letterbox": (4, 4)}, "letterbox is for images with four axes"),
    ):
        with pytest.raises(BadInput, match=why):
            preprocess(words(), **how)
    with pytest.raises(BadInput, match="no input shows the model"):
        preprocess(words(), output_layout="nhwc")
    graph = words()
    preprocess(graph, input_layout="0,2,1", output_layout="0,2,1")
    assert graph.inputs[0].shape == graph.outputs[0].shape == (1, 9, 7)
    grey = Value(Type("f32", (1, 1, 8, 8)), "x")
    with pytest.raises(BadInput, match="swap_rb needs 3 or 4 channels"):
        preprocess(Graph([grey], [ops.relu(grey)], ["y"]), swap_rb=True)
    bytes_in = Value(Type("u8", (1, 3, 8, 8)), "x")
    with pytest.raises(BadInput, match="takes integers that are not quantised"):
        preprocess(Graph([bytes_in], [bytes_in], ["y"]), mean=3)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 24), None),
        ((5, 6), None),
        ((12,), None),
        ((3, 6, 8), 0),
        ((6, 8, 3), 2),
        ((1, 7, 9), 0),
        ((2, 7, 9), None),
        ((1, 3, 4, 6, 8), 1),
        ((1, 4, 6, 8, 3), 4),
        ((2, 5, 4, 6, 8), None),
    ],
)
@pytest.mark.parametrize("quantised", [False, True])
def test_bytes_of_other_ranks(shape: tuple[int, ...], axis: int | None, quantised: bool):
    """One mean for all, or one per channel of pictures without a batch and of videos."""
    count = 1 if axis is None else shape[axis]
    mean, std = np.float32([101, 55, 7])[:count], np.float32([50, 60, 70])[:count]
    given = RNG.integers(0, 256, shape).astype(np.uint8)
    across = [1] * len(shape)
    if axis is not None:
        across[axis] = count
    want = (given - mean.reshape(across)) / std.reshape(across)
    x = Value(Type("f32", shape), "x")
    y = x
    if quantised:
        step, zero = constant(0.0173, dtype="f32"), constant(3, dtype="u8")
        y = ops.dequantize_linear(ops.quantize_linear(x, step, zero, dtype="u8"), step, zero)
        want = (np.clip(np.rint(want / 0.0173) + 3, 0, 255) - 3) * 0.0173
    graph = Graph([x], [ops.mul(y, np.float32(2))], ["y"])
    assert preprocess(graph, input_type="uint8", mean=mean, std=std) == ["x"]
    assert graph.inputs[0].type == Type("u8", shape)
    np.testing.assert_allclose(run(graph, given), 2 * want, atol=0.036 if quantised else 1e-5)
    x = Value(Type("f32", shape), "x")
    ranged = Graph([x], [ops.relu(x)], ["y"])
    preprocess(ranged, input_type="uint8", input_range=(0, 1))
    np.testing.assert_allclose(run(ranged, given), given / 255, atol=1e-6)


def test_several_inputs_that_are_no_pictures():
    def pair() -> Graph:
        a, b = (Value(Type("f32", (1, 7)), n) for n in "ab")
        return Graph([a, b], [ops.sub(a, b)], ["y"])

    with pytest.raises(BadInput, match=r'name the input, as in input_type={"a": ...}'):
        preprocess(pair(), input_type="uint8")
    assert preprocess(pair(), input_type={"b": "uint8"}, mean={"b": 9}) == ["b"]


def test_state_is_no_picture():
    x, kept = (Value(Type("f32", (1, 3, 8, 8)), n) for n in ("x", "state.k"))
    y = ops.add(x, kept)
    graph = Graph([x, kept], [y, y], ["y", "state.k"], state={"state.k": None})
    assert preprocess(graph, input_type="uint8", mean=[1, 2, 3], output_layout="nhwc") == ["x"]
    assert [v.dtype for v in graph.inputs] == ["u8", "f32"]
    assert [v.shape for v in graph.outputs] == [(1, 8, 8, 3), (1, 3, 8, 8)]


def test_compile_and_load_take_it(tmp_path: Path):
    pytest.importorskip("onnx")
    file = tmp_path / "net.onnx"
    intaglio.save_onnx(net(), file)
    how = {"input_type": "uint8", "mean": MEAN, "std": STD, "input_layout": "nhwc"}
    want = intaglio.interpret(net(), {"x": NORMAL.astype(np.float32)})["y"]
    for model, rest in ((file, {}), (net(), {})):
        with intaglio.open(intaglio.compile(model, **how, **rest)) as session:
            np.testing.assert_allclose(session.run({"x": LAST})["y"], want, rtol=1e-4, atol=1e-3)
    assert str(intaglio.load(file, **how).inputs[0].type) == "u8[1x12x16x3]"
    with pytest.raises(TypeError, match="unexpected keyword argument 'meen'"):
        intaglio.load(file, meen=3)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("onnx")

    def told(*words: str) -> tuple[int, str]:
        """The exit code and the printed text."""
        code = 0
        try:
            main([*words])
        except SystemExit as e:
            code = int(str(e.code))
        seen = capsys.readouterr()
        return code, seen.out + seen.err

    file, package = str(tmp_path / "net.onnx"), str(tmp_path / "net.itg")
    intaglio.save_onnx(net(), file)
    how = [
        "--input-type",
        "uint8",
        "--mean",
        "1,2,3",
        "--std",
        "255",
        "--input-layout",
        "NHWC",
        "--swap-rb",
        "--letterbox",
        "24x20",
        "--output-layout",
        "NHWC",
    ]
    code, words = told("inspect", file, *how)
    assert code == 0
    assert "x  u8[1x24x20x3]" in words
    assert "y  f32[1x10x14x5]" in words
    assert told("compile", file, *how, "-o", package)[0] == 0
    for wrong, why in (
        (["--mean", "1,2"], "mean has 2 numbers"),
        (["--mean", "1,b"], "--mean takes numbers"),
        (["--letterbox", "24"], "letterbox is [24]"),
        (["--mean", "q=1"], "inputs are x"),
        (["--mean", "1", "--mean", "2"], "give NAME=1 for each"),
    ):
        code, words = told("inspect", file, *wrong)
        assert code == 2
        assert why in words
        assert words.count("\n") == 1
    code, words = told("run", package, "--swap-rb")
    assert code == 2
    assert "--swap-rb is for model files" in words
