"""Networks of depthwise separable convolutions: MobileNet, MnasNet, EfficientNet, GhostNet."""

from __future__ import annotations

import math

from intaglio.catalogue.builder import Act, Builder, divisible
from intaglio.ir import Value

V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
      (6, 320, 1, 1))  # fmt: skip
# kernel, expanded, out, squeeze and excite, activation, stride
V3_LARGE = (
    (3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1),
    (5, 72, 40, 1, "relu", 2), (5, 120, 40, 1, "relu", 1), (5, 120, 40, 1, "relu", 1),
    (3, 240, 80, 0, "hswish", 2), (3, 200, 80, 0, "hswish", 1), (3, 184, 80, 0, "hswish", 1),
    (3, 184, 80, 0, "hswish", 1), (3, 480, 112, 1, "hswish", 1), (3, 672, 112, 1, "hswish", 1),
    (5, 672, 160, 1, "hswish", 2), (5, 960, 160, 1, "hswish", 1), (5, 960, 160, 1, "hswish", 1),
)  # fmt: skip
V3_SMALL = (
    (3, 16, 16, 1, "relu", 2), (3, 72, 24, 0, "relu", 2), (3, 88, 24, 0, "relu", 1),
    (5, 96, 40, 1, "hswish", 2), (5, 240, 40, 1, "hswish", 1), (5, 240, 40, 1, "hswish", 1),
    (5, 120, 48, 1, "hswish", 1), (5, 144, 48, 1, "hswish", 1), (5, 288, 96, 1, "hswish", 2),
    (5, 576, 96, 1, "hswish", 1), (5, 576, 96, 1, "hswish", 1),
)  # fmt: skip
# expansion, kernel, stride, out, repeats
EFFICIENT = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
             (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))  # fmt: skip
MNAS = ((3, 3, 2, 24, 3), (3, 5, 2, 40, 3), (6, 5, 2, 80, 3), (6, 3, 1, 96, 2), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1))  # fmt: skip
# kernel, expanded, out, squeeze and excite, stride
GHOST = (
    (3, 16, 16, 0, 1), (3, 48, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1),
    (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1), (3, 184, 80, 0, 1),
    (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2), (5, 960, 160, 0, 1),
    (5, 960, 160, 1, 1), (5, 960, 160, 0, 1), (5, 960, 160, 1, 1),
)  # fmt: skip

# repeats, kernel, stride, expansion, out
FBNET = (
    (1, 3, 1, 1, 16), (1, 3, 2, 6, 24), (2, 3, 1, 1, 24), (1, 5, 2, 6, 32), (1, 5, 1, 3, 32),
    (1, 5, 1, 6, 32), (1, 3, 1, 6, 32), (1, 5, 2, 6, 64), (1, 5, 1, 3, 64), (2, 5, 1, 6, 64),
    (3, 5, 1, 6, 112), (1, 5, 1, 3, 112), (4, 5, 2, 6, 184), (1, 3, 1, 6, 352),
)  # fmt: skip

# kernels of the first and the middle depthwise (0: none), stride, expansion, out
V4_SMALL = (
    (5, 5, 2, 3, 96), (0, 3, 1, 2, 96), (0, 3, 1, 2, 96), (0, 3, 1, 2, 96), (0, 3, 1, 2, 96),
    (3, 0, 1, 4, 96), (3, 3, 2, 6, 128), (5, 5, 1, 4, 128), (0, 5, 1, 4, 128), (0, 5, 1, 3, 128),
    (0, 3, 1, 4, 128), (0, 3, 1, 4, 128),
)  # fmt: skip


def mobilenet_v1(b: Builder, x: Value, width: float = 1.0) -> Value:
    x = b.conv(x, int(32 * width), 3, 2)
    plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5,
            (1024, 2), (1024, 1))  # fmt: skip
    for out, stride in plan:
        x = b.conv(b.depthwise(x, 3, stride), int(out * width))
    return b.classifier(x)


def inverted(
    b: Builder, x: Value, wide: int, out: int, kernel: int, stride: int, act: Act, excite: int = 0,
    gate: Act = "hsigmoid", inner_act: Act = "relu",
) -> Value:  # fmt: skip
    """An inverted residual block: expand, depthwise, project."""
    y = b.conv(x, wide, act=act) if wide != x.shape[1] else x
    y = b.depthwise(y, kernel, stride, act)
    if excite:
        y = b.squeeze_excite(y, excite, inner_act, gate)
    y = b.conv(y, out, act=None)
    return b.add(x, y) if stride == 1 and x.shape[1] == out else y


