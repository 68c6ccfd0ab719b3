"""Compressed weights, expanded once: each run of a simulated file would expand them again."""

from __future__ import annotations

import ctypes

import numpy as np

from intaglio import native
from intaglio.errors import IntaglioError
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.cvimodel import FIRST_IO, WEIGHTS
from intaglio.npu.chips.cv18xx.fields import TDMA
from intaglio.npu.chips.cv18xx.native_machine import BASES, Stream

TO_LOCAL, TO_DDR, DDR_TO_DDR = 0, 1, 2  # trans_dir
FILL = 4  # spec_func of a transfer that reads nothing
BF16 = 2  # src_fmt
MOST_BYTES = 256 << 20  # of expanded weights
UNIT = 16  # the weights of a transfer begin at a multiple of it
COLUMN = {name: i for i, name in enumerate(TDMA.by_name)}


def expand_ahead(streams: list[Stream], memory: list[Array | None]) -> None:
    """Make compressed transfers of weights plain ones of expanded weights.

    Nothing changes if a command writes weights. A transfer whose weights are not valid stays as it
    is: it is refused when it runs.
    """
    weights = memory[WEIGHTS]
    if weights is None or any(_writes_weights(s.tdma) for s in streams):
        return
    try:
        library = native.compiler_library()
    except (IntaglioError, OSError):
        return
    for stream in streams:
        used = stream.tdma[:, [COLUMN["src_base_reg_sel"], COLUMN["dst_base_reg_sel"]]]
        free = [i for i in range(FIRST_IO, BASES) if memory[i] is None and not (used == i).any()]
        if free:
            _expand(stream, free[-1], weights, library)


def _writes_weights(tdma: Array) -> bool:
    to_ddr = np.isin(tdma[:, COLUMN["trans_dir"]], (TO_DDR, DDR_TO_DDR))
    return bool((to_ddr & (tdma[:, COLUMN["dst_base_reg_sel"]] == WEIGHTS)).any())


def _expand(stream: Stream, base: int, weights: Array, library: ctypes.CDLL) -> None:
    tdma, parts, end = stream.tdma.copy(), [], 0
    places: dict[tuple[int, int, bool], int] = {}  # of what is expanded already
    for row in tdma[_packed(tdma)]:
        found = _size(row)
        if found is None or found in places:
            continue
        address, size, is_bf16 = found
        if end + size > MOST_BYTES or address >= len(weights):
            continue
        made = np.empty(-(-size // UNIT) * UNIT, np.uint8)
        done = library.itg_cv18xx_expand(
            ctypes.c_void_p(weights.ctypes.data + address),
            ctypes.c_int64(len(weights) - address),
            ctypes.c_void_p(made.ctypes.data),
            ctypes.c_int64(size),
            ctypes.c_int(is_bf16),
        )
        if done:
            places[found] = end
            parts.append(made)
            end += len(made)
    for row in (tdma[i] for i in np.flatnonzero(_packed(tdma))):
        found = _size(row)
        if found in places:
            _point_to(row, base, places[found])
    if parts:
        stream.tdma, stream.more = tdma, {base: np.concatenate(parts)}


def _packed(tdma: Array) -> Array:
    """The transfers that expand weights."""
    found: Array = tdma[:, COLUMN["compress_en"]] == 1
    for name, value in (("trans_fmt", 0), ("trans_dir", TO_LOCAL), ("src_base_reg_sel", WEIGHTS)):
        found = found & (tdma[:, COLUMN[name]] == value)
    plain: Array = found & (tdma[:, COLUMN["spec_func"]] != FILL)
    return plain


def _shape(row: Array) -> tuple[int, int, int, int]:
    n, c, h, w = (int(row[COLUMN[f"src_{axis}"]]) for axis in "nchw")
    return (1, c, 1, w) if row[COLUMN["sys_dtype"]] else (n, c, h, w)


def _size(row: Array) -> tuple[int, int, bool] | None:
    """Address, expanded bytes and type of a transfer; None if it has no size."""
    n, c, h, w = _shape(row)
    is_bf16 = int(row[COLUMN["src_fmt"]]) == BF16
    size = n * c * h * w * (2 if is_bf16 else 1)
    high, low = (int(row[COLUMN[f"src_base_addr_{part}"]]) for part in ("high", "low"))
    return (high << 32 | low, size, is_bf16) if 0 < size <= MOST_BYTES else None


def _point_to(row: Array, base: int, address: int) -> None:
    """Make a transfer read the plain bytes at an address."""
    _, c, h, w = _shape(row)
    line = w * (2 if row[COLUMN["src_fmt"]] == BF16 else 1)
    plane = h * line
    fields = {
        "compress_en": 0,
        "src_base_reg_sel": base,
        "src_base_addr_high": 0,
        "src_base_addr_low": address,
        "src_n_stride": c * plane,
        "src_c_stride_high": plane >> 16,
        "src_c_stride_low": plane & 0xFFFF,
        "src_h_stride": line,
    }
    for name, value in fields.items():
        row[COLUMN[name]] = value
