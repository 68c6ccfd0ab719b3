"""Transformers for text, images and sound, and PP-OCRv4."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.npu_zoo.net import Net
from benchmarks.npu_zoo.yolo import _ended


def _block(
    n: Net,
    x: str,
    heads: int,
    wide: int,
    act: str,
    first: bool,
    mask: bool = False,
    packed: bool = False,
) -> str:
    """An encoder layer; `first`: layer norm stands before attention and before the MLP."""
    y = n.layer_norm(x) if first else x
    x = n.add(x, (_packed if packed else _attention)(n, y, heads, mask))
    x = x if first else n.layer_norm(x)
    y = n.layer_norm(x) if first else x
    y = n.linear(n.linear(y, wide, act), n.shapes[x][-1])
    x = n.add(x, y)
    return x if first else n.layer_norm(x)


def _attention(n: Net, x: str, heads: int, mask: bool = False) -> str:
    b, tokens, wide = n.shapes[x]
    deep = wide // heads
    q, k, v = (n.reshape(n.linear(x, wide), b, tokens, heads, deep) for _ in range(3))
    q, k, v = (n.transpose(q, 0, 2, 1, 3), n.transpose(k, 0, 2, 3, 1), n.transpose(v, 0, 2, 1, 3))
    score = n.mul(n.matmul(q, k), n.constant(np.float32(deep**-0.5)))
    if mask:
        score = n.add(score, n.constant(np.triu(np.full((tokens, tokens), -1e4, np.float32), 1)))
    y = n.transpose(n.matmul(n.softmax(score), v), 0, 2, 1, 3)
    return n.linear(n.reshape(y, b, tokens, wide), wide)


def _packed(n: Net, x: str, heads: int, mask: bool = False) -> str:
    """As PyTorch exports MultiheadAttention: tokens before samples, one product for q, k and v."""
    tokens, b, wide = n.shapes[x]
    deep = wide // heads
    q, k, v = n.split(n.linear(x, 3 * wide), wide, wide, wide, axis=2)
    q, k, v = (n.reshape(t, tokens, b * heads, deep) for t in (q, k, v))
    q = n.mul(n.transpose(q, 1, 0, 2), n.constant(np.float32(deep**-0.5)))
    score = n.matmul(q, n.transpose(k, 1, 2, 0))
    if mask:
        score = n.add(score, n.constant(np.triu(np.full((tokens, tokens), -1e4, np.float32), 1)))
    y = n.matmul(n.softmax(score), n.transpose(v, 1, 0, 2))
    return n.linear(n.reshape(n.transpose(y, 1, 0, 2), tokens, b, wide), wide)


def _tokens(n: Net, batch: int, tokens: int) -> str:
    return n.input((batch, tokens), TensorProto.INT64)


def bert(batch: int = 1) -> Net:
    n = Net("none", batch)
    x = _tokens(n, batch, 256)
    y = n.layer_norm(n.add(n.gather(21128, 768, x), n.weights(256, 768)))
    for _ in range(12):
        y = _block(n, y, 12, 3072, "gelu", False)
    return _ended(n, [n.linear(y, 7)])


def clip_text(tokens: int = 77, packed: bool = False, batch: int = 1) -> Net:
    """`packed`: as OpenAI's own code is exported, with PyTorch's MultiheadAttention."""
    n = Net("none", batch)
    x = _tokens(n, batch, tokens)
    y = n.add(n.gather(49408, 512, x), n.weights(tokens, 512))
    y = n.transpose(y, 1, 0, 2) if packed else y
    for _ in range(12):
        y = _block(n, y, 8, 2048, "quickgelu", True, True, packed)
    y = n.transpose(y, 1, 0, 2) if packed else y
    y = n.reshape(n.slice(n.layer_norm(y), tokens - 1, tokens, 1), batch, 512)
    return _ended(n, [n.linear(y, 512, bias=False)])


def clip_image(packed: bool = False, batch: int = 1) -> Net:
    n = Net("none", batch)
    y = n.conv(n.image(3, 224, 224), 768, 32, 32, pad=0, bias=False)
    y = n.transpose(n.reshape(y, batch, 768, 49), 0, 2, 1)
    y = n.concat(n.constant(np.zeros((batch, 1, 768), np.float32)), y, axis=1)
    y = n.layer_norm(n.add(y, n.weights(50, 768)))
    y = n.transpose(y, 1, 0, 2) if packed else y
    for _ in range(12):
        y = _block(n, y, 12, 3072, "quickgelu", True, packed=packed)
    y = n.transpose(y, 1, 0, 2) if packed else y
    y = n.reshape(n.slice(y, 0, 1, 1), batch, 768)
    return _ended(n, [n.linear(n.layer_norm(y), 512, bias=False)])


def wav2vec2(seconds: int = 20) -> Net:
    """wav2vec 2.0 base with a head for letters."""
    n = Net("gelu")
    y = n.reshape(n.input((1, 16000 * seconds)), 1, 1, 16000 * seconds)
    y = n.conv(y, 512, (10,), (5,), pad=0, bias=False)
    for kernel in (3, 3, 3, 3, 2, 2):
        y = n.conv(y, 512, (kernel,), (2,), pad=0, bias=False)
    y = n.linear(n.layer_norm(n.transpose(y, 0, 2, 1)), 768)
    z = n.conv(n.transpose(y, 0, 2, 1), 768, (128,), pad=64, groups=16)
    z = n.slice(z, 0, n.shapes[y][1], 2)
    y = n.layer_norm(n.add(y, n.transpose(z, 0, 2, 1)))
    for _ in range(12):
        y = _block(n, y, 12, 3072, "gelu", False)
    return _ended(n, [n.linear(y, 32)])


# ---- MobileSAM -----------------------------------------------------------------------------------
def tiny_vit(size: int = 448) -> Net:
    """The encoder of MobileSAM: TinyViT-5M with windows of 7, 14 and 7 pixels."""
    n = Net("gelu")
    y = n.conv(n.conv(n.image(3, size, size), 32, 3, 2), 64, 3, 2, act="none")
    for _ in range(2):
        z = n.conv(n.depthwise(n.conv(y, 256)), 64, act="none")
        y = n.activation(n.add(y, z), "gelu")
    for wide, depth, heads, window, stride in (
        (128, 2, 4, 7, 2),
        (160, 6, 5, 14, 2),
        (320, 2, 10, 7, 1),
    ):
        y = n.conv(n.depthwise(n.conv(y, wide), 3, stride), wide, act="none")
        side = n.shapes[y][2]
        x = n.transpose(n.reshape(y, 1, wide, side * side), 0, 2, 1)
        for _ in range(depth):
            x = n.add(x, _windows(n, x, side, window, heads))
            z = n.transpose(n.reshape(n.transpose(x, 0, 2, 1), 1, wide, side, side), 0, 1, 2, 3)
            z = n.depthwise(z, act="none")
            x = n.transpose(n.reshape(z, 1, wide, side * side), 0, 2, 1)
            z = n.linear(n.linear(n.layer_norm(x), 4 * wide, "gelu"), wide)
            x = n.add(x, z)
        y = n.reshape(n.transpose(x, 0, 2, 1), 1, wide, side, side)
    y = n.conv(_norm2d(n, n.conv(y, 256, act="none", bias=False)), 256, 3, act="none", bias=False)
    return _ended(n, [_norm2d(n, y)])


def _norm2d(n: Net, y: str) -> str:
    return n.transpose(n.layer_norm(n.transpose(y, 0, 2, 3, 1)), 0, 3, 1, 2)


def _windows(n: Net, x: str, side: int, window: int, heads: int) -> str:
    """Attention within windows."""
    _, tokens, wide = n.shapes[x]
    count = side // window
    deep = wide // heads
    y = x
    if count > 1:
        y = n.reshape(y, 1, count, window, count, window, wide)
        y = n.reshape(n.transpose(y, 0, 1, 3, 2, 4, 5), count**2, window**2, wide)
    rows, inner = max(count, 1) ** 2, n.shapes[y][1]
    y = n.linear(n.layer_norm(y), 3 * wide)
    q, k, v = n.split(n.reshape(y, rows, inner, heads, 3 * deep), deep, deep, deep, axis=3)
    q, k, v = n.transpose(q, 0, 2, 1, 3), n.transpose(k, 0, 2, 3, 1), n.transpose(v, 0, 2, 1, 3)
    score = n.mul(n.matmul(q, k), n.constant(np.float32(deep**-0.5)))
    score = n.softmax(n.add(score, n.weights(1, heads, inner, inner)))
    y = n.reshape(n.transpose(n.matmul(score, v), 0, 2, 1, 3), rows, inner, wide)
    y = n.linear(y, wide)
    if count > 1:
        y = n.reshape(y, 1, count, count, window, window, wide)
        y = n.transpose(y, 0, 1, 3, 2, 4, 5)
    return n.reshape(y, 1, tokens, wide)


# ---- PP-OCRv4 ------------------------------------------------------------------------------------
DETECT = (
    ((3, 32, 1, 0),),
    ((3, 64, 2, 0), (3, 64, 1, 0)),
    ((3, 128, 2, 0), (3, 128, 1, 0)),
    ((3, 256, 2, 0), *((5, 256, 1, 0),) * 4),
    ((5, 512, 2, 1), (5, 512, 1, 1), (5, 512, 1, 0), (5, 512, 1, 0)),
)
READ = (
    ((3, 32, 1, 0),),
    ((3, 64, 1, 0), (3, 64, 1, 0)),
    ((3, 128, (2, 1), 0), (3, 128, 1, 0)),
    ((3, 256, (1, 2), 0), *((5, 256, 1, 0),) * 4),
    ((5, 512, (2, 1), 1), (5, 512, 1, 1), (5, 512, (2, 1), 0), (5, 512, 1, 0)),
)


def _lcnet(n: Net, y: str, stages: object, scale: float) -> list[str]:
    """PP-LCNetV3: learned scalars stand before and behind each activation."""

    def wide(c: int) -> int:
        return max(16, int(c * scale + 8) // 16 * 16)

    def affine(y: str) -> str:
        y = n.mul(y, n.constant(np.float32(1.1)))
        return n.add(y, n.constant(np.float32(0.1)))

    y = n.conv(y, wide(16), 3, 2, act="none")
    found = []
    for stage in stages:  # type: ignore[attr-defined]
        for kernel, channels, stride, squeezed in stage:
            y = affine(n.depthwise(y, kernel, stride, act="none"))
            y = affine(n.activation(y, "hswish")) if stride != 2 else y
            y = _squeezed(n, y, 4) if squeezed else y
            y = affine(n.activation(affine(n.conv(y, wide(channels), act="none")), "hswish"))
        found.append(y)
    return found


def _squeezed(n: Net, y: str, by: int) -> str:
    c = n.shapes[y][1]
    return n.mul(y, n.conv(n.conv(n.mean(y), c // by, act="relu"), c, act="hsigmoid"))


def ppocr_det(size: int = 480, batch: int = 1) -> Net:
    n = Net("none", batch)
    stages = _lcnet(n, n.image(3, size, size), DETECT, 0.75)[1:]
    maps = [n.conv(y, c) for y, c in zip(stages, (12, 18, 42, 360), strict=True)]

    def rse(y: str, channels: int, kernel: int) -> str:
        y = n.conv(y, channels, kernel, bias=False)
        return n.add(y, _squeezed(n, y, 4))

    c2, c3, c4, c5 = (rse(y, 96, 1) for y in maps)
    c4 = n.add(c4, n.up(c5))
    c3 = n.add(c3, n.up(c4))
    c2 = n.add(c2, n.up(c3))
    parts = [rse(y, 24, 3) for y in (c5, c4, c3, c2)]
    parts = [n.up(y, f) if f > 1 else y for y, f in zip(parts, (8, 4, 2, 1), strict=True)]
    y = n.conv(n.concat(*parts), 24, 3, act="relu")
    y = n.deconv(n.deconv(y, 24, act="relu"), 1, act="sigmoid")
    return _ended(n, [y])


def ppocr_rec(width: int = 320, batch: int = 1) -> Net:
    n = Net("none", batch)
    y = _lcnet(n, n.image(3, 48, width), READ, 0.95)[-1]
    y = x = n.pool(y, (3, 2), kind="Average")
    c = n.shapes[x][1]
    y = n.conv(n.conv(y, c // 8, (1, 3), act="silu", pad=(0, 1)), 120, act="silu")
    _, _, h, w = n.shapes[y]
    y = n.transpose(n.reshape(y, batch, 120, h * w), 0, 2, 1)
    for _ in range(2):
        y = _block(n, y, 8, 240, "silu", True)
    y = n.reshape(n.transpose(n.layer_norm(y), 0, 2, 1), batch, 120, h, w)
    y = n.concat(x, n.conv(y, c, act="silu"))
    y = n.conv(n.conv(y, c // 8, (1, 3), act="silu", pad=(0, 1)), 120, act="silu")
    y = n.transpose(n.reshape(y, batch, 120, h * w), 0, 2, 1)
    return _ended(n, [n.softmax(n.linear(y, 6625))])
