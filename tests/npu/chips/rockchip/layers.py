"""Convolutions as the tests of Rockchip's NPU use them: random ones, their memory and meaning."""

import numpy as np

from intaglio.npu.chips.rockchip import packing, scaling
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.geometry import ATOM, entry_channels, round_up
from intaglio.npu.chips.rockchip.native_machine import Machine, placed


def block(values, surface=0):
    """Bytes of a map [channels, height, width] in blocks of 16 channels and `surface` pixels."""
    channels, height, width = values.shape
    pixels = height * width
    padded = np.zeros((round_up(channels, ATOM), max(surface, pixels)), np.int8)
    padded[:channels, :pixels] = values.reshape(channels, pixels)
    return padded.reshape(-1, ATOM, padded.shape[1]).transpose(0, 2, 1).tobytes()


def run(conv, data, weights, zeros, bias, multipliers, added=None):
    """The output of our commands in our simulator."""
    held = entry_channels(conv.channels)
    packed = packing.weights(weights, zeros)
    if conv.depthwise:
        packed = packing.depthwise_weights(weights, zeros, held)
    picture = data.transpose(1, 2, 0).tobytes()
    surface = conv.out_surface
    parts = {
        "input": picture if conv.picture else block(data),
        "weights": packed,
        "channels": packing.channels(
            bias, zeros, multipliers, round_up(conv.outputs, conv.out_block)
        ),
        "output": bytes(round_up(conv.outputs, conv.out_block) * surface),
    }
    if conv.added:
        parts["added"] = block(added, surface)
    starts, memory = {}, b""
    for name, content in parts.items():
        starts[name] = len(memory)
        memory += content + bytes(-len(content) % 64)
    machine = Machine(np.frombuffer(bytearray(memory), np.uint8))
    for task in encode(conv):
        places = {i: starts[name] + offset for i, (name, offset) in task.addresses.items()}
        machine.run([placed(task.words, places)])
    height, width = conv.out_height, conv.out_width
    out = machine.memory.view(np.int8)[starts["output"] :][: len(parts["output"])].reshape(
        -1, surface, ATOM
    )
    pixels = out[:, : height * width].transpose(0, 2, 1).reshape(-1, height, width)
    return pixels[: conv.outputs]


def meaning(conv, data, weights, zeros, bias, multipliers, added=None):
    """The same by plain sums over the padded input."""
    top, left, bottom, right = conv.pads
    edges = ((0, 0), (top, bottom), (left, right))
    padded = np.pad(data, edges, constant_values=conv.zero_in).astype(np.int64)
    real = weights.astype(np.int64) - zeros.reshape(-1, 1, 1, 1)
    sums = np.zeros((conv.outputs, conv.out_height, conv.out_width), np.int64)
    (sy, sx), (dy, dx) = conv.strides, conv.dilations
    ends = (conv.out_height - 1) * sy + 1, (conv.out_width - 1) * sx + 1
    for ky, kx in np.ndindex(*conv.kernel):
        rows, columns = (
            slice(k * d, k * d + end, step)
            for k, d, end, step in zip((ky, kx), (dy, dx), ends, (sy, sx), strict=True)
        )
        window, tap = padded[:, rows, columns], real[:, :, ky, kx]
        sums += window * tap[:, :, None] if conv.depthwise else np.tensordot(tap, window, 1)
    sums += bias.reshape(-1, 1, 1)
    how = {"relu": conv.relu, "limit": conv.limit}
    if conv.added:
        wide = (added.astype(np.int64) - conv.added.zero) * conv.added.scale
        how["added"] = scaling.half_even(wide, conv.added.shift)
    return scaling.to_bytes(sums, multipliers, conv.scale, conv.shift, conv.zero_out, **how)


def random_numbers(conv, seed):
    """Input, weights, zero points, biases and multipliers of a convolution."""
    chance = np.random.default_rng(seed)
    inputs = 1 if conv.depthwise else conv.channels

    def some(low, high, size, kind=np.int32):
        return chance.integers(low, high, size).astype(kind)

    return (
        some(-128, 128, (conv.channels, conv.height, conv.width), np.int8),
        some(-128, 128, (conv.outputs, inputs, *conv.kernel), np.int8),
        some(-40, 40, conv.outputs),
        some(-9999, 9999, conv.outputs),
        some(8000, 16385, conv.outputs),
    )
