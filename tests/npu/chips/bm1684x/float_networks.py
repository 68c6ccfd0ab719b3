"""Random layers and small networks of f16, bf16 and f32 for Sophgo's chips."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
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
            y = function(x, name=list(FUNCTIONS)[seed // len(KINDS) % len(FUNCTIONS)])
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
