"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import numpy as np

from intaglio.array_files import read_npy, read_npz
from intaglio.cli.help import ModelCommand as ModelCommand
from intaglio.cli.help import add_input_group, help_input_option
from intaglio.errors import BadInput
from intaglio.frontends.ranges import parse_range
from intaglio.ir import Array
from intaglio.open_graph import at_sizes

F = TypeVar("F", bound=Callable[..., Any])


def _numbers(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Any:
    """`1,2,3` for all inputs, or NAME=1,2,3 for each of several."""
    flag = parameter.opts[0]

    def read(numbers: str) -> list[float]:
        try:
            return [float(n) for n in numbers.split(",")]
        except ValueError:
            raise BadInput(f"{flag} takes numbers such as 1,2,3, not {numbers!r}") from None

    return _by_name(flag, given, read)


def _extents(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Any:
    """`480x640` for all inputs, or NAME=480x640 for each of several."""
    flag = parameter.opts[0]
    return _by_name(flag, given, lambda text: [_whole(flag, p) for p in text.split("x")])


def _words(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Any:
    """A word for all inputs, or NAME=WORD for each of several."""
    return _by_name(parameter.opts[0], given, str.lower)


def _by_name(flag: str, given: Sequence[str], read: Callable[[str], Any]) -> Any:
    named: dict[str, Any] = {}
    for text in given:
        name, _, value = text.rpartition("=")
        if not name and len(given) == 1:
            return read(value)
        if not name:
            raise BadInput(f"{flag} is given {len(given)} times; give NAME={value} for each input")
        named[name] = read(value)
    return named or None


_PICTURE_OPTIONS = [
    click.option(
        "--input-type",
        multiple=True,
        callback=_words,
        metavar="TYPE",
        help="uint8: the package takes images as bytes, and --mean and --std become part of it. "
        "[default: the model's type]",
    ),
    click.option(
        "--mean",
        multiple=True,
        callback=_numbers,
        metavar="R,G,B",
        help="Subtracted from each channel of the pixels (0 to 255), in the model's channel order.",
    ),
    click.option(
        "--std",
        multiple=True,
        callback=_numbers,
        metavar="R,G,B",
        help="Divisor of each channel after the mean is subtracted.",
    ),
    click.option(
        "--swap-rb",
        is_flag=True,
        help="Swap red and blue: images and model have opposite channel orders.",
    ),
    click.option(
        "--input-layout",
        multiple=True,
        callback=_words,
        metavar="NHWC|NCHW|0,3,1,2",
        help="Layout of input images, independent of the model's own layout.",
    ),
    click.option(
        "--letterbox",
        multiple=True,
        callback=_extents,
        metavar="HEIGHTxWIDTH",
        help="Size of input images; they are resized into the model's size and padded.",
    ),
    click.option(
        "--pad", "pad_value", default=114.0, show_default=True, help="Pixel value of the padding."
    ),
    click.option(
        "--input-range",
        multiple=True,
        callback=_numbers,
        metavar="0,1",
        help="Real values of bytes 0 and 255, to which --mean and --std refer [default: 0,255].",
    ),
    click.option(
        "--output-layout",
        metavar="NHWC|NCHW|0,2,3,1",
        help="Transpose the outputs that have four axes.",
    ),
    click.option(
        "--layout",
        default="auto",
        show_default=True,
        type=click.Choice(["auto", "nchw", "nhwc"], case_sensitive=False),
        help="Layout of the model's own inputs.",
    ),
]

_MODEL_OPTIONS = [
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1x3x224x224",
        help="Fix the shape of an input. An extent may be a range: NAME=1..8x3x64..640:32x224. "
        "NAME=1x20:i64 also sets the element type, for PyTorch and TensorFlow files that do not "
        "store it.",
    ),
    click.option(
        "--shapes",
        "shape_lists",
        multiple=True,
        metavar="NAME=1x16,1x64",
        help="Compile for several shapes of an input: one package runs all of them. Lists of "
        "several inputs belong together by their order.",
    ),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="SYMBOL=1|1..8|4,8",
        help="Fix a symbolic dimension (batch=1), list sizes (seq=16,64), or give a range: "
        "seq=1..512 runs any length up to 512, height=64..640:32 multiples of 32.",
    ),
    click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=2,3|FILE.npy",
        help="Make an input constant; needed for inputs that decide a shape.",
    ),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="TENSOR",
        help="Start the graph at this tensor instead of the model's inputs.",
    ),
    click.option(
        "--output",
        "outputs",
        multiple=True,
        metavar="TENSOR",
        help="End the graph at this tensor instead of the model's outputs.",
    ),
    click.option(
        "--signature",
        metavar="NAME",
        help="Signature of a SavedModel [default: serving_default] or of a TFLite file.",
    ),
    click.option(
        "--state",
        is_flag=True,
        help="Carry the state of a PyTorch or Darknet model from run to run (TFLite models always "
        "do).",
    ),
    click.option(
        "--allow-large",
        is_flag=True,
        help="Allow tensors of more than 2 GiB and functions that expand to more than 131072 "
        "nodes. For models that you trust.",
    ),
    click.option(
        "--blobs",
        type=click.Path(),
        metavar="FILE",
        help="Weights file of a Caffe or Darknet model, if its name differs.",
    ),
]


for _title, _group in (
    ("Import options", _MODEL_OPTIONS),
    ("Preprocessing options", _PICTURE_OPTIONS),
):
    add_input_group(_title, [add(lambda: None).__click_params__[0].opts[0] for add in _group])  # type: ignore[attr-defined]


