"""Pictures in `intaglio run`: options, the loop over pictures, text, JSON and drawings."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from intaglio import dtypes
from intaglio.cli import model_files
from intaglio.errors import BadInput, option
from intaglio.files import refuse_unwritable

if TYPE_CHECKING:
    from intaglio.session import Session
    from intaglio.vision import Prediction, Predictor
    from intaglio.vision.sources import Source

F = TypeVar("F", bound=Callable[..., Any])
FORMAT = ("mean", "std", "color", "resize", "pad_value")  # of pictures, outside of a package
OWN = ("labels", "draw", "decode", "confidence", "iou", "frames")

FORMAT_OPTIONS = [
    click.option(
        "--resize",
        type=click.Choice(["stretch", "letterbox", "crop"]),
        help="How pictures are resized to the input; the package keeps it for `intaglio run`. "
        "crop: short side to 1/0.875 of the size, then the centre. [default: stretch]",
    ),
    click.option(
        "--bgr",
        "color",
        flag_value="bgr",
        default=None,
        help="The model takes BGR pictures; the package keeps it for `intaglio run`.",
    ),
]
_OPTIONS = [
    click.option(
        "--labels",
        type=click.Path(),
        metavar="FILE",
        help="Names of the classes, one on each line [default: those in the model].",
    ),
    click.option(
        "--draw",
        type=click.Path(),
        metavar="PATH",
        help="Draw boxes or classes: a picture, or a folder if there are several inputs.",
    ),
    click.option(
        "--decode",
        metavar="NAME",
        help="How to read the outputs of a detector: yolov5, yolov8, yolox, darknet, ssd, ssd_nms, "
        "nms, ...; classifier; none [default: told by the shapes of the outputs].",
    ),
    click.option(
        "--confidence",
        type=click.FloatRange(0, 1),
        help="Least score of a detection [default: 0.25].",
    ),
    click.option(
        "--iou",
        type=click.FloatRange(0, 1),
        help="Overlap above which the lower of two boxes of a class is dropped "
        "[default: the decoder's].",
    ),
    click.option(
        "--frames", type=click.IntRange(1), metavar="N", help="Stop after N pictures or frames."
    ),
    *FORMAT_OPTIONS,
]


def picture_options(command: F) -> F:
    """Add the options of pictures."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def format_options(command: F) -> F:
    """Add --resize and --bgr, which a package keeps."""
    for add in reversed(FORMAT_OPTIONS):
        command = add(command)
    return command


def split_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of pictures, and those of the model."""
    mine = {k: v for k, v in given.items() if k in (*OWN, "color", "resize")}
    return mine, {k: v for k, v in given.items() if k not in mine}


def load_options(asked: dict[str, Any]) -> dict[str, Any]:
    """Options of pictures that `intaglio.load` takes too."""
    return {k: asked[k] for k in ("color", "resize") if asked[k] is not None}


def are_pictures(inputs: Sequence[str]) -> bool:
    """Whether the inputs are pictures; BadInput if some are arrays."""
    from intaglio.vision.sources import is_pictures

    kinds = [is_pictures(spec) for spec in inputs]
    if any(kinds) and not all(kinds):
        array = inputs[kinds.index(False)]
        raise BadInput(f"{array} is no picture, other inputs are; give pictures or arrays")
    return any(kinds)


def refuse_for_arrays(asked: dict[str, Any]) -> list[str] | None:
    """BadInput for options that only pictures have; returns the labels."""
    from intaglio.vision import read_labels

    for name in ("draw", "decode", "confidence", "iou", "frames"):
        if asked[name] is not None:
            raise BadInput(f"{option(name)} is for pictures (.jpg, .png, a folder); give some")
    return read_labels(asked["labels"]) if asked["labels"] else None


def model_labels(session: Session) -> list[str] | None:
    """The names of classes in the model's metadata."""
    from intaglio.vision.labels import names_in

    return names_in(session.meta.get("metadata") or {})


