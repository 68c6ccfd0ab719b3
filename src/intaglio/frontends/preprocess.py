"""Preprocessing inside of the graph: layout, uint8 input, channel swap, letterbox, mean and std.

The steps are, in this order: transpose to the model's layout, swap red and blue, cast from uint8,
letterbox, mean and std; then the model; then the layout of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, option
from intaglio.frontends import picture_format
from intaglio.frontends.image_transform import ImageTransform
from intaglio.frontends.picture_format import GREY
from intaglio.ir import Array, Graph, Type, Value

CHANNELS = (1, 3, 4)  # that an image may have
INPUTS = {"same": None, "float": "f32", "float32": "f32", "uint8": "u8"}
LAYOUTS = {"nchw": 1, "nhwc": 3}  # layout -> channel axis
PERMUTATIONS = {(1, 3): (0, 3, 1, 2), (3, 1): (0, 2, 3, 1)}  # (model's, given channel axis)
TO_NCHW, TO_NHWC = PERMUTATIONS[1, 3], PERMUTATIONS[3, 1]
MAX_SIDE = 1 << 14  # pixels
# Keyword arguments of `intaglio.load` that `preprocess` takes.
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
    "resize",
    "color",
)


def split_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments of `preprocess`, and all other ones."""
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
    pad_value: Any = GREY,
    input_range: Any = None,
    output_layout: Any = None,
    layout: str = "auto",
    resize: str | None = None,
    color: str | None = None,
) -> list[str]:
    """Add preprocessing to a graph, in place; returns the names of the changed inputs.

    `input_type` "uint8": the input takes bytes. `mean` and `std`: x = (pixel - mean) / std, one
    number per channel in the model's order, or one for all. `swap_rb`: the image has red and blue
    in the opposite order. `input_layout`: "nhwc", "nchw" or a permutation of the image's axes.
    `letterbox` (height, width): images have this size; they are scaled to fit the model's size and
    padded with `pad_value`. `input_range` (0, 1): the values of bytes 0 and 255, before `mean` and
    `std`. `output_layout`: layout of outputs with four axes. `layout`: layout of the model itself.
    These options may be mappings by input name, except the last two. Otherwise they are for all
    images [N, C, H, W] or [N, H, W, C], or for the only input, which may have any rank: one of
    rank 3 or 5 may have channels too, and any other takes one `mean` and one `std`.

    `resize` ("stretch", "letterbox" or "crop") and `color` (the model's channel order, "rgb" or
    "bgr") do not change the graph. They are kept beside it for programs that give pictures to the
    model: `intaglio run` and `intaglio.vision`.
    """
    layout = str(layout).lower()
    if layout not in ("auto", *LAYOUTS):
        raise BadInput(f"layout is '{layout}'; use one of auto, {', '.join(LAYOUTS)}")
    inputs = [(v.name, v.type) for v in graph.inputs if v.name not in graph.state]
    asked = {
        "input_type": input_type,
        "swap_rb": swap_rb or None,
        "input_layout": input_layout,
        "letterbox": letterbox,
        "input_range": input_range,
    }
    pictures = [n for n, t in inputs if t.rank == 4 and channel_axis(t, layout) is not None]
    names = [n for n, _ in inputs]
    images = pictures or names * (len(names) == 1)
    wanted = {k: _by_name(k, v, inputs, images) for k, v in asked.items()}
    pads = _by_name("pad_value", pad_value, inputs, images)
    means, stds = (
        per_input(k, v, inputs, names if isinstance(v, Mapping) else images)
        for k, v in (("mean", mean), ("std", std))
    )
    if not images:
        _refuse_unnamed({**asked, "mean": mean, "std": std}, inputs)
    axes = [channel_axis(t, layout) for _, t in inputs if t.rank == 4]
    model_axis = next((a for a in axes if a is not None), None)
    if pictures and any(g is not None for g in (resize, color, *asked.values(), mean, std)):
        last = {n: channels_last(t, layout) is True for n, t in inputs if n in pictures}
        picture_format.describe(graph, last, resize=resize, color=color, pad_value=pads)
    formats = picture_format.formats_of(graph.metadata)
    changed = []
    for i, v in enumerate(graph.inputs):
        if v.name in graph.state:
            continue
        of: dict[str, Any] = {k: found[v.name] for k, found in wanted.items()}
        m, s = means[v.name], stds[v.name]
        if all(g is None for g in (*of.values(), m, s)):
            continue
        axis = channel_axis(v.type, layout)
        if v.name in formats and of["input_type"] == "uint8" and m is None and s is None:
            m, s = formats[v.name].mean, formats[v.name].std  # as `quantize` left them
        checked = _checked(v, axis, of, m, s)
        transposed = axis == LAYOUTS["nhwc"] and _only_transposed(v)
        if transposed:
            perm = checked["perm"] or (0, 1, 2, 3)
            checked["perm"] = None if perm == TO_NHWC else tuple(perm[k] for k in TO_NCHW)
            v, axis = _transposed(graph, v), 1
        image, made = ImageTransform(
            v, axis, pad_value=float(pads[v.name] or 0.0), **checked
        ).build()
        if made is image and image.type == v.type and not transposed:
            continue
        if axis is not None and image.name in formats:
            formats[image.name] = formats[image.name].inside(
                axis,
                checked["perm"],
                checked["swap"],
                m is not None or s is not None,
                _spatial(v.type, axis) if checked["size"] else None,
            )
        v.name = f"{image.name}_prepared"
        made.name = made.name or v.name
        graph.replace(v, made)
        graph.inputs[i] = image
        changed.append(image.name)
    picture_format.keep(graph, formats)
    if output_layout is not None:
        _transpose_outputs(graph, str(output_layout), model_axis)
    return changed