def model_options(command: F) -> F:
    """Add the options that `load_arguments` reads: import and preprocessing options."""
    for add in reversed([*_MODEL_OPTIONS, *_PICTURE_OPTIONS, help_input_option]):
        command = add(command)
    return command


def load_arguments(
    shapes: Sequence[str],
    dims: Sequence[str],
    values: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    shape_lists: Sequence[str] = (),
    signature: str | None = None,
    state: bool = False,
    blobs: str | None = None,
    allow_large: bool = False,
    **pictures: Any,
) -> dict[str, Any]:
    """The model options as keyword arguments of `intaglio.load`."""
    given = {n: _typed_shape(v) for n, v in map(_pair("--shape"), shapes)}
    kinds = {n: kind for n, (_, kind) in given.items() if kind}
    lists = {
        n: [_shape(n, one, "--shapes") for one in v.split(",")]
        for n, v in map(_pair("--shapes"), shape_lists)
    }
    return {
        "shapes": {**{n: _shape(n, v) for n, (v, _) in given.items()}, **lists},
        **({"dtypes": kinds} if kinds else {}),
        "dims": {n: _extents_of(f"--dim {n}", v) for n, v in map(_pair("--dim"), dims)},
        "values": {n: _value(n, v) for n, v in map(_pair("--value"), values)},
        "inputs": list(inputs) or None,
        "outputs": list(outputs) or None,
        **({"signature": signature} if signature else {}),
        **({"state": True} if state else {}),
        **({"weights": blobs} if blobs else {}),
        **({"allow_large": True} if allow_large else {}),
        **picture_arguments(pictures),
    }


def picture_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The preprocessing options that were given."""
    asked = {k: v for k, v in given.items() if v or isinstance(v, float)}
    if given.get("letterbox") is None and given.get("resize") != "letterbox":
        asked.pop("pad_value", None)
    if asked.get("layout") == "auto" or set(asked) == {"layout"}:
        asked.pop("layout")
    return asked


def _pair(flag: str) -> Callable[[str], tuple[str, str]]:
    def split(text: str) -> tuple[str, str]:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise BadInput(f"{flag} takes NAME=VALUE, not {text!r}; `intaglio inspect` lists names")
        return name, value

    return split


def _whole(what: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise BadInput(f"{what} takes a whole number, not {text!r}") from None
    if number < 0:
        raise BadInput(f"{what} takes a number of at least 0, not {number}")
    return number


def _typed_shape(text: str) -> tuple[str, str]:
    """A shape and the element type behind its last colon, "" if there is none."""
    shape, _, kind = text.rpartition(":")
    return (shape, kind) if shape and not kind[:1].isdigit() else (text, "")


def _extent(what: str, text: str) -> int | str:
    """A whole number, or a range as it is written."""
    if ".." in text:
        parse_range(what, text)
        return text
    return _whole(what, text)


def _extents_of(what: str, text: str) -> int | str | list[int | str]:
    """One extent or range, or a list of them."""
    listed = [_extent(what, one) for one in text.split(",")]
    return listed[0] if len(listed) == 1 else listed


def batch(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """The value of --batch: a number, a range, or a list of numbers."""
    return None if text is None else _extents_of("--batch", text)


def _shape(name: str, text: str, flag: str = "--shape") -> tuple[int | str, ...]:
    if text in ("scalar", "()"):
        return ()
    parts = text.replace(",", "x").split("x")
    return tuple(_extent(f"{flag} {name}", p) for p in parts)


def _value(name: str, text: str) -> Array:
    if text.endswith(".npy"):
        return read_npy(text)
    try:
        numbers = [float(p) if any(c in p for c in ".en") else int(p) for p in text.split(",")]
    except ValueError:
        raise BadInput(f"--value {name} takes numbers or a .npy file, not {text!r}") from None
    return np.asarray(numbers if "," in text else numbers[0])


def read_feeds(
    specs: Sequence[str],
    types: dict[str, Any],
    fill: str | None,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Arrays by input name from `NAME=FILE.npy`, `FILE.npz`, or `FILE.npy` for a lone input.

    Inputs that are filled have the sizes of open dimensions in `sizes`, else the largest.
    """
    feeds: dict[str, Array] = {}
    for spec in specs:
        name, _, path = spec.rpartition("=")
        if path.endswith(".npz") and not name:
            feeds.update(read_npz(path))
        elif name:
            feeds[name] = read_npy(path)
        elif len(types) == 1:
            feeds[next(iter(types))] = read_npy(path)
        else:
            raise BadInput(
                f"{path}: the model has several inputs ({', '.join(types)}); give NAME={path}"
            )
    if fill is not None:
        from intaglio.analysis.agreement import sample

        for name, t in types.items():
            if name not in feeds:
                feeds[name] = sample(at_sizes(t, sizes or {}), seed, fill)
    return feeds


def thread_counts(text: str) -> list[int]:
    """`1,2` as numbers."""
    counts = [_whole("--threads", part) for part in text.split(",")]
    if not all(1 <= n <= 256 for n in counts):
        raise BadInput(f"--threads takes numbers from 1 to 256, not {text!r}")
    return counts


_CHECK_OPTIONS = [
    click.option(
        "--check/--no-check",
        default=True,
        show_default=True,
        help="Run both models and compare outputs; write nothing if they differ.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["interpreter", "native"]),
        default="interpreter",
        show_default=True,
        help="Runs the models for --check.",
    ),
    click.option(
        "--data",
        multiple=True,
        metavar="NAME=FILE.npy",
        help="Inputs for --check [default: random].",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of the random inputs."),
]


def check_options(command: F) -> F:
    """Add the options that compare the model before and after a change."""
    for add in reversed(_CHECK_OPTIONS):
        command = add(command)
    return command