def run(
    model: str,
    specs: Sequence[str],
    asked: dict[str, Any],
    model_options: dict[str, Any],
    settings: dict[str, Any],
    top: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Predict every picture, print the predictions and draw them."""
    from intaglio.vision.sources import Source

    source = Source(specs)
    if out and source.many:
        raise BadInput("-o holds the outputs of one picture, several are given; give one")
    if asked["draw"] and not source.many and not _is_folder(asked["draw"]):
        refuse_unwritable(asked["draw"])
    session, preprocessing = _open(model, settings, asked, model_options)
    drawings = Drawings(asked["draw"], source)
    with session:
        sizes = model_files.run_sizes(model_options)
        predictor = _predictor(session, asked, preprocessing, top, sizes)
        if asked["draw"]:
            predictor.require_decoder()
        if not as_json:
            click.echo(f"{model}: {_what(predictor)}; pictures: {predictor.describe()}")
        for frame in islice(source, asked["frames"]):
            result = predictor(frame.content, frame.name)
            _print(result, predictor, top, as_json)
            if (path := drawings.save(result)) and not as_json:
                click.echo(f"wrote {path}")
            if out:
                from intaglio.cli.run import save_outputs

                save_outputs(out, result.outputs)
                if not as_json:
                    click.echo(f"wrote {out}")


def _open(
    model: str, settings: dict[str, Any], asked: dict[str, Any], model_options: dict[str, Any]
) -> tuple[Session, dict[str, Any]]:
    """The session, and preprocessing to do outside of it: a package has its own inside."""
    outside: dict[str, Any] = {}
    if model_files.is_package(model):
        given = {k: model_options.get(k) for k in ("mean", "std")} | load_options(asked)
        if asked["resize"] == "letterbox":
            given["pad_value"] = model_options["pad_value"]
        outside = {k: v for k, v in given.items() if v is not None}
        model_options = {**model_options, "mean": None, "std": None}
    else:
        model_options = {**model_options, **load_options(asked)}
    return model_files.open_model(model, settings, model_options), outside


def _predictor(
    session: Session,
    asked: dict[str, Any],
    preprocessing: dict[str, Any],
    top: int | None,
    sizes: dict[str, int],
) -> Predictor:
    from intaglio.vision import Predictor

    raw = asked["decode"] == "none"
    given = {k: asked[k] for k in ("confidence", "iou") if asked[k] is not None}
    if sizes:
        given["sizes"] = sizes
    if top:
        given["top"] = top
    decode = None if raw else asked["decode"]
    result = Predictor(session, labels=asked["labels"], decode=decode, **given, **preprocessing)
    if raw:
        result.decoder = None
    if not result.stored and dtypes.is_float(result.type.dtype):
        warnings.warn(
            "the package does not say how pictures are prepared: they are resized to the input, "
            f"pixels from 0 to 255 in RGB; give {option('mean')}, {option('std')} and "
            f"{option('resize')} to intaglio compile or quantize, or here",
            stacklevel=2,
        )
    return result


def _what(predictor: Predictor) -> str:
    if predictor.decoder is None:
        return "outputs are not decoded"
    count = predictor.classes or (predictor.labels and len(predictor.labels))
    names = f", {count} classes" if count else ""
    return f"read as {predictor.decoder}{names}"


def _print(made: Prediction, predictor: Predictor, top: int | None, as_json: bool) -> None:
    from intaglio.cli.run import print_outputs

    if as_json:
        click.echo(json.dumps(made.to_dict()))
    elif made.decoder is None:
        click.echo(f"{made.picture} ({made.size[0]}x{made.size[1]}):")
        print_outputs(made.outputs, predictor.session.outputs, top or 0, predictor.labels)
    else:
        click.echo(str(made))


def _is_folder(path: str) -> bool:
    return Path(path).is_dir() or path.endswith(("/", "\\"))


class Drawings:
    """Where drawings are written: to a path, or into a folder under the pictures' own names."""

    def __init__(self, where: str | None, source: Source):
        self.where = where
        self.folder = bool(where) and (source.many or source.folder or _is_folder(str(where)))
        if where and self.folder and not _is_folder(where) and Path(where).suffix:
            raise BadInput(f"--draw {where}: there are several pictures; give a folder")
        self.used: set[str] = set()

    def save(self, made: Prediction) -> Path | None:
        """Draw a picture; returns the path that was written."""
        if self.where is None:
            return None
        path = Path(self.where)
        if self.folder:
            path.mkdir(parents=True, exist_ok=True)
            path /= self._name(Path(made.picture))
        if path.exists() and Path(made.picture).exists() and path.samefile(made.picture):
            raise BadInput(f"--draw {path} is the picture itself; give another name")
        made.draw(path)
        return path

    def _name(self, picture: Path) -> str:
        """The picture's name, with a number if another folder has the same."""
        name, number = picture.name, 1
        while name in self.used:
            number += 1
            name = f"{picture.stem}_{number}{picture.suffix}"
        self.used.add(name)
        return name
