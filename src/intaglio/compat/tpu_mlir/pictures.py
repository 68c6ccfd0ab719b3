"""Pictures as inputs: resized by lines between pixels, cropped, (x - mean) * scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intaglio.compat.tpu_mlir.module_file import Pictures
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array
from intaglio.quant.samples.images import open_picture

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".jfif", ".webp")
CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4}
MOST_PIXELS = 1 << 28  # of a resized picture


def is_picture(path: str | Path) -> bool:
    """Whether the ending is that of a picture."""
    return Path(path).suffix.lower() in ENDINGS


def read_picture(path: str | Path, how: Pictures, shape: tuple[int, ...]) -> Array:
    """A picture as an input of this shape, repeated along the batch."""
    pixels = read_pixels(path, how, shape)
    channels = pixels.shape[0]
    if min(len(how.mean), len(how.scale)) < channels:
        raise BadInput(
            f"--mean has {len(how.mean)} and --scale {len(how.scale)} numbers; "
            f"--pixel_format {how.pixel_format} needs {channels}"
        )
    mean, scale = (
        np.array(v[:channels], np.float32).reshape(-1, 1, 1) for v in (how.mean, how.scale)
    )
    x = (pixels.astype(np.float32) - mean) * scale
    if how.channel_format == "nhwc":
        x = x.transpose(1, 2, 0)
    if len(shape) < 4:
        return np.ascontiguousarray(x.reshape(shape))
    return np.repeat(x[None], shape[0], axis=0)


def read_pixels(path: str | Path, how: Pictures, shape: tuple[int, ...]) -> Array:
    """Bytes [C, H, W] in the order of the pixel format, at the size of an input of this shape."""
    if how.pixel_format not in CHANNELS:
        raise BadInput(
            f"--pixel_format is '{how.pixel_format}'; raw sensor formats are not supported; "
            f"use one of {', '.join(CHANNELS)}"
        )
    channels = CHANNELS[how.pixel_format]
    height, width = _size(shape, how, channels)
    if not Path(path).is_file():
        raise BadFile(f"there is no file '{path}'; check the path")
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    opened = open_picture(path, channels).convert(mode)
    image = np.asarray(opened, np.uint8).reshape(opened.height, opened.width, channels)
    if how.pixel_format == "bgr":
        image = image[:, :, ::-1]
    h, w = how.resize_dims or (height, width)
    if min(h, w) < 1 or h * w > MOST_PIXELS:
        raise BadInput(f"--resize_dims is {h},{w}; give the height and width in pixels")
    image = _fitted(image, h, w, how)
    if h < height or w < width:
        raise BadInput(
            f"--resize_dims is {h},{w}, the input {height},{width}; it must not be smaller"
        )
    top, left = h // 2 - height // 2, w // 2 - width // 2
    return image[top : top + height, left : left + width].transpose(2, 0, 1)


def _size(shape: tuple[int, ...], how: Pictures, channels: int) -> tuple[int, int]:
    """Height and width of an input."""
    last = how.channel_format == "nhwc"
    if len(shape) in (3, 4) and shape[-1 if last else -3] == channels:
        h, w = shape[-3:-1] if last else shape[-2:]
        return h, w
    raise BadInput(
        f"the input has shape {list(shape)}, --pixel_format {how.pixel_format} and "
        f"--channel_format {how.channel_format} want {channels} channels; change one of them, or "
        "give an .npz"
    )


def _fitted(image: Array, h: int, w: int, how: Pictures) -> Array:
    """The picture at h x w: stretched, padded or cropped."""
    ih, iw = image.shape[:2]
    if not how.keep_aspect_ratio:
        return resized(image, h, w)
    if how.keep_ratio_mode == "short_side_scale":
        factor = max(w / iw, h / ih)
        nh, nw = max(int(ih * factor), h), max(int(iw * factor), w)
        top, left = (nh - h) // 2, (nw - w) // 2
        return resized(image, nh, nw)[top : top + h, left : left + w]
    factor = min(w / iw, h / ih)
    nh, nw = max(int(ih * factor), 1), max(int(iw * factor), 1)
    made = np.full((h, w, image.shape[2]), np.clip(how.pad_value, 0, 255), np.uint8)
    top, left = ((h - nh) // 2, (w - nw) // 2) if how.pad_type == "center" else (0, 0)
    made[top : top + nh, left : left + nw] = resized(image, nh, nw)
    return made


def resized(image: Array, h: int, w: int) -> Array:
    """A picture [H, W, C] of bytes at another size: bilinear, half-pixel centres."""
    if image.shape[:2] == (h, w):
        return image
    x = image.astype(np.float32)
    for axis, size in ((0, h), (1, w)):
        old = x.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        low = np.floor(at).astype(np.int64)
        share = (at - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        high = np.minimum(low + 1, old - 1)
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return np.rint(x).astype(np.uint8)
