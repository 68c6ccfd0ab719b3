"""Options of commands that run samples through a model, and the golden model beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from intaglio.cli import options

golden = click.option(
    "--golden",
    type=click.Path(),
    metavar="MODEL",
    help="The float model that a quantised model or package is compared with.",
)
_SAMPLES = (
    click.option(
        "--data",
        metavar="PATH",
        help="Samples: a folder of pictures or arrays, a list, .npy or .npz [default: random].",
    ),
    click.option(
        "--samples",
        type=click.IntRange(1),
        metavar="N",
        help="Number of samples [default: 2; of random ones 1].",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of random samples."),
    click.option("--bgr", is_flag=True, help="The model takes BGR pictures."),
    click.option(
        "--resize",
        default="stretch",
        show_default=True,
        type=click.Choice(["stretch", "letterbox", "crop"]),
        help="How pictures are resized.",
    ),
)


def samples(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of samples to a command."""
    for add in reversed(_SAMPLES):
        command = add(command)
    return command


def arguments(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords for data, samples, seed and reading, and those of `intaglio.load`."""
    kept = {k: given.pop(k) for k in ("data", "samples", "seed")}
    bgr, resize = given.pop("bgr"), given.pop("resize")
    load = options.load_arguments(**given)
    names = ("mean", "std", "layout", "pad_value")
    reading: dict[str, Any] = {k: load.pop(k) for k in names if k in load}
    reading = {k: v for k, v in reading.items() if v is not None}
    reading |= {"color": "bgr"} if bgr else {}
    return kept | {"reading": reading | {"resize": resize}}, load
