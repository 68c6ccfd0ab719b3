"""Decoders on outputs that are written by hand, and how shapes tell the decoder."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import BadInput
from intaglio.ir import Type
from intaglio.vision import decode
from intaglio.vision.boxes import cell_count
from intaglio.vision.recognize import CHOICES, Outputs, class_count, named, recognize, unknown

SIZE = (64, 96)  # height, width: 12 x 8, 6 x 4 and 3 x 2 cells
CELLS = 96 + 24 + 6
BOX, CORNERS = (40, 20, 16, 8), [32, 16, 48, 24]  # centred, and the same by its corners


def cells_of(columns: int, n: int = CELLS) -> np.ndarray:
    return np.zeros((1, n, columns), np.float32)


def test_cells_are_counted():
    assert cell_count(SIZE, decode.STRIDES) == CELLS


def test_yolov8():
    """Of overlapping boxes of a class the best stays; columns behind the classes are ignored."""
    made = cells_of(7)
    made[0, 3], made[0, 4] = (*BOX, 0.1, 0.8, 0), (*BOX, 0, 0.6, 99)
    for out in (made.transpose(0, 2, 1), made):
        (row,) = decode.yolov8([out], 0.25, size=SIZE, classes=2)
        np.testing.assert_allclose(row, [1, 0.8, *CORNERS], rtol=1e-6)


def test_yolov5_multiplies_by_objectness():
    made = cells_of(7, 3 * CELLS)
    made[0, 9], made[0, 80] = (*BOX, 0.5, 0, 0.8), (*BOX, 0.2, 0.9, 0)
    (row,) = decode.yolov5([made], 0.25)
    np.testing.assert_allclose(row, [1, 0.4, *CORNERS], rtol=1e-6)


def test_yolox_adds_the_grid_unless_the_export_did():
    made = cells_of(6)
    cell = 96 + 6 * 1 + 2  # of stride 16: column 2, row 1
    made[0, cell] = (0.5, 0.25, np.log(1), np.log(0.5), 0.9, 1)
    (row,) = decode.yolox([made], 0.25, size=SIZE)
    np.testing.assert_allclose(row, [0, 0.9, *CORNERS], rtol=1e-6)
    finished = cells_of(6)
    finished[0, :, :4], finished[0, cell] = (90, 60, 8, 8), (*BOX, 0.9, 1)
    (row,) = decode.yolox([finished], 0.25, size=SIZE)
    np.testing.assert_allclose(row, [0, 0.9, *CORNERS], rtol=1e-6)


def test_rows_after_nms():
    rows = {
        (1, 2, 6): (*CORNERS, 0.7, 3),
        (2, 7): (0, *CORNERS, 3, 0.7),
        (1, 1, 2, 7): (0, 3, 0.7, *CORNERS),
    }
    for shape, row in rows.items():
        made = np.zeros(shape, np.float32)
        made.reshape(2, -1)[1] = row
        np.testing.assert_allclose(decode.nms_rows([made], 0.25), [[3, 0.7, *CORNERS]], rtol=1e-6)


def test_ssd_after_nms():
    """TensorFlow's boxes begin with the top, and only the first `count` are valid."""
    boxes = np.zeros((1, 4, 4), np.float32)
    boxes[0, :2] = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.6, 0.6]]
    labels, scores = (np.array([n], np.float32) for n in ([0, 0, 0, 0], [0.9, 0.5, 0.8, 0.7]))
    want = [[0, 0.9, 0.2, 0.1, 0.4, 0.3], [0, 0.5, 0.5, 0.5, 0.6, 0.6]]
    for lists in ([labels, scores], [scores, labels]):
        got = decode.nms_outputs([boxes, *lists, np.array([2], np.float32)], 0.25)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    whole = decode.nms_outputs([boxes[0], labels[0].astype(np.int64), scores[0]], 0.6)
    np.testing.assert_allclose(whole[0], [0, 0.9, 0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    assert len(whole) == 3


def test_ssd_before_nms():
    boxes, scores = np.zeros((1, 9, 4), np.float32), np.zeros((1, 9, 3), np.float32)
    boxes[0, :, 2:] = 0.01
    boxes[0, 4], scores[0, 4] = (0.1, 0.2, 0.3, 0.4), (0.1, 0.1, 0.8)  # the first is background
    for outputs in ([boxes, scores], [scores, boxes]):
        (row,) = decode.ssd(outputs, 0.25)
        np.testing.assert_allclose(row, [1, 0.8, 0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    offsets = np.random.default_rng(0).normal(0, 1, (1, 9, 4)).astype(np.float32)
    with pytest.raises(BadInput, match="offsets from anchors"):
        decode.ssd([offsets, scores], 0.25)


TOLD = {
    "yolov8": [[(1, 9, CELLS)]],
    "yolov5": [[(1, 3 * CELLS, 85)], [(1, 3 * CELLS, 85), (1, 3, 8, 12, 85), (1, 3, 4, 6, 85)]],
    "yolox": [[(1, CELLS, 85)]],
    "darknet": [[(1, 3 * 24, 85), (1, 3 * 6, 85)]],
    "yunet": [[(1, n, c) for c in (1, 1, 4, 10) for n in (96, 24, 6)]],
    "fastestdet": [[(1, 85, 4, 6)]],
    "ssd": [[(1, 300, 21), (1, 300, 4)], [(1, 300, 4), (1, 300, 2)]],
    "nms": [[(1, 300, 6)], [(100, 7)], [(1, 1, 100, 7)]],
    "ssd_nms": [[(1, 10, 4), (1, 10), (1, 10), (1,)], [(50, 4), (50,), (50,)]],
    "classifier": [[(1, 1000)], [(1, 1000, 1, 1)], [(1, 1, 1, 1001)]],
    None: [[(1, 21, 64, 96)], [(1, 16, 33)], [(1, 10), (1, 10)], [(8, 1000)], [(1, 1)]],
}


@pytest.mark.parametrize("name", TOLD)
def test_shapes_tell_the_decoder(name: str | None):
    for shapes in TOLD[name]:
        assert recognize(Outputs(shapes, SIZE)) == name, shapes


def test_shapes_tell_the_number_of_classes():
    """Behind the scores of a segmentation model are as many columns as it has prototypes."""
    segments = Outputs([(1, 4 + 80 + 32, CELLS), (1, 32, 16, 24)], SIZE)
    assert (recognize(segments), class_count("yolov8", segments)) == ("yolov8", 80)
    assert class_count("yolox", Outputs([(1, CELLS, 85)], SIZE)) == 80
    assert class_count("ssd", Outputs([(1, 300, 4), (1, 300, 21)], SIZE)) == 20
    assert class_count("nms", Outputs([(1, 300, 6)], SIZE)) is None


def test_labels_tell_the_decoder_where_shapes_do_not():
    assert recognize(Outputs([(1, CELLS, 84)], SIZE, classes=80)) == "yolov8"
    assert recognize(Outputs([(1, CELLS, 85)], SIZE, classes=80)) == "yolox"


def test_names_of_decoders():
    assert [named(n) for n in ("YOLOv9", "yolo11", "yolov7", "yolov10", "ultraface")] == [
        "yolov8", "yolov8", "yolov5", "nms", "ssd"
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r'decode="yolo8": known are .*; did you mean yolov8\?'):
        named("yolo8")
    words = str(unknown({"mask": Type("f32", (1, 21, 64, 96))}))
    assert "'mask' f32[1x21x64x96]" in words
    assert all(name in words for name in CHOICES)
