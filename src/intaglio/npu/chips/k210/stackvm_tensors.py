"""The tensor functions of stackvm in numpy, with the arithmetic of nncase's runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.k210.kmodel5 import DTYPES
from intaglio.npu.chips.k210.stackvm import StackVm
from intaglio.npu.chips.k210.stackvm_code import BINARIES, PAD_MODES, REDUCTIONS, UNARIES
from intaglio.npu.chips.k210.stackvm_operands import (
    FLOAT,
    Fields,
    clamped,
    only,
    same_rank,
    source,
    store,
)
from intaglio.npu.chips.k210.stackvm_windows import conv2d, reduce_window2d

F32 = np.float32


def _quantize(vm: StackVm, f: Fields) -> None:
    bias, scale = F32(vm.number()), F32(vm.number())
    to, x = vm.address(), vm.address()
    kind = DTYPES[f["dtype_to"]] if f["dtype_to"] < len(DTYPES) else ""
    if kind not in ("u8", "i8"):
        raise Unsupported(f"kmodel: tensor.quantize to type {f['dtype_to']} is not simulated")
    only("quantize", f)
    low, high = (0, 255) if kind == "u8" else (-128, 127)
    # beyond i32, conversion gives the smallest integer
    y = np.rint(source(vm, f, x) * scale + bias)
    whole = np.where(np.abs(y) < 2.0**31, y, -(2.0**31))
    store(vm, f, to, np.clip(whole, low, high).astype(np.uint8 if low == 0 else np.int8))


def _dequantize(vm: StackVm, f: Fields) -> None:
    bias, scale = F32(vm.number()), F32(vm.number())
    to, x = vm.address(), vm.address()
    only("dequantize", f, ("u8", "i8"))
    store(vm, f, to, source(vm, f, x).astype(F32) * scale + bias)


def _slice(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    x_in = source(vm, f, x)
    begins, ends, steps = (vm.shape(f[k]) for k in ("rbegins", "rends", "rsteps"))
    same_rank("slice", x_in.shape, begins, ends, steps)
    if min(steps, default=1) < 1 or min((*begins, *ends), default=0) < 0:
        raise Unsupported(f"kmodel: tensor.slice from {begins} to {ends} by {steps}")
    parts = zip(begins, ends, steps, strict=True)
    store(vm, f, to, x_in[tuple(slice(b, e, s) for b, e, s in parts)])


def _pad(vm: StackVm, f: Fields) -> None:
    value = vm.pop()
    to, x = vm.address(), vm.address()
    x_in, paddings = source(vm, f, x), vm.paddings.get(f["rpaddings"], ())
    same_rank("pad", x_in.shape, paddings)
    if not isinstance(value, int | float) or f["mode"] >= len(PAD_MODES):
        raise BadFile("kmodel: tensor.pad has no number, or an unknown mode")
    if any(p[2] for p in paddings) or f["mode"]:
        raise Unsupported(f"kmodel: tensor.pad in mode {PAD_MODES[f['mode']]}, or within maps")
    for axis, (before, after, _) in enumerate(paddings):  # negative: crops
        if before < 0 or after < 0:
            end = x_in.shape[axis] + min(after, 0)
            cut = [slice(None)] * x_in.ndim
            cut[axis] = slice(max(-before, 0), max(end, 0))
            x_in = x_in[tuple(cut)]
    grown = [(max(b, 0), max(a, 0)) for b, a, _ in paddings]
    vm.count(math.prod(d + b + a for d, (b, a) in zip(x_in.shape, grown, strict=True)))
    if not x_in.size:
        raise BadFile("kmodel: tensor.pad crops a whole tensor")
    constant = x_in.dtype.type(value if isinstance(value, float) else value & 0xFF)
    store(vm, f, to, np.pad(x_in, grown, constant_values=constant))


def _matmul(vm: StackVm, f: Fields) -> None:
    to, bias, b, a = vm.address(), vm.address(), vm.address(), vm.address()
    left, right = source(vm, f, a), source(vm, f, b, "2")
    shape = vm.shape(f["rshape_to"])
    if left.ndim < 2 or right.ndim < 2 or left.shape[-1] != right.shape[-2]:
        raise BadFile(f"kmodel: tensor.matmul of {left.shape} and {right.shape}")
    vm.count(0, left.size * right.shape[-1])
    added = vm.view(bias, FLOAT, shape[-1:], (1,))
    try:
        # summed in f64: nncase sums f32 in the order of its loops, within the rounding of f32
        made = (left.astype(np.float64) @ right.astype(np.float64) + added).astype(F32)
    except ValueError:
        raise BadFile(f"kmodel: tensor.matmul of {left.shape} and {right.shape}") from None
    if made.shape != shape:
        raise BadFile(f"kmodel: tensor.matmul makes {made.shape}; its result is {shape}")
    store(vm, f, to, clamped(made, f))


def _softmax(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    only("softmax", f)
    x_in = source(vm, f, x)
    if not -x_in.ndim <= f["axis"] < x_in.ndim:
        raise BadFile(f"kmodel: tensor.softmax along axis {f['axis']} of {x_in.shape}")
    powers = np.exp((x_in - x_in.max(f["axis"], keepdims=True)) * F32(f["beta"]))
    store(vm, f, to, powers / powers.sum(f["axis"], keepdims=True))


def _reduce(vm: StackVm, f: Fields) -> None:
    first = vm.pop()
    to, x = vm.address(), vm.address()
    only("reduce", f)
    x_in, axes = source(vm, f, x), vm.shape(f["raxes"])
    if f["kind"] >= len(REDUCTIONS) or not isinstance(first, float):
        raise BadFile(f"kmodel: tensor.reduce of kind {f['kind']}")
    if any(not 0 <= a < x_in.ndim for a in axes) or len(set(axes)) != len(axes):
        raise BadFile(f"kmodel: tensor.reduce along axes {axes} of {x_in.shape}")
    kind, keep = REDUCTIONS[f["kind"]], bool(f["keep_dims"])
    if kind in ("min", "max"):
        made = getattr(x_in, kind)(axes, keepdims=keep)
    else:
        made = x_in.sum(axes, np.float64, keepdims=keep) + first
        made = made / (math.prod(x_in.shape[a] for a in axes) if kind == "mean" else 1)
    store(vm, f, to, np.asarray(made, F32))


def _binary(vm: StackVm, f: Fields) -> None:
    to, b, a = vm.address(), vm.address(), vm.address()
    only("binary", f)
    left, right = source(vm, f, a), source(vm, f, b, "2")
    functions: tuple[Callable[..., Any], ...] = (
        np.add,
        np.subtract,
        np.multiply,
        np.divide,
        np.minimum,
        np.maximum,
        np.power,
    )
    if f["kind"] >= len(functions):
        name = BINARIES[f["kind"]] if f["kind"] < len(BINARIES) else f["kind"]
        raise Unsupported(f"kmodel: tensor.binary of kind {name} is not simulated")
    shape = vm.shape(f["rshape_to"])
    vm.count(math.prod(shape) if min(shape, default=1) > 0 else 0)
    try:
        made = functions[f["kind"]](left, right)
    except ValueError:
        made = None
    if made is None or made.shape != shape:
        raise BadFile(f"kmodel: tensor.binary of {left.shape} and {right.shape} makes {shape}")
    store(vm, f, to, clamped(made, f))


def _unary(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    only("unary", f)
    functions: dict[str, Callable[..., Any]] = {
        "abs": np.abs,
        "ceil": np.ceil,
        "cos": np.cos,
        "exp": np.exp,
        "floor": np.floor,
        "log": np.log,
        "neg": np.negative,
        "round": np.rint,
        "rsqrt": lambda v: F32(1) / np.sqrt(v),
        "sign": np.sign,
        "sin": np.sin,
        "sqrt": np.sqrt,
        "square": np.square,
        "tanh": np.tanh,
    }
    name = UNARIES[f["kind"]] if f["kind"] < len(UNARIES) else str(f["kind"])
    if name not in functions:
        raise Unsupported(f"kmodel: tensor.unary of kind {name} is not simulated")
    store(vm, f, to, np.asarray(functions[name](source(vm, f, x)), F32))


def _sigmoid(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    only("sigmoid", f)
    store(vm, f, to, F32(1) / (F32(1) + np.exp(-source(vm, f, x))))


def _copy(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    store(vm, f, to, source(vm, f, x))


def _transpose(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    x_in, perm = source(vm, f, x), vm.shape(f["rperm"])
    if sorted(perm) != list(range(x_in.ndim)):
        raise BadFile(f"kmodel: tensor.transpose by {perm} of {x_in.shape}")
    store(vm, f, to, x_in.transpose(perm))


def _nearest(vm: StackVm, f: Fields) -> None:
    to, x = vm.address(), vm.address()
    wide, high = vm.integer(), vm.integer()
    x_in = source(vm, f, x)
    if f["mode"] != 1 or x_in.ndim != 4:
        raise Unsupported("kmodel: tensor.resize_image is simulated for nearest neighbours only")
    if min(high, wide) < 1:
        raise BadFile(f"kmodel: tensor.resize_image to {high}x{wide}")
    vm.count(x_in.shape[0] * x_in.shape[1] * high * wide)
    picked = []
    for size, out in zip(x_in.shape[2:], (high, wide), strict=True):
        scale = F32(size) / F32(out)
        if f["align_corners"] and out > 1:
            scale = F32(size - 1) / F32(out - 1)
        at = (np.arange(out).astype(F32) + F32(0.5 if f["half_pixel"] else 0)) * scale
        near = np.floor(at + F32(0.5)) if f["align_corners"] else np.floor(at)
        picked.append(np.clip(near.astype(np.int64), 0, size - 1))
    store(vm, f, to, x_in[:, :, picked[0][:, None], picked[1]])


def _lut1d(vm: StackVm, f: Fields) -> None:
    vm.pop()
    vm.pop()
    to, table, x = vm.address(), vm.address(), vm.address()
    only("lut1d", f, ("u8",))
    entries = vm.view(table, f["dtype"], (256,), (1,))
    store(vm, f, to, entries[source(vm, f, x)])


FUNCTIONS: dict[str, Callable[[StackVm, Fields], None]] = {
    "tensor.quantize": _quantize,
    "tensor.dequantize": _dequantize,
    "tensor.slice": _slice,
    "tensor.pad": _pad,
    "tensor.matmul": _matmul,
    "tensor.softmax": _softmax,
    "tensor.reduce": _reduce,
    "tensor.binary": _binary,
    "tensor.unary": _unary,
    "tensor.sigmoid": _sigmoid,
    "tensor.copy": _copy,
    "tensor.transpose": _transpose,
    "tensor.resize_image": _nearest,
    "tensor.lut1d": _lut1d,
    "tensor.conv2d": conv2d,
    "tensor.reduce_window2d": reduce_window2d,
}
