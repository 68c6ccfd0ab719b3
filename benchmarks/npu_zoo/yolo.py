"""YOLO detectors as their authors' repositories define them; tails as vendors export them.

`tail` is that of rknn_model_zoo ("maps": feature maps of the heads, with sigmoid) or that of the
authors' own export ("boxes": decoded in the model), which sophon-demo and nncase use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.npu_zoo.net import Net

STRIDES = (8, 16, 32)


def _c3(n: Net, x: str, channels: int, repeats: int, skip: bool = True) -> str:
    half = channels // 2
    a, b = n.conv(x, half), n.conv(x, half)
    for _ in range(repeats):
        y = n.conv(n.conv(a, half), half, 3)
        a = n.add(a, y) if skip else y
    return n.conv(n.concat(a, b), channels)


def sppf(n: Net, x: str, channels: int, last: str | None = None) -> str:
    a = n.conv(x, n.shapes[x][1] // 2)
    b = n.pool(a, 5, 1, 2)
    c = n.pool(b, 5, 1, 2)
    return n.conv(n.concat(a, b, c, n.pool(c, 5, 1, 2)), channels, act=last)


def yolov5(
    width: float = 0.5,
    depth: float = 0.33,
    act: str = "silu",
    tail: str = "maps",
    masks: bool = False,
    batch: int = 1,
) -> Net:
    n = Net(act, batch)
    w = [round(c * width) for c in (64, 128, 256, 512, 1024)]
    r = [max(round(k * depth), 1) for k in (3, 6, 9, 3)]
    x = n.image(3, 640, 640)
    y = _c3(n, n.conv(n.conv(x, w[0], 6, 2, pad=2), w[1], 3, 2), w[1], r[0])
    p3 = _c3(n, n.conv(y, w[2], 3, 2), w[2], r[1])
    p4 = _c3(n, n.conv(p3, w[3], 3, 2), w[3], r[2])
    p5 = sppf(n, _c3(n, n.conv(p4, w[4], 3, 2), w[4], r[3]), w[4])
    a = n.conv(p5, w[3])
    b = _c3(n, n.concat(n.up(a), p4), w[3], r[0], False)
    c = n.conv(b, w[2])
    o3 = _c3(n, n.concat(n.up(c), p3), w[2], r[0], False)
    o4 = _c3(n, n.concat(n.conv(o3, w[2], 3, 2), c), w[3], r[0], False)
    o5 = _c3(n, n.concat(n.conv(o4, w[3], 3, 2), a), w[4], r[0], False)
    return anchored(n, (o3, o4, o5), tail, round(256 * width) if masks else 0)


def anchored(n: Net, maps: Sequence[str], tail: str, prototypes: int = 0) -> Net:
    """Heads of three anchors a cell; `prototypes` channels make masks."""
    ends = []
    for o in maps:
        if tail == "maps":
            ends.append(n.conv(o, 255, act="sigmoid"))
            ends += [n.conv(o, 96, act="none")] if prototypes else []
        else:
            y = n.conv(o, 255, act="none")
            b, _, h, w = n.shapes[y]
            ends.append(n.transpose(n.reshape(y, b, 3, 85, h, w), 0, 1, 3, 4, 2))
    if tail == "boxes":
        ends = [
            n.concat(
                *[
                    n.reshape(_decoded(n, y, s), n.batch, -1, 85)
                    for y, s in zip(ends, STRIDES, strict=True)
                ]
            )
        ]
    if prototypes:
        y = n.conv(n.up(n.conv(maps[0], prototypes, 3)), prototypes, 3)
        ends.append(n.conv(y, 32))
    return _ended(n, ends)


def _decoded(n: Net, y: str, stride: int) -> str:
    """YOLOv5's boxes: (2 s - 0.5 + grid) * stride and (2 s)^2 * anchor."""
    y = n.activation(y, "sigmoid")
    xy, wh, rest = n.split(y, 2, 2, 81, axis=4)
    two = n.constant(np.float32(2))
    grid = n.constant(np.random.default_rng(0).random(n.shapes[xy][1:], np.float32)[None])
    xy = n.mul(n.add(n.mul(xy, two), grid), n.constant(np.float32(stride)))
    wh = n.mul(n.add_node("Pow", [n.mul(wh, two), two], n.shapes[wh]), grid)
    return n.concat(xy, wh, rest, axis=4)


def _ended(n: Net, ends: Sequence[str]) -> Net:
    n.ends = list(ends)  # type: ignore[attr-defined]
    return n


