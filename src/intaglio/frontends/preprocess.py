"""What belongs to a model but is done before it, put into the graph: pictures as cameras give them.

In this order: the input's layout, red and blue swapped, bytes as numbers, letterbox, mean and
deviation; then the model; then the outputs' layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.image_transform import ImageTransform
from intaglio.ir import Array, Graph, Type, Value

CHANNELS = (1, 3, 4)  # that pictures have
INPUTS = {"same": None, "float": "f32", "float32": "f32", "uint8": "u8"}
LAYOUTS = {"nchw": 1, "nhwc": 3}  # and their axis of channels
TURNS = {(1, 3): (0, 3, 1, 2), (3, 1): (0, 2, 3, 1)}  # model's axis, given axis -> permutation
FIRST, BACK = TURNS[1, 3], TURNS[3, 1]  # channels first, and last again
LARGEST = 1 << 14  # pixels of a side
# Keywords of `intaglio.load` that are for this module.
OPTIONS = (
    "input_type",
    "mean",
    "std",
    "swap_rb",
    "input_layout",
    "letterbox",
    "pad_value",
    "input_range",
    "output_layout",
    "layout",
)


def split_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords for preprocessing, and the others."""
    mine = {k: v for k, v in given.items() if k in OPTIONS}
    return mine, {k: v for k, v in given.items() if k not in OPTIONS}


def preprocess(
    graph: Graph,
    *,
    input_type: Any = None,
    mean: Any = None,
    std: Any = None,
    swap_rb: Any = False,
    input_layout: Any = None,
    letterbox: Any = None,
    pad_value: Any = 114.0,
    input_range: Any = None,
    output_layout: Any = None,
    layout: str = "auto",
) -> list[str]:
    """Change what a graph takes and gives, in place; returns the names of the inputs that changed.

    `input_type` "uint8": pictures come as bytes. `mean` and `std`: x = (pixel - mean) / std, one
    number for each channel in the model's order, or one for all. `swap_rb`: red and blue come in
    the other order than the model wants. `input_layout` "nhwc" or "nchw", or a permutation: how
    pictures come. `letterbox` (height, width): they come in this size; they are fitted into the
    model's and the rest is `pad_value`. `input_range` (0, 1): what bytes 0 and 255 mean, to which
    `mean` and `std` then belong. `output_layout`: of outputs with four axes. `layout`: where the
    model itself has its channels. All but the last two may be mappings by the input's name.
    """
    layout = str(layout).lower()
    if layout not in ("auto", *LAYOUTS):
        raise BadInput(f"layout is '{layout}'; it is one of auto, {', '.join(LAYOUTS)}")
    inputs = [(v.name, v.type) for v in graph.inputs if v.name not in graph.state]
    asked = {
        "input_type": input_type,
        "swap_rb": swap_rb or None,
        "input_layout": input_layout,
        "letterbox": letterbox,
        "input_range": input_range,
    }
    takers = [n for n, t in inputs if channel_axis(t, layout) is not None]
    wanted = {k: _by_name(k, v, inputs, takers) for k, v in asked.items()}
    pads = _by_name("pad_value", pad_value, inputs, takers)
    means, stds = (per_input(k, v, inputs, takers) for k, v in (("mean", mean), ("std", std)))
    if not takers and any(v is not None for v in (*asked.values(), mean, std)):
        _only_turned(asked, mean, std, inputs)
    model_axis = next((channel_axis(t, layout) for _, t in inputs if channel_axis(t, layout)), None)
    changed = []
    for i, v in enumerate(graph.inputs):
        if v.name in graph.state:
            continue
        of: dict[str, Any] = {k: found[v.name] for k, found in wanted.items()}
        m, s = means[v.name], stds[v.name]
        if all(g is None for g in (*of.values(), m, s)):
            continue
        axis = channel_axis(v.type, layout)
        checked = _checked(v, axis, of, m, s)
        turned = axis == LAYOUTS["nhwc"] and _turned_at_once(v)
        if turned:
            perm = checked["perm"] or (0, 1, 2, 3)
            checked["perm"] = None if perm == BACK else tuple(perm[k] for k in FIRST)
            v, axis = _turned(graph, v), 1
        picture, made = ImageTransform(
            v, axis, pad_value=float(pads[v.name] or 0.0), **checked
        ).build()
        if made is picture and picture.type == v.type and not turned:
            continue
        v.name = f"{picture.name}_prepared"
        made.name = made.name or v.name
        graph.replace(v, made)
        graph.inputs[i] = picture
        changed.append(picture.name)
    if output_layout is not None:
        _turn_outputs(graph, str(output_layout), model_axis)
    return changed


