"""f32 layers with the chip's arithmetic: layer norm, softmax, products, rounding to bytes.

Each step rounds to f32. Sums over channels are those of a convolution: even and odd channels are
added up apart, in order, then the two sums. Sums over rows are added in halves by our own commands.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.bm1684x.division import divide, rsqrt
from intaglio.npu.chips.bm1684x.matmul import product
from intaglio.npu.chips.bm1684x.numbers import BF16, F16, F32
from intaglio.ops.registry import op

CODES = {"f16": F16, "bf16": BF16, "f32": F32}
FLOATS = tuple(CODES)
KINDS = ("add", "sub", "mul", "max", "min")
STEPS = 4  # of Newton's method, the most that a command does
F = np.float32
LEAST_EXPONENT = F(-86)  # exp of smaller numbers is not smaller, so that results stay normal
LOG2E, LN2_HIGH = F(1.4426950408889634), F(0.693359375)
LN2_LOW = F(-2.12194440e-4)
EXP_SERIES = np.array([1, 1, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040], np.float32)
EXPONENT = F(1 << 23)  # one in the exponent of the bits of a f32


def _floats(*maps: Value, types: tuple[str, ...] = ("f32",)) -> None:
    for v in maps:
        if v.dtype not in types or v.type.rank != 4 or v.type.dynamic:
            raise BadInput(f"{v.type} is no feature map of {' or '.join(types)}")


def as_float(x: Array) -> Array:
    """Numbers to compute with: bf16 becomes f32."""
    return x if x.dtype in (np.float16, np.float32) else x.astype(F)


def bounded(y: Array, dtype: Any, least: float = -math.inf, most: float = math.inf) -> Array:
    """Numbers rounded to a type, then clamped."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = y.astype(dtype)
        if least > -math.inf:
            y = np.maximum(y, np.asarray(least, dtype))
        return np.minimum(y, np.asarray(most, dtype)) if most < math.inf else y


def _pair_type(a: Value, b: Value, *, kind: str, least: float, most: float) -> Type:
    _floats(a, b, types=FLOATS)
    sides = zip(a.shape[1:], b.shape[1:], strict=True)
    fits = a.shape[0] == b.shape[0] and all(n in (1, m) for m, n in sides)
    if not fits or a.dtype != b.dtype or kind not in KINDS:
        raise BadInput(f"{kind} of {a.type} and {b.type}; equal shapes and {KINDS} are known")
    return a.type


@op(_pair_type, name="npu.arithmetic")
def arithmetic(
    a: Array, b: Array, *, kind: str, least: float = -math.inf, most: float = math.inf
) -> Array:
    """a + b, a - b, a * b, or the larger or smaller number; `b` may have extent 1 in C, H and W."""
    found = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    run = (found | {"max": np.maximum, "min": np.minimum})[kind]
    with np.errstate(over="ignore", invalid="ignore"):
        y = run(a.astype(F), b.astype(F))
    return bounded(np.asarray(y), a.dtype, least, most)


def _cast_type(x: Value, *, dtype: str) -> Type:
    _floats(x, types=FLOATS)
    if dtype not in FLOATS or dtype == x.dtype:
        raise BadInput(f"a cast of {x.type} to {dtype}; another of {FLOATS} is possible")
    return Type(dtype, x.shape)


@op(_cast_type, name="npu.cast")
def cast(x: Array, *, dtype: str) -> Array:
    """Numbers of one float type in another, rounded to the nearest, halves to even."""
    return bounded(as_float(x), dtypes.numpy_of(dtype))


def _bound_type(x: Value, *, least: float, most: float) -> Type:
    _floats(x, types=FLOATS)
    return x.type


@op(_bound_type, name="npu.bound")
def bound(x: Array, *, least: float = -math.inf, most: float = math.inf) -> Array:
    """clamp(x, least, most)."""
    return bounded(x, x.dtype, least, most)


def _quantize_type(x: Value, *, scale: float, y_zero: int, dtype: str) -> Type:
    _floats(x)
    return Type(dtype, x.shape)


@op(_quantize_type, name="npu.quantize")
def quantize(x: Array, *, scale: float, y_zero: int, dtype: str) -> Array:
    """clamp(rint(x * (1 / scale)) + y_zero)."""
    low, high = dtypes.limits(dtype)
    wide = np.clip(np.rint(x * inverse(scale)), -32768, 32767).astype(np.int32)
    return np.clip(wide + y_zero, low, high).astype(dtypes.numpy_of(dtype))


def inverse(scale: float) -> np.float32:
    """1 / scale, rounded once."""
    return F(1 / np.float64(F(scale)))


def _dequantize_type(x: Value, *, scale: float, x_zero: int) -> Type:
    if x.dtype not in ("i8", "u8") or x.type.rank != 4 or x.type.dynamic:
        raise BadInput(f"{x.type} is no feature map of bytes")
    return Type("f32", x.shape)


