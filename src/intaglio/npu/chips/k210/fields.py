"""The K210's command words, as one table of bit fields for packing and unpacking.

A layer is 12 words of 64 bits. The names are those of Canaan's driver, shortened. Counts are stored
minus one. Addresses of weights, batch norm and curve are filled in by the chip's runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array

WORDS = 12
WORD_BITS = 64
SEGMENTS = 16
CURVE_BYTES = SEGMENTS * 8 + SEGMENTS  # 16 words, then one byte of bias for each


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a word. `less` is subtracted from the value before it is stored."""

    word: int
    low: int  # the lowest bit
    bits: int
    signed: bool = False
    less: int = 0

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return self.less, (1 << self.bits) - 1 + self.less

    def put(self, value: int) -> int:
        """The word's bits for a value that is within the limits."""
        return ((value - self.less) & ((1 << self.bits) - 1)) << self.low

    def take(self, word: int) -> int:
        """The value in a word."""
        value = word >> self.low & ((1 << self.bits) - 1)
        if self.signed and value >> (self.bits - 1):
            value -= 1 << self.bits
        return value + self.less


LAYER = {
    "int_en": Field(0, 0, 1),
    "ram_flag": Field(0, 1, 1),
    "full_add": Field(0, 2, 1),
    "depthwise": Field(0, 3, 1),
    "src": Field(1, 0, 15),  # lines of 64 bytes
    "dst": Field(1, 32, 15),
    "in_channels": Field(2, 0, 10, less=1),
    "out_channels": Field(2, 32, 10, less=1),
    "load_channels": Field(2, 48, 10, less=1),  # outputs whose weights are loaded at once
    "in_width": Field(3, 0, 10, less=1),
    "in_height": Field(3, 10, 9, less=1),
    "out_width": Field(3, 32, 10, less=1),
    "out_height": Field(3, 42, 9, less=1),
    "kernel": Field(4, 0, 3),  # 0: 1x1, 1: 3x3
    "pad_type": Field(4, 3, 1),
    "pool": Field(4, 4, 4),
    "first_stride": Field(4, 8, 1),
    "bypass_conv": Field(4, 9, 1),
    "load_para": Field(4, 10, 1),
    "dma_burst": Field(4, 16, 8),
    "pad": Field(4, 24, 8),
    "norm_address": Field(4, 32, 32),
    "load_coor": Field(5, 0, 1),
    "loads": Field(5, 1, 6, less=1),
    "load_bytes": Field(5, 15, 17),
    "weights_address": Field(5, 32, 32),
    "coef_column": Field(6, 0, 4),
    "coef_row": Field(6, 4, 12),
    "in_block_lines": Field(7, 0, 15),  # from one block of channels to the next
    "in_row_lines": Field(7, 16, 4),
    "coef_size": Field(7, 20, 8),
    "in_groups": Field(7, 28, 3),
    "load_act": Field(7, 31, 1),
    "curve_address": Field(7, 32, 32),
    "out_block_lines": Field(8, 0, 15),
    "out_row_lines": Field(8, 16, 4),
    "out_groups": Field(8, 20, 3),
    "shr_w": Field(9, 0, 4),
    "shr_x": Field(9, 4, 4),
    "arg_w": Field(9, 8, 24, signed=True),
    "arg_x": Field(9, 32, 24, signed=True),
    "arg_add": Field(10, 0, 40, signed=True),
    "send_data_out": Field(11, 0, 1),
    "channel_bytes": Field(11, 16, 16, less=1),
    "total_bytes": Field(11, 32, 32, less=1),
}
NORM = {  # one word for each output channel
    "mul": Field(0, 0, 24, signed=True),
    "add": Field(0, 24, 32, signed=True),
    "shift": Field(0, 56, 4),
}
SEGMENT = {  # one word for each segment of a curve; `bias` is a byte after the words
    "shift": Field(0, 0, 8),
    "mul": Field(0, 8, 16, signed=True),
    "start": Field(0, 24, 36, signed=True),
}
MAX_CURVE_SHIFT = 43
MAX_SHIFT = 63  # of numbers of 64 bits


