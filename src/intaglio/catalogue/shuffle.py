"""ShuffleNet 1 and 2, and PeleeNet."""

from __future__ import annotations

from intaglio.catalogue.builder import Builder
from intaglio.ir import Value

V2 = {
    "0_5": (24, 48, 96, 192, 1024), "1_0": (24, 116, 232, 464, 1024),
    "1_5": (24, 176, 352, 704, 1024), "2_0": (24, 244, 488, 976, 2048),
}  # fmt: skip
V1_CHANNELS = {1: 144, 2: 200, 3: 240, 4: 272, 8: 384}  # of the second stage, by groups


def shufflenet_v1(b: Builder, x: Value, groups: int = 3) -> Value:
    x = b.max_pool(b.conv(x, 24, 3, 2), 3, 2, 1)
    out = V1_CHANNELS[groups]
    for stage, repeats in enumerate((3, 7, 3)):
        width = out << stage
        for i in range(repeats + 1):
            stride = 1 if i else 2
            kept = width - x.shape[1] if stride == 2 else width
            first = 1 if not stage and not i else groups
            y = b.shuffle(b.conv(x, width // 4, groups=first), groups)
            y = b.conv(b.depthwise(y, 3, stride, None), kept, act=None, groups=groups)
            joined = b.concat(b.avg_pool(x, 3, 2, 1), y) if stride == 2 else b.add(x, y)
            x = b.act(joined, "relu")
    return b.classifier(x)


def shufflenet_v2(b: Builder, x: Value, width: str) -> Value:
    first, *stages, last = V2[width]
    x = b.max_pool(b.conv(x, first, 3, 2), 3, 2, 1)
    for out, repeats in zip(stages, (4, 8, 4), strict=True):
        half = out // 2
        for i in range(repeats):
            if i:
                left, right = b.channels(x, 0, half), b.channels(x, half, out)
                right = b.conv(b.depthwise(b.conv(right, half), 3, 1, None), half)
            else:
                left = b.conv(b.depthwise(x, 3, 2, None), half)
                right = b.conv(b.depthwise(b.conv(x, half), 3, 2, None), half)
            x = b.shuffle(b.concat(left, right), 2)
    return b.classifier(b.conv(x, last))


def peleenet(b: Builder, x: Value) -> Value:
    x = b.conv(x, 32, 3, 2)
    x = b.conv(b.concat(b.conv(b.conv(x, 16), 32, 3, 2), b.max_pool(x, 2, 2)), 32)
    for stage, (layers, bottleneck) in enumerate(((3, 1), (4, 2), (8, 4), (6, 4))):
        for _ in range(layers):
            inner = 16 * bottleneck
            one = b.conv(b.conv(x, inner), 16, 3)
            two = b.conv(b.conv(b.conv(x, inner), 16, 3), 16, 3)
            x = b.concat(x, one, two)
        x = b.conv(x, x.shape[1])
        x = b.avg_pool(x, 2, 2) if stage < 3 else x
    return b.classifier(x)
