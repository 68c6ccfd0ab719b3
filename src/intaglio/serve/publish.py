"""Puts a package into a model repository, so that no server ever sees half of it.

The file is written below `.incoming/` and synced. One rename makes it a version. A process that is
killed at any point leaves a repository that loads.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

import intaglio
from intaglio.errors import BadInput
from intaglio.files import open_regular
from intaglio.serve.repository import PACKAGE, version_number
from intaglio.serve.settings import checked_name

INCOMING = ".incoming"
STALE_S = 24 * 3600  # after which a folder that a killed process left is removed
ATTEMPTS = 100  # versions that others publish at the same time
CHUNK = 1 << 20
LOAD_TIMEOUT_S = 300.0


def publish(
    source: str | Path, repository: str | Path, name: str, version: int | None = None
) -> Path:
    """Make a package file the newest version of a model, or a given one; its new path."""
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
            return _placed(folder, root / name, version) / PACKAGE
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


def _placed(folder: Path, model: Path, version: int | None) -> Path:
    """The version's folder; a rename either makes it whole or not at all."""
    if not model.is_dir():
        model.mkdir(exist_ok=True)
        _sync(model.parent)
    for _ in range(ATTEMPTS):
        found = [n for e in os.scandir(model) if (n := version_number(e.name)) is not None]
        place = model / str(max(found, default=0) + 1 if version is None else version)
        try:
            if not place.exists():
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
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"the server is '{url}'; give a URL such as http://127.0.0.1:8000")
    request = urllib.request.Request(
        f"{url.rstrip('/')}/v2/repository/models/{name}/load", data=b"{}", method="POST"
    )
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=LOAD_TIMEOUT_S):
            return
    except urllib.error.HTTPError as e:
        words = _error_words(e.read(4096)) or e.reason
        raise BadInput(f"the server at {url} does not load '{name}': {words}") from None
    except (urllib.error.URLError, OSError) as e:
        reason = getattr(e, "reason", e)
        raise BadInput(f"the server at {url} does not answer: {reason}") from None


def _error_words(body: bytes) -> str:
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(body)
        if isinstance(found, dict):
            return str(found.get("error", ""))
    return ""
