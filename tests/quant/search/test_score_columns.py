"""Scores are found by their sigmoid or softmax, however the outputs are concatenated."""

import numpy as np
import pytest

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.score_columns import score_columns

RNG = np.random.default_rng(5)
ATTRS = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


def maps(x, *channels):
    weights = [RNG.standard_normal((n, 4, 1, 1)).astype(np.float32) for n in channels]
    return [ops.conv(x, constant(w), **ATTRS) for w in weights]


def image(size=8):
    return Value(Type("f32", (1, 4, size, size)), "x")


def taken(v, axis, first, end):
    spans = [(0, n, 1) for n in v.shape]
    spans[axis] = (first, end, 1)
    start, stop, step = zip(*spans, strict=True)
    return ops.slice_(v, start=start, stop=stop, step=step)


def test_boxes_and_scores_in_one_tensor():
    """YOLOv8: [1, boxes and classes, cells]."""
    x = image()
    boxes, classes = maps(x, 4, 3)
    y = ops.concat(
        ops.reshape(boxes, shape=(1, 4, 64)),
        ops.reshape(ops.sigmoid(classes), shape=(1, 3, 64)),
        axis=1,
    )
    assert score_columns(Graph([x], [y], ["y"])) == {"y": (1, (4, 5, 6))}


def test_levels_of_cells_by_row():
    """YOLOX: maps of three sizes, concatenated and transposed to rows."""
    x = image()
    parts = []
    for end in (8, 4):
        boxes, sure, classes = maps(taken(taken(x, 2, 0, end), 3, 0, end), 4, 1, 2)
        made = ops.concat(boxes, ops.sigmoid(sure), ops.sigmoid(classes), axis=1)
        parts.append(ops.reshape(made, shape=(1, 7, end * end)))
    y = ops.transpose(ops.concat(*parts, axis=2), perm=(0, 2, 1))
    assert score_columns(Graph([x], [y], ["y"])) == {"y": (2, (4, 5, 6))}


def test_scores_on_both_sides_of_the_boxes():
    """FastestDet: objectness, box, classes by softmax. Darknet multiplies the scores."""
    x = image()
    boxes, sure, classes = maps(x, 4, 1, 3)
    y = ops.concat(ops.sigmoid(sure), boxes, ops.softmax(classes, axis=1), axis=1)
    assert score_columns(Graph([x], [y], ["y"])) == {"y": (1, (0, 5, 6, 7))}
    both = ops.mul(ops.sigmoid(classes), ops.sigmoid(sure))
    y = ops.concat(boxes, both, axis=1)
    assert score_columns(Graph([x], [y], ["y"])) == {"y": (1, (4, 5, 6))}


def test_box_offsets_from_a_sigmoid_are_no_scores():
    """Darknet's boxes are the cell plus a sigmoid, which is between 0 and 1 too."""
    x = image()
    place, score = maps(x, 2, 1)
    y = ops.concat(ops.add(ops.sigmoid(place), np.float32(0.0)), ops.sigmoid(score), axis=1)
    assert score_columns(Graph([x], [y], ["y"])) == {"y": (1, (2,))}


def test_whole_outputs():
    x = image()
    boxes, classes = maps(x, 4, 3)
    graph = Graph([x], [boxes, ops.sigmoid(classes)], ["boxes", "scores"])
    assert score_columns(graph) == {"scores": None}


@pytest.mark.parametrize("with_graph", [False, True])
def test_scores_are_judged_if_there_are_other_outputs(with_graph):
    boxes = np.full((1, 4, 2, 2), 50.0, np.float32)
    scores = np.full((1, 3, 2, 2), 0.5, np.float32)
    x = image(2)
    b, c = maps(x, 4, 3)
    graph = Graph([x], [b, ops.sigmoid(c)], ["b", "s"]) if with_graph else None
    made = Reference.by([{}], [{"b": boxes, "s": scores}], graph)
    assert made.names() == ["b", "s"]
    assert list(made.highest) == ["s"]
    assert not Reference.by([{}], [{"s": scores}]).highest  # a classifier's, a map's
    one = Reference.by([{}], [{"y": np.concatenate([boxes, scores], 1)}])  # told by magnitude
    assert one.names() == ["y[:,0-3]", "y[:,4-6]"]
    assert list(one.highest) == ["y[:,4-6]"]


def test_the_background_class_is_a_group_of_its_own():
    """The background score is nearly 1 everywhere and would hide the error of the faces."""
    faces = np.full((1, 50, 1), 0.02, np.float32)
    faces[0, 3] = 0.9
    boxes = np.full((1, 50, 4), 30.0, np.float32)
    made = Reference.by([{}], [{"s": np.concatenate([1 - faces, faces], 2), "b": boxes}])
    assert made.names() == ["s[:,:,0]", "s[:,:,1]", "b"]
    assert list(made.highest) == ["s[:,:,0]", "s[:,:,1]"]
    even = np.full((1, 50, 2), 0.5, np.float32)  # none of two is background
    assert Reference.by([{}], [{"s": even, "b": boxes}]).names() == ["s", "b"]
    alone = np.concatenate([1 - faces, faces / 2], 2)  # does not add up to 1
    assert Reference.by([{}], [{"s": alone, "b": boxes}]).names() == ["s", "b"]
