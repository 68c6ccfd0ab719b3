"""Layers of which not even one row fits in the 64 KiB of CV180x."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio.ir import Graph

KINDS = ("add", "pool", "depthwise", "table", "two")


def wide_layer(seed: int) -> Graph:
    """A sum, pool, depthwise convolution or table of many channels or long rows."""
    kind, rng = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    if kind in ("pool", "two"):
        net = Cnn(seed, (1, 3, int(rng.integers(5, 12)), int(rng.integers(280, 340))))
        x = net.max_pool(net.conv(net.input, int(rng.integers(60, 90)), 1), 3, 2, (1,) * 4)
        if kind == "two":
            x = net.conv(x, x.shape[1], 3, depthwise=True)
        return net.graph(net.conv(x, 4, 1))
    net = Cnn(seed, (1, 8, *(int(n) for n in rng.integers(4, 8, 2))))
    many = int(rng.integers(1300, 2049))
    x = net.conv(net.input, many, 1)
    if kind == "add":
        x = net.add(x, net.conv(net.input, many, 1))
    elif kind == "depthwise":
        x = net.conv(x, many, 5, depthwise=True)
    else:
        x = net.table(net.add(x, net.conv(net.input, many, 1)))
        net.of(x)
    return net.graph(net.conv(x, 4, 1))
