"""--fuse_preprocess: files that take pixels; mean and scale become part of the network."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.compat.tpu_mlir.module_file import Module
from intaglio.compat.tpu_mlir.pictures import is_picture, read_pixels
from intaglio.compat.tpu_mlir.samples import Sample, inputs_of
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph

PLANAR = {"RGB_PLANAR": "rgb", "BGR_PLANAR": "bgr", "GRAYSCALE": "gray", "RGBA_PLANAR": "rgba"}


@dataclass(frozen=True)
class FusedPixels:
    """The pixels that a file takes, and the keywords of quantisation for them."""

    module: Module
    order: str  # of the file's channels: rgb, bgr, gray or rgba
    keywords: Mapping[str, Any]

    def embedded(self, graph: Graph) -> Graph:
        """A float graph that takes pixels."""
        made = graph.copy()
        preprocess(made, **self.keywords)
        return made

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
            swap = self.keywords["swap_rb"]
            found[v.name] = np.ascontiguousarray(pixels[:, ::-1] if swap else pixels)
        return found


def of(module: Module, given: argparse.Namespace) -> FusedPixels:
    """From the options of model_deploy; BadInput if the format is not supported."""
    how, inputs = module.pictures, inputs_of(module.graph)
    usual = {"rgb": "RGB_PLANAR", "bgr": "BGR_PLANAR", "gray": "GRAYSCALE", "rgba": "RGBA_PLANAR"}
    name = given.customization_format or usual.get(how.pixel_format, "")
    if name not in PLANAR:
        known = ", ".join(PLANAR)
        raise BadInput(
            f"--customization_format is {name or how.pixel_format}; files take {known}; convert "
            "frames to one of them before"
        )
    if how.channel_format != "nchw" or any(v.type.rank != 4 for v in inputs):
        raise BadInput("--fuse_preprocess needs inputs N x C x H x W; leave it out")
    order = PLANAR[name]
    if order != how.pixel_format and {order, how.pixel_format} != {"rgb", "bgr"}:
        raise BadInput(
            f"--customization_format {name} does not fit --pixel_format {how.pixel_format}"
        )
    channels = inputs[0].shape[1]
    scale = np.array(how.scale[:channels], np.float64)
    if (scale <= 0).any():
        raise BadInput(f"--scale is {how.scale}; --fuse_preprocess needs numbers above 0")
    keywords = {
        "input_type": "uint8",
        "mean": [float(m) for m in how.mean[:channels]],
        "std": [float(1 / s) for s in scale],
        "swap_rb": order != how.pixel_format,
        "layout": "nchw",
    }
    return FusedPixels(module, order, keywords)
