"""YOLOv8, YOLOv9, YOLOv10 and YOLO11, with heads for boxes, masks, key points and angles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.npu_zoo.net import Net
from benchmarks.npu_zoo.yolo import _ended, sppf, summed

SCALES = {  # width, depth, most channels
    "n": (0.25, 0.33, 1024),
    "s": (0.5, 0.33, 1024),
    "m": (0.75, 0.67, 768),
    "11n": (0.25, 0.5, 1024),
    "11s": (0.5, 0.5, 1024),
    "11m": (1.0, 0.5, 512),
}


def _widths(scale: str) -> tuple[list[int], float]:
    width, depth, most = SCALES[scale]
    return [int(min(c, most) * width) for c in (64, 128, 256, 512, 1024)], depth


def c2f(n: Net, x: str, channels: int, repeats: int, skip: bool) -> str:
    half = channels // 2
    parts = n.halves(n.conv(x, channels))
    for _ in range(repeats):
        y = n.conv(n.conv(parts[-1], half, 3), half, 3)
        parts.append(n.add(parts[-1], y) if skip else y)
    return n.conv(n.concat(*parts), channels)


def yolov8(
    scale: str = "n",
    kind: str = "detect",
    tail: str = "maps",
    size: int = 640,
    batch: int = 1,
    classes: int = 80,
) -> Net:
    n = Net("silu", batch)
    w, depth = _widths(scale)
    r = [max(round(k * depth), 1) for k in (3, 6)]
    x = n.image(3, size, size)
    y = c2f(n, n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[1], r[0], True)
    p3 = c2f(n, n.conv(y, w[2], 3, 2), w[2], r[1], True)
    p4 = c2f(n, n.conv(p3, w[3], 3, 2), w[3], r[1], True)
    p5 = c2f(n, n.conv(p4, w[4], 3, 2), w[4], r[0], True)
    if kind == "classify":
        y = n.mean(n.conv(p5, 1280))
        gemm = [n.reshape(y, batch, 1280), n.weights(1000, 1280), n.weights(1000)]
        return _ended(n, [n.softmax(n.add_node("Gemm", gemm, (batch, 1000), transB=1))])
    p5 = sppf(n, p5, w[4])
    b = c2f(n, n.concat(n.up(p5), p4), w[3], r[0], False)
    o3 = c2f(n, n.concat(n.up(b), p3), w[2], r[0], False)
    o4 = c2f(n, n.concat(n.conv(o3, w[2], 3, 2), b), w[3], r[0], False)
    o5 = c2f(n, n.concat(n.conv(o4, w[3], 3, 2), p5), w[4], r[0], False)
    return heads(n, (o3, o4, o5), kind, tail, classes)


def heads(
    n: Net, maps: Sequence[str], kind: str, tail: str, classes: int = 80, light: bool = False
) -> Net:
    """Boxes over 16 bins, scores and, by kind, masks, key points or angles."""
    first = n.shapes[maps[0]][1]
    wide, box = max(first, min(classes, 100)), max(16, first // 4, 64)
    more = {"segment": 32, "pose": 51, "obb": 1}.get(kind, 0)
    narrow = max(first // 4, more)
    boxes, scores, others = [], [], []
    for o in maps:
        boxes.append(n.conv(n.conv(n.conv(o, box, 3), box, 3), 64, act="none"))
        y = o
        for _ in range(2):
            y = n.conv(n.depthwise(y), wide) if light else n.conv(y, wide, 3)
        scores.append(n.conv(y, classes, act="none"))
        if more:
            others.append(n.conv(n.conv(n.conv(o, narrow, 3), narrow, 3), more, act="none"))
    made = _maps if tail == "maps" else _boxes
    ends = made(n, boxes, scores, others, kind)
    if kind == "segment":
        y = n.deconv(n.conv(maps[0], first, 3), first)
        ends.append(n.conv(n.conv(y, first, 3), 32))
    return _ended(n, ends)


def _maps(
    n: Net, boxes: Sequence[str], scores: Sequence[str], others: Sequence[str], kind: str
) -> list[str]:
    """Outputs as airockchip's forks have them."""
    ends: list[str] = []
    for k, (b, s) in enumerate(zip(boxes, scores, strict=True)):
        s = n.activation(s, "sigmoid")
        if kind in ("pose", "obb"):
            ends.append(n.concat(b, s))
        else:
            ends += [b, *summed(n, s)]
        ends += [others[k]] if kind == "segment" else []
    if kind in ("pose", "obb"):
        flat = n.concat(*[n.reshape(y, n.batch, n.shapes[y][1], -1) for y in others], axis=2)
        ends.append(_points(n, flat) if kind == "pose" else n.activation(flat, "sigmoid"))
    return ends


