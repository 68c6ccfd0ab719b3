"""CRC-32C checksums of checkpoints."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
MASK = 0xA282EAD8  # added by LevelDB to stored checksums
STRIPS_FROM = 1 << 12  # bytes from which vectorised strips are faster


def _table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()
_ROWS: list[int] = _TABLE.tolist()


def masked(crc: int) -> int:
    """A checksum as checkpoints store it."""
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C. Long data is split into strips of equal length, computed in parallel by numpy."""
    crc = 0xFFFFFFFF
    strips = len(data) >> 6 if len(data) < STRIPS_FROM * 64 else STRIPS_FROM
    if len(data) >= STRIPS_FROM:
        length = len(data) // strips
        lanes = np.frombuffer(data, np.uint8, strips * length).reshape(strips, length).T.copy()
        each = np.zeros(strips, np.uint32)
        for row in lanes:
            each = _TABLE[(each ^ row) & 0xFF] ^ (each >> np.uint32(8))
        beyond = _after_zeros(length)
        for one in each.tolist():  # combine the remainders of the strips
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
    """Tables that advance a remainder by `count` zero bytes, one per byte of the remainder."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(count):
        bits = _TABLE[bits & 0xFF] ^ (bits >> np.uint32(8))
    tables = []
    for byte in range(4):
        results = np.zeros(256, np.uint32)
        for k in range(8):
            results ^= np.where(np.arange(256) >> k & 1, bits[8 * byte + k], 0).astype(np.uint32)
        tables.append([int(v) for v in results])
    return tables
