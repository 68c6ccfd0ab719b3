"""Classifiers, and networks for faces, plates, poses, videos and super-resolution."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.npu_zoo.net import Net
from benchmarks.npu_zoo.yolo import _ended


def mobilenet_v2(batch: int = 1) -> Net:
    n = Net("relu6", batch)
    y = n.conv(n.image(3, 224, 224), 32, 3, 2)
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    plan += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for widen, channels, repeats, stride in plan:
        for k in range(repeats):
            c = n.shapes[y][1]
            z = n.conv(y, widen * c) if widen > 1 else y
            z = n.conv(n.depthwise(z, 3, 1 if k else stride), channels, act="none")
            y = n.add(y, z) if k else z
    return _ended(n, [n.classifier(n.conv(y, 1280))])


def _bottleneck(n: Net, y: str, narrow: int, stride: int, first: bool) -> str:
    z = n.conv(n.conv(n.conv(y, narrow), narrow, 3, stride), 4 * narrow, act="none")
    return n.add(n.conv(y, 4 * narrow, 1, stride, act="none") if first else y, z, "relu")


def _resnet50_stages(n: Net, x: str) -> list[str]:
    y = n.pool(n.conv(x, 64, 7, 2), 3, 2, 1)
    stages = []
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for k in range(blocks):
            y = _bottleneck(n, y, 64 << stage, 2 if stage and not k else 1, not k)
        stages.append(y)
    return stages


def resnet50(batch: int = 1) -> Net:
    n = Net(batch=batch)
    return _ended(n, [n.classifier(_resnet50_stages(n, n.image(3, 224, 224))[-1])])


def resnet50_v2(batch: int = 1) -> Net:
    """Batch norm and relu stand before the convolutions of a block."""
    n = Net(batch=batch)

    def normed(y: str) -> str:
        c = n.shapes[y][1]
        four = [n.constant(np.random.default_rng(k).random(c, np.float32) + 0.5) for k in range(4)]
        return n.activation(n.add_node("BatchNormalization", [y, *four], n.shapes[y]), "relu")

    y = n.pool(n.conv(n.image(3, 224, 224), 64, 7, 2), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        narrow = 64 << stage
        for k in range(blocks):
            s = 2 if stage and not k else 1
            z = normed(y)
            skip = y if k else n.conv(z, 4 * narrow, 1, s, act="none", bias=False)
            z = n.conv(n.conv(z, narrow), narrow, 3, s)
            y = n.add(n.conv(z, 4 * narrow, act="none", bias=False), skip)
    return _ended(n, [n.classifier(normed(y))])


# ---- faces ---------------------------------------------------------------------------------------
def retinaface(backbone: str = "mobile", size: int = 320, batch: int = 1) -> Net:
    mobile = backbone == "mobile"
    n = Net("leaky" if mobile else "relu", batch)
    x = n.image(3, size, size)
    if mobile:
        y = n.conv(x, 8, 3, 2)
        plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)]
        plan += [(128, 1)] * 5 + [(256, 2), (256, 1)]
        kept = []
        for k, (channels, stride) in enumerate(plan):
            y = n.conv(n.depthwise(y, 3, stride), channels)
            if k in (4, 10, 12):
                kept.append(y)
    else:
        kept = _resnet50_stages(n, x)[1:]
    wide = 64 if mobile else 256
    n.act = "leaky" if mobile else "relu"
    a, b, c = (n.conv(y, wide) for y in kept)
    b = n.conv(n.add(b, n.up(c)), wide, 3)
    a = n.conv(n.add(a, n.up(b)), wide, 3)
    parts: list[list[str]] = [[], [], []]
    for level in (a, b, c):
        five = n.conv(level, wide // 4, 3)
        seven = n.conv(n.conv(five, wide // 4, 3), wide // 4, 3, act="none")
        y = n.concat(
            n.conv(level, wide // 2, 3, act="none"), n.conv(five, wide // 4, 3, act="none"), seven
        )
        y = n.activation(y, "relu")
        for found, count in zip(parts, (4, 2, 10), strict=True):
            z = n.transpose(n.conv(y, 2 * count, act="none"), 0, 2, 3, 1)
            found.append(n.reshape(z, batch, -1, count))
    boxes, scores, points = (n.concat(*found, axis=1) for found in parts)
    return _ended(n, [boxes, n.softmax(scores), points])


def scrfd(batch: int = 1) -> Net:
    """SCRFD-10GF with key points."""
    n = Net(batch=batch)
    x = n.image(3, 640, 640)
    y = n.conv(n.conv(n.conv(x, 28, 3, 2), 28, 3), 56, 3)
    y = n.pool(y, 3, 2, 1)
    stages = []
    for channels, blocks, stride in ((56, 3, 1), (88, 4, 2), (88, 2, 2), (224, 3, 2)):
        for k in range(blocks):
            s = 1 if k else stride
            z = n.conv(n.conv(y, channels, 3, s), channels, 3, act="none")
            skip = y
            if s > 1 or n.shapes[y][1] != channels:
                skip = n.pool(y, 2, kind="Average") if s > 1 else y
                skip = n.conv(skip, channels, act="none")
            y = n.add(skip, z, "relu")
        stages.append(y)
    a, b, c = (n.conv(y, 56, act="none") for y in stages[1:])
    b = n.add(b, n.up(c))
    a = n.add(a, n.up(b))
    a, b, c = (n.conv(y, 56, 3, act="none") for y in (a, b, c))
    b = n.add(b, n.conv(a, 56, 3, 2, act="none"))
    c = n.add(c, n.conv(b, 56, 3, 2, act="none"))
    b, c = (n.conv(y, 56, 3, act="none") for y in (b, c))
    ends = []
    for y in (a, b, c):
        for _ in range(3):
            y = n.conv(y, 80, 3)
        for count, act in ((2, "sigmoid"), (8, "none"), (20, "none")):
            z = n.transpose(n.conv(y, count, 3, act="none"), 0, 2, 3, 1)
            ends.append(n.activation(n.reshape(z, batch, -1, count // 2), act))
    return _ended(n, ends)


# ---- plates, people, videos ----------------------------------------------------------------------
def lprnet(flat: bool = False, batch: int = 1) -> Net:
    """Max pools over channels too, as 3-D pools with steps along channels.

    `flat`: as sophon-demo writes them, 2-D pools before and behind a transpose.
    """
    n = Net(batch=batch)
    x = n.image(3, 24, 94)

    def block(y: str, channels: int) -> str:
        q = channels // 4
        y = n.conv(n.conv(y, q), q, (3, 1), pad=(1, 0))
        return n.conv(n.conv(y, q, (1, 3), pad=(0, 1)), channels, act="none")

    def pool(y: str, steps: int, stride: tuple[int, int]) -> str:
        b, c, h, w = n.shapes[y]
        if flat:
            y = n.pool(y, 3, stride)
            if steps == 1:
                return y
            return n.transpose(n.pool(n.transpose(y, 0, 3, 2, 1), 1, (1, steps)), 0, 3, 2, 1)
        y = n.reshape(y, b, 1, c, h, w)
        y = n.pool(y, (1, 3, 3), (steps, *stride))
        return n.reshape(y, b, *n.shapes[y][2:])

    def context(f: str) -> str:
        square = n.add_node("Pow", [f, n.constant(np.float32(2))], n.shapes[f])
        mean = n.add_node("ReduceMean", [square], (1,) * 4, keepdims=1, axes=[0, 1, 2, 3])
        return n.add_node("Div", [f, mean], n.shapes[f])

    a = n.conv(x, 64, 3, pad=0)
    b = n.activation(block(pool(a, 1, (1, 1)), 128), "relu")
    c = n.activation(block(pool(b, 2, (1, 2)), 256), "relu")
    d = n.activation(block(c, 256), "relu")
    e = n.conv(pool(d, 4, (1, 2)), 256, (1, 4), pad=0)
    f = n.conv(e, 68, (13, 1), pad=0)
    pools = [
        n.pool(y, k, s, kind="Average") for y, k, s in ((a, 5, 5), (b, 5, 5), (d, (4, 10), (4, 2)))
    ]
    y = n.conv(n.concat(*[context(p) for p in (*pools, f)]), 68, act="none")
    y = n.reduce("ReduceMean", y, 2)
    return _ended(n, [n.reshape(y, batch, 68, -1)])


def extractor(batch: int = 1) -> Net:
    """The embedding of people of Deep SORT in PyTorch."""
    n = Net(batch=batch)
    y = n.pool(n.conv(n.image(3, 128, 64), 64, 3), 3, 2, 1)
    for channels, stride in (
        (64, 1),
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        (512, 1),
    ):
        z = n.conv(n.conv(y, channels, 3, stride), channels, 3, act="none")
        if stride > 1:
            y = n.conv(y, channels, 1, 2, act="none")
        y = n.add(y, z, "relu")
    y = n.reshape(n.pool(y, (8, 4), 1, kind="Average"), batch, 512)
    norm = n.add_node("ReduceL2", [y], (batch, 1), axes=[1], keepdims=1)
    return _ended(n, [n.add_node("Div", [y, norm], (batch, 512))])


def c3d(batch: int = 1) -> Net:
    n = Net(batch=batch)
    y = n.input((batch, 3, 16, 112, 112))
    for k, (channels, count) in enumerate(((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))):
        for _ in range(count):
            y = n.conv(y, channels, 3)
        pad = (0, 1, 1, 0, 1, 1) if k == 4 else 0
        y = n.pool(y, (2 if k else 1, 2, 2), pad=pad)
    y = n.reshape(y, batch, 8192)
    for wide in (4096, 4096, 101):
        gemm = [y, n.weights(wide, n.shapes[y][1]), n.weights(wide)]
        y = n.add_node("Gemm", gemm, (batch, wide), transB=1)
        y = n.activation(y, "relu" if wide > 101 else "none")
    return _ended(n, [y])


# ---- VGG and its children ------------------------------------------------------------------------
def openpose(batch: int = 1) -> Net:
    """The COCO model: ten layers of VGG-19 and six stages of two branches."""
    n = Net(batch=batch)
    y = n.image(3, 368, 368)
    for channels, count in ((64, 2), (128, 2), (256, 4)):
        for _ in range(count):
            y = n.conv(y, channels, 3)
        y = n.pool(y, 2)
    for channels in (512, 512, 256, 128):
        y = n.conv(y, channels, 3)
    features = x = y
    for stage in range(6):
        found = []
        for ends in (38, 19):
            z = x
            for _ in range(5 if stage else 3):
                z = n.conv(z, 128, 7 if stage else 3)
            z = n.conv(z, 128 if stage else 512)
            found.append(n.conv(z, ends, act="none"))
        x = n.concat(*found, features)
    return _ended(n, [n.concat(found[1], found[0])])


def p2pnet(batch: int = 1) -> Net:
    n = Net(batch=batch)
    y = n.image(3, 512, 512)
    kept = []
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            y = n.conv(y, channels, 3)
        kept.append(y := n.pool(y, 2))
    c4, c5 = kept[3:]
    p5 = n.conv(c5, 256, act="none")
    p4 = n.add(n.conv(c4, 256, act="none"), n.up(p5))
    y = n.conv(p4, 256, 3, act="none")
    ends = []
    for count in (2 * 4, 2 * 4):
        z = n.conv(n.conv(y, 256, 3), 256, 3)
        z = n.transpose(n.conv(z, count, 3, act="none"), 0, 2, 3, 1)
        ends.append(n.reshape(z, batch, -1, 2))
    points = n.add(
        n.mul(ends[0], n.constant(np.float32(100))), n.weights(1, n.shapes[ends[0]][1], 2)
    )
    return _ended(n, [n.softmax(ends[1]), points])


def superpoint(batch: int = 1) -> Net:
    """SuperPoint with the suppression of points that are near stronger ones, at 360 x 640."""
    n = Net(batch=batch)
    y = n.image(1, 360, 640)
    for k, channels in enumerate((64, 64, 128, 128)):
        y = n.conv(n.conv(y, channels, 3), channels, 3)
        y = n.pool(y, 2) if k < 3 else y
    scores = n.softmax(n.conv(n.conv(y, 256, 3), 65, act="none"), 1)
    scores = n.transpose(n.slice(scores, 0, 64, 1), 0, 2, 3, 1)
    scores = n.transpose(n.reshape(scores, batch, 45, 80, 8, 8), 0, 1, 3, 2, 4)
    scores = _suppressed(n, n.reshape(scores, batch, 360, 640))
    far = n.conv(n.conv(y, 256, 3), 256, act="none")
    norm = n.add_node("ReduceL2", [far], (batch, 1, 45, 80), axes=[1], keepdims=1)
    return _ended(n, [scores, n.add_node("Div", [far, norm], n.shapes[far])])


def _suppressed(n: Net, scores: str, radius: int = 4) -> str:
    """Zeros where a stronger point is near: a first choice, then two among what that leaves."""
    b, h, w = shape = n.shapes[scores]
    zeros = n.constant(np.zeros(shape, np.float32))

    def near(y: str) -> str:
        y = n.pool(n.reshape(y, b, 1, h, w), 2 * radius + 1, 1, radius)
        return n.reshape(y, *shape)

    def cast(y: str, to: int) -> str:
        return n.add_node("Cast", [y], shape, to=to)

    chosen = n.add_node("Equal", [scores, near(scores)], shape)
    for _ in range(2):
        covered = n.add_node("Greater", [near(cast(chosen, TensorProto.FLOAT)), zeros], shape)
        left = n.add_node("Where", [covered, zeros, scores], shape)
        more = n.add_node("Equal", [left, near(left)], shape)
        more = n.add_node("And", [more, n.add_node("Not", [covered], shape)], shape)
        parts = [cast(y, TensorProto.INT32) for y in (chosen, more)]
        chosen = cast(n.add_node("Add", parts, shape), TensorProto.BOOL)
    return n.add_node("Where", [chosen, scores, zeros], shape)


def real_esrgan(batch: int = 1) -> Net:
    """realesr-general-x4v3: 32 convolutions with PReLU, then a pixel shuffle."""
    n = Net("prelu", batch)
    x = n.image(3, 480, 640)
    y = n.conv(x, 64, 3)
    for _ in range(32):
        y = n.conv(y, 64, 3)
    y = n.conv(y, 48, 3, act="none")
    y = n.add_node("DepthToSpace", [y], (batch, 3, 1920, 2560), blocksize=4, mode="CRD")
    return _ended(n, [n.add(y, n.up(x, 4))])


def hrnet(batch: int = 1) -> Net:
    """HRNet-W32 for poses."""
    n = Net(batch=batch)
    y = n.conv(n.conv(n.image(3, 256, 192), 64, 3, 2), 64, 3, 2)
    for k in range(4):
        y = _bottleneck(n, y, 64, 1, not k)
    maps = [n.conv(y, 32, 3), n.conv(y, 64, 3, 2)]
    for modules, branches in ((1, 2), (4, 3), (3, 4)):
        if branches > len(maps):
            maps.append(n.conv(maps[-1], 2 * n.shapes[maps[-1]][1], 3, 2))
        for m in range(modules):
            maps = [_basic(n, y) for y in maps]
            only = branches == 4 and m == modules - 1
            maps = [_exchanged(n, maps, i) for i in range(1 if only else len(maps))]
    return _ended(n, [n.conv(maps[0], 17, act="none")])


def _basic(n: Net, y: str) -> str:
    c = n.shapes[y][1]
    for _ in range(4):
        y = n.add(n.conv(n.conv(y, c, 3), c, 3, act="none"), y, "relu")
    return y


def _exchanged(n: Net, maps: list[str], i: int) -> str:
    c = n.shapes[maps[i]][1]
    y = ""
    for j, z in enumerate(maps):
        if j > i:
            z = n.up(n.conv(z, c, act="none"), 2 ** (j - i))
        for k in range(i - j):
            last = k == i - j - 1
            z = n.conv(z, c if last else n.shapes[z][1], 3, 2, act="none" if last else None)
        y = n.add(y, z) if y else z
    return n.activation(y, "relu")


# ---- darknet -------------------------------------------------------------------------------------
def yolov3(size: int = 640, classes: int = 85, act: str = "silu", batch: int = 1) -> Net:
    n = Net(act, batch)
    y = n.conv(n.image(3, size, size), 32, 3)
    kept = []
    for channels, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        y = n.conv(y, channels, 3, 2)
        for _ in range(count):
            y = n.add(y, n.conv(n.conv(y, channels // 2), channels, 3))
        kept.append(y)
    ends, y = [], kept[-1]
    for k, channels in enumerate((512, 256, 128)):
        if k:
            y = n.concat(n.up(n.conv(y, channels)), kept[-1 - k])
        for _ in range(2):
            y = n.conv(n.conv(y, channels), 2 * channels, 3)
        y = n.conv(y, channels)
        z = n.conv(n.conv(y, 2 * channels, 3), 3 * classes, act="none")
        b, _, h, w = n.shapes[z]
        ends.append(n.transpose(n.reshape(z, b, 3, classes, h, w), 0, 1, 3, 4, 2))
    return _ended(n, ends)


def yolov4(size: int = 416, batch: int = 1) -> Net:
    n = Net("mish", batch)
    y = n.conv(n.image(3, size, size), 32, 3)
    kept = []
    for channels, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        y = n.conv(y, channels, 3, 2)
        half = channels if channels == 64 else channels // 2
        a, b = n.conv(y, half), n.conv(y, half)
        for _ in range(count):
            b = n.add(b, n.conv(n.conv(b, channels // 2), half, 3))
        y = n.conv(n.concat(n.conv(b, half), a), channels)
        kept.append(y)
    n.act = "leaky"

    def five(y: str, c: int) -> str:
        for k in range(5):
            y = n.conv(y, 2 * c, 3) if k % 2 else n.conv(y, c)
        return y

    y = n.conv(n.conv(n.conv(kept[4], 512), 1024, 3), 512)
    y = n.concat(*[n.pool(y, k, 1, k // 2) for k in (13, 9, 5)], y)
    p5 = n.conv(n.conv(n.conv(y, 512), 1024, 3), 512)
    p4 = five(n.concat(n.conv(kept[3], 256), n.up(n.conv(p5, 256))), 256)
    p3 = five(n.concat(n.conv(kept[2], 128), n.up(n.conv(p4, 128))), 128)
    o4 = five(n.concat(n.conv(p3, 256, 3, 2), p4), 256)
    o5 = five(n.concat(n.conv(o4, 512, 3, 2), p5), 512)
    ends = []
    for o in (p3, o4, o5):
        z = n.conv(n.conv(o, 2 * n.shapes[o][1], 3), 255, act="none")
        b, _, h, w = n.shapes[z]
        ends.append(n.transpose(n.reshape(z, b, 3, 85, h, w), 0, 1, 3, 4, 2))
    return _ended(n, ends)


# ---- PP-YOLOE ------------------------------------------------------------------------------------
def ppyoloe(width: float = 0.5, depth: float = 0.33, tail: str = "maps", batch: int = 1) -> Net:
    n = Net("silu", batch)
    w = [max(round(c * width), 1) for c in (64, 128, 256, 512, 1024)]
    r = [max(round(k * depth), 1) for k in (3, 6, 6, 3)]

    def ese(y: str) -> str:
        return n.mul(y, n.conv(n.mean(y), n.shapes[y][1], act="hsigmoid"))

    def csp(y: str, out: int, repeats: int, skip: bool) -> str:
        half = n.shapes[y][1] // 2 if skip else out // 2
        a, b = n.conv(y, half), n.conv(y, half)
        for _ in range(repeats):
            z = n.conv(n.conv(b, half, 3), half, 3)
            b = n.add(b, z) if skip else z
        y = n.concat(a, b)
        return n.conv(ese(y) if skip else y, out)

    x = n.image(3, 640, 640)
    y = n.conv(n.conv(n.conv(x, w[0] // 2, 3, 2), w[0] // 2, 3), w[0], 3)
    kept = []
    for k in range(4):
        y = n.conv(y, (w[k] + w[k + 1]) // 2, 3, 2)
        y = csp(y, w[k + 1], r[k], True)
        kept.append(y)
    c3, c4, c5 = kept[1:]

    def stage(y: str, out: int, spp: bool = False) -> str:
        half = out // 2
        a, b = n.conv(y, half), n.conv(y, half)
        for k in range(r[0]):
            b = n.conv(n.conv(b, half, 3), half, 3)
            if spp and k == (r[0] - 1) // 2:
                b = n.conv(n.concat(b, *[n.pool(b, m, 1, m // 2) for m in (5, 9, 13)]), half)
        return n.conv(n.concat(a, b), out)

    t = [round(c * width) for c in (768, 384, 192)]
    p5 = stage(c5, t[0], True)
    p4 = stage(n.concat(n.up(n.conv(p5, t[0] // 2)), c4), t[1])
    p3 = stage(n.concat(n.up(n.conv(p4, t[1] // 2)), c3), t[2])
    o4 = stage(n.concat(n.conv(p3, t[2], 3, 2), p4), t[1])
    o5 = stage(n.concat(n.conv(o4, t[1], 3, 2), p5), t[0])
    ends = []
    for o in (p3, o4, o5):
        c = n.shapes[o][1]
        mean = n.mean(o)
        a = n.conv(n.mul(o, n.conv(mean, c, act="sigmoid")), c)
        scores = n.conv(n.add(a, o), 80, 3, act="sigmoid")
        b = n.conv(n.mul(o, n.conv(mean, c, act="sigmoid")), c)
        b = n.conv(b, 68, 3, act="none")
        if tail == "maps":
            ends += [b, scores, n.clip(n.reduce("ReduceSum", scores, 1), 0.0, 1.0)]
        else:
            _, _, h, v = n.shapes[o]
            b = n.transpose(n.reshape(b, batch, 4, 17, h * v), 0, 2, 3, 1)
            b = n.conv(n.softmax(b, 1), 1, act="none", bias=False)
            ends += [n.reshape(scores, batch, 80, -1), n.reshape(b, batch, -1, 4)]
    if tail == "boxes":
        ends = [n.concat(*ends[::2], axis=2), n.concat(*ends[1::2], axis=1)]
    return _ended(n, ends)