@op(_dequantize_type, name="npu.dequantize")
def dequantize(x: Array, *, scale: float, x_zero: int) -> Array:
    """f32(x - x_zero) * scale."""
    return np.asarray((x.astype(np.int32) - x_zero).astype(np.float32) * F(scale))


def _norm_type(x: Value, gamma: Value, beta: Value, *, epsilon: float) -> Type:
    _floats(x)
    for v in (gamma, beta):
        if v.type != Type("f32", (x.shape[1],)):
            raise BadInput(f"{v.type} for {x.type}; one f32 per channel is needed")
    return x.type


@op(_norm_type, name="npu.layer_norm")
def layer_norm(x: Array, gamma: Array, beta: Array, *, epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the channels of every pixel."""
    many = inverse(x.shape[1])
    centred = x - _channel_sums(x) * many
    variance = _channel_sums(centred * centred) * many + F(epsilon)
    y = centred * rsqrt(variance, STEPS)
    return np.asarray(y * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1))


def _channel_sums(x: Array) -> Array:
    """The sum of all channels, as a convolution with weights of 1 adds them."""
    n, c, h, w = x.shape
    ones = np.ones((1, c), np.float32)
    sums = [product(ones, one.reshape(c, -1), F32, np.zeros((1, 1), np.float32)) for one in x]
    return np.stack(sums).reshape(n, 1, h, w)


def _softmax_type(x: Value, mask: Value | None = None, *, scale: float) -> Type:
    _floats(x)
    if x.shape[3] != 1:
        raise BadInput(f"softmax over the rows of {x.type}; one column is needed")
    if mask is not None:
        _floats(mask)
        if mask.shape != (x.shape[0], 1, *x.shape[2:]):
            raise BadInput(f"mask {mask.type} of {x.type}; one channel is needed")
    return x.type


@op(_softmax_type, name="npu.softmax")
def softmax(x: Array, mask: Array | None = None, *, scale: float) -> Array:
    """softmax(x * scale + mask) over the rows of every channel."""
    t = x * F(scale)
    t = t if mask is None else t + mask
    t = np.maximum(t - t.max(2, keepdims=True), LEAST_EXPONENT)
    e = exponential(t)
    total = halving_sum(e)
    return np.asarray(e * divide(np.ones_like(total), total, STEPS))


def exponential(t: Array) -> Array:
    """exp of numbers from LEAST_EXPONENT to 0: a series of the remainder, times a power of 2."""
    whole = np.rint(t * LOG2E)
    rest = (t - whole * LN2_HIGH) - whole * LN2_LOW
    y = np.broadcast_to(EXP_SERIES[-1], t.shape)
    for c in EXP_SERIES[-2::-1]:
        y = y * rest + c
    bits = np.ascontiguousarray(y).view(np.int32) + (whole * EXPONENT).astype(np.int32)
    return np.asarray(bits.view(np.float32))


def halving_sum(x: Array) -> Array:
    """The sum over rows: the second half is added to the first until one row is left."""
    while (rows := x.shape[2]) > 1:
        half = rows // 2
        total = x[:, :, :half] + x[:, :, half : 2 * half]
        if rows % 2:
            total[:, :, :1] += x[:, :, 2 * half :]
        x = total
    return x


def _product_type(a: Value, b: Value, *, block: int) -> Type:
    _floats(a, b, types=FLOATS)
    if a.dtype != b.dtype or block < 1:
        raise BadInput(f"{a.type} and {b.type} differ in their type, or blocks have {block}")
    if (a.shape[0], a.shape[1], 1, 1) != (b.shape[0], b.shape[2], a.shape[3], b.shape[3]):
        raise BadInput(f"{a.type} and {b.type} do not form a matrix product over a's channels")
    return Type(a.dtype, (a.shape[0], b.shape[1], a.shape[2], 1))


def _product_macs(node: Node) -> int:
    first: Any = node.inputs[0]
    return int(node.outputs[0].type.size * first.shape[1])


@op(_product_type, name="npu.float_matmul", macs=_product_macs)
def float_matmul(a: Array, b: Array, *, block: int = 32) -> Array:
    """sum over k of b[c, k] * a[k, m], as [N, C, M, 1]; `a` is [N, K, M, 1], `b` [N, C, K, 1].

    Products of f16 and bf16 are added in blocks, as npu.float_conv does.
    """
    zero = np.zeros((1, 1), np.float32)
    code = CODES[dtypes.name_of(a.dtype)]
    pairs = zip(as_float(b)[..., 0], as_float(a)[..., 0], strict=True)
    found = [product(left, right, code, zero, block=block) for left, right in pairs]
    return bounded(np.stack(found)[..., None], a.dtype)
