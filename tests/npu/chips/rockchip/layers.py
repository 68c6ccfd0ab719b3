"""Convolutions as the tests of Rockchip's NPU use them: random ones, their memory and meaning."""

import numpy as np

from intaglio.npu.chips.rockchip import packing, scaling
from intaglio.npu.chips.rockchip.convolution import ATOM, encode, entry_channels, round_up
from intaglio.npu.chips.rockchip.simulate import Machine, placed


def block(values):
    """Bytes of a map [channels, height, width] in blocks of 16 channels."""
    channels, height, width = values.shape
    padded = np.zeros((round_up(channels, ATOM), height, width), np.int8)
    padded[:channels] = values
    return padded.reshape(-1, ATOM, height, width).transpose(0, 2, 3, 1).tobytes()


def run(conv, data, weights, zeros, bias, multipliers):
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
        "output": bytes(round_up(conv.outputs, ATOM) * surface),
    }
    starts, memory = {}, b""
    for name, content in parts.items():
        starts[name] = len(memory)
        memory += content + bytes(-len(content) % 64)
    machine = Machine(np.frombuffer(bytearray(memory), np.int8))
    for task in encode(conv):
        places = {i: starts[name] + offset for i, (name, offset) in task.addresses.items()}
        machine.run(placed(task.words, places))
    height, width = conv.out_height, conv.out_width
    out = machine.memory[starts["output"] :][: len(parts["output"])].reshape(-1, surface, ATOM)
    pixels = out[:, : height * width].transpose(0, 2, 1).reshape(-1, height, width)
    return pixels[: conv.outputs]


def meaning(conv, data, weights, zeros, bias, multipliers):
    """The same by plain sums over the padded input."""
    top, left, bottom, right = conv.pads
    edges = ((0, 0), (top, bottom), (left, right))
    padded = np.pad(data, edges, constant_values=conv.zero_in).astype(np.int64)
    real = weights.astype(np.int64) - zeros.reshape(-1, 1, 1, 1)
    sums = np.empty((conv.outputs, conv.out_height, conv.out_width), np.int64)
    (sy, sx), (dy, dx), (ry, rx) = conv.strides, conv.dilations, conv.reach
    for y in range(conv.out_height):
        for x in range(conv.out_width):
            window = padded[:, y * sy : y * sy + ry : dy, x * sx : x * sx + rx : dx]
            if conv.depthwise:
                sums[:, y, x] = (window * real[:, 0]).sum((1, 2))
            else:
                sums[:, y, x] = np.tensordot(real, window, 3)
    sums += bias.reshape(-1, 1, 1)
    ends = {"relu": conv.relu, "limit": conv.limit}
    return scaling.to_bytes(sums, multipliers, conv.scale, conv.shift, conv.zero_out, **ends)


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
