"""Plug-ins that run on boards only: on a PC, a simulator stands for each until it is loaded."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from intaglio import native
from intaglio.custom import plugin, table
from intaglio.custom.callback import Callbacks, Types
from intaglio.native_op import CALLER, NativeOp


@dataclass(frozen=True)
class Simulated:
    """An operator of a plug-in, with the plug-in's name and attributes, computed in Python."""

    op: str
    plugin_name: str
    version: str
    fields: str  # as in struct itg_op
    compute: Callable[..., Any]
    types: Types

    @functools.cached_property
    def struct(self) -> plugin.CPlugin:
        """The plug-in as the runtime sees it."""
        layout = NativeOp(self.op, self.fields, 0)
        calls = Callbacks(self.compute, self.types, struct=layout)
        size = 8 * sum(f.count for f in layout.fields)
        infer = ctypes.cast(calls.infer, native.Infer)
        c = native.COp(self.op.encode(), self.fields.encode(), size, CALLER, 0, infer)
        run = ctypes.cast(calls.run, native.Run)
        kernel = native.CKernel(ctypes.pointer(c), b"any", b"python", b"", 0, run)
        names = self.plugin_name.encode(), self.version.encode()
        made = plugin.CPlugin(plugin.abi(), 1, *names, ctypes.pointer(kernel))
        made.keep = (c, kernel, calls)
        return made


_added: list[Simulated] = []


def add() -> bool:
    """Let simulators stand for plug-ins that are not loaded; returns whether one is new."""
    new = False
    with table.lock:
        for module in table.OURS.values():
            it: Simulated = import_module(module).SIMULATED
            if it.op in native.ops():
                continue
            plugin.register_struct(it.struct, it)
            about = native.Plugin(it.plugin_name, it.version, plugin.abi())
            native.add_kernels(*native.rows_of(it.struct.kernels, 1, about))
            _added.append(it)
            new = True
    return new


def remove() -> None:
    """Take the simulators away: a plug-in that is loaded may be one of these."""
    for it in _added:
        plugin.unregister_name(it.plugin_name)
        native.remove_ops([it.op])
    _added.clear()
