"""The inputs of a built model as the RKNN API sees them: layout, mean, std, element type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.compat.rknn.config import Config
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Graph, Type
from intaglio.package import Package

KEY = "rknn"  # of the metadata of a package
PICTURE_CHANNELS = (1, 3, 4)
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
FORMATS = ("nhwc", "nchw")
TAKEN = ("uint8", "int8", "float32", "float16", "int16", "int32", "int64", "bool")


@dataclass(frozen=True)
class InputInfo:
    """One input: its shape is in the model's own layout."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    channels_last: bool  # of an input with four axes
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def layout(self) -> str:
        return "nhwc" if self.channels_last else "nchw"

    @property
    def channels(self) -> int:
        if len(self.shape) != 4:
            return 1
        return self.shape[3 if self.channels_last else 1]

    @property
    def normalizes(self) -> bool:
        return any(m != 0 for m in self.mean) or any(s != 1 for s in self.std)

    def shape_in(self, layout: str, shape: Sequence[int] | None = None) -> tuple[int, ...]:
        """A shape of the model as it is in `layout`."""
        own = tuple(self.shape if shape is None else shape)
        if len(own) != 4 or layout == self.layout:
            return own
        return tuple(own[i] for i in (TO_NHWC if layout == "nhwc" else TO_NCHW))

    def to_model(self, array: Array, layout: str) -> Array:
        """An array in `layout` with the axes of the model."""
        if array.ndim != 4 or layout == self.layout:
            return array
        return array.transpose(TO_NHWC if self.channels_last else TO_NCHW)

    def normalized(self, array: Array) -> Array:
        """(array - mean) / std, in f32; the array has the axes of the model."""
        if not self.normalizes:
            return array
        mean, std = self.per_channel()
        return (array.astype(np.float32) - mean) / std

    def raw(self, array: Array) -> Array:
        """The inverse of `normalized`."""
        mean, std = self.per_channel()
        return array.astype(np.float32) * std + mean

    def per_channel(self) -> tuple[Array, Array]:
        """Mean and std as arrays that broadcast along the channels."""
        along = (-1, 1, 1) if len(self.shape) == 4 and not self.channels_last else (-1,)
        mean, std = self.mean or (0.0,), self.std or (1.0,)
        pair = [np.asarray(v, np.float32).reshape(along) for v in (mean, std)]
        return pair[0], pair[1]

    def stored(self, array: Array) -> Array:
        """The array in the element type of the graph's input."""
        return np.ascontiguousarray(array, dtypes.numpy_of(self.dtype))


def inputs_of(graph: Graph, config: Config, channels_last: bool) -> list[InputInfo]:
    """The inputs of a loaded model with their mean and std; BadInput if these do not fit.

    As in the vendor's tool, inputs without a list have no mean and std, and more lists are ignored.
    """
    found = [v for v in graph.inputs if v.name not in graph.state]
    each = []
    for argument in ("mean_values", "std_values"):
        given: list[list[float] | None] = getattr(config, argument) or []
        each.append([*given, *[None] * len(found)][: len(found)])
    infos = []
    for v, mean, std in zip(found, *each, strict=True):
        if not dtypes.is_float(v.dtype):  # a quantised model takes pixels as they are
            mean = std = None
        info = InputInfo(v.name, v.shape, v.dtype, channels_last and v.type.rank == 4)
        mean_of = _checked(info, "mean_values", mean)
        std_of = _checked(info, "std_values", std)
        infos.append(replace(info, mean=mean_of, std=std_of))
    return infos


def other_counts(graph: Graph, config: Config) -> list[str]:
    """A warning for each of mean_values and std_values that has not one list for each input."""
    names = [v.name for v in graph.inputs if v.name not in graph.state]
    words = []
    for argument in ("mean_values", "std_values"):
        given = getattr(config, argument)
        if given is not None and len(given) != len(names):
            rest = ", ".join(names[len(given) :])
            meaning = f"{rest} stay as they are" if rest else "the rest is ignored"
            words.append(
                f"config({argument}=...) has lists for {len(given)} inputs, the model's inputs are "
                f"{len(names)}: {', '.join(names)}; {meaning}"
            )
    return words


def _checked(info: InputInfo, argument: str, values: list[float] | None) -> tuple[float, ...]:
    if values is None:
        return ()
    if len(values) not in (1, info.channels):
        raise BadInput(
            f"config({argument}=...) has {len(values)} numbers for input '{info.name}', which has "
            f"{info.channels} channel{'s' * (info.channels > 1)} (shape {list(info.shape)}); give "
            "one number per channel"
        )
    return tuple(values)


# ---- kept in the file ----------------------------------------------------------------------------
def write_inputs(graph: Graph, infos: Sequence[InputInfo], config: Config) -> None:
    """Keep the inputs and the custom string in the metadata of a graph, for `read_inputs`."""
    plain = {"inputs": [asdict(i) for i in infos], "platform": config.target_platform}
    if config.custom_string is not None:
        plain["custom_string"] = config.custom_string
    graph.metadata[KEY] = json.dumps(plain)


def read_inputs(package: Package) -> list[InputInfo]:
    """The inputs of a package that `export_rknn` wrote, or of any other package."""
    text = package.meta.get("metadata", {}).get(KEY)
    if text is None:
        return [_plain(name, t) for name, t in package.inputs.items()]
    try:
        found = [input_from_json(one) for one in json.loads(text)["inputs"]]
        refuse_other_inputs(found, package.inputs)
        return found
    except (ValueError, TypeError, KeyError) as e:
        raise BadFile(
            f"metadata '{KEY}' of the package is damaged ({e}); export it again"
        ) from None


def refuse_other_inputs(infos: Sequence[InputInfo], types: Mapping[str, Type]) -> None:
    """ValueError unless these are the inputs of a model, with as many axes."""
    if sorted(i.name for i in infos) != sorted(types):
        raise ValueError(f"inputs are {', '.join(i.name for i in infos)}")
    for i in infos:
        if len(i.shape) != types[i.name].rank:
            raise ValueError(f"'{i.name}' has {len(i.shape)} axes")
        for numbers in (i.mean, i.std):
            if len(numbers) not in (0, 1, i.channels):
                raise ValueError(f"'{i.name}' has {len(numbers)} numbers for {i.channels} channels")


def _plain(name: str, t: Type) -> InputInfo:
    last = t.rank == 4 and t.shape[3] in PICTURE_CHANNELS and t.shape[1] not in PICTURE_CHANNELS
    return InputInfo(name, t.shape, t.dtype, last)


def input_from_json(one: dict[str, Any]) -> InputInfo:
    """The inverse of `asdict`, checked."""
    if str(one["dtype"]) not in dtypes.TABLE:
        raise ValueError(f"element type {one['dtype']!r}")
    mean, std = (tuple(float(x) for x in one[k]) for k in ("mean", "std"))
    shape = tuple(int(d) for d in one["shape"])
    last = bool(one["channels_last"])
    return InputInfo(str(one["name"]), shape, str(one["dtype"]), last, mean, std)