def _points(n: Net, flat: str) -> str:
    """Key points in pixels: (2 xy + cell) * stride, and their sigmoid scores."""
    cells = n.shapes[flat][2]
    y = n.reshape(flat, n.batch, 17, 3, cells)
    xy, seen = n.split(y, 2, 1, axis=2)
    grid = np.random.default_rng(0).random((1, 1, 2, cells), np.float32)
    xy = n.add(n.mul(xy, n.constant(np.float32(2))), n.constant(grid))
    xy = n.mul(xy, n.constant(grid[:, :, :1]))
    return n.concat(xy, n.activation(seen, "sigmoid"), axis=2)


def _boxes(
    n: Net, boxes: Sequence[str], scores: Sequence[str], others: Sequence[str], kind: str
) -> list[str]:
    """Decoded in the model, as `yolo export format=onnx` does."""
    flat = []
    for b, s in zip(boxes, scores, strict=True):
        y = n.concat(b, s)
        flat.append(n.reshape(y, n.batch, n.shapes[y][1], -1))
    y = n.concat(*flat, axis=2)
    cells, classes = n.shapes[y][2], n.shapes[y][1] - 64
    b, s = n.split(y, 64, classes)
    b = n.transpose(n.reshape(b, n.batch, 4, 16, cells), 0, 2, 1, 3)
    b = n.conv(n.softmax(b, 1), 1, act="none", bias=False)
    low, high = n.halves(n.reshape(b, n.batch, 4, cells))
    grid = n.constant(np.random.default_rng(0).random((1, 2, cells), np.float32))
    low = n.add_node("Sub", [grid, low], n.shapes[low])
    high = n.add(grid, high)
    middle = n.mul(n.add(low, high), n.constant(np.float32(0.5)))
    size = n.add_node("Sub", [high, low], n.shapes[low])
    stride = n.constant(np.random.default_rng(1).random((1, cells), np.float32))
    b = n.mul(n.concat(middle, size), stride)
    parts = [b, n.activation(s, "sigmoid")]
    if others:
        more = n.concat(*[n.reshape(o, n.batch, n.shapes[o][1], -1) for o in others], axis=2)
        if kind == "pose":
            more = n.reshape(_points(n, more), n.batch, 51, cells)
        parts.append(more)
    return [n.concat(*parts)]


