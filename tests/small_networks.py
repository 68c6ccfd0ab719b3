"""Small networks of the catalogue's builder, for tests of reports and pages."""

from __future__ import annotations

import numpy as np

from intaglio.catalogue.builder import Builder
from intaglio.ir import Graph

SIZE = 16


def classifier(blocks: int = 2, size: int = SIZE, classes: int = 4, seed: int = 0) -> Graph:
    """Residual blocks of three convolutions each, and a linear layer; pictures as input."""
    b = Builder("random", seed)
    x = b.input(size)
    y = b.conv(x, 8)
    for _ in range(blocks):
        z = b.conv(y, 16)
        z = b.depthwise(z)
        y = b.add(y, b.conv(z, 8, act=None))
    graph = b.graph(x, b.classifier(y, classes), "small")
    assert b.layers == 3 * blocks + 2
    return graph


def samples(count: int = 3, size: int = SIZE) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"input": rng.standard_normal((1, 3, size, size)).astype("f4")} for _ in range(count)]
