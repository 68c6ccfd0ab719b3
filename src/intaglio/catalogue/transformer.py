"""MobileViT and EfficientFormer."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.catalogue.builder import Builder
from intaglio.catalogue.mobile import inverted
from intaglio.ir import Value, constant

PATCH = 2  # height and width of a patch
HEADS = 4
FORMER = ((48, 3), (96, 2), (224, 6), (448, 4))  # EfficientFormer-L1: channels, blocks
FORMER_HEADS, KEY, EACH = 8, 32, 128  # of its attention: heads, size of a key and of a value


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


def efficientformer_l1(b: Builder, x: Value) -> Value:
    """Blocks of pooling and 1x1 convolutions; the last one is attention over 7x7 tokens."""
    x = b.conv(b.conv(x, 24, 3, 2, bias=True), 48, 3, 2, bias=True)
    for stage, (dim, blocks) in enumerate(FORMER):
        last = stage == len(FORMER) - 1
        x = b.conv(x, dim, 3, 2, None, bias=True) if stage else x
        for _ in range(blocks - last):
            mixed = ops.sub(b.avg_pool(x, 3, 1, 1), x)
            x = b.add(x, b.scale(mixed))
            y = b.conv(x, 4 * dim, act="gelu", bias=True)
            x = b.add(x, b.scale(b.conv(y, dim, act=None, bias=True)))
    n, dim, h, w = x.shape
    x = ops.reshape(ops.transpose(x, perm=(0, 2, 3, 1)), shape=(n, h * w, dim))
    x = ops.add(x, _scaled(_wide_attention(b, _norm(x))))
    y = b.linear(b.linear(_norm(x), 4 * dim, "gelu"), dim)
    x = ops.reduce_mean(_norm(ops.add(x, _scaled(y))), axes=(1,), keepdims=False)
    both = ops.add(b.linear(x, 1000), b.linear(x, 1000))  # the head and that of the teacher
    result: Value = ops.mul(both, constant(np.float32(0.5)))
    return result


def _scaled(x: Value) -> Value:
    """A learnt scale of each channel."""
    result: Value = ops.mul(x, constant(np.ones(x.shape[-1], np.float32)))
    return result


def _wide_attention(b: Builder, x: Value) -> Value:
    """Attention whose values are wider than its keys, with a bias for each pair of tokens."""
    n, tokens, dim = x.shape
    keys, values = FORMER_HEADS * KEY, FORMER_HEADS * EACH
    parts = []
    for width, perm in ((keys, (0, 2, 1, 3)), (keys, (0, 2, 3, 1)), (values, (0, 2, 1, 3))):
        part = b.linear(x, width)
        part = ops.reshape(part, shape=(n, tokens, FORMER_HEADS, width // FORMER_HEADS))
        parts.append(ops.transpose(part, perm=perm))
    q, k, v = parts
    scores = ops.mul(ops.matmul(q, k), constant(np.float32(KEY**-0.5)))
    scores = ops.softmax(ops.add(scores, b.weight(FORMER_HEADS, tokens, tokens)))
    y = ops.transpose(ops.matmul(scores, v), perm=(0, 2, 1, 3))
    return b.linear(ops.reshape(y, shape=(n, tokens, values)), dim)