# ---- YOLOv6 --------------------------------------------------------------------------------------
def yolov6(width: float = 0.25, act: str = "relu", batch: int = 1) -> Net:
    """RepVGG blocks after fusion: plain 3x3 convolutions."""
    n = Net(act, batch)
    w = [int(c * width) for c in (64, 128, 256, 512, 1024)]
    t = [int(c * width) for c in (256, 128, 128, 256, 256, 512)]

    def rep(y: str, channels: int, repeats: int) -> str:
        for _ in range(repeats):
            y = n.conv(y, channels, 3)
        return y

    x = n.image(3, 640, 640)
    y = rep(n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[1], 2)
    p3 = rep(n.conv(y, w[2], 3, 2), w[2], 4)
    p4 = rep(n.conv(p3, w[3], 3, 2), w[3], 6)
    p5 = sppf(n, rep(n.conv(p4, w[4], 3, 2), w[4], 2), w[4])
    a = n.conv(p5, t[0])
    b = rep(n.concat(n.deconv(a, t[0]), p4), t[0], 4)
    c = n.conv(b, t[1])
    o3 = rep(n.concat(n.deconv(c, t[1]), p3), t[1], 4)
    o4 = rep(n.concat(n.conv(o3, t[2], 3, 2), c), t[3], 4)
    o5 = rep(n.concat(n.conv(o4, t[4], 3, 2), a), t[5], 4)
    return _v6_heads(n, (o3, o4, o5), 4)


def _v6_heads(n: Net, maps: Sequence[str], box: int) -> Net:
    ends = []
    for o in maps:
        c = n.shapes[o][1]
        stem = n.conv(o, c, act="silu" if n.act == "silu" else None)
        scores = n.conv(n.conv(stem, c, 3), 80, act="sigmoid")
        ends += [n.conv(n.conv(stem, c, 3), box, act="none"), *summed(n, scores)]
    return _ended(n, ends)


def summed(n: Net, scores: str) -> list[str]:
    """Scores, and their sum, by which rknn_model_zoo skips cells."""
    return [scores, n.clip(n.reduce("ReduceSum", scores, 1), 0.0, 1.0)]