def describe(graph: Graph, *, layout: str, mean: Any, std: Any, **given: Any) -> None:
    """Keep in the graph's metadata how pictures become its inputs; the graph stays the same."""
    inputs = [(v.name, v.type) for v in graph.inputs if v.name not in graph.state]
    images = {n: last for n, t in inputs if (last := channels_last(t, layout)) is not None}
    means, stds = (per_input(k, v, inputs, [*images]) for k, v in (("mean", mean), ("std", std)))
    picture_format.describe(graph, images, means, stds, **given)


def _spatial(t: Type, axis: int) -> tuple[int, int]:
    """Height and width."""
    height, width = t.shape[2:] if axis == 1 else t.shape[1:3]
    return height, width


def _only_transposed(v: Value) -> bool:
    """Whether every reader of this NHWC input transposes it to NCHW.

    Then the preprocessing goes after the transpose, where a convolution can fuse it.
    """
    return bool(v.uses) and all(
        n.op == "transpose" and tuple(n.attrs["perm"]) == TO_NCHW for n in v.uses
    )


def _transposed(graph: Graph, v: Value) -> Value:
    """A new value that replaces the results of all transposes of `v`."""
    made = Value(v.type.but(shape=tuple(v.shape[k] for k in TO_NCHW)), v.name)
    for node in list(v.uses):
        graph.replace(node.outputs[0], made)
    return made


def channel_axis(t: Type, layout: str = "auto") -> int | None:
    """The channel axis of an image, an image without a batch, or a video; None if it has none."""
    image = t if t.rank != 5 else t.but(shape=(t.shape[0], t.shape[1], *t.shape[3:]))
    last = channels_last(image, layout)
    return None if last is None else t.rank - 1 if last else int(t.rank > 3)


def channels_last(t: Type, layout: str) -> bool | None:
    """Whether the channels are the last axis; None if no axis has 1, 3 or 4 channels."""
    if t.rank not in (3, 4):
        return None
    first, last = t.shape[-3], t.shape[-1]
    if layout != "auto":
        there = last if layout == "nhwc" else first
        return layout == "nhwc" if there in CHANNELS else None
    for channels in (3, 1, 4):  # most likely first: 4 may also be a height
        if channels in (first, last):
            return first != channels
    return None


# ---- options per input ---------------------------------------------------------------------------
def _by_name(what: str, given: Any, inputs: Sequence[tuple[str, Type]], images: list[str]) -> Any:
    """An option by input name: from a mapping, or the same for all images."""
    names = [n for n, _ in inputs]
    if not isinstance(given, Mapping):
        lone = not images and len(names) == 1  # permutations suit any input
        return {n: given if n in images or lone else None for n in names}
    for name in given:
        if name not in names:
            raise BadInput(f"{what} is given for '{name}'; inputs are {', '.join(names)}")
    return {n: given.get(n) for n in names}


def per_input(
    what: str, given: Any, inputs: Sequence[tuple[str, Type]], images: list[str]
) -> dict[str, Any]:
    """`mean` or `std` by input name: numbers for all images, one list each, or a mapping."""
    types = dict(inputs)
    if isinstance(given, Mapping):
        if unknown := [n for n in given if n not in types]:
            raise BadInput(f"{what} is given for '{unknown[0]}'; inputs are {', '.join(types)}")
        found = {n: given.get(n) for n in types}
    elif given is None or np.isscalar(given) or all(np.isscalar(g) for g in given):
        found = {n: given if n in images or not images else None for n in types}
    elif len(given) != len(types):
        raise BadInput(
            f"{what} has {len(given)} lists; one per input is needed: {', '.join(types)}"
        )
    else:
        found = dict(zip(types, given, strict=True))
    for n, g in found.items():
        if g is not None and n not in images:
            raise BadInput(f"{what} is given for input '{n}' {types[n]}, which is not an image")
    return found


