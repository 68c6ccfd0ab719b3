"""Let a model take pictures as they come from a camera: bytes, with mean and deviation inside.

Each channel of a picture is a function of its bytes, and what follows is quantised: the integer
rules make one table of 256 bytes of it. Nobody normalises floats on the board any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Value, constant
from intaglio.quant.images import channels_last

# How bytes are turned for a model with its channels at an axis, where they come otherwise.
TURNS = {(1, "nhwc"): (0, 3, 1, 2), (3, "nchw"): (0, 2, 3, 1)}


def take_pictures(
    graph: Graph, mean: Any = None, std: Any = None, layout: str = "auto", takes: str = "same"
) -> list[str]:
    """Turn every input that is a picture into one of bytes, in place; returns their names.

    x = (byte - mean) / std, with one mean and deviation for each channel, or for all. `layout` is
    the model's (auto, nchw, nhwc), `takes` that of the bytes (same, nchw, nhwc).
    """
    found = []
    for i, v in enumerate(graph.inputs):
        axis = channel_axis(v, layout)
        if v.dtype != "f32" or axis is None:
            continue
        perm = TURNS.get((axis, takes))
        shape = v.shape if perm is None else tuple(v.shape[perm.index(k)] for k in range(4))
        picture = Value(v.type.but(dtype="u8", shape=shape), v.name)
        turned = picture if perm is None else ops.transpose(picture, perm=perm)
        mine = [_of(given, v, axis, i, usual) for given, usual in ((mean, 0.0), (std, 1.0))]
        made = _normalized(turned, axis, *mine)
        v.name = made.name = f"{picture.name}_normalized"
        graph.replace(v, made)
        graph.inputs[i] = picture
        found.append(picture.name)
    if not found:
        shapes = ", ".join(f"'{v.name}' {v.type}" for v in graph.inputs)
        raise BadInput(f"no input is a picture of f32 with 1, 3 or 4 channels: {shapes}")
    return found


def channel_axis(v: Value, layout: str = "auto") -> int | None:
    """Where the channels of a picture are: first after the batch, or last."""
    last = channels_last(v.type, layout) if v.type.rank == 4 else None
    return None if last is None else 3 if last else 1


def _of(given: Any, v: Value, axis: int, place: int, usual: float) -> list[float]:
    """The numbers of one input, one for each channel; they may be given by name or in order."""
    if isinstance(given, Mapping):
        given = given.get(v.name)
    elif isinstance(given, Sequence) and given and isinstance(given[0], Sequence):
        given = given[place] if place < len(given) else None
    if given is None or (isinstance(given, Sequence) and not given):
        given = usual
    numbers = np.asarray(given, np.float64).reshape(-1)
    if numbers.size not in (1, v.shape[axis]):
        raise BadInput(f"{numbers.size} numbers for the {v.shape[axis]} channels of '{v.name}'")
    return [float(x) for x in np.broadcast_to(numbers, (v.shape[axis],))]


def _normalized(picture: Value, axis: int, mean: list[float], std: list[float]) -> Value:
    """One part for each run of channels that share their numbers."""
    if not all(std):
        raise BadInput(f"std is {std}; it cannot be 0")
    parts, start = [], 0
    for c in range(1, len(mean) + 1):
        if c < len(mean) and (mean[c], std[c]) == (mean[start], std[start]):
            continue
        part = ops.part(picture, start, c, axis=axis) if c - start < len(mean) else picture
        scale, zero = constant(1 / std[start], dtype="f32"), constant(0, dtype="u8")
        real = ops.dequantize_linear(part, scale, zero)
        parts.append(ops.sub(real, constant(mean[start] / std[start], dtype="f32")))
        start = c
    made: Value = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=axis)
    return made
