"""Transformers with random weights, and random f32 layers and products of two activations."""

from __future__ import annotations

import math

import numpy as np
from tests.npu.chips.k210.quantized_cnn import Cnn

import intaglio
from intaglio import dtypes, ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.compile import compile_layers
from intaglio.npu.chips.bm1684x.cut import Lowered, Port
from intaglio.npu.ops import matmul, relayout
from intaglio.targets.chip import Chip

KINDS = ("layer_norm", "softmax", "masked", "arithmetic", "quantize", "dequantize")
KINDS += ("float_matmul", "matmul", "permute", "join", "cut", "repeat")
BYTES = ("i8", "u8")


# ---- layers --------------------------------------------------------------------------------------
def float_layer(seed: int) -> Lowered:
    """One layer of a random size; kinds take turns."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    n, c = int(rng.integers(1, 4)), int(rng.choice([1, 5, 64, 70, 200]))
    h, w = int(rng.integers(1, 60)), int(rng.integers(1, 9))
    column = n, c, h, 1
    x = Value(Type("f32", column if kind in ("softmax", "masked") else (n, c, h, w)), "x")
    inputs = [x]
    if kind == "layer_norm":
        gamma, beta = (constant(rng.standard_normal(c).astype(np.float32)) for _ in range(2))
        y = float_ops.layer_norm(x, gamma, beta, epsilon=float(rng.choice([1e-12, 1e-5])))
    elif kind in ("softmax", "masked"):
        inputs += [Value(Type("f32", (n, 1, h, 1)), "mask")] if kind == "masked" else []
        y = float_ops.softmax(*inputs, scale=float(rng.uniform(0.05, 2)))
    elif kind == "arithmetic":
        inputs.append(Value(x.type, "other"))
        y = float_ops.arithmetic(*inputs, kind=str(rng.choice(float_ops.KINDS)))
    elif kind == "quantize":
        dtype = str(rng.choice(BYTES))
        zero = int(rng.choice([0, 5, 100]))
        y = float_ops.quantize(x, scale=float(rng.uniform(0.01, 0.1)), y_zero=zero, dtype=dtype)
    elif kind == "dequantize":
        inputs = [Value(Type(str(rng.choice(BYTES)), x.shape), "x")]
        zero = int(rng.choice([0, 5]))
        y = float_ops.dequantize(inputs[0], scale=float(rng.uniform(0.01, 0.1)), x_zero=zero)
    elif kind in ("float_matmul", "matmul"):
        inputs, y = _product(rng, kind == "matmul", n, c, h)
    else:
        y = _moved(rng, kind, x)
    graph = Graph(inputs, [y], ["y"], f"layer{seed}")
    ports = [Port(v.name, v.dtype, v.shape, 1.0, 0) for v in inputs]
    return Lowered(graph, ports, [Port("y", y.dtype, y.shape, 1.0, 0)])


def _product(rng: np.random.Generator, integers: bool, n: int, k: int, m: int):
    many = int(rng.choice([1, 30, 64, 130]))
    kinds = [str(d) for d in rng.choice(BYTES, 2)] if integers else ["f32", "f32"]
    turned = integers and bool(rng.integers(2))
    a = Value(Type(kinds[0], (n, k, m, 1)), "a")
    b = Value(Type(kinds[1], (n, k, many, 1) if turned else (n, many, k, 1)), "b")
    if not integers:
        return [a, b], float_ops.float_matmul(a, b)
    zeros = {"a_zero": int(rng.choice([0, 7])), "b_zero": int(rng.choice([0, 90]))}
    dtype = str(rng.choice([*BYTES, "f32"]))
    low, high = (0, 0) if dtype == "f32" else dtypes.limits(dtype)
    end = {"y_zero": 0 if dtype == "f32" else 3, "low": low, "high": high, "dtype": dtype}
    return [a, b], matmul(a, b, turned=turned, factor=0.003 / math.sqrt(k), **zeros, **end)


def _moved(rng: np.random.Generator, kind: str, x: Value) -> Value:
    if kind == "repeat":
        return relayout.repeat(x, count=int(rng.integers(1, 5)))
    if kind == "cut":
        first = int(rng.integers(0, x.shape[2]))
        return relayout.cut(x, first=first, count=int(rng.integers(1, x.shape[2] - first + 1)))
    if kind == "join":
        rows = rng.standard_normal((*x.shape[:2], 2, x.shape[3])).astype(np.float32)
        return relayout.join(relayout.constant_map(constant(rows)), x, x)
    perm = tuple(int(p) for p in rng.permutation(4))
    out = tuple(x.shape[p] for p in perm)
    return relayout.permute(x, shape=x.shape, perm=perm, out=out)


def feeds_of(lowered: Lowered, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random numbers for each input."""
    found = {}
    for p in lowered.inputs:
        if p.dtype == "f32":
            found[p.name] = (3 * rng.standard_normal(p.shape)).astype(np.float32)
        else:
            low, high = dtypes.limits(p.dtype)
            wide = rng.integers(low, high + 1, p.shape)
            found[p.name] = wide.astype(dtypes.numpy_of(p.dtype))
    return found