def per_channel(what: str, given: Any, name: str, channels: int) -> Array | None:
    """One number per channel."""
    if given is None:
        return None
    try:
        numbers = np.atleast_1d(np.asarray(given, np.float32))
    except (TypeError, ValueError):
        raise BadInput(f"{what} is {given!r}; give numbers, one per channel") from None
    if numbers.shape not in ((1,), (channels,)):
        raise BadInput(
            f"{what} has {numbers.size} numbers, input '{name}' has {channels} channels; "
            "give one per channel, or one for all"
        )
    if not np.isfinite(numbers).all() or (what == "std" and (numbers <= 0).any()):
        shown = ", ".join(f"{n:g}" for n in numbers.tolist())
        raise BadInput(f"{what} is {shown}; it must be finite{' and above 0' * (what == 'std')}")
    return np.broadcast_to(numbers, (channels,))


def _refuse_unnamed(asked: Mapping[str, Any], inputs: Sequence[tuple[str, Type]]) -> None:
    """BadInput if an option is given for no input by name, and no input is an image."""
    for what, given in asked.items():
        if given is not None and not isinstance(given, Mapping):
            shapes = ", ".join(f"'{n}' {t}" for n, t in inputs)
            example = option(what, {inputs[0][0]: ...}) if inputs else option(what)
            raise BadInput(
                "no input is an image, [N, C, H, W] or [N, H, W, C] with 1, 3 or 4 channels: "
                f"{shapes}; name the input, as in {example}"
            )


def _checked(v: Value, axis: int | None, of: Mapping[str, Any], mean: Any, std: Any) -> Any:
    """The checked options of one input, as arguments of ImageTransform."""
    kind, name = str(of["input_type"] or "same").lower(), f"input '{v.name}' {v.type}"
    if kind not in INPUTS:
        raise BadInput(f"input_type is '{of['input_type']}'; use one of {', '.join(INPUTS)}")
    if of["letterbox"] is not None and (axis is None or v.type.rank != 4):
        raise BadInput(f"letterbox is for images with four axes; {name} is not an image")
    whole = not dtypes.is_float(v.dtype)
    changes = mean is not None or std is not None or of["letterbox"] is not None
    if whole and v.type.quant is None and (changes or kind not in ("same", "uint8")):
        raise BadInput(
            f"{name} takes integers that are not quantised; leave out mean, std and letterbox"
        )
    channels = 1 if axis is None else v.shape[axis]
    if of["swap_rb"] and channels < 3:
        raise BadInput(f"swap_rb needs 3 or 4 channels; {name} has {channels}")
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
    """The permutation from the given layout to the model's; None if they are equal."""
    if given is None or str(given).lower() == "same":
        return None
    axes = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    words = ",".join(map(str, axes)).lower()
    if words in LAYOUTS and v.type.rank == 4 and axis is not None:
        return PERMUTATIONS.get((axis, LAYOUTS[words]))
    try:
        perm = tuple(int(p) for p in words.split(","))
    except ValueError:
        perm = ()
    if sorted(perm) != list(range(v.type.rank)):
        raise BadInput(
            f"{what} is '{words}'; use one of {', '.join(LAYOUTS)}, or a permutation "
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
    if not 1 <= min(height, width) <= max(height, width) <= MAX_SIDE:
        raise BadInput(f"letterbox is {given!r}; give the height and width of the images")
    return height, width


def _bounds(given: Any, dtype: str) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(n) for n in given)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (np.isfinite([low, high]).all() and low < high):
        raise BadInput(
            f"input_range is {given!r}; give the values of bytes 0 and 255, such as (0, 1)"
        )
    if dtype != "u8":
        raise BadInput("input_range is given without input_type 'uint8', which it needs")
    return low, high


# ---- outputs -------------------------------------------------------------------------------------
def _transpose_outputs(graph: Graph, wanted: str, axis: int | None) -> None:
    words = wanted.lower()
    if words == "same":
        return
    if words in LAYOUTS and axis is None:
        raise BadInput(
            f"output_layout is '{words}', but no input shows the model's "
            "layout; give a permutation such as 0,2,3,1"
        )
    chosen = [i for i, v in enumerate(graph.outputs) if words not in LAYOUTS or v.type.rank == 4]
    chosen = [i for i in chosen if graph.output_names[i] not in graph.state]
    if words not in LAYOUTS:
        chosen = [i for i in chosen if graph.outputs[i].type.rank == words.count(",") + 1]
    if not chosen:
        shapes = ", ".join(
            f"'{n}' {v.type}" for n, v in zip(graph.output_names, graph.outputs, strict=True)
        )
        raise BadInput(f"output_layout is '{words}'; no output has as many axes: {shapes}")
    for i in chosen:
        v = graph.outputs[i]
        perm = (
            PERMUTATIONS.get((LAYOUTS[words], axis))  # type: ignore[arg-type]
            if words in LAYOUTS
            else _permutation("output_layout", words, v, None)
        )
        if perm is not None:
            graph.set_input(graph.result, i, ops.transpose(v, perm=perm))
