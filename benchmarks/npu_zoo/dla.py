"""CenterNet with DLA-34 without deformable convolutions, as sophon-demo publishes it."""

from __future__ import annotations

from benchmarks.npu_zoo.net import Net
from benchmarks.npu_zoo.yolo import _ended


def dla34(n: Net, x: str) -> list[str]:
    """Deep layer aggregation: feature maps of strides 4, 8, 16 and 32."""

    def block(y: str, channels: int, stride: int, skip: str) -> str:
        y = n.conv(n.conv(y, channels, 3, stride), channels, 3, act="none")
        return n.add(y, skip, "relu")

    def tree(
        levels: int, y: str, channels: int, stride: int, whole: bool, children: tuple[str, ...] = ()
    ) -> str:
        bottom = n.pool(y, stride) if stride > 1 else y
        same = n.shapes[bottom][1] == channels
        skip = bottom if same else n.conv(bottom, channels, act="none")
        children = (*children, bottom) if whole else children
        if levels == 1:
            a = block(y, channels, stride, skip)
            b = block(a, channels, 1, a)
            return n.conv(n.concat(b, a, *children), channels)
        a = tree(1, y, channels, stride, False)
        return tree(1, a, channels, 1, False, (*children, a))

    y = n.conv(n.conv(x, 16, 7), 16, 3)
    found = [tree(1, n.conv(y, 32, 3, 2), 64, 2, False)]
    for levels, channels in ((2, 128), (2, 256), (1, 512)):
        found.append(tree(levels, found[-1], channels, 2, True))
    return found


def centernet(batch: int = 1) -> Net:
    n = Net(batch=batch)
    maps = dla34(n, n.image(3, 512, 512))
    for first in (2, 1, 0):  # each round upsamples all coarser maps to this size
        channels, y, kept = n.shapes[maps[first]][1], maps[first], []
        for coarse in maps[first + 1 :]:
            z = n.conv(coarse, channels) if n.shapes[coarse][1] != channels else coarse
            factor = n.shapes[maps[first]][2] // n.shapes[z][2]
            if factor > 1:
                z = n.deconv(z, channels, 2 * factor, factor, factor // 2, groups=channels)
            y = n.conv(n.concat(y, z), channels, 3)
            kept.append(y)
        maps[first + 1 :] = kept
    heads = [n.conv(n.conv(maps[-1], 256, 3), k, act="none") for k in (80, 2, 2)]
    return _ended(n, heads)