def _turned_at_once(v: Value) -> bool:
    """Is it a picture with its channels last, of which the model reads nothing but the turned one?

    Then it is prepared after that: the convolution that follows can take it in.
    """
    return bool(v.uses) and all(
        n.op == "transpose" and tuple(n.attrs["perm"]) == FIRST for n in v.uses
    )


def _turned(graph: Graph, v: Value) -> Value:
    """What all who turn `v` make of it, as one value that nothing makes yet."""
    made = Value(v.type.but(shape=tuple(v.shape[k] for k in FIRST)), v.name)
    for node in list(v.uses):
        graph.replace(node.outputs[0], made)
    return made


def channel_axis(t: Type, layout: str = "auto") -> int | None:
    """Where the channels of a picture are: first after the batch, or last."""
    last = channels_last(t, layout) if t.rank == 4 else None
    return None if last is None else 3 if last else 1


def channels_last(t: Type, layout: str) -> bool | None:
    """Where the channels are; None where there is no such axis."""
    if t.rank not in (3, 4):
        return None
    first, last = t.shape[-3], t.shape[-1]
    if layout != "auto":
        there = last if layout == "nhwc" else first
        return layout == "nhwc" if there in CHANNELS else None
    for channels in (3, 1, 4):  # the likelier first: 4 is also a height
        if channels in (first, last):
            return first != channels
    return None


# ---- what is asked for, input by input -----------------------------------------------------------
def _by_name(what: str, given: Any, inputs: Sequence[tuple[str, Type]], takers: list[str]) -> Any:
    """An option for each input: what is named, or the same for all pictures."""
    names = [n for n, _ in inputs]
    if not isinstance(given, Mapping):
        lone = not takers and len(names) == 1  # permutations are for any input
        return {n: given if n in takers or lone else None for n in names}
    for name in given:
        if name not in names:
            raise BadInput(f"{what} is given for '{name}'; inputs are {', '.join(names)}")
    return {n: given.get(n) for n in names}


def per_input(
    what: str, given: Any, inputs: Sequence[tuple[str, Type]], takers: list[str]
) -> dict[str, Any]:
    """`mean` or `std` by input: numbers for all that take pictures, lists, or a dict by name."""
    types = dict(inputs)
    if isinstance(given, Mapping):
        if unknown := [n for n in given if n not in types]:
            raise BadInput(f"{what} is given for '{unknown[0]}'; inputs are {', '.join(types)}")
        found = {n: given.get(n) for n in types}
    elif given is None or np.isscalar(given) or all(np.isscalar(g) for g in given):
        found = {n: given if n in takers or not takers else None for n in types}
    elif len(given) != len(types):
        raise BadInput(
            f"{what} has {len(given)} lists, the model has {len(types)} inputs: {', '.join(types)}"
        )
    else:
        found = dict(zip(types, given, strict=True))
    for n, g in found.items():
        if g is not None and n not in takers:
            raise BadInput(f"{what} is given for input '{n}' {types[n]}, which takes no pictures")
    return found


def per_channel(what: str, given: Any, name: str, channels: int) -> Array | None:
    """One number for each channel."""
    if given is None:
        return None
    try:
        numbers = np.atleast_1d(np.asarray(given, np.float32))
    except (TypeError, ValueError):
        raise BadInput(f"{what} is {given!r}; give numbers, one for each channel") from None
    if numbers.shape not in ((1,), (channels,)):
        raise BadInput(
            f"{what} has {numbers.size} numbers, input '{name}' has {channels} channels; "
            "give one for each, or one for all"
        )
    if not np.isfinite(numbers).all() or (what == "std" and (numbers <= 0).any()):
        shown = ", ".join(f"{n:g}" for n in numbers.tolist())
        raise BadInput(f"{what} is {shown}; it must be finite{' and above 0' * (what == 'std')}")
    return np.broadcast_to(numbers, (channels,))


def _only_turned(
    asked: Mapping[str, Any], mean: Any, std: Any, inputs: Sequence[tuple[str, Type]]
) -> None:
    """Where no input is a picture, nothing but a permutation of its axes can be asked for."""
    turned = asked["input_layout"]
    turns = (turned.values() if isinstance(turned, Mapping) else [turned]) if turned else []
    rest = [mean, std, *(v for k, v in asked.items() if k != "input_layout")]
    if any(v is not None for v in rest) or any(str(t).lower() in LAYOUTS for t in turns):
        shapes = ", ".join(f"'{n}' {t}" for n, t in inputs)
        raise BadInput(
            f"no input is a picture, [N, C, H, W] or [N, H, W, C] with 1, 3 or 4 channels: {shapes}"
        )


