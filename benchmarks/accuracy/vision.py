"""Classifiers, detectors, faces and super-resolution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import Array, Feeds, Score, Task, data, detect, files
from benchmarks.table import cosine

SURE = 0.3  # a detection that a user would be shown
HAIR = 0.03  # by how much its score may move
FAINT = 0.01  # one that counts for average precision


# ---- classifiers ---------------------------------------------------------------------------------
def top1(
    labels: Sequence[int] | Callable[[int], Sequence[int]], views: int = 1
) -> Callable[..., Score]:
    """Percent of answers whose largest number stands at the label; a sample may have some views,
    one after the other, and its score is their mean."""

    def score(answers: list[list[Array]], right: list[list[Array]]) -> Score:
        count = len(answers) // views
        wanted = labels(count) if callable(labels) else labels[:count]
        pairs = zip(answers, np.repeat(wanted, views), strict=True)
        hits = np.array([100.0 * (int(a[0].argmax()) == label) for a, label in pairs])
        parts = hits.reshape(count, views).mean(1).tolist()
        return Score(float(np.mean(parts)), parts)

    return score


def mirrored(image: Array) -> Array:
    """Left and right of height x width x channels exchanged."""
    return image[:, ::-1]


def imagenet(
    file: Callable[[], Path],
    name: str,
    normal: Callable[[Array], Array],
    nhwc: bool = False,
    first: int = 0,
) -> Task:
    """A classifier of 224 x 224 pictures, which are evaluated as they are and mirrored; `first` is
    the place of class 0 in its output."""

    def views(pair: tuple[Path, int]) -> Iterator[Feeds]:
        image = data.crop(pair[0], 224)
        for view in (image, mirrored(image)):
            made = normal(view).astype(np.float32)
            yield {name: made[None] if nhwc else data.nchw(made)}

    return Task(
        "top-1 %",
        file,
        lambda n: [next(views(pair)) for pair in data.imagenet_split(True, n)],
        lambda n: chain.from_iterable(map(views, data.imagenet_split(False, n))),
        top1(lambda n: [label + first for _, label in data.imagenet_split(False, n)], views=2),
        samples=1_000_000,
        quick=100,
        calibrate=100,
    )


# ---- detectors -----------------------------------------------------------------------------------
def _small(pair: tuple[Path, Array], width: int, height: int) -> Array:
    return data.picture(pair[0], (width, height))


def detector(
    file: Callable[[], Path],
    feed: Callable[[tuple[Path, Array]], Feeds],
    decode: Callable[..., Array],
    to_pixels: Callable[[Path], Array],
) -> Task:
    """Average precision on COCO; `to_pixels` gives the factors of x and y for one picture."""

    def score(answers: list[list[Array]], right: list[list[Array]]) -> Score:
        pictures = data.coco_split(False, len(answers))
        found = [decode(a, FAINT) for a in answers]
        for f, (path, _) in zip(found, pictures, strict=True):
            f[:, 2:] *= np.tile(to_pixels(path), 2)
        truth = [boxes for _, boxes in pictures]
        ap, ap50 = detect.average_precision(found, truth)
        same, count = _same(answers, right, decode, SURE)
        return Score(
            ap,
            detect.by_picture(found, truth),
            more={"AP50": ap50, "same detections %": same, "detections": count},
        )

    return Task(
        "AP %",
        file,
        lambda n: list(map(feed, data.coco_split(True, n))),
        lambda n: map(feed, data.coco_split(False, n)),
        score,
        samples=48,
        quick=16,
        calibrate=16,
        agreement=True,
        feed=feed,
    )


def _same(
    answers: list[list[Array]], right: list[list[Array]], decode: Callable[..., Array], least: float
) -> tuple[float, int]:
    """Percent of the detections that float and the engine have in common, and how many it has."""

    def both(outputs: list[Array]) -> tuple[Array, Array]:
        return decode(outputs, least), decode(outputs, least - HAIR, most=detect.EVERY)

    pairs = [(both(a), both(b)) for a, b in zip(answers, right, strict=True)]
    same, total = detect.agreement(pairs, least, apart=HAIR)
    count = sum(len(a) for (a, _), _ in pairs)
    return (100 * same / total if total else 100.0), count


def alike(
    file: Callable[[], Path],
    feed: Callable[[tuple[Path, Array]], Feeds],
    decode: Callable[..., Array],
    columns: Callable[[list[Array]], dict[str, Array]],
    least: float,
    more_pictures: bool = False,
) -> Task:
    """Where there are no labels: average precision with the float model's detections as truth;
    with `more_pictures` ImageNet's are evaluated too."""

    def pictures(count: int) -> list[Any]:
        return data.coco_split(False, count) + (
            data.imagenet_split(False, count) if more_pictures else []
        )

    def score(answers: list[list[Array]], right: list[list[Array]]) -> Score:
        more: dict[str, list[float]] = {}
        for a, b in zip(answers, right, strict=True):
            wanted = columns(b)
            for group, array in columns(a).items():
                more.setdefault(f"cosine of {group}", []).append(cosine(array, wanted[group]))
        means = {k: float(np.mean(v)) for k, v in more.items()}
        same, count = _same(answers, right, decode, least)
        sure = [d[d[:, 1] >= least] for d in (decode(b, least) for b in right)]
        truth = [np.delete(d, 1, axis=1) for d in sure]
        found = [decode(a, FAINT) for a in answers]
        parts = detect.by_picture(found, truth, only50=True)
        _, ap50 = detect.average_precision(found, truth)
        return Score(ap50, parts, more={"same detections %": same, "detections": count, **means})

    return Task(
        "AP50 by float %",
        file,
        lambda n: list(map(feed, data.coco_split(True, n))),
        lambda n: map(feed, pictures(n)),
        score,
        samples=450,
        quick=16,
        calibrate=16,
        agreement=True,
        feed=feed,
    )


