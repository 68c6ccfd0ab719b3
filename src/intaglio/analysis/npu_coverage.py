"""Which NPU unit computes each op in int8: found by lowering a small quantised layer of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from intaglio import ops, passes, targets
from intaglio.errors import IntaglioError
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.npu.lowering.limits import UNITS
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import rewrite

CHIPS = {"rk3588": "Rockchip RK3588", "k230": "Canaan K230", "bm1684x": "Sophgo BM1684X"}
IMAGE = (1, 16, 8, 8)
WINDOW: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1)}
Build = Callable[[Value, Value], Value]  # makes a layer of two feature maps


def _weights(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _int8_weights(w: Array) -> Value:
    """Weights as int8 with one scale, dequantised."""
    scale = float(np.abs(w).max()) / 127
    whole = constant(np.rint(w / scale).astype(np.int8))
    return _dequantized(whole, scale, 0)


def _dequantized(v: Value, scale: float, zero: int) -> Value:
    result: Value = ops.dequantize_linear(
        v, constant(scale, dtype="f32"), constant(zero, dtype="i8"), axis=0
    )
    return result


# Layers of ops whose attributes have no defaults.
LAYERS: dict[str, Build] = {
    "conv": lambda x, y: ops.conv(
        x, _int8_weights(_weights(8, 16, 3, 3)), None, pad=(1,) * 4, groups=1, **WINDOW
    ),
    "conv_transpose": lambda x, y: ops.conv_transpose(
        x,
        _int8_weights(_weights(16, 8, 2, 2)),
        None,
        stride=(2, 2),
        dilation=(1, 1),
        pad=(0,) * 4,
        output_pad=(0, 0),
        groups=1,
    ),
    "matmul": lambda x, y: ops.matmul(x, _int8_weights(_weights(8, 8))),
    "gemm": lambda x, y: ops.gemm(
        ops.reshape(x, shape=(16, 64)), _int8_weights(_weights(64, 8)), None
    ),
    "max_pool": lambda x, y: ops.max_pool(
        x, kernel=(2, 2), pad=(0,) * 4, stride=(2, 2), dilation=(1, 1)
    ),
    "avg_pool": lambda x, y: ops.avg_pool(
        x, kernel=(2, 2), pad=(0,) * 4, stride=(2, 2), dilation=(1, 1)
    ),
    "reduce_mean": lambda x, y: ops.reduce_mean(x, axes=(2, 3), keepdims=True),
    "concat": lambda x, y: ops.concat(x, y, axis=1),
    "slice": lambda x, y: ops.part(x, 0, 8, axis=1),
    "pad": lambda x, y: ops.pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1)),
    "resize": lambda x, y: ops.resize(
        x,
        axes=(2, 3),
        shape=(16, 16),
        scales=(2.0, 2.0),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "gather": lambda x, y: ops.gather(x, constant(np.array([2, 1, 0])), axis=1),
    "channel_shuffle": lambda x, y: ops.channel_shuffle(x, groups=4),
    "space_to_depth": lambda x, y: ops.space_to_depth(x, blocksize=2),
    "depth_to_space": lambda x, y: ops.depth_to_space(x, blocksize=2),
    "transpose": lambda x, y: ops.transpose(x, perm=(0, 2, 3, 1)),
    "reshape": lambda x, y: ops.reshape(x, shape=(1, 16, 64)),
    "clip": lambda x, y: ops.clip(x, lo=0.0, hi=6.0),
    "prelu": lambda x, y: ops.prelu(x, constant(np.full((16, 1, 1), 0.2, np.float32))),
    "softmax": lambda x, y: ops.softmax(x, axis=1),
}
# Ops that fold into a convolution before them.
AFTER_CONV: dict[str, Callable[[Value], Value]] = {
    "batch_norm": lambda y: ops.batch_norm(y, *(np.ones(8, np.float32),) * 4)
}
TWO_OPERANDS = ("add", "sub", "mul", "div", "maximum", "minimum")


def units(chip: str, names: Iterable[str]) -> dict[str, str]:
    """The units that compute each of these ops, in execution order; other ops are left out."""
    target = targets.find(chip, "scalar")
    found = {}
    for name in names:
        build = _layer(name)
        used = _units_of(target, build) if build else []
        if used:
            found[name] = ", ".join(used)
        elif name in AFTER_CONV and _folds_into_conv(target, AFTER_CONV[name]):
            found[name] = "in conv"
    return found


def _layer(name: str) -> Build | None:
    """A function that makes a layer of an op; None if the op needs more than feature maps."""
    if name in LAYERS:
        return LAYERS[name]
    op = REGISTRY[name]
    parameters = op.signature.parameters.values()
    if name in TWO_OPERANDS:
        return lambda x, y: op(x, y)
    needed = [p for p in parameters if p.default is inspect.Parameter.empty]
    if op.elementwise and len(needed) == 1 and needed[0].kind is not inspect.Parameter.KEYWORD_ONLY:
        return lambda x, y: op(x)
    return None


def _folds_into_conv(target: targets.Target, build: Callable[[Value], Value]) -> bool:
    """Do a float convolution and this op after it become one convolution?"""
    x = Value(Type("f32", IMAGE), "x")
    y = build(ops.conv(x, _weights(8, 16, 3, 3), None, pad=(1,) * 4, groups=1, **WINDOW))
    graph = Graph([x], [y], ["y"])
    passes.run(graph, passes.neutral(target.cost), 2)
    return [n.op for n in graph.nodes()] == ["conv"]


def _units_of(target: targets.Target, build: Build) -> list[str]:
    """The units that compute an int8 layer; none if a part of it stays on the CPU."""
    images = [Value(Type("i8", IMAGE), name) for name in "ab"]
    try:
        y = build(*(_dequantized(v, 0.05, 3) for v in images))
        if y.dtype != "f32":
            return []
        out = ops.quantize_linear(
            y, constant(0.05, dtype="f32"), constant(3, dtype="i8"), dtype="i8"
        )
        graph = Graph(images, [out], ["y"])
        passes.run(graph, passes.neutral(target.cost), 3)
        rewrite(graph, list(target.lower), None, target.cost)
    except IntaglioError:
        return []
    left = [n.op for n in graph.nodes()]
    moves = ("reshape", "transpose", "bitcast")
    if any(op not in UNITS and op not in moves for op in left):
        return []
    if not any(op in UNITS for op in left):  # the layer only moves elements
        return ["-"] if any(op == "transpose" for op in left) else ["free"]
    used = dict.fromkeys(UNITS[op] for op in left if op in UNITS)
    return [u for u in used if u != "copy" or len(used) == 1]  # where others compute, it helps
