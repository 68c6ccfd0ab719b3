"""Draw pictures of coloured shapes, and say where each shape is.

    python examples/shapes/draw.py pictures --count 24

writes 24 pictures into the folder `pictures`. Needs numpy and Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NAMES = ("circle", "square", "triangle", "star", "cross")
LEAST_CONTRAST = 90  # distance of a shape's colour from the background, of 441 at most
FINER = 3  # shapes are drawn in this many times the size, for smooth edges


def outline(name: str, radius: float, angle: float) -> np.ndarray:
    """The corners of a shape around (0, 0)."""
    corners = {"circle": 48, "square": 4, "triangle": 3, "star": 10, "cross": 12}[name]
    turns = np.arange(corners) * 2 * np.pi / corners
    reach = np.full(corners, radius)
    if name == "star":
        reach[1::2] *= 0.42
    if name == "cross":  # four arms, a third as wide as the cross
        arm = np.arctan2(1, 3)
        turns = np.repeat(np.arange(4) * np.pi / 2, 3)
        turns += np.tile([-arm, arm, np.pi / 4], 4)
        reach = np.tile([radius, radius, radius * np.sqrt(0.2)], 4)
    return np.stack([np.cos(turns + angle), np.sin(turns + angle)], 1) * reach[:, None]


def background(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """A smooth mixture of four colours."""
    corners = rng.integers(0, 256, (2, 2, 3)).astype(np.uint8)
    spread = rng.uniform(0, 1)  # 0: one colour
    corners = (corners * spread + corners[0, 0] * (1 - spread)).astype(np.uint8)
    return np.asarray(Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC))


def scene(
    rng: np.random.Generator, width: int, height: int, most: int = 9
) -> tuple[Image.Image, list[tuple[int, float, float, float, float]]]:
    """A picture with up to `most` shapes; of each its class, left, top, right and bottom."""
    pixels = background(rng, width, height)
    large = Image.fromarray(pixels).resize((width * FINER, height * FINER))
    pen, boxes = ImageDraw.Draw(large), []
    for _ in range(rng.integers(3, most + 1)):
        label = int(rng.integers(len(NAMES)))
        radius = rng.uniform(0.06, 0.2) * min(width, height)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
        corners = outline(NAMES[label], radius, rng.uniform(0, 2 * np.pi)) + np.array([x, y])
        box = (*corners.min(0), *corners.max(0))
        if any(_touch(box, other[1:]) for other in boxes):
            continue
        colour = rng.integers(0, 256, 3)
        if np.linalg.norm(colour - pixels[int(y), int(x)].astype(int)) < LEAST_CONTRAST:
            continue
        pen.polygon([tuple(c) for c in corners * FINER], fill=tuple(int(c) for c in colour))
        boxes.append((label, *box))
    small = np.asarray(large.resize((width, height), Image.Resampling.BOX), np.float32)
    noise = rng.normal(0, rng.uniform(0, 12), small.shape)
    return Image.fromarray(np.clip(small + noise, 0, 255).astype(np.uint8)), boxes


def _touch(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--size", default="320x240", metavar="WIDTHxHEIGHT")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    rng = np.random.default_rng(given.seed)
    given.folder.mkdir(parents=True, exist_ok=True)
    for i in range(given.count):
        scene(rng, width, height)[0].save(given.folder / f"{i:03}.png")
    print(f"{given.folder}: {given.count} pictures")


if __name__ == "__main__":
    main()
