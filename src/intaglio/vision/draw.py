"""Draw detections and class names onto a picture, with Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.quant.samples.images import pillow

# Colours that are told apart on most pictures; a class has one by its number.
PALETTE = (
    (230, 25, 75),
    (60, 180, 75),
    (0, 130, 200),
    (245, 130, 48),
    (145, 30, 180),
    (0, 150, 150),
    (240, 50, 230),
    (128, 128, 0),
    (170, 110, 40),
    (128, 0, 0),
    (0, 0, 128),
    (70, 70, 70),
)
WHITE = (255, 255, 255)


def colour(label: int) -> tuple[int, int, int]:
    """The colour of a class."""
    return PALETTE[label % len(PALETTE)]


def draw_boxes(image: Any, boxes: Sequence[tuple[int, str, Sequence[float]]]) -> Any:
    """A copy of a Pillow image with boxes: class number, text, left, top, right, bottom.

    The first box is drawn last, so that the best lies on top.
    """
    result, pen, font, width = _canvas(image)
    for label, text, (left, top, right, bottom) in reversed(boxes):
        paint = colour(label)
        left, top = max(left, 0), max(top, 0)
        right, bottom = min(right, result.width - 1), min(bottom, result.height - 1)
        if right >= left and bottom >= top:
            pen.rectangle((left, top, right, bottom), outline=paint, width=width)
            _tag(result, pen, font, text, (left, top), paint)
    return result


def draw_lines(image: Any, lines: Sequence[str]) -> Any:
    """A copy of a Pillow image with lines of text in its upper left corner."""
    result, pen, font, _ = _canvas(image)
    y = 0.0
    for i, text in enumerate(lines):
        y = _tag(result, pen, font, text, (0, y), colour(i), below=True)
    return result


def _canvas(image: Any) -> tuple[Any, Any, Any, int]:
    """A copy to draw on, a pen, a font, and the width of lines, by the size of the picture."""
    pillow()
    from PIL import ImageDraw, ImageFont

    result = image.convert("RGB")
    result = result.copy() if result is image else result
    side = max(result.size)
    try:
        font = ImageFont.load_default(size=max(side // 45, 10))
    except TypeError:  # Pillow 10.0 has one size
        font = ImageFont.load_default()
    return result, ImageDraw.Draw(result), font, max(side // 320, 2)


def _tag(
    made: Any,
    pen: Any,
    font: Any,
    text: str,
    corner: tuple[float, float],
    colour: tuple[int, int, int],
    below: bool = False,
) -> float:
    """White text on a coloured ground, above the corner if there is room; returns its bottom."""
    wide, high = (n + 4 for n in pen.textbbox((0, 0), text, font=font)[2:])
    x = max(min(corner[0], made.width - wide), 0)
    y = corner[1] if below or corner[1] < high else corner[1] - high
    pen.rectangle((x, y, x + wide, y + high), fill=colour)
    pen.text((x + 2, y + 2), text, fill=WHITE, font=font)
    return float(y + high)


def save_picture(image: Any, path: str | Path) -> None:
    """Write a Pillow image; the ending of the name says the format."""
    endings = pillow().registered_extensions()
    kind = endings.get(Path(path).suffix.lower())
    if kind is None:
        raise BadInput(f"{path}: the ending says the format; use .png, .jpg or .webp")
    buffer = io.BytesIO()
    image.save(buffer, kind)
    write_atomically(path, buffer.getvalue())
