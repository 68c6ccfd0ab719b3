"""Importers of ncnn's layers. Tensors have a batch of one in front of ncnn's own axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.ncnn.file import Layer, Weights
from intaglio.ir import Value

Import = Callable[[Layer, list[Value], Weights], "Value | list[Value]"]
LAYERS: dict[str, Import] = {}
SAME_UPPER, SAME_LOWER = -233, -234  # paddings


def layer(*names: str) -> Callable[[Import], Import]:
    def define(function: Import) -> Import:
        LAYERS.update(dict.fromkeys(names, function))
        return function

    return define


def _image(of: Layer, x: Value) -> Value:
    if x.type.rank != 4:
        raise BadFile(f"ncnn: {of} has an input {x.type}; an image is needed")
    return x


def axis_of(of: Layer, key: int, x: Value, default: int = 0) -> int:
    """An axis of ncnn, which does not count the batch, as one of ours."""
    axis = of.whole(key, default)
    rank = x.type.rank - 1
    if not -rank <= axis < rank:
        raise BadFile(f"ncnn: {of}: axis {axis} of {x.type}; it is from {-rank} to {rank - 1}")
    return axis % rank + 1


# ---- activations ---------------------------------------------------------------------------------
def _relu(x: Value, slope: float) -> Value:
    return ops.relu(x) if slope == 0 else ops.leaky_relu(x, alpha=slope)


def _hard_sigmoid(x: Value, alpha: float, beta: float) -> Value:
    return ops.hard_sigmoid(x, alpha=alpha, beta=beta)


def fused(of: Layer, x: Value) -> Value:
    """The activation that a product has built in."""
    kind, given = of.whole(9, 0), (*of.several(10), 0.0, 0.0)
    made: dict[int, Callable[[], Value]] = {
        0: lambda: x,
        1: lambda: _relu(x, 0),
        2: lambda: _relu(x, given[0]),
        3: lambda: ops.clip(x, lo=given[0], hi=given[1]),
        4: lambda: ops.sigmoid(x),
        5: lambda: ops.mish(x),
        6: lambda: ops.mul(x, _hard_sigmoid(x, given[0], given[1])),
    }
    if kind not in made:
        raise Unsupported(f"ncnn: {of}: activation {kind} is not supported; 0 to 6 are")
    return made[kind]()


PLAIN: dict[str, Callable[[Value], Value]] = {
    "Sigmoid": ops.sigmoid,
    "TanH": ops.tanh,
    "Swish": ops.swish,
    "Mish": ops.mish,
    "AbsVal": ops.abs,
    "Dropout": lambda x: x,
    "Noop": lambda x: x,
}
UNARY: dict[int, Callable[[Value], Value]] = {
    0: ops.abs,
    1: ops.neg,
    2: ops.floor,
    3: ops.ceil,
    4: lambda x: ops.mul(x, x),
    5: ops.sqrt,
    6: lambda x: ops.reciprocal(ops.sqrt(x)),
    7: ops.exp,
    8: ops.log,
    9: ops.sin,
    10: ops.cos,
    11: ops.tan,
    12: ops.asin,
    13: ops.acos,
    14: ops.atan,
    15: ops.reciprocal,
    16: ops.tanh,
}
BINARY: dict[int, Callable[[Value, Value], Value]] = {
    0: ops.add,
    1: ops.sub,
    2: ops.mul,
    3: ops.div,
    4: ops.maximum,
    5: ops.minimum,
    6: ops.pow,
    7: lambda a, b: ops.sub(b, a),
    8: lambda a, b: ops.div(b, a),
}


def _plain(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return PLAIN[of.kind](xs[0])


LAYERS.update(dict.fromkeys(PLAIN, _plain))


@layer("ReLU")
def relu(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return _relu(xs[0], of.number(0, 0.0))


@layer("Clip")
def clip(of: Layer, xs: list[Value], weights: Weights) -> Value:
    low, high = of.number(0, -3.4e38), of.number(1, 3.4e38)
    return ops.clip(xs[0], lo=low, hi=high)


@layer("ELU")
def elu(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.elu(xs[0], alpha=of.number(0, 0.1))


@layer("HardSigmoid", "HardSwish")
def hard(of: Layer, xs: list[Value], weights: Weights) -> Value:
    gate = _hard_sigmoid(xs[0], of.number(0, 0.2), of.number(1, 0.5))
    return gate if of.kind == "HardSigmoid" else ops.mul(xs[0], gate)


@layer("GELU")
def gelu(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.gelu(xs[0], approximate="tanh" if of.whole(0, 0) else "none")


@layer("PReLU")
def prelu(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.prelu(xs[0], channels(weights.plain(of.count(0, 1), of), xs[0]))


@layer("UnaryOp")
def unary(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return _chosen(of, UNARY)(xs[0])


@layer("BinaryOp")
def binary(of: Layer, xs: list[Value], weights: Weights) -> Value:
    if of.whole(1, 0):
        return _chosen(of, BINARY)(xs[0], np.float32(of.number(2, 0)))
    if len(xs) != 2:
        raise BadFile(f"ncnn: {of} has {len(xs)} inputs; two are needed")
    rank = max(x.type.rank for x in xs)
    first, second = (_with_axes(x, rank) for x in xs)
    return _chosen(of, BINARY)(first, second)


def _with_axes(x: Value, rank: int) -> Value:
    """The shorter operand is aligned with the channels."""
    if x.type.rank == rank:
        return x
    return ops.reshape(x, shape=(*x.shape, *[1] * (rank - x.type.rank)))


def _chosen(of: Layer, table: dict[int, Callable[..., Value]]) -> Callable[..., Value]:
    kind = of.whole(0, 0)
    if kind not in table:
        raise Unsupported(f"ncnn: {of}: operation {kind} is not supported; 0 to {max(table)} are")
    return table[kind]


@layer("Eltwise")
def eltwise(of: Layer, xs: list[Value], weights: Weights) -> Value:
    kinds: dict[int, Callable[..., Value]] = {0: ops.mul, 1: ops.add, 2: ops.maximum}
    kind, factors = _chosen(of, kinds), of.several(1)
    if factors and of.whole(0, 0) == 1:
        if len(factors) != len(xs):
            raise BadFile(f"ncnn: {of}: {len(factors)} factors of {len(xs)} inputs")
        xs = [ops.mul(x, np.float32(f)) for x, f in zip(xs, factors, strict=True)]
    result = xs[0]
    for x in xs[1:]:
        result = kind(result, x)
    return result


# ---- normalisation -------------------------------------------------------------------------------
def channels(values: np.ndarray, x: Value) -> np.ndarray:
    """One number for each channel, for an operand of `x`."""
    return values.reshape(-1, *[1] * (x.type.rank - 2)).astype(np.float32)


@layer("BatchNorm")
def batch_norm(of: Layer, xs: list[Value], weights: Weights) -> Value:
    count = of.count(0, 0)
    slope, mean, var, bias = (weights.plain(count, of) for _ in range(4))
    return ops.batch_norm(xs[0], slope, bias, mean, var, epsilon=of.number(1, 0.0))


@layer("InstanceNorm")
def instance_norm(of: Layer, xs: list[Value], weights: Weights) -> Value:
    count = of.count(0, 0)
    affine = of.whole(2, 1)
    scale = weights.plain(count, of) if affine else np.ones(count, np.float32)
    bias = weights.plain(count, of) if affine else np.zeros(count, np.float32)
    return ops.instance_norm(xs[0], scale, bias, epsilon=of.number(1, 0.001))


@layer("Scale")
def scale(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x = xs[0]
    if of.whole(0, 0) == SAME_UPPER:
        factor = _with_axes(xs[1], x.type.rank)
        return ops.mul(x, factor)
    count = of.count(0, 0)
    result: Value = ops.mul(x, channels(weights.plain(count, of), x))
    if of.whole(1, 0):
        result = ops.add(result, channels(weights.plain(count, of), x))
    return result


@layer("Bias")
def bias(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.add(xs[0], channels(weights.plain(of.count(0, 0), of), xs[0]))


# ---- shapes --------------------------------------------------------------------------------------
@layer("Split")
def split(of: Layer, xs: list[Value], weights: Weights) -> list[Value]:
    return [xs[0]] * len(of.outputs)


@layer("Concat")
def concat(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.concat(*xs, axis=axis_of(of, 0, xs[0]))


@layer("Slice")
def slices(of: Layer, xs: list[Value], weights: Weights) -> list[Value]:
    x, axis = xs[0], axis_of(of, 1, xs[0])
    sizes, total = list(of.several(0)), x.shape[axis]
    result, at = [], 0
    for i, given in enumerate(sizes):
        left = total - at
        size = left // (len(sizes) - i) if given == SAME_UPPER else int(given)
        if not 0 < size <= left:
            raise BadFile(f"ncnn: {of}: parts {sizes} of {total} along axis {axis}")
        result.append(ops.part(x, at, at + size, axis=axis))
        at += size
    return result


@layer("Flatten")
def flatten(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.reshape(xs[0], shape=(xs[0].shape[0], -1))


@layer("Reshape")
def reshape(of: Layer, xs: list[Value], weights: Weights) -> Value:
    if of.whole(3, 0):
        raise Unsupported(f"ncnn: {of}: reshaping in the order of HWC is not supported")
    given = [of.whole(k, SAME_UPPER) for k in (2, 11, 1, 0)]  # channels, depth, height, width
    shape, rank = [d for d in given if d != SAME_UPPER], xs[0].type.rank
    for i, d in enumerate(shape):
        if d == 0 and i + 1 < rank:
            shape[i] = xs[0].shape[i + 1]
    return ops.reshape(xs[0], shape=(xs[0].shape[0], *shape))


ORDERS = {  # of Permute, by the number of axes: ours behind the batch
    3: ((1, 2), (2, 1)),
    4: ((1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)),
}


@layer("Permute")
def permute(of: Layer, xs: list[Value], weights: Weights) -> Value:
    known, kind = ORDERS.get(xs[0].type.rank, ()), of.whole(0, 0)
    if not 0 <= kind < len(known):
        raise Unsupported(f"ncnn: {of}: order {kind} of {xs[0].type} is not supported")
    return ops.transpose(xs[0], perm=(0, *known[kind]))


@layer("Softmax")
def softmax(of: Layer, xs: list[Value], weights: Weights) -> Value:
    return ops.softmax(xs[0], axis=axis_of(of, 0, xs[0]))


@layer("ShuffleChannel")
def shuffle(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x, groups = _image(of, xs[0]), of.count(0, 1)
    n, c, h, w = x.shape
    if c % groups:
        raise BadFile(f"ncnn: {of}: {groups} groups of {c} channels")
    parts = (c // groups, groups) if of.whole(1, 0) else (groups, c // groups)
    y = ops.transpose(ops.reshape(x, shape=(n, *parts, h, w)), perm=(0, 2, 1, 3, 4))
    return ops.reshape(y, shape=(n, c, h, w))


@layer("PixelShuffle")
def pixel_shuffle(of: Layer, xs: list[Value], weights: Weights) -> Value:
    mode = "DCR" if of.whole(1, 0) else "CRD"
    return ops.depth_to_space(_image(of, xs[0]), blocksize=of.count(0, 1), mode=mode)


@layer("Padding")
def padding(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x, modes = _image(of, xs[0]), ("constant", "edge", "reflect")
    top, bottom, left, right = (of.count(k, 0, least=0) for k in range(4))
    kind = of.whole(4, 0)
    if not 0 <= kind < len(modes):
        raise Unsupported(f"ncnn: {of}: type {kind} is not supported; 0 to 2 are")
    return ops.pad(
        x,
        before=(0, 0, top, left),
        after=(0, 0, bottom, right),
        mode=modes[kind],
        value=of.number(5, 0.0),
    )


@layer("Interp")
def interp(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x = _image(of, xs[0])
    kinds = {1: "nearest", 2: "linear"}
    kind = of.whole(0, 0)
    if kind not in kinds:
        raise Unsupported(f"ncnn: {of}: type {kind} is not supported; 1 and 2 are")
    scales = of.number(1, 1.0), of.number(2, 1.0)
    sizes: Sequence[int] = (of.whole(3, 0), of.whole(4, 0))
    shape = tuple(s or int(d * f) for s, d, f in zip(sizes, x.shape[2:], scales, strict=True))
    if min(shape) < 1:
        raise BadFile(f"ncnn: {of}: the result has {shape[0]} x {shape[1]} pixels")
    ends = "align_corners" if of.whole(6, 0) else "half_pixel"
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    how = nearest if kind == 1 else {"coordinate_transformation_mode": ends}
    ratios = tuple(s / d for s, d in zip(shape, x.shape[2:], strict=True))
    return ops.resize(x, axes=(2, 3), shape=shape, scales=ratios, mode=kinds[kind], **how)
