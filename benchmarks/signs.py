"""Binary layers counted in bits against the same layers as 8-bit products.

python -m benchmarks.signs [--isa avx2] [--rounds 200]

A layer is a lookup that makes two numbers, a convolution of them with weights of one size, and a
shortcut; eight follow each other. Both packages compute the same bytes, which is checked. Times are
the minimum of interleaved runs on one thread, as CPU time, divided by the layers.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

RULE = "signs_as_bits"
DEPTH = 8  # layers of a chain
LAYERS = {  # channels, size of the image, kernel
    "ResNet-20, first stage": (16, 32, 3),
    "ResNet-20, second stage": (32, 16, 3),
    "ResNet-20, third stage": (64, 8, 3),
    "ResNet-18, 56x56": (64, 56, 3),
    "ResNet-18, 28x28": (128, 28, 3),
    "ResNet-18, 14x14": (256, 14, 3),
    "ResNet-18, 7x7": (512, 7, 3),
    "1x1, 28x28": (256, 28, 1),
    "5x5, 28x28": (64, 28, 5),
}


def chain(channels: int, size: int, kernel: int) -> Graph:
    """Signs, a binary convolution and a shortcut around both, DEPTH times."""
    rng = np.random.default_rng(0)
    x = y = Value(Type("i8", (1, channels, size, size)), "x")
    table = np.where(np.arange(256).astype(np.uint8).view(np.int8) > 2, 127, -128)
    one, zero = constant(np.float32(0.05)), constant(np.int8(3))
    scales = rng.uniform(1e-4, 1e-3, channels).astype(np.float32)
    for _ in range(DEPTH):
        shape = (channels, channels, kernel, kernel)
        w = np.where(rng.random(shape) < 0.5, -127, 127).astype(np.int8)
        y = ops.qlinear_conv(
            ops.lookup(y, constant(table.astype(np.int8))), constant(np.float32(2 / 255)),
            constant(np.int8(-1)), constant(w), constant(scales),
            constant(np.zeros(channels, np.int8)), one, zero,
            constant(np.zeros(channels, np.int32)), y, one, zero,
            stride=(1, 1), pad=(kernel // 2,) * 4, dilation=(1, 1),
        )  # fmt: skip
    return Graph([x], [y], ["y"])


def measure(graph: Graph, isa: str | None, rounds: int) -> tuple[float, float]:
    """Microseconds as 8-bit products and in bits."""
    packages = [intaglio.compile(graph.copy(), isa=isa, disable=d) for d in ([RULE], [])]
    rng = np.random.default_rng(1)
    feeds = {v.name: rng.integers(-128, 128, v.shape).astype(np.int8) for v in graph.inputs}
    sessions = [intaglio.open(p, 1) for p in packages]
    found = [s.run(feeds)["y"] for s in sessions]
    assert np.array_equal(*found), "the bytes differ"
    best = [float("inf")] * 2
    for _ in range(rounds):
        for i, session in enumerate(sessions):
            start = time.thread_time()
            session.run(feeds)
            best[i] = min(best[i], time.thread_time() - start)
    for session in sessions:
        session.close()
    return best[0] * 1e6 / DEPTH, best[1] * 1e6 / DEPTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    print(f"{'layer':34}{'M MACs':>8}{'8 bits':>10}{'1 bit':>10}{'times':>8}")
    for name, shape in LAYERS.items():
        channels, size, kernel = shape
        macs = (channels * size * kernel) ** 2 / 1e6
        whole, bits = measure(chain(*shape), given.isa, given.rounds)
        print(f"{name:34}{macs:8.1f}{whole:8.1f}us{bits:8.1f}us{whole / bits:8.2f}")


if __name__ == "__main__":
    main()
