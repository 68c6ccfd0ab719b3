"""Random layers and small networks of f16, bf16 and f32 for Sophgo's chips."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.bm1684x import float_ops, float_windows
from intaglio.npu.chips.bm1684x.cut import Lowered, Port
from intaglio.npu.chips.bm1684x.float_functions import function
from intaglio.npu.chips.bm1684x.function_steps import FUNCTIONS
from intaglio.npu.chips.bm1684x.variants import Variant

TYPES = ("f16", "bf16", "f32")
KINDS = ("conv", "depthwise", "pool", "arithmetic", "function", "matmul", "chain")


def numbers(rng: np.random.Generator, dtype: str, *shape: int) -> Value:
    return constant(rng.standard_normal(shape).astype(dtypes.numpy_of(dtype)))


def cast(x: Value, dtype: str) -> Value:
    return x if x.dtype == dtype else float_ops.cast(x, dtype=dtype)


def window(rng: np.random.Generator, kernel: tuple[int, int]) -> dict:
    dilation = tuple(int(rng.integers(1, 3)) if rng.random() < 0.3 else 1 for _ in range(2))
    return {
        "stride": tuple(int(n) for n in rng.integers(1, 4, 2)),
        "dilation": dilation,
        "pad": tuple(int(rng.integers(0, kernel[i % 2])) for i in range(4)),
    }


def convolution(rng: np.random.Generator, x: Value, block: int) -> Value:
    outs, kernel = int(rng.integers(1, 150)), tuple(int(n) for n in rng.integers(1, 5, 2))
    w = numbers(rng, x.dtype, outs, x.shape[1], *kernel)
    bounds = [{}, {"least": 0.0}, {"least": 0.0, "most": 6.0}][int(rng.integers(3))]
    given = x, w, numbers(rng, "f32", outs)
    return float_windows.float_conv(*given, block=block, **window(rng, kernel), **bounds)


def layer(seed: int, chip: Variant, dtype: str = "", kind: str = "") -> Lowered:
    """A random layer between casts from and to f32."""
    rng = np.random.default_rng(seed)
    kind = kind or KINDS[seed % len(KINDS)]
    dtype = dtype or TYPES[seed // len(KINDS) % len(TYPES)]
    channels = int(rng.choice([1, 3, 20, 33, 64, 65, 130, 200]))
    height, width = (int(n) for n in rng.integers(9, 40, 2))
    block = chip.inputs_at_once // 2
    given = [Value(Type("f32", (1, channels, height, width)), "x")]
    x = cast(given[0], dtype)
    match kind:
        case "conv":
            y = convolution(rng, x, block)
        case "depthwise":
            kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
            w, b = (numbers(rng, dtype, *s) for s in ((channels, 1, *kernel), (channels,)))
            y = float_windows.float_depthwise(x, w, b, **window(rng, kernel), most=2.5)
        case "pool":
            kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
            how = {"kind": ("max", "avg")[seed % 2], "count_include_pad": bool(rng.integers(2))}
            y = float_windows.float_pool(x, kernel=kernel, **window(rng, kernel), **how)
        case "arithmetic":
            small = [(channels, height, width), (channels, 1, 1), (1, height, width), (1, 1, width)]
            given.append(Value(Type("f32", (1, *small[int(rng.integers(4))])), "z"))
            other = cast(given[1], dtype)
            y = float_ops.arithmetic(x, other, kind=float_ops.KINDS[int(rng.integers(5))], most=3.0)
        case "function":
            name = list(FUNCTIONS)[seed // len(KINDS) % len(FUNCTIONS)]
            y = function(function(x, name="abs") if name == "sqrt" else x, name=name)
        case "matmul":
            given[0] = Value(Type("f32", (2, channels, height, 1)), "x")
            given.append(Value(Type("f32", (2, int(rng.integers(1, 140)), channels, 1)), "z"))
            y = float_ops.float_matmul(*(cast(v, dtype) for v in given), block=block)
        case _:
            first = convolution(rng, x, block)
            second = function(first, name="swish")
            y = float_ops.arithmetic(first, second, kind="add", least=0.0)
            y = convolution(rng, y, block)
    out = cast(y, "f32")
    graph = Graph(given, [out], output_names=["y"])
    ports = [Port(v.name, "f32", v.shape, 1.0, 0) for v in given]
    return Lowered(graph, ports, [Port("y", "f32", out.shape, 1.0, 0)])


# ---- networks ------------------------------------------------------------------------------------
class FloatNetwork:
    """Builds a float network with random weights."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def conv(self, x: Value, outs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Value:
        ins, pad = x.shape[1] // groups, size // 2
        w = self.rng.standard_normal((outs, ins, size, size)) / np.sqrt(ins * size * size / 2)
        b = self.rng.standard_normal(outs) / 8
        window = {"stride": (stride,) * 2, "pad": (pad,) * 4, "dilation": (1, 1)}
        given = (constant(a.astype(np.float32)) for a in (w, b))
        return ops.conv(x, *given, groups=groups, **window)

    def transposed(self, x: Value, groups: int) -> Value:
        """A transposed convolution with a random window."""
        stride, outs = int(self.rng.choice([1, 2, 2, 3])), x.shape[1]
        size = int(self.rng.integers(stride, 6))
        w = self.rng.standard_normal((x.shape[1], outs // groups, size, size)) / size
        b = self.rng.standard_normal(outs) / 8
        window = {"stride": (stride,) * 2, "pad": (size // 3,) * 4, "dilation": (1, 1)}
        more = (int(self.rng.integers(0, stride)),) * 2
        given = (constant(a.astype(np.float32)) for a in (w, b))
        return ops.conv_transpose(x, *given, output_pad=more, groups=groups, **window)

    def linear(self, x: Value, outs: int) -> Value:
        w = self.rng.standard_normal((x.shape[-1], outs)) / np.sqrt(x.shape[-1])
        return ops.matmul(x, constant(w.astype(np.float32)))


def small_cnn(seed: int = 0, size: int = 20) -> Graph:
    """Convolutions of all kinds, functions, a residual, a gate, pools, concat, resize, softmax."""
    net = FloatNetwork(seed)
    x = Value(Type("f32", (1, 3, size, size)), "x")
    a = ops.relu(net.conv(x, 24, 3, 2))
    b = ops.clip(net.conv(a, 24, 3, 1, groups=24), lo=0.0, hi=6.0)
    b = ops.relu(ops.add(net.conv(b, 24, 1), a))
    gate = ops.sigmoid(net.conv(ops.reduce_mean(b, axes=(2, 3), keepdims=True), 24, 1))
    c = ops.swish(net.conv(ops.mul(b, gate), 40, 3, 1, groups=4))
    window = {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    d = ops.hardswish(ops.max_pool(c, **window))
    up = ops.resize(
        d,
        axes=(2, 3),
        shape=c.shape[2:],
        scales=(2.0, 2.0),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    e = net.conv(ops.concat(up, c, axis=1), 16, 1)
    f = ops.avg_pool(ops.gelu(e), **{**window, "pad": (1, 1, 1, 1), "kernel": (3, 3)})
    rows = ops.reshape(f, shape=(1, 16, f.type.size // 16))
    tokens = ops.transpose(rows, perm=(0, 2, 1))
    scores = ops.softmax(ops.matmul(net.linear(tokens, 16), rows), axis=-1)
    mixed = ops.add(ops.matmul(scores, tokens), constant(np.float32([0.5])))
    y = net.linear(ops.layer_norm(mixed, axis=-1), 10)
    return Graph([x], [y, ops.mul(e, constant(np.float32(0.5)))], output_names=["y", "e"])


def upsampling(seed: int) -> Graph:
    """A transposed convolution or an interpolating resize between convolutions."""
    net = FloatNetwork(seed)
    rng = net.rng
    size = (int(n) for n in rng.integers(5, 20, 2))
    x = Value(Type("f32", (1, int(rng.integers(1, 9)), *size)), "x")
    a = ops.relu(net.conv(x, int(rng.choice([4, 12, 24, 72]))))
    if seed % 2:
        kind, scale = str(rng.choice(["linear", "linear", "cubic"])), float(rng.choice([1.5, 2, 3]))
        places = str(rng.choice(["half_pixel", "align_corners", "asymmetric"]))
        how = {"mode": kind, "coordinate_transformation_mode": places, "scales": (scale, scale)}
        shape = tuple(int(n * scale) for n in a.shape[2:])
        y = ops.resize(a, axes=(2, 3), shape=shape, **how)
    else:
        y = net.transposed(a, groups=int(rng.choice([1, 1, 4, a.shape[1]])))
    return Graph([x], [net.conv(ops.relu(y), 8, 1)], output_names=["y"])


def mobilenet_v2(size: int = 224) -> Graph:
    """MobileNetV2 with random weights."""
    net = FloatNetwork(1)
    x = Value(Type("f32", (1, 3, size, size)), "x")

    def relu6(v: Value) -> Value:
        return ops.clip(v, lo=0.0, hi=6.0)

    v = relu6(net.conv(x, 32, 3, 2))
    rows = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)
    for grow, outs, count, stride in (*rows, (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(count):
            wide = grow * v.shape[1]
            inner = relu6(net.conv(v, wide, 1)) if grow > 1 else v
            inner = relu6(net.conv(inner, wide, 3, 1 if k else stride, groups=wide))
            inner = net.conv(inner, outs, 1)
            v = ops.add(v, inner) if k else inner
    v = ops.reduce_mean(relu6(net.conv(v, 1280, 1)), axes=(2, 3), keepdims=False)
    return Graph([x], [net.linear(v, 1000)], output_names=["y"])


def resnet18(size: int = 224) -> Graph:
    """ResNet-18 with random weights."""
    net = FloatNetwork(2)
    x = Value(Type("f32", (1, 3, size, size)), "x")
    window = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    v = ops.max_pool(ops.relu(net.conv(x, 64, 7, 2)), **window)
    for stage, outs in enumerate((64, 128, 256, 512)):
        for k in range(2):
            stride = 2 if stage and not k else 1
            inner = net.conv(ops.relu(net.conv(v, outs, 3, stride)), outs)
            same = v if stride == 1 else net.conv(v, outs, 1, 2)
            v = ops.relu(ops.add(inner, same))
    v = ops.reduce_mean(v, axes=(2, 3), keepdims=False)
    return Graph([x], [net.linear(v, 1000)], output_names=["y"])
