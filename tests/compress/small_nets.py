"""Small networks with the structures that compression must understand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import ops
from intaglio.catalogue.builder import Builder
from intaglio.ir import Array, Graph, Value

SIZE, CLASSES = 12, 10


def residual(b: Builder, x: Value) -> Value:
    x = b.conv(x, 16, 3)
    y = b.conv(b.conv(x, 24, 3), 16, 3, act=None)
    x = b.act(b.add(x, y), "relu")
    x = b.conv(x, 32, 3, 2)
    return b.classifier(x, CLASSES)


def mobile(b: Builder, x: Value) -> Value:
    x = b.conv(x, 16, 3, act="relu6")
    y = b.depthwise(b.conv(x, 32, act="hswish"), act="hswish")
    y = b.conv(b.squeeze_excite(y, 8), 16, act=None)
    return b.classifier(b.add(x, y), CLASSES)


def shuffled(b: Builder, x: Value) -> Value:
    x = b.conv(x, 32, 3)
    left, right = b.channels(x, 0, 16), b.channels(x, 16, 32)
    right = b.conv(b.depthwise(b.conv(right, 16), act=None), 16)
    x = b.shuffle(b.concat(left, right), 2)
    x = b.conv(x, 32, groups=4)
    return b.classifier(b.max_pool(x, 2, 2), CLASSES)


def split(b: Builder, x: Value) -> Value:
    """YOLO's C2f: halves of a map, and what is made of them, joined."""
    x = b.conv(x, 32, 3, act="swish")
    first, second = b.channels(x, 0, 16), b.channels(x, 16, 32)
    made = b.add(second, b.conv(b.conv(second, 16, 3, act="swish"), 16, 3, act="swish"))
    x = b.conv(b.concat(first, second, made), 32, act="swish")
    return b.classifier(x, CLASSES)


def plain(b: Builder, x: Value) -> Value:
    x = b.avg_pool(b.conv(x, 16, 3), 2, 2)
    return b.linear(b.linear(b.flat(x), 32, "relu"), CLASSES)


NETS: dict[str, Callable[[Builder, Value], Value]] = {
    f.__name__: f for f in (residual, mobile, shuffled, split, plain)
}


def build(name: str, seed: int = 0) -> Graph:
    b = Builder("random", seed)
    x = b.input(SIZE)
    return b.graph(x, NETS[name](b, x), name)


def with_softmax(graph: Graph) -> Graph:
    y = ops.softmax(graph.outputs[0], axis=1)
    return Graph(graph.inputs, [y], ["scores"], graph.name)


def pictures(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 3, SIZE, SIZE), np.float32)


def samples(count: int, seed: int = 0) -> list[dict[str, Array]]:
    return [{"input": x[None]} for x in pictures(count, seed)]


def labelled(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Noise over a texture; the class is the texture."""
    y = np.random.default_rng(seed + 1).integers(0, CLASSES, count)
    textures = np.random.default_rng(99).standard_normal((CLASSES, 3, 3, 3))
    x = pictures(count, seed) / 2 + np.tile(textures, (SIZE // 3, SIZE // 3))[y]
    return x.astype(np.float32), y
