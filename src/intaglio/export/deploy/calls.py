"""Prints the steps of a plan as calls of kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.export.deploy.blob import Blob
from intaglio.export.deploy.convolutions import Convolution, window_fields
from intaglio.export.deploy.moves import MOVES
from intaglio.ir import Array
from intaglio.ops.registry import normalize_axis
from intaglio.plan import Step, Tensor

C_TYPES = {"i8": "int8_t", "u8": "uint8_t", "f32": "float", "i32": "int32_t", "i16": "int16_t"}
C_TYPES |= {"i64": "int64_t", "bool": "uint8_t", "u16": "uint16_t", "u32": "uint32_t"}
RANK = 6


def number(v: Any) -> str:
    """A float as C that reads back to the same bits."""
    return f"{float(np.float32(v)).hex()}f"


def signed(zero: int, dtype: str) -> int:
    """A zero point as that of i8."""
    return zero - 128 if dtype == "u8" else zero


def flip(dtype: str) -> str:
    return "0x80" if dtype == "u8" else "0"


def comment(text: str) -> str:
    """A name from the model that cannot end a comment or continue it."""
    return re.sub(r"[^A-Za-z0-9_./:;, -]", "_", text)[:80]


def value(t: Tensor | None) -> Array:
    assert t is not None
    assert t.data is not None
    return t.data


def scalar(t: Tensor | None) -> Any:
    return value(t).reshape(-1)[0]


@dataclass
class Printer:
    """The C text of a plan: layers as constant structs, and calls in order."""

    form: str
    blob: Blob = field(default_factory=Blob)
    layers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)  # C files that are needed
    pointer_bytes: int = 4

    def layer(self, kind: str, fields: Mapping[str, Any]) -> str:
        """A constant struct; returns its address."""
        name = f"layer{len(self.layers)}"
        text = ", ".join(f".{k} = {self._braced(v)}" for k, v in fields.items())
        self.layers.append(f"static const {kind} {name} = {{{text}}};")
        return f"&{name}"

    @staticmethod
    def _braced(v: Any) -> str:
        return "{" + ", ".join(map(str, v)) + "}" if isinstance(v, list | tuple) else str(v)

    def constant(self, data: Array) -> str:
        """The address of a constant in the weights."""
        kind = C_TYPES[dtypes.name_of(data.dtype)]
        return f"W({kind}, {self.blob.add(data)})"

    def address(self, t: Tensor | None, kind: str = "int8_t") -> str:
        """The address of a tensor as a C expression."""
        assert t is not None
        if t.fixed:
            return f"W({kind}, {self.blob.add(value(t))})"
        if t.memory == "arena":
            return f"A({kind}, {t.offset})"
        base = f"{'in' if t.memory == 'input' else 'out'}{t.slot}"
        const = "const " if t.memory == "input" else ""
        at = f" + {t.offset}" if t.offset else ""
        return f"({const}{kind} *)(({const}uint8_t *){base}{at})"

    def call(self, kernel: str, function: str, *arguments: str) -> None:
        self.kernels.add(kernel)
        self.calls.append(f"{function}({', '.join(arguments)});")

    def step(self, step: Step, scratch: int) -> None:
        """Print one step."""
        origin = f" '{comment(step.origin)}'" if step.origin else ""
        self.calls.append(f"// {step.op}{origin}")
        if step.op == "micro.conv":
            Convolution(step, self.form, self.pointer_bytes).call(self, f"A(void, {scratch})")
        elif step.op in MOVES:
            MOVES[step.op](self, step)
        else:
            _PRINT[step.op](self, step)


# ---- elementwise, pooling, softmax ---------------------------------------------------------------
def _operands(step: Step) -> tuple[Tensor, Tensor]:
    x = step.inputs[0]
    assert x is not None
    return x, step.outputs[0]


def _pair(p: Printer, step: Step) -> None:
    a, b, y = step.inputs[0], step.inputs[3], step.outputs[0]
    assert a is not None
    assert b is not None
    one = np.float32
    a_scale, b_scale, y_scale = (one(scalar(step.inputs[i])) for i in (1, 4, 6))
    adds = step.op == "qlinear_add"
    factor = a_scale / y_scale if adds else (a_scale * b_scale) / y_scale
    shape, a_step, b_step = _merged(y.type.shape, a.type.shape, b.type.shape)
    fields = {
        "shape": shape,
        "a_step": a_step,
        "b_step": b_step,
        "a_zero": signed(int(scalar(step.inputs[2])), a.type.dtype),
        "b_zero": signed(int(scalar(step.inputs[5])), b.type.dtype),
        "y_zero": signed(int(scalar(step.inputs[7])), y.type.dtype),
        "a_flip": flip(a.type.dtype),
        "b_flip": flip(b.type.dtype),
        "y_flip": flip(y.type.dtype),
        "a_scale": number(factor),
        "b_scale": number(b_scale / y_scale if adds else 0.0),
    }
    layer = p.layer("itg_pair", fields)
    name = "itg_add" if adds else "itg_mul"
    p.call("elementwise", name, layer, p.address(a), p.address(b), p.address(y))


def _steps(shape: Sequence[int], rank: int) -> list[int]:
    """Strides of a contiguous tensor as one of `rank` axes; 0 where it broadcasts."""
    full = [1] * (rank - len(shape)) + list(shape)
    return [0 if d == 1 else math.prod(full[i + 1 :]) for i, d in enumerate(full)]


def _merged(y: Sequence[int], a: Sequence[int], b: Sequence[int]) -> tuple[list[int], ...]:
    """Shape and strides with as few axes as possible, so that rows are long."""
    rank = len(y)
    rows = [r for r in zip(y, _steps(a, rank), _steps(b, rank), strict=True) if r[0] != 1]
    merged: list[tuple[int, int, int]] = []
    for d, u, v in reversed(rows):
        if merged:
            e, s, t = merged[-1]
            if u == s * e and v == t * e:
                merged[-1] = (e * d, s, t)
                continue
        merged.append((d, u, v))
    merged = [*merged, *[(1, 0, 0)] * (RANK - len(merged))][::-1]
    return tuple(list(column) for column in zip(*merged, strict=True))


def _axes(p: Printer, step: Step, first: int, last: int, zeros: tuple[int, int]) -> str:
    x, y = _operands(step)
    shape = x.type.shape
    fields = {
        "outer": math.prod(shape[:first]),
        "count": math.prod(shape[first : last + 1]),
        "inner": math.prod(shape[last + 1 :]),
        "x_zero": signed(zeros[0], x.type.dtype),
        "y_zero": signed(zeros[1], y.type.dtype),
        "x_flip": flip(x.type.dtype),
        "y_flip": flip(y.type.dtype),
    }
    return p.layer("itg_axis", fields)


def _mean(p: Printer, step: Step) -> None:
    (x, y), axes = _operands(step), step.attrs["axes"]
    count = math.prod(x.type.shape[a] for a in axes)
    x_scale, y_scale = (np.float32(scalar(step.inputs[i])) for i in (1, 3))
    factor = x_scale / (y_scale * np.float32(count))
    zeros = int(scalar(step.inputs[2])), int(scalar(step.inputs[4]))
    layer = _axes(p, step, axes[0], axes[-1], zeros)
    p.call("pool", "itg_mean", layer, number(factor), p.address(x), p.address(y))


def _softmax(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    axis = normalize_axis(step.attrs["axis"], x.type.rank)
    layer = _axes(p, step, axis, axis, (0, int(scalar(step.inputs[3]))))
    scale = number(scalar(step.inputs[2]))
    table = p.constant(value(step.inputs[1]))
    p.call("softmax", "itg_softmax", layer, table, scale, p.address(x), p.address(y))


def _lookup(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    table = p.constant(value(step.inputs[1]).view(np.uint8))
    places = p.address(x, "uint8_t"), p.address(y, "uint8_t")
    p.call("elementwise", "itg_lookup", str(x.type.size), table, *places)


def _conversion(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    quantizes = step.op == "quantize_linear"
    whole = (y if quantizes else x).type.dtype
    given = len(step.inputs) > 2 and step.inputs[2] is not None
    zero = signed(int(scalar(step.inputs[2])) if given else 0, whole)
    kinds = ("float", "int8_t") if quantizes else ("int8_t", "float")
    places = (p.address(t, k) for t, k in zip((x, y), kinds, strict=True))
    head = (str(x.type.size), number(scalar(step.inputs[1])), str(zero), flip(whole))
    p.call("elementwise", "itg_quantize" if quantizes else "itg_dequantize", *head, *places)


def _max_pool(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    layer = p.layer("itg_window", window_fields(step))
    floats = x.type.dtype == "f32"
    kind = "float" if floats else "int8_t"
    name = "itg_max_pool_floats" if floats else "itg_max_pool"
    p.call("pool", name, layer, p.address(x, kind), p.address(y, kind))


def _avg_pool(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    zeros = (int(scalar(step.inputs[i])) for i in (2, 4))
    layer = p.layer("itg_window", window_fields(step, *zeros))
    scales = [number(scalar(step.inputs[i])) for i in (1, 3)]
    counted = str(int(step.attrs["count_include_pad"]))
    p.call("pool", "itg_avg_pool", layer, *scales, counted, p.address(x), p.address(y))


def _clip(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    bounds = step.attrs if step.op == "clip" else {"lo": 0.0, "hi": math.inf}
    low, high = (_bound(bounds[k]) for k in ("lo", "hi"))
    places = p.address(x, "float"), p.address(y, "float")
    p.call("elementwise", "itg_clip", str(x.type.size), low, high, *places)


def _float_softmax(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    axis = normalize_axis(step.attrs["axis"], x.type.rank)
    layer = _axes(p, step, axis, axis, (0, 0))
    p.call("floats", "itg_softmax_floats", layer, p.address(x, "float"), p.address(y, "float"))


def _sigmoid(p: Printer, step: Step) -> None:
    x, y = _operands(step)
    places = p.address(x, "float"), p.address(y, "float")
    p.call("floats", "itg_sigmoid", str(x.type.size), *places)


def _float_pair(p: Printer, step: Step) -> None:
    a, b = step.inputs
    y = step.outputs[0]
    assert a is not None
    assert b is not None
    columns = _merged(y.type.shape, a.type.shape, b.type.shape)
    fields = dict(zip(("shape", "a_step", "b_step"), columns, strict=True))
    layer = p.layer("itg_float_pair", fields | {"kind": f"ITG_{step.op.upper()}"})
    p.call("floats", "itg_floats", layer, *(p.address(t, "float") for t in (a, b, y)))


def _bound(v: float) -> str:
    return number(v) if math.isfinite(v) else f"{'-' if v < 0 else ''}__builtin_inff()"


_PRINT = {
    "relu": _clip,
    "clip": _clip,
    "micro.softmax": _float_softmax,
    "micro.sigmoid": _sigmoid,
    **dict.fromkeys(("add", "sub", "mul", "div"), _float_pair),
    "qlinear_add": _pair,
    "qlinear_mul": _pair,
    "qlinear_mean": _mean,
    "qlinear_softmax": _softmax,
    "lookup": _lookup,
    "quantize_linear": _conversion,
    "dequantize_linear": _conversion,
    "cpu.pool": _max_pool,
    "cpu.qpool": _avg_pool,
}
