"""Pictures become inputs as the package says, and boxes come back to the picture's own pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops, vision
from intaglio.errors import BadFile, BadInput
from intaglio.frontends import picture_format
from intaglio.ir import Graph, Type, Value, constant
from intaglio.vision.labels import names_in
from intaglio.vision.prediction import probabilities

Image = pytest.importorskip("PIL.Image")

MEAN, STD = (120.0, 110.0, 100.0), (50.0, 60.0, 70.0)
PIXELS = np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8)


def adder(shape: tuple[int, ...] = (1, 3, 16, 24)) -> Graph:
    """A model whose output is its input plus one, which shows what the model receives."""
    x = Value(Type("f32", shape), "x")
    return Graph([x], [ops.add(x, np.float32(1))], ["y"])


def received(package: intaglio.Package, picture: object = PIXELS, **more: object) -> np.ndarray:
    with intaglio.open(package) as session:
        return vision.predict(session, picture, **more).outputs["y"] - 1


def wanted(pixels: np.ndarray = PIXELS, bgr: bool = False) -> np.ndarray:
    pixels = pixels[..., ::-1] if bgr else pixels
    return ((pixels - np.array(MEAN)) / np.array(STD)).transpose(2, 0, 1)[None]


@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize(
    "inside",
    [
        {},
        {"input_type": "uint8"},
        {"input_layout": "nhwc"},
        {"swap_rb": True},
        {"input_type": "uint8", "input_layout": "nhwc", "swap_rb": True},
    ],
    ids=str,
)
def test_steps_inside_of_the_package_are_not_done_twice(inside: dict, bgr: bool):
    """Whatever part of the preprocessing a package has, the model receives the same numbers."""
    color = "bgr" if bgr else "rgb"
    package = intaglio.compile(adder(), mean=MEAN, std=STD, color=color, **inside)
    np.testing.assert_allclose(received(package), wanted(bgr=bgr), atol=1e-4)


def test_a_model_with_channels_last():
    package = intaglio.compile(adder((1, 16, 24, 3)), mean=MEAN, std=STD, input_type="uint8")
    np.testing.assert_allclose(received(package), wanted().transpose(0, 2, 3, 1), atol=1e-4)


def samples(folder: Path) -> Path:
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (16, 24, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def convolution() -> Graph:
    """A model whose output is its input, by a convolution that can be quantised."""
    x, w = Value(Type("f32", (1, 3, 16, 24)), "x"), np.zeros((3, 3, 1, 1), np.float32)
    w[range(3), range(3)] = 1
    y = ops.conv(x, constant(w), None, stride=(1, 1), pad=(0,) * 4, dilation=(1, 1), groups=1)
    return Graph([x], [y], ["y"])


@pytest.mark.parametrize("input_type", ["float", "uint8"])
def test_quantize_keeps_how_samples_were_read(tmp_path: Path, input_type: str):
    graph = intaglio.quantize(
        convolution(), samples(tmp_path), mean=MEAN, std=STD, color="bgr", input_type=input_type
    )
    got = received(intaglio.compile(graph)) + 1
    np.testing.assert_allclose(got, wanted(bgr=True), atol=0.1)  # int8 steps of 0.02


def test_an_onnx_file_carries_it(tmp_path: Path):
    """`quantize -o model.onnx`, then `compile`: mean and std even become part of a uint8 input."""
    pytest.importorskip("onnx")
    graph = adder()
    picture_format.describe(graph, {"x": False}, {"x": MEAN}, {"x": STD}, resize="letterbox")
    intaglio.save_onnx(graph, tmp_path / "m.onnx")
    package = intaglio.compile(tmp_path / "m.onnx")
    assert package.meta["preprocessing"]["x"]["mean"] == list(MEAN)
    np.testing.assert_allclose(received(package), wanted(), atol=1e-4)
    bytes_in = intaglio.compile(tmp_path / "m.onnx", input_type="uint8")
    assert bytes_in.meta["preprocessing"]["x"] == {
        "layout": "nchw", "color": "rgb", "resize": "letterbox", "pad_value": 114.0
    }  # fmt: skip
    np.testing.assert_allclose(received(bytes_in), wanted(), atol=1e-4)


def test_options_replace_what_the_package_says():
    package = intaglio.compile(adder(), resize="stretch")
    np.testing.assert_allclose(received(package, mean=MEAN, std=STD), wanted(), atol=1e-4)
    with pytest.raises(BadInput, match="stretch, letterbox, crop"):
        received(package, resize="zoom")
    with pytest.raises(BadInput, match='color="grb": it is one of rgb, bgr'):
        intaglio.compile(adder(), color="grb")


def test_exports_of_ultralytics_need_no_options():
    """The metadata of their ONNX files is told by the name of the author."""
    graph = adder()
    graph.metadata |= {"author": "Ultralytics", "task": "detect"}
    with intaglio.open(intaglio.compile(graph)) as session:
        predictor = vision.Predictor(session)
    assert predictor.describe() == "letterbox to 24x16, RGB, std 255"
    assert predictor.stored
    np.testing.assert_allclose(predictor.preprocess(PIXELS)[0, 1], PIXELS[..., 1] / 255, rtol=1e-6)


def test_damaged_metadata_is_refused():
    graph = adder()
    graph.metadata[picture_format.KEY] = '{"x": {"layout": "nchw", "mean": "many"}}'
    with pytest.raises(BadInput, match="preprocessing in the metadata is damaged"):
        intaglio.compile(graph)


# ---- boxes ----
def detector(metadata: dict[str, str] | None = None, size: tuple[int, int] = (64, 64)) -> Graph:
    """YOLOv8's layout with two fixed boxes: one of class 1 in the middle, a faint one."""
    made = np.zeros((1, 6, 84), np.float32)
    made[0, :, 10], made[0, :, 40] = (32, 32, 16, 8, 0, 0.9), (8, 8, 4, 4, 0.1, 0)
    x = Value(Type("f32", (1, 3, *size)), "images")
    nothing = ops.mul(ops.reduce_mean(x, axes=(1, 2, 3), keepdims=False), np.float32(0))
    y = ops.add(constant(made), ops.reshape(nothing, shape=(1, 1, 1)))
    return Graph([x], [y], ["output0"], metadata=metadata)


