"""YOLOv5s and YOLOv8n as published, from pixels to boxes; only the suppression is left out.

The two share their plan (backbone, up path, down path); they differ in the block that they stack
and in the head: v5 decodes anchors, v8 takes the mean of a distribution over distances.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import ConvNorm

STRIDES = (8, 16, 32)
CLASSES = 80


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> ConvNorm:
    return ConvNorm(inputs, outputs, kernel, stride, activation=nn.SiLU)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, first: int, add: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels, first), conv(channels, channels, 3))
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.add else self.body(x)


class C3(nn.Module):
    """v5's block: bottlenecks on one half, a shortcut on the other."""

    def __init__(self, inputs: int, outputs: int, count: int, add: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.left, self.right = conv(inputs, half), conv(inputs, half)
        self.body = nn.Sequential(*[Bottleneck(half, 1, add) for _ in range(count)])
        self.merge = conv(2 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(torch.cat([self.body(self.left(x)), self.right(x)], 1))


class C2f(nn.Module):
    """v8's block: every bottleneck's output goes to the end."""

    def __init__(self, inputs: int, outputs: int, count: int, add: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = conv(inputs, 2 * half)
        self.body = nn.ModuleList([Bottleneck(half, 3, add) for _ in range(count)])
        self.merge = conv((2 + count) * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.body:
            parts.append(block(parts[-1]))
        return self.merge(torch.cat(parts, 1))


class Spp(nn.Module):
    """Maxima over growing windows, each pooled from the last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter, self.pool = conv(channels, channels // 2), nn.MaxPool2d(5, 1, 2)
        self.merge = conv(channels * 2, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.merge(torch.cat(parts, 1))


class Yolo(nn.Module):
    """Backbone, up path, down path, head; `block` and `lateral` tell the versions apart."""

    def __init__(
        self,
        block: type,
        depths: tuple[int, ...],
        width: int,
        head: nn.Module,
        stem: nn.Module,
        lateral: bool,
    ) -> None:
        super().__init__()
        w2, w3, w4, w5 = (width << i for i in range(1, 5))
        self.stem = nn.Sequential(
            stem,
            conv(width, w2, 3, 2),
            block(w2, w2, depths[0], True),
            conv(w2, w3, 3, 2),
            block(w3, w3, depths[1], True),
        )
        self.p4 = nn.Sequential(conv(w3, w4, 3, 2), block(w4, w4, depths[2], True))
        self.p5 = nn.Sequential(conv(w4, w5, 3, 2), block(w5, w5, depths[3], True), Spp(w5))
        self.up = nn.Upsample(scale_factor=2)
        # v5 halves the channels on the way up; v8 concatenates them as they are.
        self.reduce5 = conv(w5, w4) if lateral else nn.Identity()
        self.reduce4 = conv(w4, w3) if lateral else nn.Identity()
        u5, u4 = (w4, w3) if lateral else (w5, w4)
        self.up4 = block(u5 + w4, w4, depths[0], False)
        self.up3 = block(u4 + w3, w3, depths[0], False)
        self.down3, self.down4 = conv(w3, w3, 3, 2), conv(w4, w4, 3, 2)
        self.out4 = block(w3 + u4, w4, depths[0], False)
        self.out5 = block(w4 + u5, w5, depths[0], False)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.stem(x)
        p4 = self.p4(p3)
        r5 = self.reduce5(self.p5(p4))
        r4 = self.reduce4(self.up4(torch.cat([self.up(r5), p4], 1)))
        out3 = self.up3(torch.cat([self.up(r4), p3], 1))
        out4 = self.out4(torch.cat([self.down3(out3), r4], 1))
        out5 = self.out5(torch.cat([self.down4(out4), r5], 1))
        return self.head([out3, out4, out5])


def centres(size: int, stride: int) -> Tensor:
    """x and y of every cell's middle, in cells: 1 x 2 x size x size."""
    at = torch.arange(size // stride, dtype=torch.float32) + 0.5
    y, x = torch.meshgrid(at, at, indexing="ij")
    return torch.stack([x, y])[None]


class AnchorHead(nn.Module):
    """v5: per cell three anchors, each scaled and moved by the net, with a score per class."""

    ANCHORS = ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326))

    def __init__(self, channels: tuple[int, ...], size: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(c, 3 * (5 + CLASSES), 1) for c in channels])
        for i, stride in enumerate(STRIDES):
            grid = centres(size, stride).permute(0, 2, 3, 1)[:, None] - 1.0
            anchors = torch.tensor(self.ANCHORS[i], dtype=torch.float32).view(1, 3, 1, 1, 2)
            self.register_buffer(f"grid{i}", grid)
            self.register_buffer(f"anchors{i}", anchors)

    def forward(self, levels: list[Tensor]) -> Tensor:
        boxes = []
        for i, (x, layer) in enumerate(zip(levels, self.convs, strict=True)):
            n, _, h, w = x.shape
            y = layer(x).view(n, 3, 5 + CLASSES, h, w).permute(0, 1, 3, 4, 2).contiguous()
            xy, wh, scores = y.sigmoid().split((2, 2, 1 + CLASSES), 4)
            xy = (xy * 2 + getattr(self, f"grid{i}")) * STRIDES[i]
            wh = (wh * 2) ** 2 * getattr(self, f"anchors{i}")
            boxes.append(torch.cat([xy, wh, scores], 4).view(n, 3 * h * w, 5 + CLASSES))
        return torch.cat(boxes, 1)


class DistanceHead(nn.Module):
    """v8: per cell the distances to four sides, each the mean of a distribution over 16 bins."""

    BINS = 16

    def __init__(self, channels: tuple[int, ...], size: int) -> None:
        super().__init__()
        box, cls = max(16, channels[0] // 4, 4 * self.BINS), max(channels[0], min(CLASSES, 100))
        self.sides = nn.ModuleList([self._branch(c, box, 4 * self.BINS) for c in channels])
        self.classes = nn.ModuleList([self._branch(c, cls, CLASSES) for c in channels])
        self.register_buffer("bins", torch.arange(self.BINS).float().view(1, self.BINS, 1, 1))
        self.register_buffer(
            "centres", torch.cat([centres(size, s).flatten(2) for s in STRIDES], 2)
        )
        cells = [torch.full((1, 1, (size // s) ** 2), float(s)) for s in STRIDES]
        self.register_buffer("strides", torch.cat(cells, 2))

    @staticmethod
    def _branch(inputs: int, hidden: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            conv(inputs, hidden, 3), conv(hidden, hidden, 3), nn.Conv2d(hidden, outputs, 1)
        )

    def forward(self, levels: list[Tensor]) -> Tensor:
        maps = []
        for x, side, cls in zip(levels, self.sides, self.classes, strict=True):
            y = torch.cat([side(x), cls(x)], 1)
            maps.append(y.view(y.shape[0], 4 * self.BINS + CLASSES, -1))
        boxes, scores = torch.cat(maps, 2).split((4 * self.BINS, CLASSES), 1)
        n, _, cells = boxes.shape
        shares = boxes.view(n, 4, self.BINS, cells).transpose(2, 1).softmax(1)
        distances = nn.functional.conv2d(shares, self.bins).view(n, 4, cells)
        before, after = distances.chunk(2, 1)
        low, high = self.centres - before, self.centres + after
        box = torch.cat([(low + high) / 2, high - low], 1) * self.strides
        return torch.cat([box, scores.sigmoid()], 1)


def yolov5s(size: int) -> nn.Module:
    stem = ConvNorm(3, 32, 6, 2, activation=nn.SiLU, pad=2)
    return Yolo(C3, (1, 2, 3, 1), 32, AnchorHead((128, 256, 512), size), stem, lateral=True)


def yolov8n(size: int) -> nn.Module:
    stem = conv(3, 16, 3, 2)
    return Yolo(C2f, (1, 2, 2, 1), 16, DistanceHead((64, 128, 256), size), stem, lateral=False)
