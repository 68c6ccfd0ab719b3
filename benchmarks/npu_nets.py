"""Networks of published speeds as graphs of NPU ops; only shapes matter.

They are rebuilt from the public architectures. `MACS` has the published sizes, to check them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.npu_layers import BYTES, Net, graph, named
from intaglio import ops as neutral
from intaglio.ir import Graph, Value, constant
from intaglio.npu import ops
from intaglio.npu.lowering.builder import is_npu
from intaglio.passes.partition import given_back


# ---- classifiers ---------------------------------------------------------------------------------
def mobilenet_v1(batch: int = 1) -> Graph:
    n = Net()
    x = n.image(3, 224, 224, batch)
    y = n.conv(x, 32, 3, 2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for channels, stride in (*plan, (1024, 2), (1024, 1)):
        y = n.conv(n.depthwise(y, 3, stride), channels)
    return graph(x, n.conv(n.mean(y), 1000, act="none"))


def mobilenet_v2(batch: int = 1) -> Graph:
    n = Net()
    x = n.image(3, 224, 224, batch)
    y = n.conv(x, 32, 3, 2)
    plan = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for widen, channels, repeats, stride in plan:
        for k in range(repeats):
            s = stride if k == 0 else 1
            z = n.conv(y, widen * y.shape[1]) if widen > 1 else y
            add = y if s == 1 and y.shape[1] == channels else None
            y = n.conv(n.depthwise(z, 3, s), channels, act="none", add=add)
    return graph(x, n.conv(n.mean(n.conv(y, 1280)), 1000, act="none"))


def resnet50(batch: int = 1, before: bool = False) -> Graph:
    """ResNet-50; `before`: v2, with batch norm and relu before each convolution of a block."""
    n = Net()
    x = n.image(3, 224, 224, batch)
    y = n.pool(n.conv(x, 64, 7, 2), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        narrow = 64 << stage
        for k in range(blocks):
            s = 2 if stage and not k else 1
            z = n.conv(y, y.shape[1], 1, deep=False) if before else y
            a = n.conv(z, narrow, 1)
            a = n.conv(a, narrow, 3, s)
            skip = n.conv(z, 4 * narrow, 1, s, act="none") if not k else y
            y = n.conv(a, 4 * narrow, 1, act="none" if before else None, add=skip)
    return graph(x, n.conv(n.mean(y), 1000, act="none"))


def lprnet(batch: int = 1) -> Graph:
    n = Net()
    x = n.image(3, 24, 94, batch)

    def block(y: Value, channels: int) -> Value:
        q = channels // 4
        y = n.conv(n.conv(y, q), q, (3, 1))
        return n.conv(n.conv(y, q, (1, 3)), channels)

    def context(f: Value) -> Value:
        """Normalisation by the mean of the squares."""
        return n.join(f, n.mean(n.join(f, f, "mul")), "mul")

    a = n.conv(x, 64, 3, pad=(0, 0))
    b = block(n.pool(a, 3, 1), 128)
    c = block(n.every(n.pool(b, 3, (1, 2)), 2), 256)
    d = block(c, 256)
    e = n.conv(n.every(n.pool(d, 3, (1, 2)), 4), 256, (1, 4), pad=(0, 0))
    f = n.conv(e, 68, (13, 1), pad=(0, 0))
    pools = [
        n.pool(y, k, s, kind="avg") for y, k, s in ((a, 5, 5), (b, 5, 5), (d, (4, 10), (4, 2)))
    ]
    y = ops.concat(*[context(p) for p in (*pools, f)])
    y = n.conv(y, 68, act="none")
    return graph(x, n.pool(y, (y.shape[2], 1), 1, kind="avg"))


# ---- detectors -----------------------------------------------------------------------------------
def _c3(n: Net, x: Value, channels: int, repeats: int, skip: bool = True) -> Value:
    a, b = n.conv(x, channels // 2), n.conv(x, channels // 2)
    for _ in range(repeats):
        fused = a if skip and n.act == "relu" else None
        made = n.conv(n.conv(a, channels // 2), channels // 2, 3, add=fused)
        # an activation stands between convolution and sum
        a = n.join(made, a) if skip and fused is None else made
    return n.conv(ops.concat(a, b), channels)


def _sppf(n: Net, x: Value, channels: int) -> Value:
    a = n.conv(x, x.shape[1] // 2)
    b = n.pool(a, 5, 1, 2)
    c = n.pool(b, 5, 1, 2)
    return n.conv(ops.concat(a, b, c, n.pool(c, 5, 1, 2)), channels)


def yolov5(
    width: float,
    act: str = "silu",
    batch: int = 1,
    size: int = 640,
    outputs: str = "sigmoid",
    turn: bool = False,
) -> Graph:
    n = Net(act)
    w = [int(c * width) for c in (64, 128, 256, 512, 1024)]
    x = n.image(3, size, size, batch)
    y = _c3(n, n.conv(n.conv(x, w[0], 6, 2, pad=(2, 2)), w[1], 3, 2), w[1], 1)
    p3 = _c3(n, n.conv(y, w[2], 3, 2), w[2], 2)
    p4 = _c3(n, n.conv(p3, w[3], 3, 2), w[3], 3)
    p5 = _sppf(n, _c3(n, n.conv(p4, w[4], 3, 2), w[4], 1), w[4])
    a = n.conv(p5, w[3])
    b = _c3(n, ops.concat(n.up(a), p4), w[3], 1, False)
    c = n.conv(b, w[2])
    o3 = _c3(n, ops.concat(n.up(c), p3), w[2], 1, False)
    o4 = _c3(n, ops.concat(n.conv(o3, w[2], 3, 2), c), w[3], 1, False)
    o5 = _c3(n, ops.concat(n.conv(o4, w[3], 3, 2), a), w[4], 1, False)
    made = [n.conv(o, 255, act=outputs) for o in (o3, o4, o5)]
    return graph(x, *[n.reordered(y) for y in made] if turn else made)


def _halves(x: Value) -> list[Value]:
    half = x.shape[1] // 2
    return [ops.slice_(x, first=first, count=half) for first in (0, half)]


def _c2f(n: Net, x: Value, channels: int, repeats: int, skip: bool) -> Value:
    half = channels // 2
    parts = _halves(n.conv(x, channels))
    for _ in range(repeats):
        h = n.conv(n.conv(parts[-1], half, 3), half, 3)
        parts.append(n.join(h, parts[-1]) if skip else h)
    return n.conv(ops.concat(*parts), channels)


def yolov8(
    width: float, batch: int = 1, masks: bool = False, size: int = 640, decoded: bool = False
) -> Graph:
    """YOLOv8; `decoded`: as its authors export it, with boxes decoded in the model."""
    n = Net("silu")
    w = [int(c * width) for c in (64, 128, 256, 512, 1024)]
    x = n.image(3, size, size, batch)
    y = _c2f(n, n.conv(n.conv(x, w[0], 3, 2), w[1], 3, 2), w[1], 1, True)
    p3 = _c2f(n, n.conv(y, w[2], 3, 2), w[2], 2, True)
    p4 = _c2f(n, n.conv(p3, w[3], 3, 2), w[3], 2, True)
    p5 = _sppf(n, _c2f(n, n.conv(p4, w[4], 3, 2), w[4], 1, True), w[4])
    b = _c2f(n, ops.concat(n.up(p5), p4), w[3], 1, False)
    o3 = _c2f(n, ops.concat(n.up(b), p3), w[2], 1, False)
    o4 = _c2f(n, ops.concat(n.conv(o3, w[2], 3, 2), b), w[3], 1, False)
    o5 = _c2f(n, ops.concat(n.conv(o4, w[3], 3, 2), p5), w[4], 1, False)
    made, c3 = [], max(w[2], 80)
    for o in (o3, o4, o5):
        made.append(n.conv(n.conv(n.conv(o, 64, 3), 64, 3), 64, act="none"))
        scores = n.conv(n.conv(n.conv(o, c3, 3), c3, 3), 80, act="sigmoid")
        made += (
            [scores] if decoded else [scores, n.conv(scores, 1, act="none")]
        )  # rknn_model_zoo adds the sum of the scores
        if masks:
            made.append(n.conv(n.conv(n.conv(o, 32, 3), 32, 3), 32, act="none"))
    made = [n.reordered(y) for y in made] if decoded else made
    if masks:
        made.append(n.conv(n.conv(n.deconv(n.conv(o3, w[2], 3), w[2]), w[2], 3), 32))
    return graph(x, *made)


def yolo11s(batch: int = 1) -> Graph:
    """YOLO11s as its authors export it, without its attention (1 % of its products)."""
    n = Net("silu")
    x = n.image(3, 640, 640, batch)

    def narrow(y: Value, channels: int) -> Value:
        return n.join(n.conv(n.conv(y, channels // 2, 3), channels, 3), y)

    def c3k(y: Value, channels: int) -> Value:
        half = channels // 2
        a, b = n.conv(y, half), n.conv(y, half)
        for _ in range(2):
            a = n.join(n.conv(n.conv(a, half, 3), half, 3), a)
        return n.conv(ops.concat(a, b), channels)

    def c3k2(y: Value, channels: int, deep: bool, hidden: int = 0) -> Value:
        c = hidden or channels // 2
        parts = _halves(n.conv(y, 2 * c))
        parts.append((c3k if deep else narrow)(parts[-1], c))
        return n.conv(ops.concat(*parts), channels)

    def attended(y: Value, channels: int) -> Value:
        """C2PSA without its attention products."""
        c = channels // 2
        a, b = _halves(n.conv(y, channels))
        values = _halves(n.conv(b, 2 * c, act="none"))[1]
        placed = n.conv(values, c, 3, deep=False, act="none", add=values)
        b = n.conv(placed, c, act="none", add=b)
        b = n.conv(n.conv(b, 2 * c), c, act="none", add=b)
        return n.conv(ops.concat(a, b), channels)

    y = c3k2(n.conv(n.conv(x, 32, 3, 2), 64, 3, 2), 128, False, 32)
    p3 = c3k2(n.conv(y, 128, 3, 2), 256, False, 64)
    p4 = c3k2(n.conv(p3, 256, 3, 2), 256, True)
    p5 = attended(_sppf(n, c3k2(n.conv(p4, 512, 3, 2), 512, True), 512), 512)
    b = c3k2(ops.concat(n.up(p5), p4), 256, False)
    o3 = c3k2(ops.concat(n.up(b), p3), 128, False)
    o4 = c3k2(ops.concat(n.conv(o3, 128, 3, 2), b), 256, False)
    o5 = c3k2(ops.concat(n.conv(o4, 256, 3, 2), p5), 512, True)
    made = []
    for o in (o3, o4, o5):
        made.append(n.conv(n.conv(n.conv(o, 64, 3), 64, 3), 64, act="none"))
        y = n.conv(n.depthwise(n.conv(n.depthwise(o, 3), 128), 3), 128)
        made.append(n.conv(y, 80, act="sigmoid"))
    return graph(x, *map(n.reordered, made))


def yolov6n(batch: int = 1) -> Graph:
    n = Net("relu")
    x = n.image(3, 640, 640, batch)

    def rep(y: Value, channels: int, repeats: int) -> Value:
        for _ in range(repeats):
            y = n.conv(y, channels, 3)
        return y

    y = rep(n.conv(n.conv(x, 16, 3, 2), 32, 3, 2), 32, 2)
    p3 = rep(n.conv(y, 64, 3, 2), 64, 4)
    p4 = rep(n.conv(p3, 128, 3, 2), 128, 6)
    p5 = _sppf(n, rep(n.conv(p4, 256, 3, 2), 256, 2), 256)
    a = n.conv(p5, 64)
    b = rep(ops.concat(n.deconv(a, 64), p4), 64, 4)
    c = n.conv(b, 32)
    o3 = rep(ops.concat(n.deconv(c, 32), p3), 32, 4)
    o4 = rep(ops.concat(n.conv(o3, 32, 3, 2), c), 64, 4)
    o5 = rep(ops.concat(n.conv(o4, 64, 3, 2), a), 128, 4)
    made = []
    for o in (o3, o4, o5):
        stem = n.conv(o, o.shape[1])
        scores = n.conv(n.conv(stem, o.shape[1], 3), 80, act="sigmoid")
        made += [scores, n.conv(scores, 1, act="none")]  # rknn_model_zoo adds the sum of the scores
        made.append(n.conv(n.conv(stem, o.shape[1], 3), 4, act="none"))
    return graph(x, *made)


def yolox_s(batch: int = 1, part: str = "whole", turn: bool = True) -> Graph:
    """YOLOX-s, or its first stage, its middle or its heads; int8 models keep two in float."""
    n = Net("silu")
    w = (32, 64, 128, 256, 512)
    if part == "heads":
        maps = [n.image(c, 640 // s, 640 // s, batch) for c, s in ((128, 8), (256, 16), (512, 32))]
        return Graph(maps, named(_yolox_heads(n, maps, turn)), name="net")
    x = n.image(12, 320, 320, batch)  # after the slices of its focus layer
    if part == "middle":
        x = y = n.image(w[1], 160, 160, batch)
    else:
        y = _c3(n, n.conv(n.conv(x, w[0], 3), w[1], 3, 2), w[1], 1)
    if part == "first":
        return graph(x, y)
    p3 = _c3(n, n.conv(y, w[2], 3, 2), w[2], 3)
    p4 = _c3(n, n.conv(p3, w[3], 3, 2), w[3], 3)
    y = n.conv(n.conv(p4, w[4], 3, 2), w[3])
    pools = [n.pool(y, k, 1, k // 2) for k in (5, 9, 13)]
    p5 = _c3(n, n.conv(ops.concat(y, *pools), w[4]), w[4], 1, False)
    a = n.conv(p5, w[3])
    b = _c3(n, ops.concat(n.up(a), p4), w[3], 1, False)
    c = n.conv(b, w[2])
    o3 = _c3(n, ops.concat(n.up(c), p3), w[2], 1, False)
    o4 = _c3(n, ops.concat(n.conv(o3, w[2], 3, 2), c), w[3], 1, False)
    o5 = _c3(n, ops.concat(n.conv(o4, w[3], 3, 2), a), w[4], 1, False)
    if part == "middle":
        return graph(x, o3, o4, o5)
    return graph(x, *_yolox_heads(n, [o3, o4, o5], turn))


def _yolox_heads(n: Net, maps: Sequence[Value], turn: bool) -> list[Value]:
    made = []
    for o in maps:
        stem = n.conv(o, 128)
        scores = n.conv(n.conv(n.conv(stem, 128, 3), 128, 3), 80, act="sigmoid")
        box = n.conv(n.conv(stem, 128, 3), 128, 3)
        made += [scores, n.conv(box, 4, act="none"), n.conv(box, 1, act="sigmoid")]
    return [n.reordered(y) for y in made] if turn else made


def retinaface(size: int, batch: int = 1, act: str = "leaky") -> Graph:
    n = Net(act)
    x = n.image(3, size, size, batch)
    y = n.conv(x, 8, 3, 2)
    plan = [
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ]
    kept = []
    for k, (channels, stride) in enumerate(plan):
        y = n.conv(n.depthwise(y, 3, stride), channels)
        if k in (4, 10, 12):
            kept.append(y)
    a, b, c = (n.conv(y, 64) for y in kept)
    b = n.conv(n.join(b, n.up(c)), 64, 3)
    a = n.conv(n.join(a, n.up(b)), 64, 3)
    made = []
    for level in (a, b, c):
        five = n.conv(level, 16, 3)
        seven = n.conv(n.conv(five, 16, 3), 16, 3, act="none")
        y = ops.concat(n.conv(level, 32, 3, act="none"), n.conv(five, 16, 3, act="none"), seven)
        made += [n.reordered(n.conv(y, k, act="none")) for k in (4, 8, 20)]
    return graph(x, *made)


def dla34(n: Net, x: Value) -> list[Value]:
    """Deep layer aggregation: feature maps of strides 4, 8, 16 and 32."""

    def block(y: Value, channels: int, stride: int, skip: Value) -> Value:
        return n.conv(n.conv(y, channels, 3, stride), channels, 3, add=skip)

    def tree(
        levels: int,
        y: Value,
        channels: int,
        stride: int,
        whole: bool,
        children: tuple[Value, ...] = (),
    ) -> Value:
        bottom = n.pool(y, stride, stride) if stride > 1 else y
        skip = bottom if y.shape[1] == channels else n.conv(bottom, channels, act="none")
        children = (*children, bottom) if whole else children
        if levels == 1:
            a = block(y, channels, stride, skip)
            b = block(a, channels, 1, a)
            return n.conv(ops.concat(b, a, *children), channels)
        a = tree(1, y, channels, stride, False)
        return tree(1, a, channels, 1, False, (*children, a))

    y = n.conv(n.conv(x, 16, 7), 16, 3)
    found = [tree(1, n.conv(y, 32, 3, 2), 64, 2, False)]
    for levels, channels in ((2, 128), (2, 256), (1, 512)):
        found.append(tree(levels, found[-1], channels, 2, True))
    return found


def centernet(batch: int = 1) -> Graph:
    """CenterNet with DLA-34 without deformable convolutions, as sophon-demo publishes it."""
    n = Net()
    x = n.image(3, 512, 512, batch)

    def up(y: Value, factor: int) -> Value:
        """A depthwise transposed convolution; the inserted zeros are computed, too."""
        pad = (factor, factor, factor - 1, factor - 1)
        return n.conv(n.up(y, factor), y.shape[1], 2 * factor, deep=False, pad=pad, act="none")

    maps = dla34(n, x)
    for first in (2, 1, 0):  # each round upsamples all coarser maps to this size
        channels, y, kept = maps[first].shape[1], maps[first], []
        for coarse in maps[first + 1 :]:
            z = n.conv(coarse, channels) if coarse.shape[1] != channels else coarse
            factor = maps[first].shape[2] // z.shape[2]
            y = n.conv(ops.concat(y, up(z, factor) if factor > 1 else z), channels, 3)
            kept.append(y)
        maps[first + 1 :] = kept
    heads = [n.conv(n.conv(maps[-1], 256, 3), k, act="none") for k in (80, 2, 2)]
    return graph(x, *heads)


# ---- transformers --------------------------------------------------------------------------------
def bert(
    tokens: int = 256, layers: int = 12, wide: int = 768, heads: int = 12, batch: int = 1
) -> Graph:
    n = Net("none")
    x = n.image(wide, tokens, 1, batch)
    y, deep = x, wide // heads
    for _ in range(layers):
        q, k, v = (n.conv(y, wide) for _ in range(3))
        mixed = []
        for h in range(heads):
            a, b, c = (ops.slice_(t, first=h * deep, count=deep) for t in (q, k, v))
            score = ops.matmul(a, b, turned=True, a_zero=0, b_zero=0, factor=1.0, **BYTES)
            mixed.append(ops.matmul(n.softmax(score), c, a_zero=0, b_zero=0, factor=1.0, **BYTES))
        y = n.join(n.conv(ops.concat(*mixed), wide), y)
        y = n.conv(n.conv(y, 4 * wide, act="gelu"), wide, add=y)
    return graph(x, y)


MAKERS: dict[str, Callable[..., Graph]] = {
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "resnet50_v2": lambda batch=1: resnet50(batch, before=True),
    "yolov5n": lambda batch=1: yolov5(0.25, batch=batch),
    "yolov5s": lambda batch=1: yolov5(0.5, batch=batch),
    "yolov5s_3output": lambda batch=1: yolov5(0.5, batch=batch, outputs="none", turn=True),
    "yolov5s_fuse": lambda batch=1: yolov5(0.5, batch=batch, outputs="none"),
    "yolov5s_tpukernel": lambda batch=1: yolov5(0.5, batch=batch, outputs="none"),
    "yolov5s_relu": lambda batch=1: yolov5(0.5, "relu", batch),
    "yolov6n": yolov6n,
    "yolov8n": lambda batch=1: yolov8(0.25, batch),
    "yolov8s": lambda batch=1: yolov8(0.5, batch),
    "yolov8s_det": lambda batch=1: yolov8(0.5, batch, decoded=True),
    "yolov8s_seg": lambda batch=1: yolov8(0.5, batch, masks=True, decoded=True),
    "yolo11s": yolo11s,
    "yolox_s": yolox_s,
    "yolox_s.first": lambda batch=1: yolox_s(batch, "first"),
    "yolox_s.middle": lambda batch=1: yolox_s(batch, "middle"),
    "yolox_s.heads": lambda batch=1: yolox_s(batch, "heads"),
    "retinaface_320": lambda batch=1: retinaface(320, batch),
    "retinaface_640": lambda batch=1: retinaface(
        640, batch, "relu"
    ),  # its activation costs as little as relu on lanes
    "centernet": centernet,
    "lprnet": lprnet,
    "bert": lambda batch=1: bert(batch=batch),
}
MACS = {  # millions of MACs, as published with the architectures
    "mobilenet_v2": 300,
    "resnet50": 4090,
    "resnet50_v2": 4100,
    "yolov5n": 2250,
    "yolov5s": 8250,
    "yolov5s_relu": 8250,
    "yolov6n": 5700,
    "yolov8n": 4350,
    "yolov8s": 14300,
    "yolov8s_seg": 21300,
    "yolo11s": 10750,
    "yolox_s": 13400,
}


def macs(g: Graph) -> int:
    """The MACs of a network."""
    from intaglio.ops.registry import REGISTRY

    found = 0
    for node in g.nodes():
        count = REGISTRY[node.op].macs
        found += count(node) if count else 0
    return found


def model(g: Graph, seed: int = 0) -> Graph:
    """The network as a quantised model in neutral ops, with random weights.

    Equal weights would be merged, and zeros are sparse weights, which take less memory.
    """
    chance = np.random.default_rng(seed)
    for node in list(g.nodes()):
        if node.op in ("npu.conv", "npu.depthwise"):
            w, bias = node.inputs[1], node.inputs[3]
            node.inputs[1] = constant(chance.integers(-127, 128, w.shape).astype(np.int8))  # type: ignore[union-attr]
            node.inputs[3] = constant(chance.integers(-999, 999, bias.shape).astype(np.int32))  # type: ignore[union-attr]
    for node in list(g.nodes()):
        if is_npu(node):
            given_back(g, node)
    for node in list(g.nodes()):
        if node.op == "lookup":
            g.replace(node.outputs[0], _silu(node.inputs[0]))  # type: ignore[arg-type]
    g.tidy()
    return g


def _silu(x: Value) -> Value:
    """SiLU of bytes, as a quantised model has it; all tables take the same time."""
    scale, zero = constant(0.05, dtype="f32"), constant(0, dtype="i8")
    y = neutral.dequantize_linear(x, scale, zero)
    y = neutral.mul(y, neutral.sigmoid(y))
    made: Value = neutral.quantize_linear(y, scale, zero, dtype="i8")
    return made


def names() -> Sequence[str]:
    return tuple(MAKERS)