def pack(
    values: Mapping[str, int], table: Mapping[str, Field] = LAYER, words: int = WORDS
) -> Array:
    """The words of named values; BadInput where one does not fit its field."""
    packed = [0] * words
    for name, value in values.items():
        field = table[name]
        low, high = field.limits
        if not low <= value <= high:
            raise BadInput(f"k210: field '{name}' is {value}; it has {low} to {high}")
        packed[field.word] |= field.put(int(value))
    return np.array(packed, np.uint64)


def unpack(words: Array, table: Mapping[str, Field] = LAYER) -> dict[str, int]:
    """The named values of some words."""
    numbers = [int(w) for w in words]
    return {name: field.take(numbers[field.word]) for name, field in table.items()}


def unknown_bits(words: Array) -> int:
    """The number of bits that are set in a layer's words but belong to no field."""
    known = [0] * WORDS
    for field in LAYER.values():
        known[field.word] |= ((1 << field.bits) - 1) << field.low
    return sum((int(w) & ~k).bit_count() for w, k in zip(words, known, strict=True))


@dataclass(frozen=True, slots=True)
class Norm:
    """v = (acc * mul >> shift) + add, with one number of each per output channel."""

    mul: Array
    shift: Array
    add: Array

    def pack(self) -> bytes:
        """One word of 64 bits per channel."""
        columns = {"mul": self.mul, "add": self.add, "shift": self.shift}
        packed = np.zeros(len(self.mul), np.uint64)
        for name, values in columns.items():
            field, wide = NORM[name], values.astype(np.int64)
            low, high = field.limits
            if wide.size and not low <= wide.min() <= wide.max() <= high:
                raise BadInput(f"k210: a '{name}' is beyond {low} to {high}")
            mask = np.uint64((1 << field.bits) - 1)
            packed |= (wide.astype(np.uint64) & mask) << np.uint64(field.low)
        return packed.astype("<u8").tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Norm:
        """The numbers of packed words."""
        words = np.frombuffer(data, "<u8")
        return cls(*(_column(words, NORM[name]) for name in ("mul", "shift", "add")))


@dataclass(frozen=True, slots=True)
class Curve:
    """y = clamp(round((v - start) * mul / 2^shift) + bias, 0, 255), of the last start below v."""

    start: Array  # 16 of each
    mul: Array
    shift: Array
    bias: Array

    def pack(self) -> bytes:
        """16 words of 64 bits, then 16 bytes of bias."""
        words = []
        for start, mul, shift in zip(self.start, self.mul, self.shift, strict=True):
            if not 0 <= shift <= MAX_CURVE_SHIFT:
                raise BadInput(f"k210: a curve shifts by {shift}; it has 0 to {MAX_CURVE_SHIFT}")
            one = {"start": int(start), "mul": int(mul), "shift": int(shift)}
            words.append(pack(one, SEGMENT, 1)[0])
        return np.array(words, "<u8").tobytes() + self.bias.astype(np.uint8).tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Curve:
        """The numbers of a packed curve."""
        if len(data) != CURVE_BYTES:
            raise BadFile(f"a curve has {len(data)} bytes; {CURVE_BYTES} are needed")
        words = np.frombuffer(data, "<u8", SEGMENTS)
        start, mul, shift = (_column(words, SEGMENT[name]) for name in ("start", "mul", "shift"))
        if shift.max() > MAX_SHIFT:
            raise BadFile(f"a curve shifts by {shift.max()}; at most {MAX_SHIFT} is possible")
        bias = np.frombuffer(data, np.uint8, offset=8 * SEGMENTS).astype(np.int64)
        return cls(start, mul, shift, bias)


def _column(words: Array, field: Field) -> Array:
    """One field of many words, as i64."""
    shifted = words >> np.uint64(field.low) & np.uint64((1 << field.bits) - 1)
    values = shifted.astype(np.int64)
    if field.signed:
        values = np.where(values >> (field.bits - 1), values - (1 << field.bits), values)
    return values
