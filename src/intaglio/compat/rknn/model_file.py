"""Files with the ending .rknn: packages of Intaglio under the user's name, plain or encrypted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.platforms import PLATFORMS, chip_of
from intaglio.errors import BadFile, BadInput
from intaglio.files import open_regular
from intaglio.package import Package
from intaglio.package.encryption import is_encrypted
from intaglio.package.format import HEADER, MAGIC
from intaglio.package.keygen import write_key

KEY_FILE, KEY = "INTAGLIO_KEY_FILE", "INTAGLIO_KEY"  # environment variables
LEVELS = {1: "weights", 2: "graph", 3: "all"}  # crypt_level


def key(place: Path) -> Any:
    """The key of an encrypted file: from the environment, else from the file beside it."""
    if path := os.environ.get(KEY_FILE):
        return Path(path)
    if os.environ.get(KEY):
        return f"env:{KEY}"
    return beside(place) if beside(place).exists() else None


def beside(place: Path) -> Path:
    """The file of the key that `encrypt` makes if it is given none."""
    return place.with_name(f"{place.name}.key")


def read(path: Any) -> Package:
    """The package in a file; a file of the vendor's compiler is refused with the reason."""
    if not isinstance(path, str | os.PathLike):
        raise BadInput(f"path is {path!r}; give the path of an .rknn file")
    path = Path(path)
    if not path.exists():
        raise BadFile(f"there is no file '{path}' (in {Path.cwd()}); check the path")
    try:
        with open_regular(path) as file:
            head = file.read(HEADER.itemsize)
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    if head[:4] == b"RKNN":
        raise BadFile(
            f"'{path}' was written by Rockchip's compiler: it holds commands for the NPU of a "
            "board and not the model; convert the original model again with this tool"
        )
    if head[:4] != MAGIC:
        raise BadFile(f"'{path}' is no .rknn file of this tool; export_rknn writes one")
    sealed = is_encrypted(np.frombuffer(head, np.uint8))
    return Package.load(path, key=key(path) if sealed else None)


def write(package: Package, path: Any, config: Config) -> Path:
    """Write a package; with `remove_weight` its weights go to a file of their own."""
    if not isinstance(path, str | os.PathLike):
        raise BadInput(f"export_path is {path!r}; give a name such as 'model.rknn'")
    place = Path(path)
    if not place.parent.is_dir():
        raise BadInput(f"export_path is '{path}': there is no folder '{place.parent}'; make it")
    if config.remove_weight:
        package.save(place, weights=f"{place.stem}.weight")
    else:
        package.save(place)
    return place


def encrypt(
    input_model: Any, output_model: Any, crypt_level: Any, warn: Callable[[str], None]
) -> Path:
    """Encrypt a file that `export_rknn` wrote, with the user's key or a new one beside it."""
    if isinstance(crypt_level, bool) or crypt_level not in LEVELS:
        raise BadInput(
            f"crypt_level is {crypt_level!r}; 1 encrypts weights, 2 also the graph, 3 everything"
        )
    package = read(input_model)
    name = Path(input_model)
    place = Path(output_model) if output_model else name.with_suffix(f".crypt{name.suffix}")
    source = key(place)
    if source is None:
        source = beside(place)
        write_key(source)
        warn(
            f"no key is given; a new one is in '{source}'; keep it apart from the model, and set "
            f"{KEY_FILE} to its path where the model is loaded"
        )
    package.save(place, encrypt=LEVELS[crypt_level], key=source)
    return place


def platforms_of(package: Package) -> list[str]:
    """The chips that can run a package."""
    target = str(package.meta.get("target", ""))
    if target not in PLATFORMS:
        return []
    word = chip_of(target).compatible or target
    return [p for p in PLATFORMS if (chip_of(p).compatible or p) == word]
