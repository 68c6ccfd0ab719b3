"""uint8 inputs give bit-identical results to normalised floats."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.pipeline import calibrate

RNG = np.random.default_rng(0)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
PICTURES = RNG.integers(0, 256, (3, 1, 3, 16, 16)).astype(np.uint8)


def net(shape=(1, 3, 16, 16)) -> Graph:
    x = Value(Type("f32", shape), "x")
    image = x if shape[1] == 3 else ops.transpose(x, perm=(0, 3, 1, 2))
    window = {"stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    rng = np.random.default_rng(1)
    w = [rng.standard_normal(s).astype(np.float32) for s in ((16, 3, 3, 3), (8, 16, 3, 3))]
    y = ops.conv(
        ops.relu(ops.conv(image, constant(w[0]), None, **window)), constant(w[1]), None, **window
    )
    return Graph([x], [y], ["y"])


def normalized(picture: np.ndarray, mean=MEAN, std=STD) -> np.ndarray:
    mean, std = (np.array(v, np.float32).reshape(1, 3, 1, 1) for v in (mean, std))
    return (picture.astype(np.float32) - mean) / std


def run(graph: Graph, x: np.ndarray) -> np.ndarray:
    with intaglio.open(intaglio.compile(graph)) as session:
        return np.array(session.run({"x": x})["y"])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("mean", "std"), [(MEAN, STD), ((127.5,) * 3, (127.5,) * 3), ((120, 110, 100), (60, 61, 62))]
)
def test_bytes_give_the_same_bits_as_normalised_floats(last, mean, std):
    def turn(a):
        return np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a

    graph = net((1, 16, 16, 3) if last else (1, 3, 16, 16))
    floats = [turn(normalized(p, mean, std)) for p in PICTURES]
    plain = calibrate(graph, floats, warn=print).graph
    how = {"mean": mean, "std": std, "input_type": "uint8", "warn": print}
    bytes_in = calibrate(graph, floats, **how).graph
    assert str(bytes_in.inputs[0].type).startswith("u8")
    for p, x in zip(PICTURES, floats, strict=True):
        np.testing.assert_array_equal(run(bytes_in, turn(p)), run(plain, x))
    ops_left = {n.op for n in intaglio.optimize(bytes_in, level=3).nodes()}
    assert "lookup" in ops_left
    assert "quantize_linear" not in ops_left


def test_channels_with_equal_normalisation_are_one_group():
    graph = net()
    graph = calibrate(graph, [normalized(p) for p in PICTURES], warn=print).graph
    assert preprocess(graph, input_type="uint8", mean=[127.5], std=[127.5]) == ["x"]
    assert "slice" not in {n.op for n in graph.nodes()}


@pytest.mark.parametrize(("shape", "takes"), [((1, 3, 16, 16), "nhwc"), ((1, 16, 16, 3), "nchw")])
def test_bytes_in_another_layout_than_the_model(shape, takes):
    floats = [
        np.moveaxis(normalized(p), 1, -1) if shape[1] == 16 else normalized(p) for p in PICTURES
    ]
    floats = [np.ascontiguousarray(f) for f in floats]
    how = {"mean": MEAN, "std": STD, "input_type": "uint8", "warn": print}
    same = calibrate(net(shape), floats, **how).graph
    other = calibrate(net(shape), floats, input_layout=takes, **how).graph
    assert other.inputs[0].shape == ((1, 16, 16, 3) if takes == "nhwc" else (1, 3, 16, 16))
    for p in PICTURES:
        last = np.ascontiguousarray(np.moveaxis(p, 1, -1))
        mine, theirs = (last, p) if takes == "nhwc" else (p, last)
        np.testing.assert_array_equal(run(other, mine), run(same, theirs))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"input_layout": "chwn", "input_type": "uint8"}, "input_layout is 'chwn'"),
        ({"input_layout": "nhwc"}, "input_layout is for input_type 'uint8'"),
        ({"swap_rb": True}, "swap_rb is for input_type 'uint8'"),
        ({"input_type": "int7"}, "input_type is 'int7'"),
    ],
)
def test_mismatches_are_reported_before_calibration(how, words):
    with pytest.raises(BadInput, match=words):
        calibrate(net(), [normalized(p) for p in PICTURES], **how)


def test_cameras_with_blue_first():
    floats = [normalized(p) for p in PICTURES]
    how = {"mean": MEAN, "std": STD, "input_type": "uint8", "warn": print}
    rgb = calibrate(net(), floats, **how).graph
    bgr = calibrate(net(), floats, swap_rb=True, input_layout="nhwc", **how).graph
    for p in PICTURES:
        turned = np.ascontiguousarray(np.moveaxis(p[:, ::-1], 1, -1))
        np.testing.assert_array_equal(run(bgr, turned), run(rgb, p))
