"""Decoders on outputs that are written by hand, and how shapes tell the decoder."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import BadInput
from intaglio.ir import Type
from intaglio.vision import decode, raw_heads
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


def raw_maps(box, cell, level=1, classes=3, bins=16):
    """Maps of YOLOv8 with one object: its box lies around the middle of a cell of a level."""
    maps = []
    for k, stride in enumerate(decode.STRIDES):
        h, w = SIZE[0] // stride, SIZE[1] // stride
        sides = np.zeros((1, 4 * bins, h, w), np.float32)
        score = np.full((1, classes, h, w), -9.0, np.float32)
        if k == level:
            x, y = ((c + 0.5) * stride for c in cell)
            away = np.array([x - box[0], y - box[1], box[2] - x, box[3] - y]) / stride
            for side, far in enumerate(away):
                low = int(far)
                logits = np.full(bins, -50.0)
                logits[low], logits[low + 1] = np.log([1 - far + low + 1e-9, far - low + 1e-9])
                sides[0, side * bins : (side + 1) * bins, cell[1], cell[0]] = logits
            score[0, 2, cell[1], cell[0]] = 2.0
        maps += [sides, score, score.max(1, keepdims=True)]
    return maps


def test_raw_maps_of_yolov8_and_later():
    box = (10.0, 8.0, 60.0, 44.0)
    maps = raw_maps(box, (2, 1))
    for outputs in (
        maps,
        [m for m in maps if m.shape[1] > 1],
        [np.concatenate(maps[i : i + 2], 1) for i in (0, 3, 6)],
        [1 / (1 + np.exp(-m)) if m.shape[1] < 64 else m for m in maps],  # sigmoid inside
    ):
        (row,) = raw_heads.yolov8_raw(outputs, 0.25, size=SIZE)
        assert row[:2] == pytest.approx([2, 1 / (1 + np.exp(-2.0))])
        assert row[2:] == pytest.approx(box, abs=1e-3)
        facts = Outputs([m.shape for m in outputs], SIZE, classes=3)
        assert (recognize(facts), class_count("yolov8_raw", facts)) == ("yolov8_raw", 3)
    with pytest.raises(BadInput, match="maps of three or more sizes, the outputs have 1"):
        raw_heads.yolov8_raw(maps[:2], 0.25, size=SIZE)
    with pytest.raises(BadInput, match="no map has 64 or 4 channels"):
        raw_heads.yolov8_raw([maps[1], maps[1], maps[4], maps[4]], 0.25, size=SIZE)


def test_raw_maps_of_yolov5_equal_its_last_step():
    rng = np.random.default_rng(0)
    maps, finished = [], []
    for stride, sizes in zip(decode.STRIDES, raw_heads.ANCHORS_V5, strict=True):
        h, w = SIZE[0] // stride, SIZE[1] // stride
        made = rng.standard_normal((1, 3 * 7, h, w)).astype(np.float32) * 3
        maps.append(made)
        for k, (wide, high) in enumerate(sizes):  # as the model's own Detect layer writes it
            s = 1 / (1 + np.exp(-made[0, 7 * k : 7 * k + 7].reshape(7, -1)))
            y, x = np.mgrid[:h, :w].reshape(2, -1)
            s[0], s[1] = (s[0] * 2 - 0.5 + x) * stride, (s[1] * 2 - 0.5 + y) * stride
            s[2], s[3] = (s[2] * 2) ** 2 * wide, (s[3] * 2) ** 2 * high
            finished.append(s.T)
    wanted = decode.yolov5([np.concatenate(finished)[None]], 0.25)
    found = raw_heads.yolov5_raw(maps[::-1], 0.25, size=SIZE)
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    facts = Outputs([m.shape for m in maps], SIZE, classes=2)
    assert (recognize(facts), class_count("yolov5_raw", facts)) == ("yolov5_raw", 2)
    with pytest.raises(BadInput, match="maps of 2 sizes"):
        raw_heads.yolov7_raw(maps[:2], 0.25, size=SIZE)


def test_raw_outputs_of_tensorflows_ssd():
    known = raw_heads.ssd_boxes((300, 300))
    assert len(known) == 1917  # 19x19x3 + (10x10 + 5x5 + 3x3 + 2x2 + 1) x 6
    offsets, logits = np.zeros((1, 1917, 1, 4), np.float32), np.full((1, 1917, 4), -8, np.float32)
    logits[0, -1, 2] = 3  # the largest box, one wider and lower by a tenth of its size
    offsets[0, -1, 0] = 1, 0, 0, 5 * np.log(0.5)
    (row,) = raw_heads.ssd_raw([offsets, logits], 0.5, size=(300, 300))
    high, wide = known[-1, 2:]
    left, right = 0.5 - wide / 4, 0.5 + wide / 4
    top, bottom = 0.5 + high * (0.1 - 0.5), 0.5 + high * (0.1 + 0.5)
    assert row == pytest.approx([1, 1 / (1 + np.exp(-3)), left, top, right, bottom])
    facts = Outputs([offsets.shape, logits.shape], (300, 300))
    assert (recognize(facts), class_count("ssd_raw", facts)) == ("ssd_raw", 3)
    with pytest.raises(BadInput, match="TensorFlow's SSD with six maps has 1917 at 300x300"):
        raw_heads.ssd_raw([offsets[:, :7], logits[:, :7]], 0.5, size=(300, 300))
