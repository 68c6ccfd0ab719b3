"""Random single transfers of the TDMA, for the models of single_commands.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.npu.chips.cv18xx.single_commands import INPUT, LANE, Case, Fields, aligned, one, reload

from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.commands import CHIPS, tdma

KINDS = (
    "load",
    "load reshaped",
    "store",
    "load nc",
    "store nc",
    "store cw",
    "load pixels",
    "fill",
    "fill ddr",
    "copy local",
    "load bytes",
    "store bytes",
    "copy ddr",
    "load matrix",
    "store matrix",
    "load matrix turned",
    "to bf16",
    "to i8",
)


def transfer(rng: np.random.Generator, chip: str, kind: str) -> Case:
    """A transfer, and a second load where the first writes to DDR."""
    f = _fields(rng, CHIPS[chip].lanes, kind)
    again = [reload(chip)] if f.get("dst_base_reg_sel") else []
    return [tdma(f), *again], _numbers if kind == "to i8" else _nothing


def _nothing(x: Array) -> None:
    pass


def _numbers(x: Array) -> None:
    """bf16 numbers near those of 8 bits, with ties."""
    values = np.random.default_rng(1).integers(-600, 600, x.size // 2) / np.float32(4)
    x.reshape(-1)[:] = (
        (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    )


def _fields(rng: np.random.Generator, lanes: int, kind: str) -> Fields:
    n, c, h, w = one(rng, 1, 3), one(rng, 1, 20), one(rng, 1, 6), one(rng, 1, 10)
    size, offset = one(rng, 1, 3), one(rng, 0, 500)
    here = one(rng, 0, lanes) * LANE + one(rng, 0, 4) * 16
    gap = one(rng, 0, 5) * size
    formats = {"src_fmt": size, "dst_fmt": size}

    def local(side: str, c: int, h: int, w: int, size: int = size) -> Fields:
        plane = aligned(h * w * size)
        strides = {"h_stride": w * size, "c_stride_low": plane}
        strides["n_stride"] = plane * (-(-c // lanes) + 1)
        return {f"{side}_{k}": v for k, v in ({"c": c, "h": h, "w": w} | strides).items()}

    def ddr(side: str, c: int, h: int, w: int, gap: int = gap, size: int = size) -> Fields:
        row = w * size + gap
        plane = row * h + gap
        strides = {"h_stride": row, "c_stride_low": plane, "n_stride": plane * c + gap}
        return {f"{side}_{k}": v for k, v in ({"c": c, "h": h, "w": w} | strides).items()}

    load = {"src_n": n, "src_base_reg_sel": INPUT, "src_base_addr_low": offset}
    load |= {"dst_base_addr_low": here}
    store = {"src_n": n, "trans_dir": 1, "dst_base_reg_sel": INPUT, "dst_base_addr_low": offset}
    store |= {"src_base_addr_low": here}
    rows, columns, wide = one(rng, 1, 9), one(rng, 1, 80), one(rng, 1, 20)
    pieces = -(-columns // wide)
    turned = -(-rows // wide)
    matrix = {"src_n": rows, "src_c": rows, "src_w": columns}
    matrix |= {"src_c_stride_low": columns * size + gap, "sys_dtype": 1}
    there = 16384 + one(rng, 0, lanes) * LANE
    bytes_here = {"trans_fmt": 1, "src_n_stride": one(rng, 1, 3000)}
    pixels = one(rng, 3, 5)
    value = one(rng, 0, 256)
    makers: dict[str, Callable[[], Fields]] = {
        "load": lambda: load | ddr("src", c, h, w) | local("dst", c, h, w) | formats,
        "load reshaped": lambda: (
            load | ddr("src", 2 * c, h, w) | local("dst", c, 2 * h, w) | formats
        ),
        "store": lambda: store | local("src", c, h, w) | ddr("dst", c, h, w) | formats,
        "load nc": lambda: (
            load | {"spec_func": 1} | ddr("src", c, h, w) | local("dst", n, h, w) | formats
        ),
        "store nc": lambda: (
            store | {"spec_func": 1} | local("src", c, h, w) | ddr("dst", n, h, w) | formats
        ),
        "store cw": lambda: (
            store
            | {"spec_func": 1, "transpose_md": 3}
            | local("src", c, h, w, 1)
            | ddr("dst", w, h, c, 0, 1)
        ),
        "load pixels": lambda: (
            load
            | {"spec_func": 1, "transpose_md": pixels - 2, "src_n": 1}
            | ddr("src", pixels, h, w)
            | {"src_c_stride_low": 1, "src_h_stride": pixels * w, "src_n_stride": pixels * h * w}
            | local("dst", pixels, h, w, 1)
        ),
        "fill": lambda: (
            {"spec_func": 4, "const_val": value, "src_n": n, "dst_base_addr_low": here}
            | local("dst", c, h, w)
            | formats
        ),
        "fill ddr": lambda: (
            {"spec_func": 4, "const_val": value} | store | ddr("dst", c, h, w, 0, 1)
        ),
        "copy local": lambda: (
            {"trans_dir": 3, "src_n": n, "src_base_addr_low": here, "dst_base_addr_low": there}
            | local("src", c, h, w)
            | local("dst", c, h, w)
            | formats
        ),
        "load bytes": lambda: load | bytes_here,
        "store bytes": lambda: store | bytes_here,
        "copy ddr": lambda: (
            store
            | {"trans_dir": 2, "src_base_reg_sel": INPUT, "src_base_addr_low": 50000}
            | ddr("src", c, h, w)
            | ddr("dst", c, h, w, 0)
            | formats
        ),
        "load matrix": lambda: load | local("dst", pieces, 1, wide) | matrix | formats,
        "store matrix": lambda: (
            store
            | {"sys_dtype": 1}
            | local("src", pieces, 1, wide)
            | {"src_n": rows, "dst_c": rows, "dst_w": columns}
            | {"dst_c_stride_low": columns * size + gap}
            | formats
        ),
        "load matrix turned": lambda: (
            load
            | local("dst", turned, 1, wide, 1)
            | matrix
            | {"spec_func": 1, "src_c_stride_low": columns + gap}
        ),
        "to bf16": lambda: (
            load
            | ddr("src", c, h, w, gap, 1)
            | local("dst", c, h, w, 2)
            | {"dst_fmt": 2, "int8_sign": value & 1}
        ),
        "to i8": lambda: (
            {"trans_dir": 3, "src_n": n, "src_base_addr_low": here, "dst_base_addr_low": there}
            | local("src", c, h, w, 2)
            | local("dst", c, h, w, 1)
            | {"src_fmt": 2, "int8_sign": value & 1, "int8_rnd_mode": value >> 1 & 1}
        ),
    }
    return makers[kind]()