def boxes_in(picture: np.ndarray, **load: object) -> list[tuple[float, ...]]:
    with intaglio.open(intaglio.compile(detector(), **load)) as session:
        return [d.box for d in vision.predict(session, picture).detections]


def test_a_letterbox_is_undone():
    """A 128 x 64 picture lies in 64 x 64 at half the size, 16 pixels from the top."""
    wide = np.zeros((64, 128, 3), np.uint8)
    assert boxes_in(wide, resize="letterbox") == [pytest.approx((48, 24, 80, 40))]
    assert boxes_in(wide, resize="stretch") == [pytest.approx((48, 28, 80, 36))]
    # short side to 73 (64 / 0.875), which is 146 x 73, and then the centre
    middle = np.array([24 + 41, 28 + 4, 40 + 41, 36 + 4])
    scale = 64 / 73
    assert boxes_in(wide, resize="crop") == [pytest.approx(tuple(middle * scale), abs=0.5)]


def test_a_letterbox_inside_of_the_package_is_undone_too():
    wide = np.zeros((64, 128, 3), np.uint8)
    assert boxes_in(wide, letterbox=(64, 128)) == [pytest.approx((48, 24, 80, 40))]
    # the package takes 64 x 128; a picture of twice that size is first resized to it
    assert boxes_in(np.zeros((128, 256, 3), np.uint8), letterbox=(64, 128)) == [
        pytest.approx((96, 48, 160, 80))
    ]


