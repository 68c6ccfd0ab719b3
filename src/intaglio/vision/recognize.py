"""Which decoder fits a model: told by the shapes of its outputs, or named by the user."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intaglio.errors import BadInput, option
from intaglio.ir import Array, Type
from intaglio.vision import decode, raw_heads
from intaglio.vision.boxes import cell_count
from intaglio.vision.decode import STRIDES, Size, are_cells
from intaglio.vision.masks import channels_axis, prototypes

Shape = tuple[int, ...]
ANCHORS = 3  # boxes at every cell of YOLOv3 to v7
SIDES = raw_heads.SIDES * raw_heads.BINS  # channels of distances in YOLOv8 to v12
COCO = 80  # classes, if no names are known
LEAST_CLASSES = 2  # of a classifier
CLASSIFIER = "classifier"


@dataclass(frozen=True)
class Outputs:
    """The facts that tell a decoder: shapes of the outputs, the input's size, known classes."""

    shapes: Sequence[Shape]
    size: Size
    classes: int | None = None  # None: no names are known

    @property
    def first(self) -> Shape:
        return self.shapes[0]


@dataclass(frozen=True)
class Decoder:
    """A way to read the outputs of a detector."""

    name: str
    decode: Callable[..., Array]
    fits: Callable[[Outputs], bool]


def _yolov8(o: Outputs) -> bool:
    if len(o.first) != 3 or o.first[0] != 1 or min(o.first[1:]) < 5:
        return False
    columns, n = sorted(o.first[1:])
    if not are_cells(o.size, n):
        return False
    return o.first[1] == columns or columns - 4 == o.classes


def _yolov5(o: Outputs) -> bool:
    if len(o.first) != 3 or o.first[0] != 1 or o.first[2] < 6:
        return False
    # old exports have the levels behind the result, models of masks their prototypes
    raw = all(len(s) == 5 or channels_axis(s, o.size) is not None for s in o.shapes[1:])
    return raw and are_cells(o.size, o.first[1], ANCHORS)


def _yolox(o: Outputs) -> bool:
    one = len(o.shapes) == 1 and len(o.first) == 3
    return one and o.first[2] >= 6 and are_cells(o.size, o.first[1])


def _darknet(o: Outputs) -> bool:
    levels = len(o.shapes) > 1 and all(len(s) == 3 for s in o.shapes)
    if not levels or len({s[2] for s in o.shapes}) != 1 or o.first[2] < 6:
        return False
    counts = {ANCHORS * cell_count(o.size, (s,)) for s in (8, 16, 32)}
    return all(s[1] in counts for s in o.shapes)


