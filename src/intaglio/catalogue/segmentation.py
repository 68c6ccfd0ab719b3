"""ESPNet: segmentation by efficient spatial pyramids."""

from __future__ import annotations

from intaglio.catalogue.builder import Builder
from intaglio.ir import Value

CLASSES = 20  # of Cityscapes
BRANCHES = 5  # dilated convolutions of a pyramid
REPEATS = (2, 8)  # pyramids of the second and third level


def espnet(b: Builder, x: Value) -> Value:
    half = _pool(b, x)
    first = _norm(b, b.concat(b.conv(x, 16, 3, 2, "prelu"), half))
    second = _level(b, first, 64, REPEATS[0])
    second = _norm(b, b.concat(*second, _pool(b, half)))
    third = _norm(b, b.concat(*_level(b, second, 128, REPEATS[1])))
    up = b.double(b.norm(b.conv(third, CLASSES, norm=False, act=None)), CLASSES)
    skip = b.conv(second, CLASSES, norm=False, act=None)
    both = _norm(b, b.concat(skip, up))
    up = _norm(b, b.double(_pyramid(b, both, CLASSES, 1, False), CLASSES))
    last = b.conv(b.concat(up, first), CLASSES, 3, act="prelu")
    return b.double(last, CLASSES)


def _level(b: Builder, x: Value, out: int, repeats: int) -> tuple[Value, Value]:
    """A pyramid that halves the size, and others behind it: the last and the first result."""
    first = y = _pyramid(b, x, out, 2, False)
    for _ in range(repeats):
        y = _pyramid(b, y, out, 1, True)
    return y, first


def _pyramid(b: Builder, x: Value, out: int, stride: int, residual: bool) -> Value:
    """Reduce, convolve with dilations 1, 2, 4, 8 and 16, add up, concatenate."""
    each = out // BRANCHES
    y = b.conv(x, each, 3 if stride > 1 else 1, stride, None, norm=False)
    parts = [
        b.conv(
            y, each if i else out - each * (BRANCHES - 1), 3, act=None, norm=False, dilation=2**i
        )
        for i in range(BRANCHES)
    ]
    sums = [parts[1]]
    for part in parts[2:]:
        sums.append(b.add(sums[-1], part))
    result = b.concat(parts[0], *sums)
    return _norm(b, b.add(x, result) if residual else result)


def _norm(b: Builder, x: Value) -> Value:
    return b.act(b.norm(x), "prelu")


def _pool(b: Builder, x: Value) -> Value:
    return b.avg_pool(x, 3, 2, 1)
