"""Random average pools that do not count their padding."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.cv18xx.quantized_layers import Layers

from intaglio import ops
from intaglio.ir import Graph


def random_padded_mean(seed: int) -> Graph:
    """An average pool with padding, behind a convolution or of the input."""
    rng = np.random.default_rng(seed)
    shape = 1, int(2 ** rng.uniform(0, 6)), *(int(n) for n in rng.integers(4, 40, 2))
    net = Layers(seed, shape, str(rng.choice(["i8", "u8"])))
    net.dtype = str(rng.choice(["i8", "i8", "u8"]))
    x = net.input if rng.random() < 0.4 else net.conv(net.input, int(2 ** rng.uniform(0, 6)))
    kernel = tuple(int(k) for k in rng.integers(2, 6, 2))
    pad = [int(rng.integers(0, kernel[i % 2])) for i in range(4)]
    pad[0] = max(pad[0], 1)
    stride = tuple(int(s) for s in rng.integers(1, 4, 2))
    window = {"kernel": kernel, "stride": stride, "pad": tuple(pad), "dilation": (1, 1)}
    y = net._out()
    made = ops.qlinear_avg_pool(x, *net.of(x), *y, **window, count_include_pad=False)
    net.quant[made] = y
    return net.graph(made if rng.random() < 0.5 else net.conv(made, 5))
