"""Images as model inputs: resize, colour order, normalisation by mean and std."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.extras import install_command
from intaglio.frontends.image_transform import letterbox_size
from intaglio.frontends.picture_format import RESIZES as RESIZES
from intaglio.frontends.preprocess import channels_last, per_channel, per_input
from intaglio.ir import Array, Type

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
CROP_SHARE = 0.875  # share of the short side that "crop" keeps: 224 of 256
CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
TAKE_PICTURES = ("f32", "f16", "bf16", "f64", "u8")


@dataclass(frozen=True)
class Picture:
    """How an image file or pixel array becomes one row of an input."""

    name: str
    type: Type
    channels_last: bool
    mean: Array | None  # one number for each channel, in the model's order
    std: Array | None
    swap: bool  # the model wants BGR
    resize: str
    pad_value: float

    @property
    def channels(self) -> int:
        return self.type.shape[-1 if self.channels_last else -3]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        h, w = self.type.shape[-3:-1] if self.channels_last else self.type.shape[-2:]
        return h, w

    def of_file(self, path: str | Path) -> Array:
        """The picture in a file."""
        return self.of_image(open_picture(path, self.channels))

    def of_image(self, image: Any) -> Array:
        """A Pillow image."""
        image = converted(image, CHANNELS[self.channels])
        return self._finished(_resized(image, self), swap=self.swap)

    def of_pixels(self, a: Array) -> Array:
        """An image given as bytes, [H, W, C] or [C, H, W], channels in the model's order."""
        if a.ndim == 3 and a.shape[-1] != self.channels:
            a = np.moveaxis(a, 0, -1)
        if a.shape[:2] != self.size:
            flat = a[..., 0] if a.shape[2:] == (1,) else a
            a = _resized(pillow().fromarray(np.ascontiguousarray(flat)), self)
        return self._finished(a, swap=False)

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Can a byte array of this shape be an image for this input?"""
        if len(shape) == 2:
            return self.channels == 1
        return len(shape) == 3 and self.channels in (shape[0], shape[-1])

    def _finished(self, pixels: Array, swap: bool) -> Array:
        if pixels.ndim == 2:
            pixels = pixels[..., None]
        if swap and self.channels >= 3:
            order = [2, 1, 0, *range(3, self.channels)]
            pixels = pixels[..., order]
        result = self.normalized(pixels)
        if not self.channels_last:
            result = result.transpose(2, 0, 1)
        return np.ascontiguousarray(result)

    def normalized(self, pixels: Array, channels_last: bool = True) -> Array:
        """(pixels - mean) / std, in the input's element type."""
        if self.type.dtype == "i8":
            return (pixels.astype(np.int16) - 128).astype(np.int8)
        if not dtypes.is_float(self.type.dtype):
            return pixels.astype(dtypes.numpy_of(self.type.dtype))
        result = pixels.astype(np.float32)
        along = (-1,) if channels_last else (-1, 1, 1)
        if self.mean is not None:
            result -= self.mean.reshape(along)
        if self.std is not None:
            result /= self.std.reshape(along)
        return result.astype(dtypes.numpy_of(self.type.dtype))


def pictures(
    inputs: Sequence[tuple[str, Type]],
    mean: Any,
    std: Any,
    layout: str,
    swap: bool,
    resize: str,
    pad_value: float,
) -> dict[str, Picture | None]:
    """How each input takes images; None for an input that is no image."""
    last = {n: channels_last(t, layout) for n, t in inputs}
    takers = [n for n, t in inputs if last[n] is not None and t.dtype in TAKE_PICTURES]
    means, stds = (per_input(w, g, inputs, takers) for w, g in (("mean", mean), ("std", std)))
    results: dict[str, Picture | None] = {}
    for n, t in inputs:
        results[n] = None
        if n in takers:
            channels = t.shape[-1 if last[n] else -3]
            m, s = (per_channel(w, g[n], n, channels) for w, g in (("mean", means), ("std", stds)))
            if t.dtype == "u8" and (m is not None or s is not None):
                raise BadInput(
                    f"input '{n}' is u8: it takes pixels from 0 to 255; leave out mean and std"
                )
            results[n] = Picture(n, t, bool(last[n]), m, s, swap, resize, pad_value)
    return results


def pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise Unsupported(
            f"reading pictures needs Pillow, which is missing; {install_command('images')}"
        ) from None
    return Image


def open_picture(path: str | Path, channels: int) -> Any:
    """The image, rotated upright by its EXIF tag, with 8 bits per channel."""
    image_module = pillow()
    from PIL import ImageOps

    try:
        with image_module.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            return converted(upright, CHANNELS[channels])
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except (OSError, SyntaxError, ValueError, EOFError, image_module.DecompressionBombError) as e:
        words = str(e).replace(f" '{path}'", "").strip() or type(e).__name__
        raise BadFile(f"{path}: not a readable picture ({words}); remove it") from None


def converted(image: Any, mode: str) -> Any:
    """The image in `mode`: grey to colour, without transparency, 16 bits scaled to 8."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        image = pillow().fromarray(((wide.clip(0, 65535) + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("its pixels are floats; save them as .npy")
    elif image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image if image.mode == mode else image.convert(mode)


@dataclass(frozen=True)
class Fit:
    """How a picture lies in an input: resized to width x height, its corner at (left, top)."""

    width: int
    height: int
    left: int
    top: int

    @classmethod
    def of(cls, resize: str, size: tuple[int, int], into: tuple[int, int]) -> Fit:
        """A picture of this height and width in an input of the size `into`."""
        (height, width), (h, w) = size, into
        if resize == "stretch" or size == into:
            return cls(w, h, 0, 0)
        if resize == "letterbox":
            inner = letterbox_size(size, into)
            return cls(inner[1], inner[0], (w - inner[1]) // 2, (h - inner[0]) // 2)
        ratio = max(round(w / CROP_SHARE) / width, round(h / CROP_SHARE) / height)
        outer = (max(int(width * ratio + 1e-6), w), max(int(height * ratio + 1e-6), h))
        return cls(*outer, -round((outer[0] - w) / 2), -round((outer[1] - h) / 2))


def _resized(image: Any, p: Picture) -> Array:
    """The pixels [H, W] or [H, W, C], resized to the input's size."""
    h, w = p.size
    width, height = image.size
    fit = Fit.of(p.resize, (height, width), (h, w))
    if (fit.width, fit.height) != (width, height):
        image = image.resize((fit.width, fit.height), pillow().Resampling.BILINEAR)
    if p.resize == "crop":
        image = image.crop((-fit.left, -fit.top, w - fit.left, h - fit.top))
    pixels = np.asarray(image)
    if pixels.shape[:2] == (h, w):
        return pixels
    value = np.uint8(np.clip(round(p.pad_value), 0, 255))
    result = np.full((h, w, *pixels.shape[2:]), value, np.uint8)
    result[fit.top : fit.top + fit.height, fit.left : fit.left + fit.width] = pixels
    return result