def yolov6m(batch: int = 1) -> Net:
    """CSP blocks of pairs of RepVGG with a residual; regression over 16 bins."""
    n = Net("relu", batch)
    w = [int(c * 0.75) for c in (64, 128, 256, 512, 1024)]
    t = [int(c * 0.75) for c in (256, 128, 128, 256, 256, 512)]

    def csp(y: str, channels: int, repeats: int) -> str:
        inner = int(channels * 2 / 3)
        a, b = n.conv(y, inner), n.conv(y, inner)
        for _ in range(max(repeats // 2, 1)):
            a = n.add(n.conv(n.conv(a, inner, 3), inner, 3), a)
        return n.conv(n.concat(a, b), channels)

    x = n.image(3, 640, 640)
    y = csp(n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[1], 4)
    p3 = csp(n.conv(y, w[2], 3, 2), w[2], 7)
    p4 = csp(n.conv(p3, w[3], 3, 2), w[3], 11)
    p5 = sppf(n, csp(n.conv(p4, w[4], 3, 2), w[4], 4), w[4])
    a = n.conv(p5, t[0])
    b = csp(n.concat(n.deconv(a, t[0]), p4), t[0], 7)
    c = n.conv(b, t[1])
    o3 = csp(n.concat(n.deconv(c, t[1]), p3), t[1], 7)
    o4 = csp(n.concat(n.conv(o3, t[2], 3, 2), c), t[3], 7)
    o5 = csp(n.concat(n.conv(o4, t[4], 3, 2), a), t[5], 7)
    return _v6_heads(n, (o3, o4, o5), 68)


# ---- YOLOv7 --------------------------------------------------------------------------------------
def _elan(n: Net, x: str, narrow: int, out: int, each: int, kept: tuple[int, ...]) -> str:
    """Convolutions in a row, of which some are joined."""
    parts = [n.conv(x, narrow), n.conv(x, narrow)]
    for _ in range(each):
        parts.append(n.conv(parts[-1], narrow, 3))
    return n.conv(n.concat(*[parts[k] for k in kept]), out)


def yolov7_tiny(tail: str = "maps", batch: int = 1) -> Net:
    n = Net("leaky", batch)

    def block(y: str, narrow: int, out: int) -> str:
        return _elan(n, y, narrow, out, 2, (3, 2, 1, 0))

    x = n.image(3, 640, 640)
    y = block(n.conv(n.conv(x, 32, 3, 2), 64, 3, 2), 32, 64)
    p3 = block(n.pool(y, 2), 64, 128)
    p4 = block(n.pool(p3, 2), 128, 256)
    p5 = block(n.pool(p4, 2), 256, 512)
    a, b = n.conv(p5, 256), n.conv(p5, 256)
    pools = [n.pool(b, k, 1, k // 2) for k in (13, 9, 5)]
    p5 = n.conv(n.concat(n.conv(n.concat(*pools, b), 256), a), 256)
    y4 = block(n.concat(n.conv(p4, 128), n.up(n.conv(p5, 128))), 64, 128)
    o3 = block(n.concat(n.conv(p3, 64), n.up(n.conv(y4, 64))), 32, 64)
    o4 = block(n.concat(n.conv(o3, 128, 3, 2), y4), 64, 128)
    o5 = block(n.concat(n.conv(o4, 256, 3, 2), p5), 128, 256)
    maps = [n.conv(o, 2 * n.shapes[o][1], 3) for o in (o3, o4, o5)]
    return anchored(n, maps, tail)


def yolov7(tail: str = "maps", batch: int = 1) -> Net:
    n = Net("silu", batch)

    def down(y: str, narrow: int, *more: str) -> str:
        a = n.conv(n.pool(y, 2), narrow)
        return n.concat(n.conv(n.conv(y, narrow), narrow, 3, 2), a, *more)

    def head(y: str, wide: int) -> str:
        a, b = n.conv(y, wide), n.conv(y, wide)
        parts = [b, a]
        for _ in range(4):
            b = n.conv(b, wide // 2, 3)
            parts.append(b)
        return n.conv(n.concat(*parts), wide)

    x = n.image(3, 640, 640)
    y = n.conv(n.conv(n.conv(n.conv(x, 32, 3), 64, 3, 2), 64, 3), 128, 3, 2)
    kept = (5, 3, 1, 0)
    y = _elan(n, y, 64, 256, 4, kept)
    p3 = _elan(n, down(y, 128), 128, 512, 4, kept)
    p4 = _elan(n, down(p3, 256), 256, 1024, 4, kept)
    p5 = _elan(n, down(p4, 512), 256, 1024, 4, kept)
    short = n.conv(p5, 512)
    a = n.conv(n.conv(n.conv(p5, 512), 512, 3), 512)
    pools = [n.pool(a, k, 1, k // 2) for k in (5, 9, 13)]
    a = n.conv(n.conv(n.concat(a, *pools), 512), 512, 3)
    p5 = n.conv(n.concat(a, short), 512)
    y4 = head(n.concat(n.conv(p4, 256), n.up(n.conv(p5, 256))), 256)
    o3 = head(n.concat(n.conv(p3, 128), n.up(n.conv(y4, 128))), 128)
    o4 = head(down(o3, 128, y4), 256)
    o5 = head(down(o4, 256, p5), 512)
    maps = [n.conv(o, 2 * n.shapes[o][1], 3) for o in (o3, o4, o5)]
    return anchored(n, maps, tail)


# ---- YOLOX ---------------------------------------------------------------------------------------
def yolox(width: float = 0.5, depth: float = 0.33, tail: str = "maps", batch: int = 1) -> Net:
    n = Net("silu", batch)
    w = [round(c * width) for c in (64, 128, 256, 512, 1024)]
    r = [round(k * depth) for k in (3, 9, 9, 3)]
    x = n.image(3, 640, 640)
    if tail == "maps":  # airockchip's fork makes one convolution of the slices and the first one
        y = n.conv(x, w[0], 6, 2, pad=2)
    else:
        even = [n.slice(x, k, 640, 2, 2) for k in (0, 1)]
        y = n.concat(*[n.slice(v, k, 640, 3, 2) for k in (0, 1) for v in even])
        y = n.conv(y, w[0], 3)
    y = _c3(n, n.conv(y, w[1], 3, 2), w[1], r[0])
    p3 = _c3(n, n.conv(y, w[2], 3, 2), w[2], r[1])
    p4 = _c3(n, n.conv(p3, w[3], 3, 2), w[3], r[2])
    y = n.conv(p4, w[4], 3, 2)
    if tail == "maps":
        y = sppf(n, y, w[4])
    else:
        y = n.conv(y, w[4] // 2)
        y = n.conv(n.concat(y, *[n.pool(y, k, 1, k // 2) for k in (5, 9, 13)]), w[4])
    p5 = _c3(n, y, w[4], r[3], False)
    a = n.conv(p5, w[3])
    b = _c3(n, n.concat(n.up(a), p4), w[3], r[0], False)
    c = n.conv(b, w[2])
    o3 = _c3(n, n.concat(n.up(c), p3), w[2], r[0], False)
    o4 = _c3(n, n.concat(n.conv(o3, w[2], 3, 2), c), w[3], r[0], False)
    o5 = _c3(n, n.concat(n.conv(o4, w[3], 3, 2), a), w[4], r[0], False)
    ends = []
    for o in (o3, o4, o5):
        stem = n.conv(o, w[2])
        scores = n.conv(n.conv(n.conv(stem, w[2], 3), w[2], 3), 80, act="sigmoid")
        y = n.conv(n.conv(stem, w[2], 3), w[2], 3)
        ends.append(n.concat(n.conv(y, 4, act="none"), n.conv(y, 1, act="sigmoid"), scores))
    if tail == "boxes":
        flat = [n.reshape(y, batch, 85, -1) for y in ends]
        ends = [n.transpose(n.concat(*flat, axis=2), 0, 2, 1)]
    return _ended(n, ends)
