"""Networks with published speeds, rebuilt as float ONNX models with random weights.

Only shapes matter for speed. They follow the authors' repositories and the exports that the vendors
describe: rknn_model_zoo cuts detectors behind their heads, sophon-demo and nncase decode boxes in
the model. `FAMILY` groups sizes and variants of one architecture, which a fit leaves out together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.npu_zoo import classic, dla, text, ultralytics, yolo
from benchmarks.npu_zoo.net import Net

NETS: dict[str, Callable[..., Net]] = {
    "mobilenet_v2": classic.mobilenet_v2,
    "resnet50": classic.resnet50,
    "resnet50_v2": classic.resnet50_v2,
    "yolov5s_relu": partial(yolo.yolov5, act="relu"),
    "yolov5n": partial(yolo.yolov5, 0.25),
    "yolov5s": yolo.yolov5,
    "yolov5m": partial(yolo.yolov5, 0.75, 0.67),
    "yolov5n_seg": partial(yolo.yolov5, 0.25, masks=True),
    "yolov5s_seg": partial(yolo.yolov5, masks=True),
    "yolov5m_seg": partial(yolo.yolov5, 0.75, 0.67, masks=True),
    "yolov5s_3output": partial(yolo.yolov5, tail="raw"),
    "yolov5s_det": partial(yolo.yolov5, tail="boxes"),
    "yolov6n": yolo.yolov6,
    "yolov6s": partial(yolo.yolov6, 0.5),
    "yolov6m": yolo.yolov6m,
    "yolov7_tiny": yolo.yolov7_tiny,
    "yolov7": yolo.yolov7,
    "yolov7_3output": partial(yolo.yolov7, "raw"),
    "yolov8n": ultralytics.yolov8,
    "yolov8s": partial(ultralytics.yolov8, "s"),
    "yolov8m": partial(ultralytics.yolov8, "m"),
    "yolov8n_obb": partial(ultralytics.yolov8, kind="obb", classes=15),
    "yolov8n_pose": partial(ultralytics.yolov8, kind="pose", classes=1),
    "yolov8n_seg": partial(ultralytics.yolov8, kind="segment"),
    "yolov8s_seg": partial(ultralytics.yolov8, "s", "segment"),
    "yolov8m_seg": partial(ultralytics.yolov8, "m", "segment"),
    "yolov8s_det": partial(ultralytics.yolov8, "s", tail="boxes"),
    "yolov8s_seg_det": partial(ultralytics.yolov8, "s", "segment", "boxes"),
    "yolov8s_pose_det": partial(ultralytics.yolov8, "s", "pose", "boxes", classes=1),
    "yolov8n_pose_320": partial(ultralytics.yolov8, "n", "pose", "boxes", 320, classes=1),
    "yolov8n_pose_640": partial(ultralytics.yolov8, "n", "pose", "boxes", classes=1),
    "yolov8s_cls": partial(ultralytics.yolov8, "s", "classify", size=224),
    "yolov9c_seg": ultralytics.yolov9c,
    "yolov10n": ultralytics.yolov10,
    "yolov10s": partial(ultralytics.yolov10, "s"),
    "yolo11n": ultralytics.yolo11,
    "yolo11s": partial(ultralytics.yolo11, "s"),
    "yolo11m": partial(ultralytics.yolo11, "m"),
    "yolo11s_det": partial(ultralytics.yolo11, "s", "boxes"),
    "yolox_s": yolo.yolox,
    "yolox_m": partial(yolo.yolox, 0.75, 0.67),
    "yolox_s_det": partial(yolo.yolox, tail="boxes"),
    "ppyoloe_s": classic.ppyoloe,
    "ppyoloe_m": partial(classic.ppyoloe, 0.75, 0.67),
    "ppyoloe_s_det": partial(classic.ppyoloe, tail="boxes"),
    "yolov3": partial(classic.yolov3, 608),
    "ppyolov3": partial(classic.yolov3, 608, 85, "leaky"),
    "yolov4": classic.yolov4,
    "retinaface_320": classic.retinaface,
    "retinaface_640": partial(classic.retinaface, size=640),
    "retinaface_resnet50": partial(classic.retinaface, "resnet50"),
    "scrfd": classic.scrfd,
    "lprnet": classic.lprnet,
    "lprnet_2d": partial(classic.lprnet, flat=True),
    "extractor": classic.extractor,
    "centernet": dla.centernet,
    "c3d": classic.c3d,
    "openpose": classic.openpose,
    "p2pnet": classic.p2pnet,
    "superpoint": classic.superpoint,
    "real_esrgan": classic.real_esrgan,
    "hrnet_w32": classic.hrnet,
    "bert": text.bert,
    "clip_text_20": partial(text.clip_text, 20),
    "clip_text_packed": partial(text.clip_text, packed=True),
    "clip_image": text.clip_image,
    "clip_image_packed": partial(text.clip_image, packed=True),
    "wav2vec2": lambda batch=1: text.wav2vec2(),
    "mobilesam_encoder": lambda batch=1: text.tiny_vit(),
    "ppocr_det": text.ppocr_det,
    "ppocr_det_640": partial(text.ppocr_det, 640),
    "ppocr_rec": text.ppocr_rec,
}
ROOTS = (  # of families: the first that the name begins with
    "yolov5", "yolov6", "yolov7", "yolov8", "yolov9", "yolov10", "yolo11", "yolox", "ppyoloe",
    "yolov3", "ppyolov3", "yolov4", "retinaface", "resnet50", "clip", "ppocr", "lprnet",
)  # fmt: skip
MACS = {  # millions of MACs, as published with the architectures
    "mobilenet_v2": 300,
    "resnet50": 4090,
    "yolov5n": 2250,
    "yolov5s": 8250,
    "yolov5m": 24500,
    "yolov6n": 5550,
    "yolov6s": 22100,
    "yolov6m": 41100,
    "yolov7_tiny": 6900,
    "yolov7": 52350,
    "yolov8n": 4350,
    "yolov8s": 14300,
    "yolov8m": 39450,
    "yolov10n": 3350,
    "yolov10s": 10800,
    "yolo11n": 3250,
    "yolo11s": 10750,
    "yolo11m": 34000,
    "yolox_s": 13400,
    "yolox_m": 36900,
    "ppyoloe_s": 8680,
    "ppyoloe_m": 24950,
}


def family(name: str) -> str:
    """The architecture of a network, without its size."""
    return next((r for r in ROOTS if name.startswith(r)), name)


def model(name: str, batch: int = 1) -> object:
    """The network as an ONNX model."""
    n = NETS[name](batch=batch)
    return n.model(*n.ends)


def macs(onnx_model: object) -> int:
    """Products of the convolutions and matrix products, in millions."""
    import numpy as np
    from onnx import shape_inference

    found = shape_inference.infer_shapes(onnx_model).graph  # type: ignore[arg-type]
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*found.value_info, *found.output, *found.input)
    }
    shapes |= {c.name: list(c.dims) for c in found.initializer}
    total = 0
    for node in found.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            weights = shapes[node.input[1]]
            ends = node.output if node.op_type == "Conv" else node.input
            whole = shapes[ends[0]]
            total += int(np.prod([whole[0], *whole[2:]])) * int(np.prod(weights))
        elif node.op_type in ("MatMul", "Gemm"):
            total += int(np.prod(shapes[node.output[0]])) * shapes[node.input[0]][-1]
    return total // 1_000_000