def _checked(v: Value, axis: int | None, of: Mapping[str, Any], mean: Any, std: Any) -> Any:
    """The options of one input, in the form that is built from."""
    kind, name = str(of["input_type"] or "same").lower(), f"input '{v.name}' {v.type}"
    if kind not in INPUTS:
        raise BadInput(f"input_type is '{of['input_type']}'; known are {', '.join(INPUTS)}")
    rest = (of["input_type"], of["swap_rb"], of["letterbox"], of["input_range"], mean, std)
    if axis is None and any(g is not None for g in rest):
        raise BadInput(
            f"{name} is no picture with 1, 3 or 4 channels; only permutations of its "
            "axes can be given for it"
        )
    whole = not dtypes.is_float(v.dtype)
    changes = mean is not None or std is not None or of["letterbox"] is not None
    if whole and v.type.quant is None and (changes or kind not in ("same", "uint8")):
        raise BadInput(f"{name} takes integers as they are; leave out mean, std and letterbox")
    channels = 0 if axis is None else v.shape[axis]
    if of["swap_rb"] and channels < 3:
        raise BadInput(f"swap_rb is for red, green and blue; {name} has {channels} channel")
    dtype = INPUTS[kind] or ("f32" if whole and changes else v.dtype)
    return {
        "dtype": dtype,
        "perm": _permutation("input_layout", of["input_layout"], v, axis),
        "swap": bool(of["swap_rb"]),
        "size": _size(of["letterbox"]),
        "bounds": _bounds(of["input_range"], dtype),
        "mean": per_channel("mean", mean, v.name, channels),
        "std": per_channel("std", std, v.name, channels),
    }


def _permutation(what: str, given: Any, v: Value, axis: int | None) -> tuple[int, ...] | None:
    """How what comes is turned to what the model takes."""
    if given is None or str(given).lower() == "same":
        return None
    words = str(given).lower() if isinstance(given, str) else ",".join(map(str, given))
    if words in LAYOUTS and v.type.rank == 4 and axis is not None:
        return TURNS.get((axis, LAYOUTS[words]))
    try:
        perm = tuple(int(p) for p in words.split(","))
    except ValueError:
        perm = ()
    if sorted(perm) != list(range(v.type.rank)):
        raise BadInput(
            f"{what} is '{words}'; it is one of {', '.join(LAYOUTS)}, or a permutation "
            f"of the {v.type.rank} axes of {v.type}"
        )
    return perm


def _size(given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    try:
        height, width = (int(n) for n in given)
    except (TypeError, ValueError):
        height = width = 0
    if not 1 <= min(height, width) <= max(height, width) <= LARGEST:
        raise BadInput(f"letterbox is {given!r}; give the height and width of the pictures")
    return height, width


def _bounds(given: Any, dtype: str) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(n) for n in given)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (np.isfinite([low, high]).all() and low < high):
        raise BadInput(f"input_range is {given!r}; give what bytes 0 and 255 mean, (0, 1) say")
    if dtype != "u8":
        raise BadInput("input_range is for input_type 'uint8', which is not given")
    return low, high


# ---- outputs -------------------------------------------------------------------------------------
def _turn_outputs(graph: Graph, wanted: str, axis: int | None) -> None:
    words = wanted.lower()
    if words == "same":
        return
    if words in LAYOUTS and axis is None:
        raise BadInput(
            f"output_layout is '{words}', but no input tells where the model has its "
            "channels; give a permutation such as 0,2,3,1"
        )
    chosen = [i for i, v in enumerate(graph.outputs) if words not in LAYOUTS or v.type.rank == 4]
    chosen = [i for i in chosen if graph.output_names[i] not in graph.state]
    if words not in LAYOUTS:
        chosen = [i for i in chosen if graph.outputs[i].type.rank == words.count(",") + 1]
    if not chosen:
        shapes = ", ".join(
            f"'{n}' {v.type}" for n, v in zip(graph.output_names, graph.outputs, strict=True)
        )
        raise BadInput(f"output_layout is '{words}'; no output has that many axes: {shapes}")
    for i in chosen:
        v = graph.outputs[i]
        perm = (
            TURNS.get((LAYOUTS[words], axis))  # type: ignore[arg-type]
            if words in LAYOUTS
            else _permutation("output_layout", words, v, None)
        )
        if perm is not None:
            graph.set_input(graph.result, i, ops.transpose(v, perm=perm))
