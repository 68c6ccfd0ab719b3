"""No 8-bit kernel reads past the end of its images, which end at an unreadable page."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import native
from intaglio.targets.cpu import qconv_packing, qwinograd
from intaglio.targets.cpu.depthwise_packing import tap_packing

PAGE = mmap.PAGESIZE
WINDOWS = [
    (5, 1, "window"),
    (5, 1, "tap"),
    (3, 3, "window"),
    (1, 5, "window"),
    (16, 1, "tap"),
    (32, 1, "tap"),
    (64, 1, "tap"),
    (7, 3, "line"),
]
ROOT = Path(__file__).parents[2]


def at_the_end(a: np.ndarray) -> tuple[mmap.mmap, int]:
    """A copy of `a` that ends at an unreadable page, and its address."""
    body = -(-a.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, body + PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    address = start + body - a.nbytes
    ctypes.memmove(address, a.ctypes.data, a.nbytes)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(start + body, PAGE, 0) == 0
    return memory, address


def run(
    op: str,
    shape: tuple[int, ...],
    w: np.ndarray,
    channels: int,
    second: tuple[int, ...] | None = None,
    **attrs: Any,
) -> None:
    x = np.ones(shape, np.uint8)
    images = {0: x} if second is None else {0: x, 6: np.ones(second, np.uint8)}
    more = [None, None, images[6]] if 6 in images else []
    per = [np.zeros(channels, np.int32), np.full(channels, 0.01, np.float32)]
    size = len(shape) - 2
    attrs = {
        "stride": (1,) * size,
        "dilation": (1,) * size,
        "x_zero": 0,
        "y_zero": 0,
        "lo": 0,
        "hi": 255,
        "dtype": "u8",
        "r_zero": 0,
        "r_scale": 0.0,
        "channels": channels,
        **attrs,
    }
    for kernel in native.kernels():
        if kernel.op.name == op and not kernel.needs & ~native.machine():
            ready = native.Prepared(kernel, [x, w, *per, *more], attrs)
            held = {i: at_the_end(v) for i, v in images.items()}
            for i, (_, address) in held.items():
                ready.keep[1][i].contents.data = address
            ready.run()
            held.clear()


def run_all() -> None:
    for channels in (1, 2, 5, 16, 24, 40, 64, 72):
        for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2)):
            window = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (kernel // 2,) * 4}
            w = tap_packing((kernel,) * 2, (stride,) * 2, (1, 1)).packed(
                np.ones((kernel, kernel, channels), np.int8)
            )
            split = tap_packing((kernel,) * 2, (stride,) * 2, (1, 1)).packed(
                np.full((kernel, kernel, channels), 130, np.int16)
            )
            for size in ((4, 1), (9, 11), (7, 17)):
                run("cpu.qdepthwise", (1, *size, channels), w, channels, **window)
                run("cpu.qdepthwise", (1, *size, channels), split, channels, **window)
    for deep, channels in ((1, 3), (16, 16), (20, 40), (32, 16), (48, 64)):
        tiles: dict[str, Any] = {"stride": (), "dilation": (), "pad": (1,) * 4, "square": (1, 1)}
        w = qwinograd.tiled_weights(np.ones((channels, deep, 3, 3), np.int8))
        for size in ((1, 1), (8, 8), (10, 34)):
            run("cpu.qwinograd", (1, *size, deep), w, channels, **tiles)
            if deep > 16 and size != (1, 1):
                layouts = (
                    ((*size, deep - 16), (1, 1)),
                    ((size[0] // 2, size[1] // 2, 4 * deep - 64), (1, 2)),
                )
                for other, square in layouts:
                    run(
                        "cpu.qwinograd",
                        (1, *size, 16),
                        w,
                        channels,
                        (1, *other),
                        **tiles | {"square": square},
                    )
    for deep, kernel, packing in WINDOWS:
        w = qconv_packing.packed(np.ones((1, 20, deep, kernel, kernel), np.int8), packing)
        few = qconv_packing.packed(np.ones((1, 2, deep, kernel, kernel), np.int8), packing)
        more = {"kernel": (kernel,) * 2, "groups": 1, "pad": (kernel // 2,) * 4, "run": packing}
        for size in ((1, 1), (7, 9), (5, 37)):
            run("cpu.qconv", (1, *size, deep), w, 20, **more)
            run("cpu.qconv", (1, *size, deep), few, 2, **more | {"dtype": "f32"})


def test_images_at_the_end_of_memory() -> None:
    """Runs in its own process, which an invalid read would kill."""
    code = "from tests.kernels.test_last_bytes import run_all; run_all()"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-800:]}"
