"""Random transposed convolutions, pixel shuffles and crops, as the integer pass leaves them."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.cv18xx.quantized_layers import Layers

from intaglio import ops
from intaglio.ir import Graph, Value, constant
from intaglio.ops.shape import part


def transposed(net: Layers, x: Value, outputs: int, depthwise: bool) -> Value:
    """A dequantised transposed convolution: the integer pass makes phases of it."""
    rng = net.rng
    stride, kernel = int(rng.choice([2, 2, 3, 4])), int(rng.integers(1, 6))
    groups, deep = (x.shape[1], 1) if depthwise else (1, outputs)
    kernel = max(kernel, stride)
    pad = int(rng.integers(0, max(min(kernel - 1, kernel // 2 + 1), 1)))
    w = rng.integers(-127, 128, (x.shape[1], deep, kernel, kernel)).astype(np.int8)
    reals = [ops.dequantize_linear(x, *net.of(x))]
    small = constant(np.float32(1 / (73 * np.sqrt(x.shape[1] // groups * kernel))))
    reals.append(ops.dequantize_linear(constant(w), small, constant(np.int8(0))))
    bias = constant(rng.normal(size=deep * groups).astype(np.float32))
    window = {"stride": (stride,) * 2, "pad": (pad,) * 4, "dilation": (1, 1), "groups": groups}
    real = ops.conv_transpose(
        *reals, bias, **window, output_pad=(int(rng.integers(0, stride)),) * 2
    )
    y = net._out()
    made = ops.quantize_linear(real, *y, dtype="i8")
    net.quant[made] = y
    return made


def random_upsampling(seed: int) -> Graph:
    """A transposed convolution, a pixel shuffle or a crop between convolutions."""
    rng = np.random.default_rng(seed)
    shape = 1, int(rng.integers(1, 20)), *(int(n) for n in rng.integers(3, 20, 2))
    net = Layers(seed, shape, str(rng.choice(["i8", "i8", "u8"])))
    net.dtype = "i8"
    x = net.conv(net.input, int(rng.integers(1, 40)))
    kind = str(rng.choice(["dense", "dense", "dense", "depthwise", "shuffle", "table", "crop"]))
    if kind in ("dense", "depthwise"):
        y = transposed(net, x, int(rng.integers(1, 30)), kind == "depthwise")
    elif kind == "crop":
        y = x
        for axis in (2, 3):
            start = int(rng.integers(0, x.shape[axis]))
            y = part(y, start, int(rng.integers(start, x.shape[axis])) + 1, axis=axis)
        net.quant[y] = net.of(x)
    else:
        block = int(rng.integers(2, 4))
        deep = net.conv(x, block**2 * int(rng.integers(1, 12)))
        deep = net.table(deep) if kind == "table" else deep
        y = ops.depth_to_space(deep, blocksize=block, mode=str(rng.choice(["DCR", "CRD"])))
        net.quant[y] = net.of(deep)
    outputs = [y] if rng.random() < 0.3 else [net.conv(y, 5)]
    return net.graph(*outputs)
