"""Compiled packages on disk, by the content of the model and the options of the compilation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import native
from intaglio.custom.table import fingerprint as fingerprint_ops
from intaglio.errors import BadInput, IntaglioError
from intaglio.frontends.onnx import OnnxModel
from intaglio.package import Package
from intaglio.tune.cache import folder as user_folder


class PackageCache:
    """A folder of packages; None keeps nothing."""

    def __init__(self, where: str | Path | bool | None, model: Any):
        self.folder: Path | None = None
        if where:
            self.folder = user_folder() / "packages" if where is True else Path(where)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise BadInput(f"cache {str(self.folder)!r} cannot be made: {e.strerror}") from None
            self.model = fingerprint(model)

    def get(self, options: Mapping[str, Any]) -> Package | None:
        """The package that was compiled with these options; None if there is none."""
        path = self._path(options)
        if path is None or not path.exists():
            return None
        try:
            return Package.load(path)
        except IntaglioError:  # damaged: compiled again
            return None

    def put(self, options: Mapping[str, Any], package: Package) -> None:
        """Keep a package. A full or read-only disk is no error: it is compiled again then."""
        path = self._path(options)
        if path is not None:
            try:
                package.save(path)
            except IntaglioError:
                return

    def _path(self, options: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        words = json.dumps(_plain(options), sort_keys=True)
        build = f"{intaglio.__version__} {native.machine():x} {_library()} {fingerprint_ops()}"
        name = hashlib.sha256(f"{self.model} {build} {words}".encode()).hexdigest()[:32]
        return self.folder / f"{name}.itg"


def _library() -> str:
    """Which build of the kernels this is."""
    stat = os.stat(native.library()._name)
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _plain(value: Any) -> Any:
    """Options as JSON: arrays by their content."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return [str(value.dtype), list(value.shape), digest]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def fingerprint(model: Any) -> str:
    """A hash of a model: of its bytes, or of all files beside it that may belong to it."""
    digest = hashlib.sha256()
    if isinstance(model, OnnxModel):
        digest.update(model.proto.SerializeToString(deterministic=True))
        for raw in model.raws.values():
            digest.update(raw)
        if model.folder is not None:
            _add_files(digest, model.folder)
        return digest.hexdigest()
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        _add_files(digest, path if path.is_dir() else path.parent, path)
        return digest.hexdigest()
    data = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    digest.update(data)
    return digest.hexdigest()


def _add_files(digest: Any, folder: Path, without: Path | None = None) -> None:
    """Files that may hold external weights, by size and time."""
    for p in sorted(folder.iterdir()):
        if p != without and p.is_file() and p.suffix not in (".itg",):
            stat = p.stat()
            digest.update(f"{p.name} {stat.st_size} {stat.st_mtime_ns}".encode())
