"""AlexNet, VGG, ResNet, DenseNet, GoogLeNet and SqueezeNet."""

from __future__ import annotations

from intaglio import ops
from intaglio.catalogue.builder import Builder
from intaglio.ir import Value

VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
RESNET = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip
DENSENET = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


def alexnet(b: Builder, x: Value) -> Value:
    for out, kernel, stride, pad, pool in (
        (64, 11, 4, 2, True),
        (192, 5, 1, 2, True),
        (384, 3, 1, 1, False),
        (256, 3, 1, 1, False),
        (256, 3, 1, 1, True),
    ):
        x = b.conv(x, out, kernel, stride, pad=pad, norm=False, bias=True)
        x = b.max_pool(x, 3, 2) if pool else x
    return _three_linear(b, x)


def _three_linear(b: Builder, x: Value) -> Value:
    x = b.linear(b.flat(x), 4096, "relu")
    return b.linear(b.linear(x, 4096, "relu"), 1000)


def vgg(b: Builder, x: Value, depth: int) -> Value:
    for count, out in zip(VGG[depth], (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            x = b.conv(x, out, 3, norm=False, bias=True)
        x = b.max_pool(x, 2, 2)
    return _three_linear(b, x)


def resnet(
    b: Builder, x: Value, depth: int, wide: int = 1, groups: int = 1, base: int = 64
) -> Value:
    x = b.max_pool(b.conv(x, 64, 7, 2), 3, 2, 1)
    for stage, count in enumerate(RESNET[depth]):
        planes = 64 << stage
        for i in range(count):
            stride = 2 if stage and not i else 1
            out = planes if depth < 50 else planes * 4
            short = x
            if stride > 1 or x.shape[1] != out:
                short = b.conv(x, out, 1, stride, None)
            if depth < 50:
                y = b.conv(b.conv(x, out, 3, stride), out, 3, act=None)
            else:
                inner = planes * wide * base * groups // 64
                y = b.conv(b.conv(x, inner), inner, 3, stride, groups=groups)
                y = b.conv(y, out, act=None)
            x = b.act(b.add(y, short), "relu")
    return b.classifier(x)


def densenet(b: Builder, x: Value, depth: int) -> Value:
    x = b.max_pool(b.conv(x, 64, 7, 2), 3, 2, 1)
    for stage, count in enumerate(DENSENET[depth]):
        for _ in range(count):
            y = b.conv(b.act(b.norm(x), "relu"), 128)
            x = b.concat(x, b.conv(y, 32, 3, norm=False, act=None))
        x = b.act(b.norm(x), "relu")
        if stage < 3:
            x = b.avg_pool(b.conv(x, x.shape[1] // 2, norm=False, act=None), 2, 2)
    return b.classifier(x)


def googlenet(b: Builder, x: Value) -> Value:
    x = b.max_pool(b.conv(x, 64, 7, 2), 3, 2, 0, ceil=True)
    x = b.max_pool(b.conv(b.conv(x, 64), 192, 3), 3, 2, 0, ceil=True)
    for part in (
        (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), 3,
        (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), 2,
        (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    ):  # fmt: skip
        if isinstance(part, int):
            x = b.max_pool(x, part, 2, 0, ceil=True)
            continue
        one, before3, three, before5, five, pooled = part
        x = b.concat(
            b.conv(x, one),
            b.conv(b.conv(x, before3), three, 3),
            b.conv(b.conv(x, before5), five, 3),  # 3x3 in torchvision
            b.conv(b.max_pool(x, 3, 1, 1), pooled),
        )
    return b.classifier(x)


def squeezenet(b: Builder, x: Value, version: str) -> Value:
    old = version == "1_0"
    x = b.conv(x, 96 if old else 64, 7 if old else 3, 2, pad=0, norm=False, bias=True)
    x = b.max_pool(x, 3, 2, ceil=True)
    pools = (2, 6) if old else (1, 3)
    for i, squeeze in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        s = b.conv(x, squeeze, norm=False, bias=True)
        x = b.concat(
            b.conv(s, 4 * squeeze, norm=False, bias=True),
            b.conv(s, 4 * squeeze, 3, norm=False, bias=True),
        )
        x = b.max_pool(x, 3, 2, ceil=True) if i in pools else x
    y: Value = ops.reduce_mean(b.conv(x, 1000, norm=False, bias=True), axes=(2, 3), keepdims=False)
    return y