def compiled_layer(seed: int, chip: Chip):
    """The file of a random layer."""
    return compile_layers(float_layer(seed), chip)


# ---- networks ------------------------------------------------------------------------------------
class Transformer:
    """Builds a float network of tokens with features."""

    def __init__(self, seed: int, tokens: int, width: int, heads: int):
        self.rng = np.random.default_rng(seed)
        self.tokens, self.width, self.heads = tokens, width, heads

    def weights(self, *shape: int) -> Value:
        drawn = self.rng.standard_normal(shape) / math.sqrt(shape[0])
        return constant(drawn.astype(np.float32))

    def linear(self, x: Value, outs: int) -> Value:
        made = ops.matmul(x, self.weights(x.shape[-1], outs))
        return ops.add(made, self.weights(outs))

    def norm(self, x: Value) -> Value:
        gamma = constant(self.rng.uniform(0.5, 1.5, self.width).astype(np.float32))
        return ops.layer_norm(x, gamma, self.weights(self.width), axis=-1, epsilon=1e-6)

    def attention(self, x: Value, mask: Value | None = None) -> Value:
        size = self.width // self.heads

        def split(v: Value, perm: tuple[int, ...]) -> Value:
            return ops.transpose(
                ops.reshape(v, shape=(1, self.tokens, self.heads, size)), perm=perm
            )

        q, k, v = (self.linear(x, self.width) for _ in range(3))
        scores = ops.matmul(split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
        scores = ops.mul(scores, constant(np.float32(1 / math.sqrt(size))))
        scores = scores if mask is None else ops.add(scores, mask)
        made = ops.matmul(ops.softmax(scores, axis=-1), split(v, (0, 2, 1, 3)))
        joined = ops.transpose(made, perm=(0, 2, 1, 3))
        return self.linear(ops.reshape(joined, shape=(1, self.tokens, self.width)), self.width)

    def mlp(self, x: Value) -> Value:
        return self.linear(ops.gelu(self.linear(x, 4 * self.width)), self.width)


def vision(
    size: int = 32, patch: int = 8, width: int = 48, heads: int = 3, depth: int = 2
) -> Graph:
    """A vision transformer with a class token; DeiT-tiny by 224, 16, 192, 3, 12."""
    side = size // patch
    net = Transformer(1, side * side + 1, width, heads)
    x = Value(Type("f32", (1, 3, size, size)), "picture")
    kernel = net.weights(3 * patch * patch, width).data.T.reshape(width, 3, patch, patch)
    window = {"stride": (patch, patch), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    y = ops.conv(x, constant(kernel.copy()), net.weights(width), groups=1, **window)
    y = ops.transpose(ops.reshape(y, shape=(1, width, side * side)), perm=(0, 2, 1))
    y = ops.concat(net.weights(1, 1, width), y, axis=1)
    y = ops.add(y, net.weights(1, net.tokens, width))
    for _ in range(depth):
        y = ops.add(y, net.attention(net.norm(y)))
        y = ops.add(y, net.mlp(net.norm(y)))
    first = ops.slice_(net.norm(y), start=(0, 0, 0), stop=(1, 1, width), step=(1, 1, 1))
    return Graph([x], [net.linear(ops.reshape(first, shape=(1, width)), 10)], ["classes"])


def text(tokens: int = 20, width: int = 64, heads: int = 2, depth: int = 2) -> Graph:
    """A text encoder with a mask; MiniLM by 128, 384, 12, 6."""
    net = Transformer(2, tokens, width, heads)
    ids, mask = Value(Type("i64", (1, tokens)), "ids"), Value(Type("f32", (1, tokens)), "mask")
    away = ops.sub(constant(np.float32(1)), ops.reshape(mask, shape=(1, 1, 1, tokens)))
    away = ops.mul(away, constant(np.float32(-10000)))
    y = ops.gather(constant(net.rng.standard_normal((50, width)).astype(np.float32)), ids, axis=0)
    y = net.norm(ops.add(y, net.weights(1, tokens, width)))
    for _ in range(depth):
        y = net.norm(ops.add(y, net.attention(y, away)))
        y = net.norm(ops.add(y, net.mlp(y)))
    return Graph([ids, mask], [y], ["features"])


def table_of_floats(dtype: str) -> Graph:
    """A table from bytes to floats between a convolution and a softmax over channels."""
    net = Cnn(3, (1, 5, 9, 11), dtype)
    table = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    y = ops.lookup(net.conv(net.input, 70), constant(table))
    return Graph([net.input], [ops.softmax(y, axis=1)], ["y"])


MASKS = ("none", "causal", "bool", "given", "each head")


def masked_attention(mask: str, shared: int, heads: int = 4, t: int = 6, s: int = 8) -> Graph:
    """Attention in floats, whose mask differs from query to query; `shared` heads have one key."""
    each = (("q", heads, t), ("k", heads // shared, s), ("v", heads // shared, s))
    q, k, v = (Value(Type("f32", (1, n, rows, 5)), name) for name, n, rows in each)
    later = _later(t, s)
    given = []
    if mask in ("given", "each head"):
        given = [Value(Type("f32", (1, heads if mask == "each head" else 1, t, s)), "mask")]
    known = {
        "none": [],
        "causal": [constant(np.where(later, -np.inf, 0).astype(np.float32))],
        "bool": [constant(~later)],
    }
    y = ops.attention(q, k, v, *known.get(mask, given), scale=0.4, softcap=0.0)
    return Graph([q, k, v, *given], [y], ["y"])


def masked_feeds(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of `masked_attention`."""
    feeds = {x.name: rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs}
    if "mask" in feeds:
        shape = feeds["mask"].shape
        feeds["mask"] = np.broadcast_to(np.where(_later(*shape[2:]), -1e4, 0), shape)
        feeds["mask"] = feeds["mask"].astype(np.float32)
    return feeds


def _later(t: int, s: int) -> np.ndarray:
    """The keys after each query."""
    return np.triu(np.ones((t, s), bool), s - t + 1)


def int8_attention(seed: int, tokens: int = 33, width: int = 64, heads: int = 2) -> Graph:
    """Attention whose two products are of int8, as files that are quantised already have it."""
    rng = np.random.default_rng(seed)
    size = width // heads

    def number(low: float, high: float) -> Value:
        return constant(np.float32(rng.uniform(low, high)))

    def zero() -> Value:
        return constant(np.int8(rng.choice([0, -128, 7])))

    def product(a: Value, a_quant: list[Value], b: Value, b_quant: list[Value], y: list[Value]):
        return ops.qlinear_matmul(a, *a_quant, b, *b_quant, *y)

    def linear(x: Value, quant: list[Value], y: list[Value]) -> Value:
        w = constant(rng.integers(-127, 128, (width, width)).astype(np.int8))
        return product(x, quant, w, [number(0.005, 0.01), constant(np.int8(0))], y)

    x = Value(Type("i8", (1, tokens, width)), "x")
    of_x, of_y, of_z = ([number(0.02, 0.05), zero()] for _ in range(3))
    parts = []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        quant = [number(0.05, 0.1), zero()]
        split = ops.reshape(linear(x, of_x, quant), shape=(1, tokens, heads, size))
        parts.append((ops.transpose(split, perm=perm), quant))
    of_scores, of_weights = [number(0.02, 0.05), zero()], [constant(np.float32(1 / 256)), zero()]
    of_weights[1] = constant(np.int8(-128))
    scores = product(*parts[0], *parts[1], of_scores)
    weights = ops.softmax(ops.dequantize_linear(scores, *of_scores), axis=-1)
    weights = ops.quantize_linear(weights, *of_weights, dtype="i8")
    made = ops.transpose(product(weights, of_weights, *parts[2], of_y), perm=(0, 2, 1, 3))
    result = linear(ops.reshape(made, shape=(1, tokens, width)), of_y, of_z)
    return Graph([x], [result], ["y"])


def samples(graph: Graph, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Random pictures, or sentences of different lengths."""
    rng = np.random.default_rng(seed)
    shape = graph.inputs[0].shape
    if len(shape) == 4:
        return [{"picture": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]
    words = int(shape[1])
    found = []
    for _ in range(count):
        long = int(rng.integers(words // 2, words + 1))
        mask = (np.arange(words) < long).astype(np.float32)[None]
        found.append({"ids": rng.integers(0, 50, shape), "mask": mask})
    return found


def quantized(graph: Graph, count: int = 4) -> Graph:
    """The network in int8, as `intaglio quantize --target bm1684x` makes it."""
    return intaglio.quantize(graph, samples(graph, count), target="bm1684x")
