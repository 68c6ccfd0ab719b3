"""The task of the PPU: the largest number of each window."""

from __future__ import annotations

from intaglio.npu.chips.rockchip import settings_rv110x
from intaglio.npu.chips.rockchip.dpu_tasks import MapSize, Settings
from intaglio.npu.chips.rockchip.geometry import RK356X, RK3562, RK3576, RK3588, RV110X, round_up
from intaglio.npu.chips.rockchip.settings import END, IN_TURN
from intaglio.npu.chips.rockchip.words import ENABLE

BLOCKS = 0x60  # PPU and PPU_RDMA
LARGEST = 0x11  # OPERATION_MODE_CFG: from memory; the largest number
FORMATS = {
    "rk3588": 1,
    "rk3566": 0,
    "rv1106": 0x40,
    "rk3562": 0x40,
    "rk3576": 0x40,
}  # PPU_RDMA: DATA_FORMAT of bytes
LOWEST = 0x7FF80  # what padding holds, on all but the RK3588
MOST_PAD = 7  # that a register holds


def largest(
    size: MapSize,
    out: MapSize,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],  # top, left, bottom, right
) -> Settings:
    """Max pooling; padding below and at the right is what the windows need."""
    channels = round_up(size.channels, size.atom) - 1
    newer, rv = size.design is RK3588, size.design in (RV110X, RK3562)
    lowest = 0 if newer else LOWEST
    places = (0x6044, 0x6048) if newer else (0x6044, 0x6048, 0x604C, 0x6050)
    (ky, kx), (sy, sx), (top, left, bottom, right) = kernel, strides, pads
    ends = {"rv1106": 0x6070, "rk3562": 0x6070, "rk3576": 0x6060}  # of registers that are 0
    bottom = min(bottom, max(0, (out.height - 1) * sy + ky - top - size.height))
    right = min(right, max(0, (out.width - 1) * sx + kx - left - size.width))
    window = (sy - 1) << 20 | (sx - 1) << 16 | (ky - 1) << 8 | kx - 1
    edges = bottom << 12 | right << 8 | top << 4 | left
    return [
        ("PPU", 0x6004, IN_TURN),
        ("PPU_RDMA", 0x7004, IN_TURN),
        ("PPU", 0x600C, size.width - 1),
        ("PPU", 0x6010, size.height - 1),
        ("PPU", 0x6014, channels),
        ("PPU", 0x6018, out.width - 1),
        ("PPU", 0x601C, out.height - 1),
        ("PPU", 0x6020, channels),
        ("PPU", 0x6024, LARGEST),
        ("PPU", 0x6034, window),
        ("PPU", 0x6038, 0),
        ("PPU", 0x603C, 0),
        ("PPU", 0x6040, edges),
        *(("PPU", place, lowest) for place in places),
        *(("PPU", place, 0) for place in range(0x6054, ends.get(size.design.registers, 0), 4)),
        ("PPU", 0x6070, 0),
        ("PPU", 0x607C, out.surface),
        ("PPU", 0x6084, out.surface),
        ("PPU", 0x60DC, 0 if size.design is RK3576 else 3),
        ("PPU_RDMA", 0x700C, size.width - 1),
        ("PPU_RDMA", 0x7010, size.height - 1),
        ("PPU_RDMA", 0x7014, channels),
        *([("PPU_RDMA", 0x7018, 1)] if size.design is RK356X else []),
        ("PPU_RDMA", 0x701C, 0),
        ("PPU_RDMA", 0x7024, size.width * size.atom),
        ("PPU_RDMA", 0x7028, size.surface),
        ("PPU_RDMA", 0x7030, FORMATS[size.design.registers]),
        *(settings_rv110x.TAIL if rv else []),
        *END,
        ("ENABLE", ENABLE, BLOCKS),
    ]
