"""The 12 words of one layer, from its shape, and the limits of a layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.arithmetic import POOLS, Terms
from intaglio.npu.chips.k210.fields import LAYER, WORDS, pack, unknown_bits, unpack

LOAD_BYTES = 30 * 1024  # of weights that are loaded at once
MAX_LOADS = LAYER["loads"].limits[1]
MAX_CHANNELS = LAYER["in_channels"].limits[1]
MIN_EXTENT = 4  # of height and width
MAX_HEIGHT = 256
MAX_WIDTH = 512
KERNELS = {0: 1, 1: 3}  # field to size
MAX_NUMBERS = 9 * MAX_CHANNELS  # that a linear layer reads: the pixels of a 3x3 window
DMA_BURST = 15


def is_small(size: Iterable[int]) -> bool:
    """Whether the KPU cannot read a map of this height and width."""
    return min(size) < MIN_EXTENT


def enlarged(extent: int) -> int:
    """An even extent that the KPU can read, the next one."""
    return max(extent + extent % 2, MIN_EXTENT)


@dataclass(frozen=True, slots=True)
class Layer:
    """One command of the KPU: convolution, batch norm, curve and pooling."""

    in_shape: tuple[int, int, int]  # channels, height, width
    out_channels: int
    kernel: int  # 1 or 3
    depthwise: bool
    pool: int  # key of POOLS
    pad: int
    terms: Terms
    src: int = 0  # lines
    dst: int = 0
    send_data_out: bool = False

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        stride = POOLS[self.pool].stride
        return self.out_channels, self.in_shape[1] // stride, self.in_shape[2] // stride

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """The shape of the weights."""
        deep = 1 if self.depthwise else self.in_shape[0]
        return self.out_channels, deep, self.kernel, self.kernel

    def words(self) -> Array:
        """The 12 words."""
        (channels, height, width), (outputs, high, wide) = self.in_shape, self.out_shape
        at_once, size, loads = weight_loads(channels, outputs, self.kernel, self.depthwise)
        read, write = ram.layout(width), ram.layout(wide)
        return pack(
            {
                "depthwise": int(self.depthwise),
                "src": self.src,
                "dst": self.dst,
                "in_channels": channels,
                "out_channels": outputs,
                "load_channels": at_once,
                "in_width": width,
                "in_height": height,
                "out_width": wide,
                "out_height": high,
                "kernel": self.kernel // 2,
                "pool": self.pool,
                "load_para": 1,
                "dma_burst": DMA_BURST,
                "pad": self.pad,
                "load_coor": 1,
                "loads": loads,
                "load_bytes": size,
                "in_block_lines": read.row_lines * height,
                "in_row_lines": read.row_lines,
                "in_groups": read.groups,
                "load_act": 1,
                "out_block_lines": write.row_lines * high,
                "out_row_lines": write.row_lines,
                "out_groups": write.groups,
                "shr_w": self.terms.shr_w,
                "shr_x": self.terms.shr_x,
                "arg_w": self.terms.arg_w,
                "arg_x": self.terms.arg_x,
                "arg_add": self.terms.arg_add,
                "send_data_out": int(self.send_data_out),
                "channel_bytes": high * wide,
                "total_bytes": outputs * high * wide,
            }
        )


def weight_loads(channels: int, outputs: int, kernel: int, depthwise: bool) -> tuple[int, int, int]:
    """How weights are loaded: output channels at once, their bytes, and the number of loads."""
    if depthwise:
        return outputs, outputs * kernel * kernel, 1
    one = kernel * kernel * channels
    at_once = min(outputs, LOAD_BYTES // one)
    return at_once, one * at_once, -(-outputs // at_once)


def max_outputs(channels: int, kernel: int) -> int:
    """The most output channels of one command."""
    return min(MAX_CHANNELS, MAX_LOADS * (LOAD_BYTES // (kernel * kernel * channels)))


def linear_window(numbers: int) -> tuple[int, int]:
    """Channels and kernel of a linear layer: its numbers are channels, or fill 3x3 windows too."""
    return (numbers, 1) if numbers <= MAX_CHANNELS else (-(-numbers // 9), 3)


def why_not(shape: tuple[int, ...], outputs: int | None = None) -> str | None:
    """None if the KPU takes a map [C, H, W], with so many output channels; else the reason."""
    channels, height, width = shape
    if channels > MAX_CHANNELS:
        return f"it reads {channels} channels; the KPU does at most {MAX_CHANNELS}"
    if outputs is not None and outputs > MAX_CHANNELS:
        return f"it makes {outputs} channels; the KPU does at most {MAX_CHANNELS}"
    if min(height, width) < MIN_EXTENT:
        return f"its map is {height}x{width}; the KPU needs at least {MIN_EXTENT}x{MIN_EXTENT}"
    if height > MAX_HEIGHT or width > MAX_WIDTH:
        return f"its map is {height}x{width}; the KPU does at most {MAX_HEIGHT}x{MAX_WIDTH}"
    return None


def read(words: Array) -> Layer:
    """The layer of 12 words; BadFile where the KPU could not execute it."""
    if len(words) != WORDS:
        raise BadFile(f"a layer has {len(words)} words; {WORDS} are needed")
    f = unpack(words)
    if bits := unknown_bits(words):
        raise BadFile(f"a layer's words have {bits} bits set that belong to no field")
    if f["kernel"] not in KERNELS:
        raise BadFile(f"a layer has kernel type {f['kernel']}; 0 (1x1) and 1 (3x3) are known")
    if f["pool"] not in POOLS:
        raise BadFile(f"a layer has pooling mode {f['pool']}; 0 to {max(POOLS)} are known")
    terms = Terms(*(f[k] for k in ("arg_x", "shr_x", "arg_w", "shr_w", "arg_add")))
    layer = Layer(
        (f["in_channels"], f["in_height"], f["in_width"]),
        f["out_channels"],
        KERNELS[f["kernel"]],
        bool(f["depthwise"]),
        f["pool"],
        f["pad"],
        terms,
        f["src"],
        f["dst"],
        bool(f["send_data_out"]),
    )
    if f["bypass_conv"] or f["full_add"]:
        raise BadFile("a layer bypasses its convolution or adds up whole maps; that is unknown")
    if layer.depthwise and layer.out_channels != layer.in_shape[0]:
        raise BadFile(
            f"a depthwise layer makes {layer.out_channels} channels of {layer.in_shape[0]}"
        )
    if (f["out_height"], f["out_width"]) != layer.out_shape[1:] or min(layer.out_shape) < 1:
        raise BadFile(
            f"a layer's result is {f['out_height']}x{f['out_width']}; "
            f"its pooling makes {layer.out_shape[1]}x{layer.out_shape[2]}"
        )
    for line, shape in ((layer.src, layer.in_shape), (layer.dst, layer.out_shape)):
        if line + ram.lines(*shape) > ram.LINES:
            raise BadFile(f"a layer's map {shape} at line {line} is beyond the KPU's RAM")
    return layer


def as_words(data: bytes, offset: int) -> Array:
    """12 words of a file."""
    return np.frombuffer(data, "<u8", WORDS, offset)
