"""Models in two files of one name: layers in one, numbers in the other."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import BadFile


def halves(
    path: Path, other: Path | None, layers: str, numbers: str, what: str
) -> tuple[Path, Path]:
    """Both files of a model of which `path` is one; `other` may name its numbers.

    `layers` and `numbers` are the endings of the two.
    """
    if path.suffix == numbers:
        made = path.with_suffix(layers), path
    else:
        made = path, other or path.with_suffix(numbers)
    for needed, holds in zip(made, ("layers", "numbers"), strict=True):
        if not needed.exists():
            raise BadFile(
                f"{what}: '{path}' is half a model: its {holds} are in '{needed}', "
                "which is not there"
            )
    return made
