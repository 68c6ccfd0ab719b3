"""How a picture becomes an input: kept in a graph's metadata, and in the package made from it.

A format says what is left to do outside of the graph. Preprocessing that becomes part of the graph
(`frontends.preprocess`) is taken out of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import numpy as np

from intaglio.errors import BadInput, option
from intaglio.ir import Graph

KEY = "intaglio.preprocessing"  # of Graph.metadata; ONNX files carry it as a metadata property
COLORS = ("rgb", "bgr")
RESIZES = ("stretch", "letterbox", "crop")
GREY = 114.0  # the pixels beside a letterboxed picture, as YOLO models are trained


@dataclass(frozen=True)
class PictureFormat:
    """The preprocessing of one input, outside of the graph."""

    layout: str  # of the input: nchw or nhwc
    color: str = "rgb"  # the order of its channels: rgb or bgr
    resize: str = "stretch"  # stretch, letterbox or crop
    pad_value: float = GREY  # of pixels beside a letterbox
    mean: tuple[float, ...] | None = None  # of pixels from 0 to 255, in the input's channel order
    std: tuple[float, ...] | None = None
    # Height and width that the graph itself letterboxes the input to; boxes refer to it.
    inner_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name, known in (("layout", ("nchw", "nhwc")), ("color", COLORS), ("resize", RESIZES)):
            if getattr(self, name) not in known:
                raise BadInput(f"{name} is {getattr(self, name)!r}; use one of {', '.join(known)}")

    def inside(
        self,
        axis: int,
        perm: tuple[int, ...] | None,
        swap: bool,
        normal: bool,
        inner_size: tuple[int, int] | None,
    ) -> PictureFormat:
        """The format once some steps are part of the graph.

        `axis`: the channel axis of the model's own input. `perm`: the transposition to it. `swap`:
        red and blue change places. `normal`: mean and std. `inner_size`: a letterbox to this size.
        """
        given = axis if perm is None else perm[axis]
        result = replace(self, layout="nchw" if given <= 1 else "nhwc")
        if swap:
            result = result.swapped()
        if normal:
            result = replace(result, mean=None, std=None)
        if inner_size:
            result = replace(result, resize="letterbox", inner_size=inner_size)
        return result

    def swapped(self) -> PictureFormat:
        """With red and blue in the opposite order."""
        return replace(
            self,
            color=COLORS[1 - COLORS.index(self.color)],
            mean=_swapped(self.mean),
            std=_swapped(self.std),
        )


def _swapped(numbers: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if numbers is None or len(numbers) < 3:
        return numbers
    return (*numbers[2::-1], *numbers[3:])


def formats_of(metadata: Mapping[str, Any]) -> dict[str, PictureFormat]:
    """The formats that a graph's metadata has, by input; BadInput if they are damaged."""
    try:
        return parse(json.loads(metadata.get(KEY, "{}")))
    except ValueError as e:
        raise BadInput(f"metadata '{KEY}' is not JSON ({e}); remove it") from None


def parse(content: Any) -> dict[str, PictureFormat]:
    """Formats by input, from plain data."""
    try:
        return msgspec.convert(content, dict[str, PictureFormat], strict=False)
    except msgspec.ValidationError as e:
        raise BadInput(f"preprocessing in the metadata is damaged ({e}); compile again") from None


def plain(formats: Mapping[str, PictureFormat]) -> dict[str, Any]:
    """Formats as JSON data, without fields that are None."""
    return {
        name: {k: v for k, v in asdict(f).items() if v is not None} for name, f in formats.items()
    }


def keep(graph: Graph, formats: Mapping[str, PictureFormat]) -> None:
    """Set the formats of some inputs of a graph."""
    known = formats_of(graph.metadata) | dict(formats)
    if known:
        graph.metadata[KEY] = json.dumps(plain(known))


def describe(
    graph: Graph,
    images: Mapping[str, bool],
    means: Mapping[str, Any] | None = None,
    stds: Mapping[str, Any] | None = None,
    *,
    resize: str | None = None,
    color: str | None = None,
    pad_value: Any = GREY,
) -> None:
    """Set the formats of the inputs that are images, without a change of the graph.

    `images` says of each whether its channels are the last axis. Options that are None keep the
    value that the metadata has.
    """
    for name, word, known in (("color", color, COLORS), ("resize", resize, RESIZES)):
        if word is not None and word not in known:
            raise BadInput(f"{option(name, word)}: it is one of {', '.join(known)}")
    formats = formats_of(graph.metadata)
    for n, last in images.items():
        given: dict[str, Any] = {"color": color, "resize": resize}
        given |= {"mean": _numbers(means, n), "std": _numbers(stds, n)}
        if resize == "letterbox":
            pad = pad_value.get(n) if isinstance(pad_value, Mapping) else pad_value
            given["pad_value"] = float(GREY if pad is None else pad)
        before = formats.get(n) or PictureFormat("nhwc" if last else "nchw")
        formats[n] = replace(before, **{k: g for k, g in given.items() if g is not None})
    keep(graph, formats)


def _numbers(by_input: Mapping[str, Any] | None, name: str) -> tuple[float, ...] | None:
    given = (by_input or {}).get(name)
    return None if given is None else tuple(np.atleast_1d(given).astype(float).tolist())