def _yolox_feed(pair: tuple[Path, Array]) -> Feeds:
    square, _ = data.letterbox(data.picture(pair[0]), 416)
    return {"images": data.nchw(square[:, :, ::-1])}


def _yolox_pixels(file: Path) -> Array:
    return np.full(2, max(data.picture(file).shape[:2]) / 416)


def _picture_size(file: Path) -> Array:
    height, width, _ = data.picture(file).shape
    return np.array([width, height])


def _nudenet_file() -> Path:
    source = files.pypi("nudenet==3.4.2", "nudenet/320n.onnx")
    return files.with_shapes(source, {"images": (1, 3, 320, 320)})


def _nudenet_feed(pair: tuple[Path, Array]) -> Feeds:
    square, _ = data.letterbox(data.picture(pair[0]), 320, fill=0)
    return {"images": data.nchw(square / 255)}


def _boxes_and_scores(outputs: list[Array]) -> dict[str, Array]:
    return {"boxes": outputs[0][0, :4], "scores": outputs[0][0, 4:]}


def _yunet_columns(outputs: list[Array]) -> dict[str, Array]:
    groups = {"classes": 0, "objects": 3, "boxes": 6, "landmarks": 9}
    return {k: np.concatenate([a.ravel() for a in outputs[i : i + 3]]) for k, i in groups.items()}


# ---- super-resolution ----------------------------------------------------------------------------
def _mosaic(index: int, calibration: bool) -> Array:
    """Nine pictures side by side, 672 x 672, as brightness 0..1."""
    pictures = data.imagenet_split(calibration, 1000)[9 * index : 9 * index + 9]
    parts = [data.crop(p, 224) @ np.array([0.299, 0.587, 0.114]) / 255 for p, _ in pictures]
    return np.block([parts[i : i + 3] for i in (0, 3, 6)]).astype(np.float32)


def _third(image: Array) -> Feeds:
    from PIL import Image

    small = Image.fromarray(image).resize((224, 224), Image.Resampling.BICUBIC)
    return {"input": np.asarray(small, np.float32)[None, None]}


def _psnr(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    parts = []
    for i, a in enumerate(answers):
        error = np.mean((np.clip(a[0][0, 0], 0, 1) - _mosaic(i, False)) ** 2)
        parts.append(float(-10 * np.log10(error)))
    return Score(float(np.mean(parts)), parts)


def _mosaics(calibration: bool, count: int) -> Iterable[Feeds]:
    return (_third(_mosaic(i, calibration)) for i in range(count))


def _torch(image: Array) -> Array:
    return (image / 255 - data.MEAN) / data.STD


def _lite(image: Array) -> Array:
    return (image - 127) / 128


TASKS = {
    "mobilenet_v2": imagenet(partial(files.onnx_model, "mobilenet_v2_fp32"), "input", _torch),
    "efficientnet_lite0": imagenet(files.efficientnet_lite0, "input", _lite),
    "mobilenet_v1_0.25": imagenet(
        partial(files.tflite, "mobilenet_v1_0.25_224_float"),
        "input",
        lambda image: image / 127.5 - 1,
        nhwc=True,
        first=1,
    ),
    "yolox_nano": detector(
        partial(files.onnx_model, "yolox_nano_416"), _yolox_feed, detect.yolox, _yolox_pixels
    ),
    "fastestdet": detector(
        partial(files.onnx_model, "FastestDet"),
        lambda p: {"input.1": data.nchw(_small(p, 352, 352)[:, :, ::-1] / 255)},
        detect.fastestdet,
        _picture_size,
    ),
    "nudenet": alike(_nudenet_file, _nudenet_feed, detect.yolov8, _boxes_and_scores, 0.25),
    "ultraface": alike(
        partial(files.onnx_model, "ultraface_RFB-320"),
        lambda p: {"input": data.nchw(_lite(_small(p, 320, 240)))},
        detect.ultraface,
        lambda a: {"scores": a[0][..., 1], "boxes": a[1]},
        0.6,
        more_pictures=True,
    ),
    "yunet": alike(
        partial(files.onnx_model, "yunet_n_320_320"),
        lambda p: {"input": data.nchw(_small(p, 320, 320)[:, :, ::-1])},
        detect.yunet,
        _yunet_columns,
        0.6,
        more_pictures=True,
    ),
    "ultraface_slim": alike(
        partial(files.imported, "caffe/ultraface/slim-320.prototxt"),
        lambda p: {"input": data.nchw(_lite(_small(p, 320, 240)))},
        detect.ultraface_anchors,
        lambda a: {"scores": a[1][..., 1], "boxes": a[0]},
        0.6,
        more_pictures=True,
    ),
    "yolo_fastest": detector(
        partial(files.imported, "darknet/yolo-fastest-1.1.cfg"),
        lambda p: {"data": data.nchw(_small(p, 320, 320) / 255)},
        detect.darknet,
        _picture_size,
    ),
    "yolo_fastest_xl": detector(
        partial(files.imported, "darknet/yolo-fastest-1.1-xl.cfg"),
        lambda p: {"data": data.nchw(_small(p, 320, 320) / 255)},
        detect.darknet,
        _picture_size,
    ),
    "super_resolution": Task(
        "PSNR dB",
        partial(files.onnx_model, "super_resolution", {"input": (1, 1, 224, 224)}),
        lambda n: list(_mosaics(True, n)),
        lambda n: _mosaics(False, n),
        _psnr,
        samples=20,
        quick=5,
        calibrate=8,
    ),
}