def _fastestdet(o: Outputs) -> bool:
    place = (o.size[0] // 16, o.size[1] // 16)
    return len(o.shapes) == 1 and len(o.first) == 4 and o.first[1] >= 6 and o.first[2:] == place


def _yunet(o: Outputs) -> bool:
    counts = [cell_count(o.size, (s,)) for s in STRIDES]
    wanted = [(1, n, c) for c in (1, 1, 4, 10) for n in counts]
    return list(o.shapes) == wanted


def _ssd(o: Outputs) -> bool:
    if len(o.shapes) != 2 or any(len(s) != 3 for s in o.shapes):
        return False
    (_, n, a), (_, m, b) = o.shapes
    return n == m and 4 in (a, b) and min(a, b) >= 2


def _maps(o: Outputs, count: int) -> list[tuple[int, ...]]:
    """The channels of the maps at each of three strides, if that is what all outputs are."""
    channels: dict[tuple[int, int], list[int]] = {}
    for s in o.shapes:
        if len(s) != 4 or s[0] != 1:
            return []
        channels.setdefault((s[2], s[3]), []).append(s[1])
    wanted = {(o.size[0] // s, o.size[1] // s) for s in STRIDES}
    fits = set(channels) == wanted and all(len(c) == count for c in channels.values())
    return sorted({tuple(c) for c in channels.values()}) if fits else []


def _yolov5_raw(o: Outputs) -> bool:
    found = _maps(o, 1)
    return found == [(ANCHORS * (5 + (o.classes or COCO)),)]


def _yolov8_raw(o: Outputs) -> bool:
    if _maps(o, 1) == [(SIDES + (o.classes or COCO),)]:
        return True
    return any(
        len(found) == 1 and SIDES in found[0] and max(found[0]) > 1
        for found in (_maps(o, 2), _maps(o, 3))
    )


def _ssd_raw(o: Outputs) -> bool:
    if len(o.shapes) != 2 or not all(len(s) in (3, 4) and s[0] == 1 for s in o.shapes):
        return False
    counts = {math.prod(s[:-1]) for s in o.shapes}
    least = min(s[-1] for s in o.shapes)
    return least == 4 and counts == {len(raw_heads.ssd_boxes(o.size))}


def _nms_rows(o: Outputs) -> bool:
    """A list of finished boxes; some exports have more outputs behind it."""
    shape = o.first
    if len(o.shapes) != 1 or any(n != 1 for n in shape[:-2]):
        return False
    return (len(shape) in (2, 3) and shape[-1] in (6, 7)) or (len(shape) == 4 and shape[-1] == 7)


def _nms_outputs(o: Outputs) -> bool:
    if not 3 <= len(o.shapes) <= 4:
        return False
    boxes = [s for s in o.shapes if s[-1:] == (4,) and 2 <= len(s) <= 3]
    if not boxes:
        return False
    n = boxes[0][-2]
    return sum(s in ((n,), (1, n), (1, n, 1), (n, 1)) for s in o.shapes) >= 2


DECODERS = {  # in the order in which they are tried
    d.name: d
    for d in (
        Decoder("yolov8", decode.yolov8, _yolov8),
        Decoder("yolov5", decode.yolov5, _yolov5),
        Decoder("yolox", decode.yolox, _yolox),
        Decoder("darknet", decode.darknet, _darknet),
        Decoder("yunet", decode.yunet, _yunet),
        Decoder("fastestdet", decode.fastestdet, _fastestdet),
        Decoder("yolov5_raw", raw_heads.yolov5_raw, _yolov5_raw),
        Decoder("yolov7_raw", raw_heads.yolov7_raw, lambda o: False),
        Decoder("yolov8_raw", raw_heads.yolov8_raw, _yolov8_raw),
        Decoder("ssd_raw", raw_heads.ssd_raw, _ssd_raw),
        Decoder("ssd", decode.ssd, _ssd),
        Decoder("ultraface_anchors", decode.ultraface_anchors, lambda o: False),
        Decoder("nms", decode.nms_rows, _nms_rows),
        Decoder("ssd_nms", decode.nms_outputs, _nms_outputs),
    )
}
# Other names of the same outputs. YOLOv10 ends without NMS in finished boxes.
ALIASES = {
    **dict.fromkeys(("yolov6", "yolov7"), "yolov5"),
    **dict.fromkeys(("yolov9", "yolov11", "yolo11", "yolov12", "yolo12"), "yolov8"),
    **dict.fromkeys(("yolov3", "yolov4"), "darknet"),
    **dict.fromkeys((f"yolov{n}_raw" for n in (6, 9, 10, 11, 12)), "yolov8_raw"),
    "yolov10": "nms",
    "ultraface": "ssd",
    "top": CLASSIFIER,
}
CHOICES = (*DECODERS, CLASSIFIER)


def is_classifier(shape: Shape) -> bool:
    """Whether an output is one list of scores: all axes but one have extent 1."""
    large = [n for n in shape if n != 1]
    return len(large) == 1 and large[0] >= LEAST_CLASSES and 1 < len(shape) <= 4


def mask_count(decoder: str | None, o: Outputs) -> int:
    """The number of prototype maps of instance masks; 0 without any."""
    found = prototypes(o.shapes, o.size) if decoder in ("yolov8", "yolov5") else None
    columns = min(o.first[1:]) if decoder == "yolov8" else o.first[-1]
    return found[1] if found is not None and found[1] + 5 <= columns else 0


def class_count(decoder: str | None, o: Outputs) -> int | None:
    """The number of classes that the shapes tell; None if they do not."""
    if decoder == CLASSIFIER:
        return max(o.first)
    if decoder == "yolov8":
        return min(o.first[1:]) - 4 - mask_count(decoder, o)
    if decoder == "yolov5":
        return o.first[-1] - 5 - mask_count(decoder, o)
    if decoder in ("yolox", "darknet"):
        return o.first[-1] - 5
    if decoder in ("yolov5_raw", "yolov7_raw"):
        return o.first[1] // ANCHORS - 5
    if decoder == "yolov8_raw":
        channels = [s[1] for s in o.shapes if len(s) == 4 and s[2:] == o.first[2:]]
        box = SIDES if SIDES in channels or max(channels) > SIDES else raw_heads.SIDES
        if len(channels) == 1:
            return channels[0] - box
        channels.remove(box)
        return max(channels)
    if decoder == "ssd_raw":
        return max(s[-1] for s in o.shapes) - 1
    if decoder == "ssd":
        return next((s[-1] for s in o.shapes if s[-1] != 4), 4) - 1
    return None


def named(name: str) -> str:
    """The decoder with this name or alias; BadInput if there is none."""
    word = name.lower()
    found = ALIASES.get(word, word)
    if found in CHOICES:
        return found
    near = difflib.get_close_matches(word, [*CHOICES, *ALIASES], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInput(f"{option('decode', name)}: known are {', '.join(CHOICES)}{hint}")


def recognize(outputs: Outputs) -> str | None:
    """The decoder that the shapes tell; None if none fits."""
    if len(outputs.shapes) == 1 and is_classifier(outputs.first):
        return CLASSIFIER
    return next((d.name for d in DECODERS.values() if d.fits(outputs)), None)


def unknown(types: dict[str, Type]) -> BadInput:
    """The error for outputs that no decoder fits."""
    shown = ", ".join(f"'{n}' {t}" for n, t in types.items())
    return BadInput(
        f"outputs {shown} fit no known detector or classifier; name how to read them with "
        f"{option('decode', ...)}: one of {', '.join(CHOICES)}"
    )
