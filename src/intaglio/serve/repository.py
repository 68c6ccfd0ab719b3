"""The models on offer: folders `<repository>/<model>/<number>/model.itg`, loaded by request.

A new version is opened and warmed while the old one serves. If it cannot be, the old one goes on.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from intaglio.errors import BadInput, IntaglioError
from intaglio.package import Package
from intaglio.serve.freed_memory import give_back_freed_memory
from intaglio.serve.refusals import Refused
from intaglio.serve.request_log import log
from intaglio.serve.served_model import ServedModel
from intaglio.serve.settings import MODEL_NAME, ModelSettings, checked_name, chosen_versions

PACKAGE = "model.itg"
CANDIDATE = ".candidate"  # of the folder of a version that only servers for candidates load
MAX_VERSION_DIGITS = 18
MAX_MODELS = 4096  # of a repository
MAX_STAND_INS = 8  # older versions that are tried instead of ones that cannot be loaded
Override = Callable[[ModelSettings], ModelSettings]
Sources = dict[int, Path | Package | str]  # of the versions; words say why one is not served


@dataclass
class Entry:
    """A model with its versions."""

    name: str
    serving: dict[int, ServedModel] = field(default_factory=dict)
    files: dict[int, tuple[int, ...]] = field(default_factory=dict)  # identity of each file
    failed: dict[int, str] = field(default_factory=dict)  # version -> why it is not served
    reason: str = "not loaded"  # why nothing of it is served, unless a version failed
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def newest(self) -> ServedModel | None:
        return self.serving[max(self.serving)] if self.serving else None


class Repository:
    """Models by name. `root` is a folder, or None for models that are given one by one."""

    def __init__(self, root: Path | None, settings: ModelSettings, candidates: bool = False):
        self.root = None if root is None else root.resolve()
        self._settings, self._candidates = settings, candidates
        self.at_start: Sequence[str] | None = None  # models to load first; None: all
        self.entries: dict[str, Entry] = {}
        self._singles: dict[str, Path | Package] = {}
        self._closing: set[asyncio.Task[None]] = set()

    # ---- finding -------------------------------------------------------------------------------
    def find(self, name: str, version: str = "") -> ServedModel:
        """The model that answers a request; the newest version unless one is named."""
        entry = self.entries.get(name)
        if entry is None:
            raise unknown_model(name)
        if not version:
            if (found := entry.newest) is None:
                raise Refused(503, f"model '{name}' is not loaded")
            return found
        number = version_number(version)
        if number is None or number not in entry.serving:
            served = ", ".join(map(str, sorted(entry.serving))) or "none"
            raise Refused(
                404, f"model '{name}' has no version '{version[:20]}'; served are: {served}"
            )
        return entry.serving[number]

    def models(self) -> list[ServedModel]:
        """All versions that are served."""
        return [m for e in self.entries.values() for _, m in sorted(e.serving.items())]

    def index(self) -> list[dict[str, str]]:
        """Every version with its state, as Triton's repository extension words it."""
        rows = []
        known = dict(self.entries)
        with suppress(BadInput):
            known |= {n: Entry(n) for n in self._folders() if n not in known}
        for name, entry in sorted(known.items()):
            for n in sorted({*entry.serving, *entry.failed}):
                state = "READY" if n in entry.serving else "UNAVAILABLE"
                row = {"name": name, "version": str(n), "state": state}
                rows.append(row | {"reason": "" if state == "READY" else entry.failed[n]})
            if not entry.serving and not entry.failed:
                row = {"name": name, "version": "", "state": "UNAVAILABLE"}
                rows.append(row | {"reason": entry.reason})
        return rows

    # ---- loading -------------------------------------------------------------------------------
    def add(self, name: str, source: Path | Package) -> None:
        """Offer one file, or a package in memory, as version 1 of a model."""
        self._singles[checked_name(name)] = source

    async def load_all(self, ending: Callable[[], bool] = lambda: False) -> None:
        """Load every model, until the server ends.

        One of a folder that fails is listed with the reason; one that was added is an error.
        """
        folders = self._folders() if self.at_start is None else self.at_start
        for name in [*self._singles, *folders]:
            if ending():
                return
            try:
                await self.load(name)
            except Refused as e:
                missing = self.at_start is not None and e.status == 404
                if name in self._singles or missing:  # asked for by name
                    raise BadInput(str(e)) from None
                log.error("model is not served", model=name, reason=str(e))

    async def load(self, name: str, override: Override | None = None) -> None:
        """Serve the versions that the model's policy chooses. Refused if one cannot be loaded;
        the others are served."""
        if name not in self._singles and not self.has(name):
            raise Refused(404, f"the repository has no model '{shown_name(name)}'")
        entry = self.entries.setdefault(name, Entry(name))
        async with entry.lock:
            try:
                sources, settings = await asyncio.to_thread(self._sources, name)
                if override is not None:
                    settings = override(settings)
                await self._serve(entry, sources, settings)
            except (IntaglioError, OSError) as e:
                entry.reason = str(e)
                raise Refused(400, entry.reason) from None

    async def _serve(self, entry: Entry, sources: Sources, settings: ModelSettings) -> None:
        failed: dict[int, str] = {}
        kept: list[int] = []
        wanted, spare = chosen_versions(settings.versions, list(sources))
        while wanted:
            n = wanted.pop()
            why = await self._serve_version(entry, n, sources.get(n), settings)
            if why is None:
                kept.append(n)
            else:
                failed[n] = why
                if spare and len(failed) <= MAX_STAND_INS:  # an older version stands in
                    wanted.append(spare.pop())
        entry.failed = failed
        if kept or not failed:
            for n in [n for n in entry.serving if n not in kept]:
                self._retire(entry.serving.pop(n))
                entry.files.pop(n, None)
        if failed:
            n, why = next(iter(failed.items()))
            raise Refused(400, f"version {n} of model '{entry.name}' is not served: {why}")
        if not kept:
            raise Refused(400, f"model '{entry.name}' has no version with a {PACKAGE}")

    async def _serve_version(
        self, entry: Entry, n: int, source: Path | Package | str | None, settings: ModelSettings
    ) -> str | None:
        """Load one version unless it is served already; the reason if that is impossible."""
        if source is None:
            return f"version {n} is not in the repository"
        if isinstance(source, str):
            return source
        identity = _identity(source)
        old = entry.serving.get(n)
        if old is not None and entry.files.get(n) == identity and old.settings == settings:
            return None
        try:
            model = await ServedModel.load(entry.name, str(n), source, settings)
        except (IntaglioError, OSError, MemoryError) as e:
            return str(e) or type(e).__name__
        entry.serving[n], entry.files[n] = model, identity
        log.info("model is served", model=entry.name, version=n)
        if old is not None:
            self._retire(old)
        return None

    async def unload(self, name: str) -> None:
        """Stop serving a model after the requests that wait."""
        entry = self.entries.get(name)
        if entry is None:
            raise unknown_model(name)
        async with entry.lock:
            old, entry.serving, entry.files, entry.failed = entry.serving, {}, {}, {}
            entry.reason = "unloaded"
            for model in old.values():
                self._retire(model)

    def _retire(self, model: ServedModel) -> None:
        task = asyncio.get_running_loop().create_task(_closed(model))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Answer what waits in all queues, and free all memory."""
        for entry in self.entries.values():
            old, entry.serving = entry.serving, {}
            for model in old.values():
                self._retire(model)
        await asyncio.gather(*self._closing, return_exceptions=True)

    # ---- folders -------------------------------------------------------------------------------
    def _folders(self) -> Iterable[str]:
        if self.root is None:
            return []
        try:
            names = sorted(e.name for e in os.scandir(self.root) if MODEL_NAME.match(e.name))
        except OSError as e:
            raise BadInput(f"{self.root} cannot be read: {e.strerror}") from None
        if len(names) > MAX_MODELS:
            raise BadInput(f"{self.root} has {len(names)} models; at most {MAX_MODELS} are served")
        return [n for n in names if (self.root / n).is_dir()]

    def has(self, name: str) -> bool:
        """Whether there is a folder of this model."""
        return bool(self.root and MODEL_NAME.match(name) and (self.root / name).is_dir())

    def _sources(self, name: str) -> tuple[Sources, ModelSettings]:
        """The file of each version, or why it cannot be served; and the model's settings."""
        if name in self._singles:
            return {1: self._singles[name]}, self._settings
        assert self.root is not None
        folder = self.root / name
        found: Sources = {}
        for entry in os.scandir(folder):
            stem = entry.name.removesuffix(CANDIDATE) if self._candidates else entry.name
            number = version_number(stem)
            if number is not None and (path := self._package(folder / entry.name)):
                found[number] = path
        return found, self._settings.of_folder(folder)

    def _package(self, folder: Path) -> Path | str | None:
        """The package of a version, or why it is not served; None if there is none."""
        path = folder / PACKAGE
        if not os.path.lexists(path):
            return None
        try:
            real = path.resolve(strict=True)
            is_file = real.is_file()  # opening a FIFO would wait for ever
        except (OSError, RuntimeError) as e:  # a link to nothing, or to itself
            return f"{path} cannot be opened: {getattr(e, 'strerror', None) or e}"
        assert self.root is not None
        if not real.is_relative_to(self.root):
            return f"{path} leads out of the repository; copy the file there"
        return real if is_file else f"{path} is no file"


async def _closed(model: ServedModel) -> None:
    await model.close()
    await asyncio.to_thread(give_back_freed_memory)


def shown_name(name: str) -> str:
    """A model's name from a request, for a message."""
    return name[:128].encode("ascii", "replace").decode()


def unknown_model(name: str) -> Refused:
    """The error for a name that no model has, in the words that Triton's clients know."""
    shown = shown_name(name)
    return Refused(
        404, f"Request for unknown model: '{shown}' is not found; /v2/repository/index lists all"
    )


def version_number(text: str) -> int | None:
    """A version; None for everything but digits without a leading zero."""
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_VERSION_DIGITS:
        return None
    return int(text) if text[0] != "0" else None


def _identity(source: Path | Package) -> tuple[int, ...]:
    """What changes if a file is replaced."""
    if not isinstance(source, Path):
        return (id(source),)
    try:
        s = os.stat(source)
    except OSError:
        return ()
    return (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) if stat.S_ISREG(s.st_mode) else ()
