"""Element types, scales and zero points of inputs and outputs, as RKNN's C API tells them.

A package takes and gives floats. On a board, a quantised model has int8 there, and a float model
float16; `librknnrt` converts between both by what `describe` keeps in the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.compat.rknn import yuv
from intaglio.compat.rknn.build import Built, float_type
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.inputs import KEY, InputInfo
from intaglio.ir import Array, Type
from intaglio.package import Package
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.affine import affine

TENSORS = "tensors"  # of the metadata
MOST_SAMPLES = 8  # whose outputs give the ranges


def describe(package: Package, built: Built, config: Config) -> Package:
    """The package with the types of its inputs and outputs in the metadata."""
    text = package.meta.get("metadata", {}).get(KEY)
    if text is None:
        return package
    plain = {"type": float_type(config) or "f32"}
    found: dict[str, Any] = {}
    for name, t in (*package.inputs.items(), *package.outputs.items()):
        if dtypes.is_float(t.dtype):
            found[name] = plain
    if built.quantized is not None:
        found |= _quantized(package, built, config, list(found))
    about = json.loads(text) | {TENSORS: found}
    meta = dict(package.meta)
    meta["metadata"] = meta["metadata"] | {KEY: json.dumps(about)}
    isa = package.contents.isa
    return Package.build(package.plans, isa=isa, meta=meta, strip=config.mini_rknn)


def _quantized(
    package: Package, built: Built, config: Config, floats: Sequence[str]
) -> dict[str, Any]:
    assert built.quantized is not None
    known = built.quantized.scheme.tensors
    found = {i.name: _row(known[i.name]) for i in built.infos if i.name in known}
    activations = config.types[0]
    for name, (low, high) in _output_ranges(package, built, config).items():
        found[name] = _row(affine(low, high, activations.replace("int", "i"), False))
    return {name: row for name, row in found.items() if row is not None and name in floats}


def _row(t: TensorScheme) -> dict[str, Any] | None:
    """A tensor with one scale; None if there are several."""
    if t.axis is not None or len(t.scale) != 1:
        return None
    return {"type": t.dtype, "scale": float(t.scale[0]), "zero": int(t.zero[0])}


def _output_ranges(
    package: Package, built: Built, config: Config
) -> dict[str, tuple[float, float]]:
    """The smallest and largest value of each output over some samples, 0 among them."""
    ranges: dict[str, tuple[float, float]] = {}
    with intaglio.open(package) as session:
        for sample in islice(iter(built.samples or ()), MOST_SAMPLES):
            raw = {i.name: _raw(i, sample[i.name]) for i in built.pictures}
            given = yuv.feeds(raw, built.pictures, config)
            feeds = {name: _fed(given[name], t) for name, t in package.inputs.items()}
            for name, array in session.run(feeds).items():
                if array.dtype.kind != "f" or not array.size:
                    continue
                low, high = ranges.get(name, (0.0, 0.0))
                made = np.nan_to_num(np.asarray(array, np.float32))
                ranges[name] = min(low, float(made.min())), max(high, float(made.max()))
    return ranges


def _raw(info: InputInfo, sample: Array) -> Array:
    """A normalised sample before its normalisation, which the package does."""
    return info.raw(sample) if info.normalizes else sample


def _fed(array: Array, kind: Type) -> Array:
    """An input as the package takes it, which may have a larger batch."""
    shape = kind.shape
    if shape and array.shape[:1] == (1,) and shape[0] > 1:
        array = np.repeat(array, shape[0], axis=0)
    return np.ascontiguousarray(array, dtypes.numpy_of(kind.dtype))
