"""Models in two files: the network in one, the weights in the other (Caffe, Darknet)."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import BadFile, option


def find_both_files(
    path: Path, other: Path | None, layers: str, numbers: str, what: str
) -> tuple[Path, Path]:
    """(network file, weights file) of a model; `path` is one of them, `other` may name the second.

    `layers` and `numbers` are the suffixes of the two. Without `other`, the second file has the
    same name, or is the only file with its suffix in the folder.
    """
    if path.suffix == numbers:
        results = other or _beside(path, layers), path
    else:
        results = path, other or _beside(path, numbers)
    for needed, holds in zip(results, ("layers", "weights"), strict=True):
        if not needed.exists():
            raise BadFile(
                f"{what}: '{path}' is one of two files: the {holds} are in '{needed}', "
                f"which does not exist; name it with {option('weights', f'FILE{needed.suffix}')}"
            )
    return results


def _beside(path: Path, ending: str) -> Path:
    same = path.with_suffix(ending)
    if same.exists() or not path.parent.is_dir():
        return same
    found = [p for p in path.parent.iterdir() if p.suffix == ending]
    return found[0] if len(found) == 1 else same
