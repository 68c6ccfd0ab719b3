"""Executes tasks of convolutions from their register commands, ours and the vendor's.

Sizes, strides and addresses come from the registers alone: a wrong stride reads wrong bytes, and
an address outside of the memory is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.rockchip import scaling
from intaglio.npu.chips.rockchip.geometry import (
    ATOM,
    BANK_BYTES,
    BANK_ENTRIES,
    BANKS,
    CHANNEL_BYTES,
    PICTURE_BYTES,
    entry_channels,
    round_up,
)
from intaglio.npu.chips.rockchip.registers import registers
from intaglio.npu.chips.rockchip.settings import ADDS, ALONE, CONVOLUTION_BLOCKS
from intaglio.npu.chips.rockchip.words import ENABLE, NUMBERS, Word

INPUT, WEIGHTS, CHANNELS, OUTPUT = 0x1070, 0x1110, 0x5020, 0x4020  # registers that hold addresses
PER_CHANNEL = 0x20140  # BS_CFG: bias and multiplier from memory
MULTIPLIER_BITS = 0xE01  # BS_MUL_CFG
RELU, CLIPPED, PLAIN = 0x12, 0x92, 0x53  # BN_CFG

Settings = dict[tuple[str, int], int]


class Machine:
    """Runs tasks on one memory; registers keep their values for the task after the next."""

    def __init__(self, memory: Array):
        self.memory = memory
        self.groups: list[Settings] = [{}, {}]  # registers come in two sets, used in turn
        self.count = 0

    def run(self, words: Iterable[Word]) -> None:
        """Execute one task whose addresses are filled in."""
        settings = self.groups[self.count % 2]
        self.count += 1
        for word in words:
            if word.target == NUMBERS["ENABLE"] and word.register == ENABLE:
                if word.value != CONVOLUTION_BLOCKS:
                    raise Unsupported(f"rockchip: a task starts the blocks {word.value:#x}")
                _Convolution(settings, self.memory).run()
            settings[word.block, word.register] = word.value


class _Convolution:
    """One task: what its registers say."""

    def __init__(self, settings: Settings, memory: Array):
        self.settings, self.memory = settings, memory
        mode = self.fields("CNA", 0x100C)
        self.depthwise = mode["CONV_MODE"] == 3
        self.picture = mode["ARGB_IN"] != 0
        if mode["IN_PRECISION"] or mode["PROC_PRECISION"]:
            raise Unsupported("rockchip: only int8 convolutions are simulated")
        self.adds = self.get("DPU", 0x4070) == ADDS
        if self.get("DPU", 0x4070) not in (ALONE, ADDS):
            raise Unsupported(f"rockchip: register EW_CFG is {self.get('DPU', 0x4070):#x}")
        expected = {0x4040: PER_CHANNEL, 0x4048: MULTIPLIER_BITS}
        for register, value in expected.items():
            if self.get("DPU", register) != value:
                found = self.get("DPU", register)
                raise Unsupported(f"rockchip: register {register:#x} is {found:#x}")
        size = self.fields("CNA", 0x1020)
        self.width, self.rows = size["DATAIN_WIDTH"], size["DATAIN_HEIGHT"]
        kernel = self.fields("CNA", 0x1038)
        self.kernel = kernel["WEIGHT_HEIGHT"], kernel["WEIGHT_WIDTH"]
        steps = self.fields("CNA", 0x1014)
        self.strides = steps["CONV_Y_STRIDE"], steps["CONV_X_STRIDE"]
        self.dilations = steps["ATROUS_Y_DILATION"] + 1, steps["ATROUS_X_DILATION"] + 1
        pads = self.fields("CNA", 0x1068)
        self.pads = pads["PAD_TOP"], pads["PAD_LEFT"]
        cube = self.fields("DPU", 0x403C)
        self.outputs = cube["ORIG_CHANNEL"] + 1
        self.out = self.get("DPU", 0x4034) + 1, self.get("DPU", 0x4030) + 1
        channels = self.fields("CNA", 0x1024)
        self.stored = channels["DATAIN_CHANNEL"]
        if self.picture:
            self.channels = channels["DATAIN_CHANNEL_REAL"] + 1
        else:  # the last block of 64 says how many are real
            blocks = (self.stored - 1) // 64
            self.channels = blocks * 64 + channels["DATAIN_CHANNEL_REAL"] + 1
        self._check()

    def get(self, block: str, register: int) -> int:
        try:
            return self.settings[block, register]
        except KeyError:
            raise BadFile(f"rockchip: a task does not set {block} {register:#x}") from None

    def fields(self, block: str, register: int) -> dict[str, int]:
        return registers()[block, register].split(self.get(block, register))

    def _check(self) -> None:
        """Sizes of the blocks agree, and rows fit the banks that hold them."""
        buffer = self.fields("CNA", 0x1040)
        banks, weights = buffer["DATA_BANK"], buffer["WEIGHT_BANK"]
        if not banks or not weights or banks + weights > BANKS:
            raise BadFile(f"rockchip: {banks} and {weights} banks; there are {BANKS}")
        if self.picture:
            if self.channels not in PICTURE_BYTES:
                raise Unsupported(f"rockchip: a picture of {self.channels} channels")
            needed = self.rows * self.width * PICTURE_BYTES[self.channels]
        else:
            entries = -(-self.width * entry_channels(self.stored) // (BANK_BYTES // BANK_ENTRIES))
            needed = self.rows * entries * (BANK_BYTES // BANK_ENTRIES)
            if self.get("CNA", 0x1044) != entries:
                raise BadFile(f"rockchip: a row takes {entries} entries of the buffer")
        if needed > banks * BANK_BYTES:
            raise BadFile(f"rockchip: {self.rows} rows need {needed} bytes; {banks} banks are less")
        height, width = self.out
        if self.get("CNA", 0x102C) & (1 << 22) - 1 != height * width:
            raise BadFile(f"rockchip: the sizes of the output differ: {height} x {width}")
        if self.get("CORE", 0x3014) != (height - 1) << 16 | width - 1:
            raise BadFile(f"rockchip: the sizes of the output differ: {height} x {width}")

    def slice(self, start: int, count: int) -> Array:
        if start < 0 or count < 0 or start + count > len(self.memory):
            raise BadFile(f"rockchip: {count} bytes at {start:#x} are not in the memory")
        return self.memory[start : start + count]

    def run(self) -> None:
        zeros, bias, multipliers = self._channels()
        data = self._padded(self._input())
        weights = self._weights().astype(np.float64) - zeros.reshape(-1, 1, 1, 1)
        sums = self._sums(data, weights) + bias.reshape(-1, 1, 1)
        kind = self.get("DPU", 0x4060)
        if kind not in (RELU, CLIPPED, PLAIN):
            raise Unsupported(f"rockchip: register BN_CFG is {kind:#x}")
        limit = self.get("DPU", 0x406C) if kind == CLIPPED else 0
        zero = int(np.int32(np.uint32(self.get("DPU", 0x4080))))
        scale, shift = self.get("DPU", 0x4084), self.get("DPU", 0x4088)
        result = scaling.to_bytes(
            sums,
            multipliers,
            scale,
            shift,
            zero,
            relu=kind == RELU,
            limit=limit,
            added=self._added() if self.adds else None,
        )
        self._write(result)

    def _added(self) -> Array:
        """The second map in units of the scaled sums: two readers take turns at its blocks."""
        height, width = self.out
        size = height * width * ATOM
        readers = ((0x5018, 0x504C), (0x5038, 0x506C))
        blocks = []
        for number in range(-(-self.outputs // ATOM)):
            base, skipped = (self.get("DPU_RDMA", r) for r in readers[number % 2])
            part = self.slice(base + number // 2 * (size + skipped), size)
            blocks.append(part.reshape(height, width, ATOM).transpose(2, 0, 1))
        offset = int(np.int32(np.uint32(self.get("DPU", 0x4074))))
        factor = self.fields("DPU", 0x4078)
        values = np.concatenate(blocks)[: self.outputs].astype(np.int64) + offset
        wide = values * factor["EW_OP_CVT_SCALE"]
        return scaling.half_even(wide, factor["EW_OP_CVT_SHIFT"])

    def _channels(self) -> tuple[Array, Array, Array]:
        """Zero points of weights, biases and multipliers of the outputs."""
        count = round_up(self.outputs, 8)
        table = self.slice(self.get("DPU_RDMA", CHANNELS), count * CHANNEL_BYTES)
        rows = table.view(np.uint8).reshape(-1, 8 * CHANNEL_BYTES)
        bias, zeros, multipliers = (
            np.ascontiguousarray(rows[:, a:b]).view(kind).reshape(-1)[: self.outputs]
            for a, b, kind in ((0, 32, "<i4"), (32, 48, "<i2"), (48, 64, "<i2"))
        )
        return -zeros.astype(np.int32), bias.astype(np.int64), multipliers.astype(np.int32)

    def _input(self) -> Array:
        base = self.get("CNA", INPUT)
        line = self.get("CNA", 0x107C)
        if self.picture:
            row = line * self.channels
            flat = self.slice(base, self.rows * row).reshape(self.rows, row)
            used = flat[:, : self.width * self.channels]
            return used.reshape(self.rows, self.width, self.channels).transpose(2, 0, 1)
        surface = (self.get("CNA", 0x1080) + line & (1 << 28) - 1) * ATOM
        row = line // 4 * ATOM
        blocks = []
        for block in range(self.stored // ATOM):
            flat = self.slice(base + block * surface, self.rows * row).reshape(self.rows, row)
            pixels = flat[:, : self.width * ATOM].reshape(self.rows, self.width, ATOM)
            blocks.append(pixels.transpose(2, 0, 1))
        return np.concatenate(blocks)[: self.channels]

    def _padded(self, data: Array) -> Array:
        """The input with its border; below and at the right as much as the output needs."""
        value = np.int8(np.uint8(self.get("CNA", 0x1184) & 0xFF))
        sizes = []
        for axis in range(2):
            reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            needed = (self.out[axis] - 1) * self.strides[axis] + reach
            have = data.shape[1 + axis] + self.pads[axis]
            sizes.append((self.pads[axis], max(0, needed - have)))
        padded: Array = np.pad(data, ((0, 0), *sizes), constant_values=value)
        return padded

    def _weights(self) -> Array:
        ky, kx = self.kernel
        base = self.get("CNA", WEIGHTS)
        each = self.get("CNA", 0x1034)
        if self.depthwise:
            held = each // (ky * kx)
            flat = self.slice(base, each)
            parts, at = [], 0
            for first in range(0, held, 64):
                count = min(64, held - first)
                block = flat[at : at + ky * kx * count].reshape(ky, kx, count)
                parts.append(block.transpose(2, 0, 1))
                at += ky * kx * count
            return np.concatenate(parts)[: self.outputs, None]
        kernels = self.fields("CNA", 0x1038)["WEIGHT_KERNELS"]
        flat = self.slice(base, kernels * each)
        inputs = round_up(self.channels, ATOM)
        if each != ky * kx * inputs:
            raise BadFile(f"rockchip: a kernel of {each} bytes; {ky * kx * inputs} are needed")
        result = np.empty((kernels, inputs, ky, kx), np.int8)
        at = 0
        for first in range(0, kernels, 32):
            outs = min(32, kernels - first)
            for start in range(0, inputs, 32):
                ins = min(32, inputs - start)
                size = ky * kx * outs * ins
                part = flat[at : at + size].reshape(ky, kx, outs, ins)
                result[first : first + outs, start : start + ins] = part.transpose(2, 3, 0, 1)
                at += size
        return result[: self.outputs, : self.channels]

    def _sums(self, data: Array, weights: Array) -> Array:
        """Exact sums: products of bytes in doubles."""
        height, width = self.out
        (sy, sx), (dy, dx) = self.strides, self.dilations
        result = np.zeros((self.outputs, height * width))
        wide = data.astype(np.float64)
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                rows = slice(ky * dy, ky * dy + (height - 1) * sy + 1, sy)
                columns = slice(kx * dx, kx * dx + (width - 1) * sx + 1, sx)
                window = wide[:, rows, columns].reshape(len(wide), -1)
                if self.depthwise:
                    result += window * weights[:, :, ky, kx]
                else:
                    result += weights[:, :, ky, kx] @ window
        return result.reshape(self.outputs, height, width).astype(np.int64)

    def _write(self, result: Array) -> None:
        base, surface = self.get("DPU", OUTPUT), self.get("DPU", 0x4024)
        height, width = self.out
        for block in range(-(-self.outputs // ATOM)):
            part = result[block * ATOM : (block + 1) * ATOM]
            target = self.slice(base + block * surface, height * width * ATOM)
            target.reshape(height, width, ATOM)[:, :, : len(part)] = part.transpose(1, 2, 0)


def placed(words: list[Word], addresses: Mapping[int, int]) -> list[Word]:
    """Words with addresses filled in: index of a word -> value."""
    return [
        Word(w.target, w.register, addresses[i]) if i in addresses else w
        for i, w in enumerate(words)
    ]
