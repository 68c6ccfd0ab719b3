"""--fuse_preprocess: files that take pixels; mean and scale become part of the network."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.compat.tpu_mlir.module_file import Module
from intaglio.compat.tpu_mlir.pictures import is_picture, read_pixels
from intaglio.compat.tpu_mlir.samples import Sample, inputs_of
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph

ORDERS = {  # of the channels, by the name of a format
    "RGB_PLANAR": "rgb",
    "BGR_PLANAR": "bgr",
    "GRAYSCALE": "gray",
    "RGBA_PLANAR": "rgba",
    "RGB_PACKED": "rgb",
    "BGR_PACKED": "bgr",
}
PACKED = "_PACKED"  # ends formats whose pixels hold all channels: N x H x W x C


@dataclass(frozen=True)
class FusedPixels:
    """The pixels that a file takes, and the keywords of quantisation for them."""

    module: Module
    swap: bool  # whether red and blue are in the other order than in the network
    packed: bool  # whether pixels hold all channels: N x H x W x C
    keywords: Mapping[str, Any]

    def embedded(self, graph: Graph) -> Graph:
        """A float graph that takes pixels."""
        made = graph.copy()
        changed = preprocess(made, **self.keywords)
        if self.swap and self.packed:
            _swap_prepared(made, changed)
        return made

    def check(self, shapes: Sequence[Sequence[int]]) -> None:
        """BadInput unless the inputs of a file have the layout of the pixels.

        If one table serves all channels, the transpose in front of it is left to the caller.
        """
        for v, shape in zip(inputs_of(self.module.graph), shapes, strict=True):
            n, c, h, w = v.shape
            if self.packed and tuple(shape) != (n, h, w, c):
                raise BadInput(
                    "--customization_format RGB_PACKED needs a --mean or --scale that differs "
                    "between channels; give BGR_PACKED, or RGB_PLANAR"
                )

    def feeds(self, files: Sequence[str], test: Sample) -> Sample:
        """Pixels of the test input: those of its picture, or those that its floats came from."""
        found = {}
        how = self.module.pictures
        for i, v in enumerate(inputs_of(self.module.graph)):
            file = files[min(i, len(files) - 1)]
            if is_picture(file):
                pixels = np.repeat(read_pixels(file, how, v.shape)[None], v.shape[0], axis=0)
            else:
                mean, scale = (
                    np.array(n[: v.shape[1]], np.float32).reshape(1, -1, 1, 1)
                    for n in (how.mean, how.scale)
                )
                pixels = np.clip(np.rint(test[v.name] / scale + mean), 0, 255).astype(np.uint8)
            pixels = pixels[:, ::-1] if self.swap else pixels
            pixels = pixels.transpose(0, 2, 3, 1) if self.packed else pixels
            found[v.name] = np.ascontiguousarray(pixels)
        return found


def of(module: Module, given: argparse.Namespace) -> FusedPixels:
    """From the options of model_deploy; BadInput if the format is not supported."""
    how, inputs = module.pictures, inputs_of(module.graph)
    usual = {"rgb": "RGB_PLANAR", "bgr": "BGR_PLANAR", "gray": "GRAYSCALE", "rgba": "RGBA_PLANAR"}
    name = given.customization_format or usual.get(how.pixel_format, "")
    if name not in ORDERS:
        known = ", ".join(ORDERS)
        raise BadInput(
            f"--customization_format is {name or how.pixel_format}; files take {known}; convert "
            "frames to one of them before"
        )
    if how.channel_format != "nchw" or any(v.type.rank != 4 for v in inputs):
        raise BadInput("--fuse_preprocess needs inputs N x C x H x W; leave it out")
    order = ORDERS[name]
    if order != how.pixel_format and {order, how.pixel_format} != {"rgb", "bgr"}:
        raise BadInput(
            f"--customization_format {name} does not fit --pixel_format {how.pixel_format}"
        )
    channels = inputs[0].shape[1]
    scale = np.array(how.scale[:channels], np.float64)
    if (scale <= 0).any():
        raise BadInput(f"--scale is {how.scale}; --fuse_preprocess needs numbers above 0")
    swap, packed = order != how.pixel_format, name.endswith(PACKED)
    mean, std = [float(m) for m in how.mean[:channels]], [float(1 / s) for s in scale]
    keywords: dict[str, Any] = {"input_type": "uint8", "mean": mean, "std": std, "layout": "nchw"}
    if packed:
        keywords["input_layout"] = "nhwc"
        if len(set(zip(mean, std, strict=True))) == 1:
            # one unit in the last place apart: the channels are then prepared one by one
            std[0] = float(np.nextafter(np.float32(std[0]), np.float32(np.inf)))
        if swap:  # numbers in the order of the pixels, whose parts are swapped behind them
            mean, std = mean[::-1], std[::-1]
        keywords |= {"mean": mean, "std": std}
    else:
        keywords["swap_rb"] = swap
    return FusedPixels(module, swap, packed, keywords)


def _swap_prepared(graph: Graph, names: Sequence[str]) -> None:
    """Put the prepared channels of these inputs into the opposite order, by no command of its own.

    Channels with a mean of their own are prepared one by one; these parts change places.
    """
    prepared = {v.name: v for v in graph.values()}
    for name in names:
        old = prepared[f"{name}_prepared"]
        node, (n, channels, h, w) = old.producer, old.shape
        if node is not None and node.op == "concat" and len(node.inputs) == channels:
            for k, part in enumerate(node.inputs[::-1]):
                graph.set_input(node, k, part)
            continue
        readers = list(old.uses)
        parts = [
            ops.slice_(old, start=(0, c, 0, 0), stop=(n, c + 1, h, w), step=(1, 1, 1, 1))
            for c in reversed(range(channels))
        ]
        made = ops.concat(*parts, axis=1)
        for reader in readers:
            for k, v in enumerate(reader.inputs):
                if v is old:
                    graph.set_input(reader, k, made)
