"""A folder with the tensors of a comparison as .npy files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Array

INDEX = "index.json"
LONGEST = 80  # characters of a tensor's name in a file name


class Snapshot:
    """Writes `sample0/RUN/000_name.npy`, and `index.json` with the names of tensors by file."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f"{self.folder} is a file; give a folder for the snapshot")
        if self.folder.exists() and any(self.folder.iterdir()):
            raise BadInput(f"{self.folder}: the folder is not empty; give a new one")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.numbers: dict[str, int] = {}
        self.files: dict[str, str] = {}

    def add(self, sample: int, run: str, name: str, array: Array) -> None:
        """Write one tensor."""
        number = self.numbers.setdefault(name, len(self.numbers))
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-LONGEST:]
        path = Path(f"sample{sample}") / re.sub(r"[^A-Za-z0-9._-]+", "_", run)
        (self.folder / path).mkdir(parents=True, exist_ok=True)
        path = path / f"{number:03}_{plain}.npy"
        np.save(self.folder / path, np.ascontiguousarray(array))
        self.files[path.as_posix()] = name

    def close(self) -> None:
        write_atomically(self.folder / INDEX, json.dumps(self.files, indent=1).encode())
