"""Where custom operators are found: INTAGLIO_PLUGINS, and entry points of installed packages.

A package file never says which library to load: it names operators and plug-ins, and the user says
where these are.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from intaglio.custom import plugin, simulated, table
from intaglio.errors import BadInput, IntaglioError

VARIABLE = "INTAGLIO_PLUGINS"
GROUP = "intaglio.plugins"
_seen: set[str] = set()  # parts of INTAGLIO_PLUGINS that are loaded


def load(source: str | os.PathLike[str]) -> list[str]:
    """Load custom operators: a plug-in (`.so`), a Python file, or a module by its name.

    Returns the names of its operators. Loading runs the code of that file: load only what you
    trust.
    """
    with table.lock:
        before = set(table.CLASSES)
        text = os.fspath(source)
        if text.endswith(".py"):
            _run_file(Path(text))
        elif text.endswith((".so", ".dylib")) or ".so." in text or os.sep in text:
            simulated.remove()  # the plug-in itself takes the place of its simulator
            ops = plugin.load_library(text)
            table.add_plugged(ops)
            return sorted(op.native_op.name for op in ops)
        else:
            _import(text)
        return sorted(set(table.CLASSES) - before)


def _run_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"intaglio_plugins_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BadInput(f"cannot load custom operators from {str(path)!r}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        raise BadInput(
            f"cannot load custom operators from '{name}': {e}; give the path of a .so or .py file, "
            "or the name of a module that is installed"
        ) from None


def from_environment() -> bool:
    """Load what INTAGLIO_PLUGINS lists and is not loaded yet; returns whether there was something.

    Its parts are separated as those of PATH; each is what `load` takes.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return False
    new = [part for part in wanted.split(os.pathsep) if part and part not in _seen]
    for part in new:
        _seen.add(part)
        try:
            load(part)
        except IntaglioError as e:
            e.args = (f"{VARIABLE}: {e}", *e.args[1:])
            raise
    return bool(new)


@functools.cache
def from_entry_points() -> bool:
    """Load the entry points `intaglio.plugins` of installed packages, once.

    An entry point is a module whose import registers classes, the path of a plug-in, or a function
    that returns such a path.
    """
    found = entry_points(group=GROUP)
    for entry in found:
        _load_entry(entry)
    return bool(found)


def _load_entry(entry: EntryPoint) -> None:
    try:
        thing: Any = entry.load()
        if isinstance(thing, Callable) and not isinstance(thing, type):  # type: ignore[arg-type]
            thing = thing()
        if isinstance(thing, str | os.PathLike):
            load(thing)
    except IntaglioError as e:
        e.args = (f"entry point '{entry.name}' of {GROUP}: {e}", *e.args[1:])
        raise
    except Exception as e:
        raise BadInput(
            f"entry point '{entry.name}' of {GROUP} ({entry.value}) cannot be loaded: "
            f"{type(e).__name__}: {' '.join(str(e).split())}; repair or uninstall its package"
        ) from e


def look_again() -> bool:
    """Look for operators that are missing; returns whether there may be new ones."""
    with table.lock:
        before = {*table.CLASSES, *table.PLUGGED}
        from_environment()
        from_entry_points()
        new = {*table.CLASSES, *table.PLUGGED} != before
        return simulated.add() or new
