"""`inputs_yuv_fmt`: pictures of a camera as planes of Y and of U and V, made RGB in the model.

An input x becomes x_y_channel [1, 1, h, w] and x_uv_channel [1, 1, h/2, w]. Colours are BT.601 of
limited range, as RKNN-Toolkit2 has them; with quant_img_RGB2BGR the model gets BGR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.inputs import TO_NCHW, TO_NHWC, InputInfo
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Type, Value, constant

GAIN = 255 / 219  # of Y above 16
U, V = (0, -0.391762, 2.017232), (1.596027, -0.812968, 0)  # for red, green and blue
NEAREST = np.ones((3, 1, 2, 2), np.float32)  # doubles a picture
PLAIN: dict[str, Any] = {
    "stride": (2, 2),
    "pad": (0,) * 4,
    "output_pad": (0, 0),
    "dilation": (1, 1),
}


def formats(config: Config, infos: Sequence[InputInfo]) -> list[str | None]:
    """nv12, nv21 or None for each input; BadInput if they do not fit the model."""
    given = list(config.inputs_yuv_fmt or [])
    if not any(given):
        return [None] * len(infos)
    if len(given) != len(infos):
        raise BadInput(
            f"inputs_yuv_fmt has {len(given)} words, the model's inputs are {len(infos)}; give one "
            "for each, None for an input that is no camera's"
        )
    for info, one in zip(infos, given, strict=True):
        height, width = info.shape_in("nchw")[2:] if len(info.shape) == 4 else (1, 1)
        if one and (info.channels != 3 or height % 2 or width % 2 or config.dynamic_input):
            raise BadInput(
                f"inputs_yuv_fmt is '{one}' for input '{info.name}' {list(info.shape)}; it needs "
                "three channels, even height and width, and no dynamic_input"
            )
    return [one or None for one in given]


def take_planes(graph: Graph, infos: Sequence[InputInfo], config: Config) -> list[InputInfo]:
    """Let the graph take planes, in place; the inputs that it has then."""
    found: list[InputInfo] = []
    for k, (info, one) in enumerate(zip(infos, formats(config, infos), strict=True)):
        if one is None:
            found.append(info)
            continue
        parts = _planes(info)
        index = next(i for i, v in enumerate(graph.inputs) if v.name == info.name)
        old = graph.inputs[index]
        y, uv = (Value(Type(info.dtype, p.shape), p.name) for p in parts)
        made = _rgb(y, uv, one, config.is_bgr(k))
        if info.channels_last:
            made = ops.transpose(made, perm=TO_NHWC)
        made.name = old.name = f"{info.name}_rgb"
        graph.replace(old, made)
        graph.inputs[index : index + 1] = [y, uv]
        found += parts
    return found


def _planes(info: InputInfo) -> list[InputInfo]:
    batch, _, height, width = info.shape_in("nchw")
    plain = replace(info, mean=(), std=(), channels_last=False)
    return [
        replace(plain, name=f"{info.name}_y_channel", shape=(batch, 1, height, width)),
        replace(plain, name=f"{info.name}_uv_channel", shape=(batch, 1, height // 2, width)),
    ]


def _rgb(y: Value, uv: Value, layout: str, bgr: bool) -> Any:
    """Three channels of 0 to 255 of both planes."""
    order = slice(None, None, -1 if bgr else 1)
    u, v = np.array(U, np.float32)[order], np.array(V, np.float32)[order]
    pair = np.stack([u, v] if layout == "nv12" else [v, u], 1)  # outputs x place in the plane
    offset = -128 * (u + v) - 16 * GAIN
    colour = ops.conv(
        uv,
        constant(pair.reshape(3, 1, 1, 2)),
        constant(offset.astype(np.float32)),
        stride=(1, 2),
        pad=(0,) * 4,
        dilation=(1, 1),
    )
    wide = ops.conv_transpose(colour, constant(NEAREST), groups=3, **PLAIN)
    light = ops.mul(y, constant(np.array([GAIN], np.float32)))
    return ops.clip(ops.add(wide, light), lo=0.0, hi=255.0)


def feeds(given: Mapping[str, Array], infos: Sequence[InputInfo], config: Config) -> dict[str, Any]:
    """Pictures by input as a model with planes takes them, each colour that of four pixels."""
    found = dict(given)
    for k, (info, one) in enumerate(zip(infos, formats(config, infos), strict=True)):
        if one is None:
            continue
        rgb = np.asarray(found.pop(info.name), np.float64)
        rgb = rgb.transpose(TO_NCHW) if info.channels_last else rgb
        rgb = rgb[:, ::-1] if config.is_bgr(k) else rgb
        batch, _, height, width = rgb.shape
        light = np.tensordot(rgb, [0.299, 0.587, 0.114], (1, 0))
        small = rgb.reshape(batch, 3, height // 2, 2, width // 2, 2).mean((3, 5))
        dim = np.tensordot(small, [0.299, 0.587, 0.114], (1, 0))
        u, v = (small[:, 2] - dim) / U[2] * GAIN, (small[:, 0] - dim) / V[0] * GAIN
        both = np.stack([u, v] if one == "nv12" else [v, u], 3).reshape(
            batch, 1, height // 2, width
        )
        planes = (light[:, None] / GAIN + 16, both + 128)
        for plane, array in zip(_planes(info), planes, strict=True):
            found[plane.name] = np.clip(np.round(array), 0, 255).astype(np.float32)
    return found
