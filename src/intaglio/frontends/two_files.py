"""Models in two files of one name: layers in one, numbers in the other."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import BadFile, option


def find_both_files(
    path: Path, other: Path | None, layers: str, numbers: str, what: str
) -> tuple[Path, Path]:
    """Both files of a model of which `path` is one; `other` may name the second.

    `layers` and `numbers` are the endings of the two. The other half has the same name, or is the
    only one of its ending beside it.
    """
    if path.suffix == numbers:
        made = other or _beside(path, layers), path
    else:
        made = path, other or _beside(path, numbers)
    for needed, holds in zip(made, ("layers", "numbers"), strict=True):
        if not needed.exists():
            raise BadFile(
                f"{what}: '{path}' is half a model: its {holds} are in '{needed}', "
                f"which is not there; name it with {option('weights', f'FILE{needed.suffix}')}"
            )
    return made


def _beside(path: Path, ending: str) -> Path:
    same = path.with_suffix(ending)
    if same.exists() or not path.parent.is_dir():
        return same
    found = [p for p in path.parent.iterdir() if p.suffix == ending]
    return found[0] if len(found) == 1 else same
