"""ONNX NonMaxSuppression, RoiAlign and MaxRoiPool."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.ir import Value
from intaglio.ops.detect import max_roi_pool, non_max_suppression, roi_align


def _number(n: OnnxNode, i: int, default: float) -> float:
    v = n.input(i)
    return default if v is None or v.type.size == 0 else scalar(n.const(i))


@importer("NonMaxSuppression")
def import_non_max_suppression(n: OnnxNode) -> Value:
    count = n.required(1).shape[2]
    return non_max_suppression(
        n.required(0),
        n.required(1),
        max_output=max(min(int(_number(n, 2, 0)), count), 0),
        iou_threshold=_number(n, 3, 0.0),
        score_threshold=_number(n, 4, -np.inf),
        center_point_box=bool(n.attr("center_point_box", 0)),
    )


@importer("RoiAlign")
def import_roi_align(n: OnnxNode) -> Value:
    default = "half_pixel" if n.opset >= 16 else "output_half_pixel"
    return roi_align(
        *n.inputs,
        mode=n.attr("mode", "avg").lower(),
        output_height=n.attr("output_height", 1),
        output_width=n.attr("output_width", 1),
        sampling_ratio=n.attr("sampling_ratio", 0),
        spatial_scale=n.attr("spatial_scale", 1.0),
        coordinate_transformation_mode=n.attr("coordinate_transformation_mode", default),
    )


@importer("MaxRoiPool")
def import_max_roi_pool(n: OnnxNode) -> Value:
    return max_roi_pool(
        n.required(0),
        n.required(1),
        pooled_shape=tuple(n.attr("pooled_shape")),
        spatial_scale=n.attr("spatial_scale", 1.0),
    )
