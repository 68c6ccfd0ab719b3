from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import close, run

from intaglio.errors import BadInput, RunError
from intaglio.ir import Type, Value
from intaglio.ops.registry import REGISTRY

BOXES = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 7, 7], [2, 2, 0, 0]]], np.float32)


def test_non_max_suppression() -> None:
    scores = np.array([[[0.5, 0.9, 0.3, 0.9], [0.1, 0.1, 0.1, 0.1]]], np.float32)
    how = {"max_output": 4, "iou_threshold": 0.5, "score_threshold": 0.2}
    # box 3 is box 0 with its corners swapped: of boxes 1 and 3 the first wins
    assert run("non_max_suppression", BOXES, scores, **how).tolist() == [[0, 0, 1], [0, 0, 2]]
    loose = run("non_max_suppression", BOXES, scores, max_output=3, iou_threshold=1.0)
    assert loose.tolist() == [[0, 0, 1], [0, 0, 3], [0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 1, 2]]
    assert run("non_max_suppression", BOXES, scores, max_output=0).shape == (0, 3)
    node = REGISTRY["non_max_suppression"].node(
        Value(Type("f32", (1, 50, 4))), Value(Type("f32", (1, 3, 50))), max_output=7
    )
    assert str(node.outputs[0].type) == "i64[<=21x3]"


def test_centres() -> None:
    centres = np.array([[[1, 1, 2, 2], [1, 0.95, 2, 1.9]]], np.float32)
    scores = np.array([[[0.9, 0.8]]], np.float32)
    how = {"max_output": 2, "iou_threshold": 0.5, "center_point_box": True}
    assert run("non_max_suppression", centres, scores, **how).tolist() == [[0, 0, 0]]


def test_roi_align_of_a_ramp_is_the_ramp() -> None:
    """Bilinear samples of x + 10 y are exact, so each bin is the value at its centre."""
    y, x = np.mgrid[:8, :8].astype(np.float32)
    image = (x + 10 * y)[None, None]
    rois = np.array([[1, 2, 5, 6]], np.float32)
    size = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    got = run("roi_align", image, rois, np.array([0]), **size)
    close(got[0, 0], [[1.5 + 25, 3.5 + 25], [1.5 + 45, 3.5 + 45]], 1e-5)
    old = run(
        "roi_align",
        image,
        rois,
        np.array([0]),
        **size,
        coordinate_transformation_mode="output_half_pixel",
    )
    close(old, got + 5.5, 1e-5)
    with pytest.raises(RunError, match="batch index 1 is outside"):
        run("roi_align", image, rois, np.array([1]), **size)


def test_max_roi_pool() -> None:
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 3, 3], [0, 9, 9, 9, 9]], np.float32)
    got = run("max_roi_pool", image, rois, pooled_shape=(2, 2))
    assert got[:, 0].tolist() == [[[5, 7], [13, 15]], [[0, 0], [0, 0]]]  # empty bins are 0
    with pytest.raises(BadInput, match="regions × 5"):
        run("max_roi_pool", image, rois[:, 1:], pooled_shape=(2, 2))