def test_labels_confidence_and_text(tmp_path: Path):
    package = intaglio.compile(detector({"names": "{0: 'cat', 1: 'dog'}"}), resize="letterbox")
    picture = np.zeros((64, 128, 3), np.uint8)
    (tmp_path / "names.txt").write_text("Katze\nHund\n\n")
    with intaglio.open(package) as session:
        found = vision.predict(session, picture)
        assert str(found) == "picture (128x64): 1 object\n  dog              0.90  48,24 to 80,40"
        assert found.to_dict()["detections"] == [
            {"class": 1, "name": "dog", "score": 0.9, "box": [48.0, 24.0, 80.0, 40.0]}
        ]
        low = vision.predict(session, picture, confidence=0.05, labels=tmp_path / "names.txt")
        assert [d.name for d in low.detections] == ["Hund", "Katze"]
        assert str(vision.predict(session, picture, confidence=0.95)).endswith("no objects")
    with pytest.raises(BadFile, match=r"none\.txt: cannot be read"):
        vision.read_labels(tmp_path / "none.txt")


def test_a_wrong_number_of_names_is_said():
    """One name for two classes: a warning, and both classes count."""
    package = intaglio.compile(detector(), resize="letterbox")
    with (
        intaglio.open(package) as session,
        pytest.warns(UserWarning, match="1 names, the model has 2 classes"),
    ):
        found = vision.predict(session, np.zeros((64, 64, 3), np.uint8), labels=["cat"])
    assert [d.name for d in found.detections] == ["class 1"]


def test_drawing_puts_the_box_there(tmp_path: Path):
    with intaglio.open(intaglio.compile(detector(), resize="letterbox")) as session:
        found = vision.predict(session, np.full((640, 1280, 3), 255, np.uint8))
        found.draw(tmp_path / "out.png")
        with pytest.raises(BadInput, match="the ending says the format"):
            found.draw(tmp_path / "out.xyz")
    drawn = np.asarray(Image.open(tmp_path / "out.png"))
    coloured = np.argwhere((drawn != 255).any(-1))
    left, top, right, bottom = found.detections[0].box
    assert coloured[:, 1].min() == pytest.approx(left, abs=2)
    assert coloured[:, 0].max() == pytest.approx(bottom, abs=2)
    assert (drawn[int(top) + 60 : int(bottom) - 8, int(left) + 8 : int(right) - 8] == 255).all()


# ---- classes ----
def test_softmax_is_for_logits_alone():
    assert probabilities(np.array([[0.2, 0.7, 0.1]]))[1] == "probabilities"
    assert probabilities(np.array([[0.9, 0.8, 0.1]]))[1] == "scores"
    scores, kind = probabilities(np.array([[0.0, np.log(3.0), -99]]))
    assert kind == "softmax of logits"
    np.testing.assert_allclose(scores, [0.25, 0.75, 0], atol=1e-6)
    assert probabilities(np.array([[3, 250]], np.uint8))[1] == "integers without a scale"


def test_names_in_metadata():
    assert names_in({"names": "{0: 'a', 2: 'c'}"}) == ["a", "class 1", "c"]
    assert names_in({"names": "['a', 'b']"}) == ["a", "b"]
    for hostile in ("{-5: 'a'}", "{999999999: 'a'}", "__import__('os')", "(" * 5000, "3"):
        assert names_in({"names": hostile}) is None


def test_inputs_that_are_no_pictures():
    x = Value(Type("f32", (1, 40)), "x")
    graph = Graph([x], [ops.add(x, np.float32(1))], ["y"])
    session = intaglio.open(intaglio.compile(graph))
    with pytest.raises(BadInput, match=r"'x' f32\[1x40\]: a picture needs a model with one"):
        vision.predict(session, PIXELS)
    session = intaglio.open(intaglio.compile(adder((2, 3, 16, 24))))
    with pytest.raises(BadInput, match="takes 2 pictures at once"):
        vision.predict(session, PIXELS)
