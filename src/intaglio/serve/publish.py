"""Puts a package into a model repository, so that no server ever sees half of it.

The file is written below `.incoming/` and synced. One rename makes it a version. A process that is
killed at any point leaves a repository that loads.

A candidate is a version in a folder `<number>.candidate`, which only servers for candidates load.
A rollout renames it: to its number, or to `<number>.rejected`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import intaglio
from intaglio.errors import BadInput
from intaglio.files import open_regular
from intaglio.serve.repository import CANDIDATE, PACKAGE, version_number
from intaglio.serve.server_client import Declined, ask
from intaglio.serve.settings import checked_name

INCOMING = ".incoming"
REJECTED = ".rejected"  # of a version that a rollout took back
STALE_S = 24 * 3600  # after which a folder that a killed process left is removed
ATTEMPTS = 100  # versions that others publish at the same time
CHUNK = 1 << 20
LOAD_TIMEOUT_S = 300.0


def publish(
    source: str | Path,
    repository: str | Path,
    name: str,
    version: int | None = None,
    *,
    candidate: bool = False,
) -> Path:
    """Make a package file the newest version of a model, or a given one; its new path.

    A candidate is a version that servers do not load before a rollout has tried it.
    """
    checked_name(name)
    if version is not None and version_number(str(version)) is None:
        raise BadInput(f"version is {version}; give a number of at least 1, of at most 18 digits")
    root = Path(repository)
    with intaglio.open(source):  # says what is wrong with it, checksum included
        pass
    try:
        incoming = root / INCOMING
        incoming.mkdir(parents=True, exist_ok=True)
        _remove_stale(incoming)
        folder = incoming / secrets.token_hex(8)
        folder.mkdir()
        try:
            with open_regular(source) as file:
                _copy(file, folder / PACKAGE)
            _sync(folder)
            return _placed(folder, root / name, version, CANDIDATE * candidate) / PACKAGE
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as e:
        where = e.filename or root
        raise BadInput(f"cannot publish to {root}: {where}: {e.strerror}") from None


def _copy(file: BinaryIO, path: Path) -> None:
    with open(path, "xb") as out:
        shutil.copyfileobj(file, out, CHUNK)
        out.flush()
        os.fsync(out.fileno())


def _placed(folder: Path, model: Path, version: int | None, kind: str) -> Path:
    """The version's folder; a rename either makes it whole or not at all.

    Numbers of candidates and rejected versions are taken.
    """
    if not model.is_dir():
        model.mkdir(exist_ok=True)
        _sync(model.parent)
    for _ in range(ATTEMPTS):
        found = [n for e in os.scandir(model) if (n := _any_number(e.name)) is not None]
        number = max(found, default=0) + 1 if version is None else version
        place = model / f"{number}{kind}"
        try:
            if number not in found:
                os.rename(folder, place)
                _sync(model)
                return place
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if version is not None:
            raise BadInput(
                f"version {version} of model '{model.name}' is there already; versions never "
                "change: publish a new one"
            )
    raise BadInput(f"others publish versions of '{model.name}' all the time; try again")


def _any_number(name: str) -> int | None:
    """The version in a folder's name, whatever its kind."""
    stem = name.removesuffix(CANDIDATE).removesuffix(REJECTED)
    return version_number(stem)


def newest_candidate(repository: Path, name: str) -> int | None:
    """The number of the newest candidate of a model."""
    checked_name(name)
    try:
        names = os.listdir(repository / name)
    except OSError as e:
        raise BadInput(
            f"{repository} has no model '{name}': {e.strerror}; publish a version first"
        ) from None
    stems = [n.removesuffix(CANDIDATE) for n in names if n.endswith(CANDIDATE)]
    return max((n for stem in stems if (n := version_number(stem))), default=None)


def decide(repository: Path, name: str, version: int, accepted: bool) -> Path:
    """Make a candidate a version that all servers load, or one that none does; its new folder."""
    model = repository / checked_name(name)
    place = model / f"{version}{'' if accepted else REJECTED}"
    try:
        os.rename(model / f"{version}{CANDIDATE}", place)
        _sync(model)
    except OSError as e:
        raise BadInput(f"cannot rename candidate {version} of '{name}': {e.strerror}") from None
    return place


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(fd)
    finally:
        os.close(fd)


def _remove_stale(incoming: Path) -> None:
    for entry in os.scandir(incoming):
        with suppress(OSError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S:
                shutil.rmtree(entry.path, ignore_errors=True)


def request_load(url: str, name: str, token: str | None = None) -> None:
    """Ask a running server to load what was published."""
    try:
        ask(url, "POST", f"/v2/repository/models/{name}/load", {}, token, LOAD_TIMEOUT_S)
    except Declined as e:
        raise BadInput(f"the server at {url} does not load '{name}': {e}") from None
