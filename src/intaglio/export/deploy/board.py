"""Boards as data: compiler, memories, form of the kernels, emulator. `boards/NAME.toml` has them.

Users can describe their own board in such a file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.export.deploy.packing import FORMS

BOARDS = Path(__file__).parent / "boards"
MAX_FILE_BYTES = 1 << 16


@dataclass(frozen=True)
class Memory:
    """Flash and RAM of a bare board, in bytes."""

    flash_origin: int
    flash: int
    ram_origin: int
    ram: int
    stack: int  # bytes of RAM that are kept for it
    weights_origin: int = 0
    weights: int = 0  # of a memory of its own for the weights; 0: they lie in flash


@dataclass(frozen=True)
class Board:
    """A core with its compiler and emulator."""

    name: str
    title: str
    kind: str  # linux or bare
    form: str  # of the kernels: one of FORMS
    soft_float: bool
    pointer_bytes: int
    prefix: str  # of the names of compiler and tools
    compiler: str  # PREFIXgcc unless the file names another
    flags: str
    libraries: str
    compiler_packages: str  # of Debian
    qemu: str
    qemu_arguments: str
    qemu_packages: str
    memory: Memory | None = None

    @property
    def is_linux(self) -> bool:
        return self.kind == "linux"


def names() -> list[str]:
    """All boards that Intaglio knows."""
    return sorted(p.stem for p in BOARDS.glob("*.toml"))


def load(name: str) -> Board:
    """The board of this name, or of a TOML file."""
    path = Path(name) if name.endswith(".toml") else BOARDS / f"{name}.toml"
    if not name.endswith(".toml") and name not in names():
        hint = did_you_mean(name, names(), 3)
        raise BadInput(f"no board is called '{name}'{hint or '; known are ' + ', '.join(names())}")
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_FILE_BYTES:
            raise BadFile(f"{path}: {len(raw)} bytes; a board has at most {MAX_FILE_BYTES}")
        return _board(path, tomllib.loads(raw.decode()))
    except OSError as e:
        raise BadFile(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise BadFile(f"{path} is not TOML: {e}") from None


class _Table:
    """Checked access to a table of the file."""

    def __init__(self, path: Path, name: str, data: Any):
        self.path, self.name = path, name
        if not isinstance(data, dict):
            raise BadFile(f"{path}: [{name}] is missing; docs/deploy.md shows a board")
        self.data = data

    def text(self, key: str, allowed: tuple[str, ...] = ()) -> str:
        v = self.data.get(key)
        plain = isinstance(v, str) and v.isprintable() and not set(v) & set("\\\"'`$;@\n")
        if not isinstance(v, str) or not plain or (allowed and v not in allowed):
            words = " or ".join(allowed) or "plain text"
            raise BadFile(f"{self.path}: {self.name}{key} is {v!r}; {words} is needed")
        return v

    def whole(self, key: str, low: int, high: int) -> int:
        v = self.data.get(key)
        if not isinstance(v, int) or isinstance(v, bool) or not low <= v <= high:
            raise BadFile(
                f"{self.path}: {self.name}{key} is {v!r}; a number from {low} to {high} is needed"
            )
        return v


def _board(path: Path, data: dict[str, Any]) -> Board:
    head = _Table(path, "", data)
    kind = head.text("kind", ("linux", "bare"))
    compiler, qemu = (_Table(path, f"{n}.", data.get(n)) for n in ("compiler", "qemu"))
    memory = None
    if kind == "bare":
        m = _Table(path, "memory.", data.get("memory"))
        most = 1 << 32
        memory = Memory(
            m.whole("flash_origin", 0, most),
            m.whole("flash", 1024, most),
            m.whole("ram_origin", 0, most),
            m.whole("ram", 1024, most),
            m.whole("stack", 256, most),
        )
        if "weights" in m.data or "weights_origin" in m.data:
            own = m.whole("weights_origin", 0, most), m.whole("weights", 1024, most)
            memory = replace(memory, weights_origin=own[0], weights=own[1])
    return Board(
        name=path.stem,
        title=head.text("title"),
        kind=kind,
        form=head.text("form", FORMS),
        soft_float=bool(data.get("soft_float", False)),
        pointer_bytes=head.whole("pointer_bytes", 4, 8),
        prefix=compiler.text("prefix"),
        compiler=compiler.text("command")
        if "command" in compiler.data
        else f"{compiler.text('prefix')}gcc",
        flags=compiler.text("flags"),
        libraries=compiler.text("libraries"),
        compiler_packages=compiler.text("packages"),
        qemu=qemu.text("command"),
        qemu_arguments=qemu.text("arguments"),
        qemu_packages=qemu.text("packages"),
        memory=memory,
    )
