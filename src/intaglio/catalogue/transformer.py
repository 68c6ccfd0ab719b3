"""MobileViT."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.catalogue.builder import Builder
from intaglio.catalogue.mobile import inverted
from intaglio.ir import Value, constant

PATCH = 2  # height and width of a patch
HEADS = 4


def mobilevit_s(b: Builder, x: Value) -> Value:
    return _mobilevit(b, x, 4, (16, 32, 64, 96, 128, 160, 640), (144, 192, 240))


def mobilevit_xxs(b: Builder, x: Value) -> Value:
    return _mobilevit(b, x, 2, (16, 16, 24, 48, 64, 80, 320), (64, 80, 96))


def _mobilevit(
    b: Builder, x: Value, t: int, widths: tuple[int, ...], dims: tuple[int, ...]
) -> Value:
    x = b.conv(x, widths[0], 3, 2, "swish")

    def block(x: Value, out: int, stride: int) -> Value:
        return inverted(b, x, x.shape[1] * t, out, 3, stride, "swish")

    x = block(x, widths[1], 1)
    for i in range(3):
        x = block(x, widths[2], 1 if i else 2)
    for out, dim, depth in zip(widths[3:6], dims, (2, 4, 3), strict=True):
        x = _attention_block(b, block(x, out, 2), dim, depth)
    return b.classifier(b.conv(x, widths[6], act="swish"))


def _attention_block(b: Builder, x: Value, dim: int, depth: int) -> Value:
    """Local convolutions, transformers over the patches, and fusion with the input."""
    n, c, h, w = x.shape
    y = b.conv(b.conv(x, c, 3, act="swish"), dim, norm=False, act=None)
    rows, columns = h // PATCH, w // PATCH
    y = ops.reshape(y, shape=(dim, rows, PATCH, columns, PATCH))
    y = ops.transpose(y, perm=(2, 4, 1, 3, 0))
    y = ops.reshape(y, shape=(PATCH * PATCH, rows * columns, dim))
    for _ in range(depth):
        y = ops.add(y, _attention(b, _norm(y)))
        y = ops.add(y, b.linear(b.linear(_norm(y), 2 * dim, "swish"), dim))
    y = ops.reshape(_norm(y), shape=(PATCH, PATCH, rows, columns, dim))
    y = ops.transpose(y, perm=(4, 2, 0, 3, 1))
    y = b.conv(ops.reshape(y, shape=(n, dim, h, w)), c, act="swish")
    return b.conv(b.concat(x, y), c, 3, act="swish")


def _norm(x: Value) -> Value:
    size = x.shape[-1]
    scale, bias = constant(np.ones(size, np.float32)), constant(np.zeros(size, np.float32))
    result: Value = ops.layer_norm(x, scale, bias)
    return result


def _attention(b: Builder, x: Value) -> Value:
    n, tokens, dim = x.shape
    each = dim // HEADS
    parts = []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        part = ops.reshape(b.linear(x, dim), shape=(n, tokens, HEADS, each))
        parts.append(ops.transpose(part, perm=perm))
    q, k, v = parts
    scores = ops.softmax(ops.mul(ops.matmul(q, k), constant(np.float32(each**-0.5))))
    y = ops.transpose(ops.matmul(scores, v), perm=(0, 2, 1, 3))
    return b.linear(ops.reshape(y, shape=(n, tokens, dim)), dim)
