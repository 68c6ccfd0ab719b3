"""Boxes of feature maps as operands of the TIU and the TDMA."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.npu.own.isa import Feature

LANE_BYTES = 1 << 15
BASES = {"internal": 0, "weights": 1}  # registers with the start of each memory
FIRST_PORT = 3  # the register of the first input
MOST_PORTS = 5  # inputs and outputs with a register of their own
Fields = dict[str, int]


@dataclass(frozen=True, slots=True)
class Local:
    """A tensor in local memory: an address in its first lane, and strides in bytes of a lane."""

    address: int
    channels: int
    height: int
    width: int
    channel: int
    row: int
    pixel: int
    signed: bool
    lanes: int

    @classmethod
    def of(cls, f: Feature, lanes: int) -> Local:
        """The box of a feature map in SRAM."""
        return cls(
            f.first * LANE_BYTES + f.offset // lanes,
            f.channels,
            f.height,
            f.width,
            f.plane // lanes,
            f.row // lanes,
            f.pixel // lanes,
            f.dtype == "i8",
            lanes,
        )

    def box(self, top: int, bottom: int, left: int, right: int) -> Local:
        """Some rows and columns."""
        start = self.address + top * self.row + left * self.pixel
        return replace(self, address=start, height=bottom - top, width=right - left)

    def shape(self, name: str) -> Fields:
        """Its extents as fields of the operand `name`."""
        extents = zip("nchw", (1, self.channels, self.height, self.width), strict=True)
        return {f"{name}_{k}": v for k, v in extents}

    def place(self, name: str) -> Fields:
        """Its address, extents, sign and strides as fields of the operand `name`."""
        whole = self.channel * -(-self.channels // self.lanes)
        strides = zip("nchw", (whole, self.channel, self.row, self.pixel), strict=True)
        return {
            f"{name}_addr": self.address,
            f"opt_{name}_sign": int(self.signed),
            f"short_{name}_str": 3,
            **self.shape(name),
            **{f"{name}_{k}_str": v for k, v in strides},
        }


def local_side(side: str, t: Local) -> Fields:
    """The fields of the local end of a transfer; `side` is src or dst."""
    return _side(side, t.address, 0, t.channels, t.height, t.width, t.channel, t.row)


def ddr_side(side: str, base: int, f: Feature) -> Fields:
    """The fields of the end of a transfer in DDR."""
    return _side(side, f.offset, base, f.channels, f.height, f.width, f.plane, f.row)


def _side(
    side: str, address: int, base: int, c: int, h: int, w: int, plane: int, row: int
) -> Fields:
    found = {
        f"{side}_base_addr_low": address & 0xFFFFFFFF,
        f"{side}_base_addr_high": address >> 32,
        f"{side}_base_reg_sel": base,
        f"{side}_c": c,
        f"{side}_h": h,
        f"{side}_w": w,
        f"{side}_n_stride": plane * c & 0xFFFFFFFF,
        f"{side}_c_stride_low": plane & 0xFFFF,
        f"{side}_c_stride_high": plane >> 16,
        f"{side}_h_stride": row,
    }
    return found | ({"src_n": 1} if side == "src" else {})
