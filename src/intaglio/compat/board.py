"""`--board rk3588`: scripts for a board that ask the machine what it is see that board.

Examples for RKNN-Toolkit-Lite2 read the device tree and `platform.machine()`, and end on a PC.
"""

from __future__ import annotations

import builtins
import io
import os
import platform
from typing import Any

from intaglio.compat.rknn.platforms import platform as checked

COMPATIBLE, MODEL = "/proc/device-tree/compatible", "/proc/device-tree/model"
MACHINE = "aarch64"


def pretend(chip: str) -> None:
    """In this process, be a board with this chip: its device tree and type of machine."""
    name = checked(chip, "--board")
    texts = {
        COMPATIBLE: f"rockchip,{name}-evb\0rockchip,{name}\0",
        MODEL: f"Rockchip {name.upper()} (simulator)\0",
    }
    opened = builtins.open

    def with_device_tree(file: Any, mode: str = "r", *args: Any, **keywords: Any) -> Any:
        is_path = isinstance(file, str | os.PathLike)
        text = texts.get(os.fspath(file)) if is_path else None
        if text is None:
            return opened(file, mode, *args, **keywords)
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

    builtins.open = with_device_tree
    platform.machine = lambda: MACHINE
