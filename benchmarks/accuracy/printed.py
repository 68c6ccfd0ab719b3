"""Printed words: reading them, finding them on a page, and telling which are upside down (PP-OCR).

Words of one third of the sentences are for calibration, those of the others are evaluated. Every
line is printed anew: other words, ink, paper, size, slant, blur and noise.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import Array, Feeds, Score, Task, data, detect, files
from benchmarks.accuracy.vision import top1

OCR = "rapidocr-onnxruntime==1.4.4"
LETTERS = 15  # of a printed line, at most
MARGIN = 2  # pixels around the print of a line that is cut out to be read
PAGE, WIDE, HIGH = 480, 280, 40  # pixels of a page, and of a line on it
PLACES = ((40, 20), (190, 80), (340, 140))  # top and left of the lines of a page
INK, SURE, UNCLIP = 0.3, 0.6, 1.5  # of PP-OCR's recipe: print, a box of it, how far it grows
SMALLEST = 3  # pixels of a box's shorter side
HIT = 0.5  # overlap of a box that found its line


# ---- printing ------------------------------------------------------------------------------------
@functools.cache
def words(calibration: bool) -> list[str]:
    """All words of the sentences to calibrate with, or of the others, as they come."""
    kept = [text for i, (text, _) in enumerate(data.tokens()) if (i % 3 == 0) == calibration]
    return " ".join(kept).split()


def line(calibration: bool, seed: int) -> str:
    """Some of the words, now and then one in capitals or a number."""
    rng, known, made = np.random.default_rng([seed, calibration, 1]), words(calibration), ""
    while True:
        word = known[rng.integers(len(known))]
        kind = rng.random()
        if kind < 0.15:
            word = word.upper()
        elif kind < 0.3:
            word = f"{rng.integers(1, 1000)}.{rng.integers(100):02}"
        if made and len(made) + 1 + len(word) > LETTERS:
            return made
        made = f"{made} {word}".strip()


def drawn(text: str, width: int, height: int, seed: int) -> tuple[Array, Array]:
    """The text on paper, neither of them even, and its box: left, top, right, bottom."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    rng = np.random.default_rng([seed, width, 2])
    paper, ink = rng.integers(120, 256, 3), rng.integers(0, 110, 3)
    if rng.random() < 0.25:
        paper, ink = ink, paper
    largest = next(
        s for s in range(height * 3 // 4, 6, -1) if _width(text, s) < width - 8 or s == 7
    )
    size = max(round(largest * rng.uniform(0.7, 1)), 7)
    font = ImageFont.load_default(size)
    left = rng.uniform(4, max(width - 4 - _width(text, size), 4.1))
    at = (left, (height - 1.2 * size) / 2)
    mask = Image.new("L", (width, height))
    ImageDraw.Draw(mask).text(at, text, 255, font)
    mask = mask.rotate(rng.uniform(-1, 1), Image.Resampling.BILINEAR)
    box = mask.getbbox() or (0, 0, width, height)
    mask = mask.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2)))
    share = np.asarray(mask, np.float32)[..., None] / 255
    noisy = paper + (ink - paper) * share + rng.normal(0, rng.uniform(2, 20), (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.float32), np.array(box, float)


@functools.cache
def _width(text: str, size: int) -> float:
    from PIL import ImageFont

    return float(ImageFont.load_default(size).getlength(text))


def _x(image: Array) -> Feeds:
    return {"x": data.nchw(image / 127.5 - 1)}


def _ocr(name: str, *shape: int) -> Path:
    source = files.pypi(OCR, f"rapidocr_onnxruntime/models/{name}.onnx")
    return files.with_shapes(source, {"x": (1, 3, *shape)})


# ---- reading -------------------------------------------------------------------------------------
def _read() -> Path:
    return _ocr("ch_PP-OCRv4_rec_infer", 48, 320)


def cut(text: str, width: int, height: int, seed: int) -> Array:
    """A printed line as PP-OCR takes it: cut out closely, as high as the strip, behind it grey."""
    from PIL import Image

    image, box = drawn(text, width, height, seed)
    left, top, right, bottom = (box + np.array([-MARGIN, -MARGIN, MARGIN, MARGIN])).astype(int)
    near = Image.fromarray(image.astype(np.uint8)[max(top, 0) : bottom, max(left, 0) : right])
    wide = min(round(near.width * height / near.height), width)
    strip = np.full((height, width, 3), 127.5, np.float32)
    strip[:, :wide] = np.asarray(near.resize((wide, height), Image.Resampling.BILINEAR))
    return strip


def _strip(calibration: bool, i: int) -> Feeds:
    return _x(cut(line(calibration, i), 320, 48, i))


@functools.cache
def _alphabet() -> list[str]:
    import onnx

    listed = {p.key: p.value for p in onnx.load(_read()).metadata_props}["character"]
    return ["", *listed.splitlines(), " "]  # the first one means: no letter


def letters(best: Array, alphabet: Sequence[str]) -> str:
    """What a row of best guesses spells, without spaces at its ends."""
    new = np.concatenate([[True], best[1:] != best[:-1]])
    return "".join(alphabet[i] for i in best[new]).strip()


def _letters(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    parts, whole = [], []
    for i, a in enumerate(answers):
        text, read = line(False, i), letters(a[0], _alphabet())
        parts.append(100 * max(0.0, 1 - edits(read, text) / len(text)))
        whole.append(100.0 * (read == text))
    return Score(float(np.mean(parts)), parts, {"lines without an error %": float(np.mean(whole))})


def edits(a: str, b: str) -> int:
    """Letters to change, add or leave out to get from one to the other."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        now = [i]
        for j, y in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (x != y)))
        before = now
    return before[-1]


# ---- which are upside down -----------------------------------------------------------------------
def _turned(calibration: bool, i: int) -> Feeds:
    image = cut(line(calibration, i), 192, 48, i)
    return _x(image[::-1, ::-1] if _upside_down(i) else image)


def _upside_down(i: int) -> bool:
    return bool(i % 2)


# ---- finding -------------------------------------------------------------------------------------
def page(calibration: bool, i: int) -> tuple[Array, Array]:
    """A photograph with a few printed lines on it, and their boxes."""
    photographs = data.imagenet_split(calibration, 1000)
    made = data.picture(photographs[i % len(photographs)][0], (PAGE, PAGE)).copy()
    boxes = []
    for j, (top, left) in enumerate(PLACES):
        seed = len(PLACES) * i + j
        strip, box = drawn(line(calibration, seed), WIDE, HIGH, seed)
        made[top : top + HIGH, left : left + WIDE] = strip
        boxes.append(box + np.array([left, top, left, top]))
    return made, np.array(boxes)


def _page(calibration: bool, i: int) -> Feeds:
    return _x(page(calibration, i)[0])


def found(chances: Array) -> Array:
    """Boxes of print by PP-OCR's recipe: patches of ink, of which those that are sure grow."""
    from scipy import ndimage

    patches, count = ndimage.label(chances > INK, np.ones((3, 3)))  # corners hang together
    sure = ndimage.mean(chances, patches, range(1, count + 1))
    boxes = []
    for (rows, columns), chance in zip(ndimage.find_objects(patches), sure, strict=True):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if min(height, width) < SMALLEST or chance < SURE:
            continue
        grow = UNCLIP * height * width / (2 * (height + width))
        boxes.append(
            [columns.start - grow, rows.start - grow, columns.stop + grow, rows.stop + grow]
        )
    return np.array(boxes, float).reshape(-1, 4)


def matched(boxes: Array, truth: Array) -> list[float]:
    """Overlaps of lines and boxes, each of which has at most one partner; the best pairs first."""
    between, pairs = detect.overlap(truth, boxes), []
    while between.size and between.max() > 0:
        i, j = np.unravel_index(between.argmax(), between.shape)
        pairs.append(float(between[i, j]))
        between[i], between[:, j] = 0, 0
    return pairs


def _boxes(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    """How well boxes cover their lines: an F-measure in which a hit counts by its overlap."""
    parts, hits, same = [], 0, []
    for i, (a, b) in enumerate(zip(answers, right, strict=True)):
        truth = page(False, i)[1]
        pairs = matched(a[0], truth)
        hits += sum(o >= HIT for o in pairs)
        parts.append(200 * sum(pairs) / (len(a[0]) + len(truth)))
        same.append(_overlap(np.unpackbits(a[1]), np.unpackbits(b[1])))
    more = {"lines found %": 100 * hits / (len(PLACES) * len(answers))}
    return Score(float(np.mean(parts)), parts, more | {"same pixels %": float(np.mean(same))})


def _overlap(a: Array, b: Array) -> float:
    return 100 * float((a & b).sum() / max((a | b).sum(), 1))


TASKS = {
    "ocr_recognise": Task(
        "letters %",
        _read,
        lambda n: [_strip(True, i) for i in range(n)],
        lambda n: (_strip(False, i) for i in range(n)),
        _letters,
        keep=lambda a: [a[0][0].argmax(-1)],
        samples=800,
        calibrate=16,
    ),
    "ocr_detect": Task(
        "overlap %",
        lambda: _ocr("ch_PP-OCRv4_det_infer", PAGE, PAGE),
        lambda n: [_page(True, i) for i in range(n)],
        lambda n: (_page(False, i) for i in range(n)),
        _boxes,
        keep=lambda a: [found(a[0][0, 0]), np.packbits(a[0] > INK)],
        samples=200,
        quick=20,
        calibrate=16,
        agreement=True,
    ),
    "ocr_turned": Task(
        "top-1 %",
        lambda: _ocr("ch_ppocr_mobile_v2.0_cls_infer", 48, 192),
        lambda n: [_turned(True, i) for i in range(n)],
        lambda n: (_turned(False, i) for i in range(n)),
        top1(lambda n: [int(_upside_down(i)) for i in range(n)]),
        samples=2000,
        calibrate=16,
    ),
}