# ---- attention of YOLOv10 and YOLO11 -------------------------------------------------------------
def attention(n: Net, x: str) -> str:
    """Attention over pixels with a positional depthwise convolution."""
    b, c, h, w = n.shapes[x]
    count = max(c // 64, 1)
    deep = c // count
    key = deep // 2
    y = n.conv(x, c + 2 * key * count, act="none")
    q, k, v = n.split(n.reshape(y, b, count, 2 * key + deep, h * w), key, key, deep, axis=2)
    score = n.matmul(n.transpose(q, 0, 1, 3, 2), k)
    score = n.softmax(n.mul(score, n.constant(np.float32(key**-0.5))))
    y = n.reshape(n.matmul(v, n.transpose(score, 0, 1, 3, 2)), b, c, h, w)
    placed = n.depthwise(n.reshape(v, b, c, h, w), act="none")
    return n.conv(n.add(y, placed), c, act="none")


def psa(n: Net, x: str, channels: int, repeats: int = 1) -> str:
    half = channels // 2
    a, b = n.halves(n.conv(x, 2 * half))
    for _ in range(repeats):
        b = n.add(b, attention(n, b))
        b = n.add(b, n.conv(n.conv(b, 2 * half), half, act="none"))
    return n.conv(n.concat(a, b), channels)


def yolov10(scale: str = "n", tail: str = "maps", batch: int = 1) -> Net:
    n = Net("silu", batch)
    w, depth = _widths(scale)
    r = [max(round(k * depth), 1) for k in (3, 6)]

    def down(y: str, channels: int) -> str:
        return n.depthwise(n.conv(y, channels), 3, 2, act="none")

    def cib(y: str, c: int) -> str:
        z = n.conv(n.depthwise(y), 2 * c)
        z = n.conv(n.depthwise(z, 7), c)
        return n.add(y, n.depthwise(z))

    def c2f_cib(y: str, channels: int) -> str:
        parts = n.halves(n.conv(y, channels))
        for _ in range(r[0]):
            parts.append(cib(parts[-1], channels // 2))
        return n.conv(n.concat(*parts), channels)

    x = n.image(3, 640, 640)
    y = c2f(n, n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[1], r[0], True)
    p3 = c2f(n, n.conv(y, w[2], 3, 2), w[2], r[1], True)
    p4 = c2f(n, down(p3, w[3]), w[3], r[1], True)
    y = down(p4, w[4])
    y = c2f_cib(y, w[4]) if scale == "s" else c2f(n, y, w[4], r[0], True)
    p5 = psa(n, sppf(n, y, w[4]), w[4])
    b = c2f(n, n.concat(n.up(p5), p4), w[3], r[0], False)
    o3 = c2f(n, n.concat(n.up(b), p3), w[2], r[0], False)
    o4 = c2f(n, n.concat(n.conv(o3, w[2], 3, 2), b), w[3], r[0], False)
    o5 = c2f_cib(n.concat(down(o4, w[3]), p5), w[4])
    return heads(n, (o3, o4, o5), "detect", tail, light=True)


def yolo11(scale: str = "n", tail: str = "maps", batch: int = 1) -> Net:
    n = Net("silu", batch)
    w, _ = _widths(f"11{scale}")
    medium = scale == "m"

    def c3k(y: str, c: int) -> str:
        half = c // 2
        a, b = n.conv(y, half), n.conv(y, half)
        for _ in range(2):
            a = n.add(a, n.conv(n.conv(a, half, 3), half, 3))
        return n.conv(n.concat(a, b), c)

    def c3k2(y: str, channels: int, deep: bool, share: float = 0.5) -> str:
        c = int(channels * share)
        parts = n.halves(n.conv(y, 2 * c))
        z = parts[-1]
        if deep or medium:
            parts.append(c3k(z, c))
        else:
            parts.append(n.add(z, n.conv(n.conv(z, c // 2, 3), c, 3)))
        return n.conv(n.concat(*parts), channels)

    x = n.image(3, 640, 640)
    y = c3k2(n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[2], False, 0.25)
    p3 = c3k2(n.conv(y, w[2], 3, 2), w[3], False, 0.25)
    p4 = c3k2(n.conv(p3, w[3], 3, 2), w[3], True)
    p5 = c3k2(n.conv(p4, w[4], 3, 2), w[4], True)
    p5 = psa(n, sppf(n, p5, w[4]), w[4])
    b = c3k2(n.concat(n.up(p5), p4), w[3], False)
    o3 = c3k2(n.concat(n.up(b), p3), w[2], False)
    o4 = c3k2(n.concat(n.conv(o3, w[2], 3, 2), b), w[3], False)
    o5 = c3k2(n.concat(n.conv(o4, w[3], 3, 2), p5), w[4], True)
    return heads(n, (o3, o4, o5), "detect", tail, light=True)


# ---- YOLOv9 --------------------------------------------------------------------------------------
def yolov9c(tail: str = "boxes", kind: str = "segment", batch: int = 1) -> Net:
    """GELAN-C."""
    n = Net("silu", batch)

    def rep_csp(y: str, c: int) -> str:
        half = c // 2
        a, b = n.conv(y, half), n.conv(y, half)
        a = n.add(a, n.conv(n.conv(a, half, 3), half, 3))
        return n.conv(n.concat(a, b), c)

    def elan(y: str, out: int, wide: int, narrow: int) -> str:
        parts = n.halves(n.conv(y, wide))
        for _ in range(2):
            parts.append(n.conv(rep_csp(parts[-1], narrow), narrow, 3))
        return n.conv(n.concat(*parts), out)

    def down(y: str, channels: int) -> str:
        y = n.pool(y, 2, 1, kind="Average")
        a, b = n.halves(y)
        half = channels // 2
        return n.concat(n.conv(a, half, 3, 2, pad=1), n.conv(n.pool(b, 3, 2, 1), half))

    x = n.image(3, 640, 640)
    y = elan(n.conv(n.conv(x, 64, 3, 2), 128, 3, 2), 256, 128, 64)
    p3 = elan(down(y, 256), 512, 256, 128)
    p4 = elan(down(p3, 512), 512, 512, 256)
    p5 = elan(down(p4, 512), 512, 512, 256)
    y = n.conv(p5, 256)
    pools = [y]
    for _ in range(3):
        pools.append(n.pool(pools[-1], 5, 1, 2))
    p5 = n.conv(n.concat(*pools), 512)
    b = elan(n.concat(n.up(p5), p4), 512, 512, 256)
    o3 = elan(n.concat(n.up(b), p3), 256, 256, 128)
    o4 = elan(n.concat(down(o3, 256), b), 512, 512, 256)
    o5 = elan(n.concat(down(o4, 512), p5), 512, 512, 256)
    return heads(n, (o3, o4, o5), kind, tail)
