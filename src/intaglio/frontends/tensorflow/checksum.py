"""CRC-32C, with which checkpoints guard their bytes."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
MASK = 0xA282EAD8  # what leveldb adds, so that a checksum of checksums is of use
SHORT = 1 << 12  # bytes, from where on many strips at a time are faster than one


def _table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()
_ROWS: list[int] = _TABLE.tolist()


def masked(crc: int) -> int:
    """A checksum as it is stored."""
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF


def crc32c(data: bytes | memoryview) -> int:
    """Long data is cut into strips of equal length; their remainders go side by side."""
    crc = 0xFFFFFFFF
    strips = len(data) >> 6 if len(data) < SHORT * 64 else SHORT
    if len(data) >= SHORT:
        length = len(data) // strips
        lanes = np.frombuffer(data, np.uint8, strips * length).reshape(strips, length).T.copy()
        each = np.zeros(strips, np.uint32)
        for row in lanes:
            each = _TABLE[(each ^ row) & 0xFF] ^ (each >> np.uint32(8))
        beyond = _after_zeros(length)
        for one in each.tolist():  # the remainder of two strips follows from those of both
            crc = (
                beyond[0][crc & 255]
                ^ beyond[1][crc >> 8 & 255]
                ^ beyond[2][crc >> 16 & 255]
                ^ beyond[3][crc >> 24]
                ^ one
            )
        data = data[strips * length :]
    for byte in bytes(data):
        crc = _ROWS[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _after_zeros(count: int) -> list[list[int]]:
    """What `count` zero bytes make of each byte of a remainder: it is linear, so bits suffice."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(count):
        bits = _TABLE[bits & 0xFF] ^ (bits >> np.uint32(8))
    tables = []
    for byte in range(4):
        made = np.zeros(256, np.uint32)
        for k in range(8):
            made ^= np.where(np.arange(256) >> k & 1, bits[8 * byte + k], 0).astype(np.uint32)
        tables.append([int(v) for v in made])
    return tables
