"""Importers of torchvision operators: nms and roi_align."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.torch.importer import as_dtype, importer, reshaped
from intaglio.ir import Value


@importer("torchvision::nms")
def nms(dets: Value, scores: Value, iou_threshold: float) -> Value:
    """Indices of the kept boxes, by descending score; their number is dynamic."""
    count = dets.shape[0]
    kept = ops.non_max_suppression(
        reshaped(dets, (1, count, 4)),
        reshaped(scores, (1, 1, count)),
        max_output=count,
        iou_threshold=float(iou_threshold),
    )
    result: Value = ops.reshape(ops.part(kept, 2, 3, axis=1), shape=(-1,))
    return result


@importer("torchvision::roi_align")
def roi_align(
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    boxes, batch = ops.part(rois, 1, 5, axis=1), ops.part(rois, 0, 1, axis=1)
    result: Value = ops.roi_align(
        input,
        boxes,
        as_dtype(reshaped(batch, (rois.shape[0],)), "i64"),
        mode="avg",
        output_height=int(pooled_height),
        output_width=int(pooled_width),
        sampling_ratio=max(int(sampling_ratio), 0),
        spatial_scale=float(spatial_scale),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )
    return result
