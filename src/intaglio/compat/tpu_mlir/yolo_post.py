"""--add_postprocess: heads of a detector become one output of boxes, yolo_post.

Its rows are [image, class, score, x, y, width, height], with the centre of a box in pixels of the
input, by descending score. There are as many as boxes were found, at most 200 for each image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Value, constant, detach

NAME = "yolo_post"
MOST = 200  # boxes of an image
SCORE, OVERLAP = 0.5, 0.5  # least score, and overlap above which the lower one is dropped
ANCHORS = (  # width and height in pixels, of the heads with strides 8, 16 and 32
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
BY_GRID = ("yolov3", "yolov5")  # kinds whose heads are grids of anchors
BY_BOX = ("yolov8", "yolov11")  # whose only output has a column for each box: sides and classes
KINDS = (*BY_GRID, *BY_BOX)


def with_boxes(graph: Graph, kind: str) -> Graph:
    """The network with one output of boxes; BadInput if its own are no heads of this kind."""
    if kind not in KINDS:
        raise BadInput(
            f"--add_postprocess {kind} is not supported; it is one of {', '.join(KINDS)}; decode "
            "the outputs outside of the file"
        )
    heads = list(graph.outputs)
    size = graph.inputs[0].shape[2:]
    before = set(graph.nodes())
    if len(heads) == 1 and heads[0].type.rank == 3:
        boxes, scores = _decoded(heads[0], kind)
    elif kind in BY_GRID and all(_is_grid(v, size) for v in heads) and len(heads) == 3:
        parts = [
            _grid(v, kind, size, anchors)
            for v, anchors in zip(_by_size(heads), ANCHORS, strict=True)
        ]
        boxes, scores = (_joined([p[k] for p in parts], axis) for k, axis in ((0, 1), (1, 2)))
    else:
        shapes = ", ".join(str(v.type) for v in heads)
        form = "N x 3(5+classes) x H x W of three grids" if kind in BY_GRID else "N x 4+classes x M"
        raise BadInput(
            f"--add_postprocess {kind} needs {form}; the outputs are {shapes}; name them by "
            "--output_names"
        )
    made = _rows(boxes, scores)
    made.name = NAME
    detach(graph.result)
    result = Graph(graph.inputs, [made], [NAME], graph.name, graph.metadata, graph.state)
    for node in set(result.nodes()) - before:
        node.origin = NAME
    return result


def _is_grid(v: Value, size: Sequence[int]) -> bool:
    return v.type.rank == 4 and v.shape[1] % 3 == 0 and size[1] % v.shape[3] == 0


def _by_size(heads: Sequence[Value]) -> list[Value]:
    """The finest grid first."""
    return sorted(heads, key=lambda v: -v.shape[3])


def _joined(parts: Sequence[Value], axis: int) -> Value:
    return ops.concat(*parts, axis=axis)  # type: ignore[no-any-return]


def _slice(x: Value, axis: int, start: int, stop: int) -> Value:
    rank = x.type.rank
    ends = [(0, n) if k != axis else (start, stop) for k, n in enumerate(x.shape)]
    return ops.slice_(  # type: ignore[no-any-return]
        x, start=tuple(a for a, _ in ends), stop=tuple(b for _, b in ends), step=(1,) * rank
    )


def _number(x: float) -> Value:
    return constant(np.float32(x))


def _grid(
    head: Value, kind: str, size: Sequence[int], anchors: Sequence[Sequence[int]]
) -> tuple[Value, Value]:
    """Boxes N x M x 4 and scores N x classes x M of a grid with three anchors."""
    n, channels, h, w = head.shape
    each = channels // 3
    x = ops.reshape(head, shape=(n, 3, each, h * w))
    x = ops.reshape(ops.transpose(x, perm=(0, 1, 3, 2)), shape=(n, 3 * h * w, each))
    stride = np.array([size[1] / w, size[0] / h], np.float32)
    ys, xs = np.mgrid[0:h, 0:w]
    cells = np.tile(np.stack([xs, ys], -1).reshape(-1, 2), (3, 1)).astype(np.float32)[None]
    sides = np.repeat(np.array(anchors, np.float32), h * w, 0)[None]
    part = ops.sigmoid(x)
    centre, extent = _slice(part, 2, 0, 2), _slice(part, 2, 2, 4)
    if kind == "yolov3":
        centre = ops.add(centre, constant(cells))
        extent = ops.mul(ops.exp(_slice(x, 2, 2, 4)), constant(sides))
    else:
        centre = ops.add(ops.mul(centre, _number(2)), constant(cells - np.float32(0.5)))
        twice = ops.mul(extent, _number(2))
        extent = ops.mul(ops.mul(twice, twice), constant(sides))
    boxes = ops.concat(ops.mul(centre, constant(stride)), extent, axis=2)
    scores = ops.mul(_slice(part, 2, 5, each), _slice(part, 2, 4, 5))
    return boxes, ops.transpose(scores, perm=(0, 2, 1))


def _decoded(y: Value, kind: str) -> tuple[Value, Value]:
    """Boxes and scores of an output that holds boxes in pixels already."""
    if kind in BY_BOX:
        boxes = ops.transpose(_slice(y, 1, 0, 4), perm=(0, 2, 1))
        return boxes, _slice(y, 1, 4, y.shape[1])
    scores = ops.mul(_slice(y, 2, 5, y.shape[2]), _slice(y, 2, 4, 5))
    return _slice(y, 2, 0, 4), ops.transpose(scores, perm=(0, 2, 1))


def _rows(boxes: Value, scores: Value) -> Value:
    """The best boxes after non-maximum suppression, as 1 x 1 x rows x 7."""
    rows = boxes.shape[0] * MOST
    kept = ops.non_max_suppression(
        boxes,
        scores,
        max_output=min(MOST, boxes.shape[1]),
        iou_threshold=OVERLAP,
        score_threshold=SCORE,
        center_point_box=True,
    )
    image, label, place = (
        ops.gather(kept, constant(np.array([k], np.int64)), axis=1) for k in range(3)
    )
    score = ops.gather_nd(ops.reshape(scores, shape=(*scores.shape, 1)), kept)
    box = ops.gather_nd(boxes, ops.concat(image, place, axis=1))
    numbers = [ops.cast(v, dtype="f32") for v in (image, label)]
    table = ops.concat(*numbers, score, box, axis=1)
    # as many rows as there may be, those without a box last, which are then left out
    table = ops.concat(table, constant(np.zeros((rows, 7), np.float32)), axis=0)
    _, best = ops.topk(ops.gather(table, constant(np.array([2], np.int64)), axis=1), k=rows, axis=0)
    table = ops.gather(table, ops.reshape(best, shape=(rows,)), axis=0)
    column = ops.reshape(
        ops.gather(table, constant(np.array([2], np.int64)), axis=1), shape=(rows,)
    )
    filled = ops.greater(column, _number(0))
    table = ops.reshape(table, shape=(1, 1, rows, 7))
    return ops.compress(table, filled, axis=2)  # type: ignore[no-any-return]