def mobilenet_v2(b: Builder, x: Value, width: float = 1.0) -> Value:
    x = b.conv(x, divisible(32 * width), 3, 2, "relu6")
    for t, c, n, s in V2:
        for i in range(n):
            out = divisible(c * width)
            x = inverted(b, x, x.shape[1] * t, out, 3, 1 if i else s, "relu6")
    return b.classifier(b.conv(x, max(1280, divisible(1280 * width)), act="relu6"))


def mobilenet_v3(b: Builder, x: Value, large: bool) -> Value:
    x = b.conv(x, 16, 3, 2, "hswish")
    for kernel, wide, out, excite, act, stride in V3_LARGE if large else V3_SMALL:
        inner = divisible(wide / 4) if excite else 0
        x = inverted(b, x, wide, out, kernel, stride, act, inner)
    x = b.mean(b.conv(x, x.shape[1] * 6, act="hswish"))
    return b.linear(b.linear(b.flat(x), 1280 if large else 1024, "hswish"), 1000)


def mobilenet_v4_small(b: Builder, x: Value) -> Value:
    """MobileNetV4-Conv-S: universal inverted bottlenecks."""
    x = b.conv(x, 32, 3, 2)
    for kernel, out, stride in ((3, 32, 2), (1, 32, 1), (3, 96, 2), (1, 64, 1)):
        x = b.conv(x, out, kernel, stride)
    for first, middle, stride, t, out in V4_SMALL:
        y = b.depthwise(x, first, 1 if middle else stride, None) if first else x
        y = b.conv(y, divisible(x.shape[1] * t))
        y = b.depthwise(y, middle, stride) if middle else y
        y = b.conv(y, out, act=None)
        x = b.add(x, y) if stride == 1 and x.shape[1] == out else y
    x = b.mean(b.conv(x, 960))
    return b.linear(b.flat(b.conv(x, 1280)), 1000)


def mnasnet(b: Builder, x: Value, width: float) -> Value:
    first = divisible(32 * width)
    x = b.depthwise(b.conv(x, first, 3, 2))
    x = b.conv(x, divisible(16 * width), act=None)
    for t, kernel, stride, c, n in MNAS:
        for i in range(n):
            out = divisible(c * width)
            x = inverted(b, x, x.shape[1] * t, out, kernel, 1 if i else stride, "relu")
    return b.classifier(b.conv(x, 1280))


def fbnet_c(b: Builder, x: Value) -> Value:
    x = b.conv(x, 16, 3, 2)
    for repeats, kernel, stride, t, out in FBNET:
        for i in range(repeats):
            y = b.conv(x, x.shape[1] * t)  # expands even by 1
            y = b.depthwise(y, kernel, 1 if i else stride)
            y = b.conv(y, out, act=None)
            x = b.add(x, y) if y.shape == x.shape else y
    return b.classifier(b.conv(x, 1984))


def efficientnet(b: Builder, x: Value, width: float, depth: float, lite: bool) -> Value:
    act = "relu6" if lite else "swish"
    x = b.conv(x, 32 if lite else divisible(32 * width), 3, 2, act)
    for at, (t, kernel, stride, c, n) in enumerate(EFFICIENT):
        fixed = lite and at in (0, len(EFFICIENT) - 1)
        for i in range(n if fixed else math.ceil(n * depth)):
            excite = 0 if lite else max(1, x.shape[1] // 4)
            x = inverted(
                b, x, x.shape[1] * t, divisible(c * width), kernel, 1 if i else stride, act,
                excite, "sigmoid", "swish",
            )  # fmt: skip
    return b.classifier(b.conv(x, 1280 if lite else divisible(1280 * width), act=act))


def ghostnet(b: Builder, x: Value) -> Value:
    x = b.conv(x, 16, 3, 2)
    for kernel, wide, out, excite, stride in GHOST:
        y = _ghost(b, x, wide, "relu")
        y = b.depthwise(y, kernel, stride, None) if stride > 1 else y
        y = b.squeeze_excite(y, divisible(wide / 4, 4)) if excite else y
        y = _ghost(b, y, out, None)
        short = x
        if stride > 1 or x.shape[1] != out:
            short = b.conv(b.depthwise(x, kernel, stride, None), out, act=None)
        x = b.add(y, short)
    x = b.mean(b.conv(x, 960))
    x = b.conv(x, 1280, norm=False, bias=True)
    return b.linear(b.flat(x), 1000)


def _ghost(b: Builder, x: Value, out: int, act: Act) -> Value:
    """A ghost module: half of the channels by a 1x1, the rest by a cheap depthwise."""
    first = b.conv(x, math.ceil(out / 2), act=act)
    both = b.concat(first, b.depthwise(first, 3, 1, act))
    return both if both.shape[1] == out else b.channels(both, 0, out)
