"""Operators of PyTorch by name, and what their importers share.

An importer is a function with the names and defaults of the operator's schema; it gets tensors as
Values, numbers as numbers:

    @importer("leaky_relu")
    def leaky_relu(self, negative_slope=0.01): ...

An operator that takes only tensors and is one of ours by another name needs nothing here:
`torch="relu"` stands with the op.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.importers import Importers
from intaglio.frontends.torch.tensors import Number, Quantized, dtype_of, number
from intaglio.ir import Array, Value
from intaglio.ops.registry import Op, normalize_axis

Operand = Any  # a Value or a Python number
Import = Callable[..., Any]
RAW: set[str] = set()  # importers that take quantised tensors as they are
IGNORED = {
    "layout",
    "device",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "requires_grad",
    "generator",
    "copy",
    "_stacklevel",
    "stacklevel",
}


def importer(*names: str, raw: bool = False) -> Callable[[Import], Import]:
    """Register the function below as the meaning of these operators."""
    RAW.update(names if raw else ())
    return IMPORTERS.register(*names)


def _import_same(op: Op, *args: Any, **attrs: Any) -> Any:
    if any(a is None for a in args) or attrs:
        raise Unsupported(f"arguments {attrs or args} are not known")
    values = promoted(*args)
    if op.infer.__name__ == "floats" and not dtypes.is_float(values[0].dtype):
        values = [ops.cast(v, dtype="f32") for v in values]
    return op(*values)


def _takes_tensors_only(op: Op) -> bool:
    given = op.signature.parameters
    return not any(given[a].default is inspect.Parameter.empty for a in op.attr_names)


IMPORTERS: Importers[Import] = Importers("torch", _import_same, _takes_tensors_only)
find_importer = IMPORTERS.find


@functools.cache
def signature_of(function: Import) -> inspect.Signature:
    return inspect.signature(function)


# ---- element types -------------------------------------------------------------------------------
_ORDER = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]


def _category(dtype: str) -> int:
    return 0 if dtype == "bool" else 2 if dtypes.is_float(dtype) else 1


def _wider(a: str | None, b: str | None) -> str | None:
    if a is None or b is None or a == b:
        return a or b
    if {a, b} == {"u8", "i8"}:
        return "i16"
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    for d in (a, b):
        if d not in _ORDER:
            raise Unsupported(f"element types {a} and {b} meet; cast one of them in the model")
    return max(a, b, key=_ORDER.index)


def _over(high: str | None, low: str | None) -> str | None:
    """The type where tensors of more weight (with axes) meet others of less (without, numbers)."""
    if high is None or low is None:
        return high or low
    return _wider(high, low) if _category(low) > _category(high) else high


def result_type(*operands: Any) -> str:
    """The element type that PyTorch computes these operands in."""
    groups: list[str | None] = [None, None, None]
    for x in operands:
        if isinstance(x, Number):
            at, dtype = 2, "f32" if x.dtype == "f64" else x.dtype
        elif isinstance(x, Value):
            at, dtype = (0 if x.type.rank else 1), x.dtype
        else:
            at = 2
            dtype = "bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32"
        groups[at] = _wider(groups[at], dtype)
    made = _over(_over(groups[0], groups[1]), groups[2])
    return made or "f32"


def as_dtype(x: Any, dtype: str) -> Value:
    """A tensor or number as a tensor of that element type."""
    if not isinstance(x, Value):
        if not isinstance(x, int | float | bool):
            raise BadInput(f"a tensor or a number is needed, not {type(x).__name__}")
        return number(x, dtype)
    made: Value = x if x.dtype == dtype else ops.cast(x, dtype=dtype)
    return made


def promoted(*operands: Any) -> list[Value]:
    """Operands in the one element type that PyTorch computes them in."""
    dtype = result_type(*operands)
    return [as_dtype(x, dtype) for x in operands]


def floating(x: Any) -> Value:
    """A tensor of floats: integers become f32, as true division and means make them."""
    v = tensor(x)
    return v if dtypes.is_float(v.dtype) else as_dtype(v, "f32")


def cast_to(x: Value, dtype: int | None) -> Value:
    """`x` in the element type of that number; None leaves it."""
    return x if dtype is None else as_dtype(x, dtype_of(dtype))


# ---- arguments -----------------------------------------------------------------------------------
def tensor(x: Any) -> Value:
    if isinstance(x, bool | int | float):
        return number(x, result_type(x))
    if not isinstance(x, Value):
        raise BadInput(f"a tensor is needed, not {type(x).__name__}")
    return x


def tensors(xs: Any) -> list[Value]:
    if not isinstance(xs, list | tuple):
        raise BadInput(f"a list of tensors is needed, not {type(xs).__name__}")
    return [tensor(x) for x in xs]


def integer(x: Any) -> int:
    """A number that must be known: a Python one, or a constant tensor of one element."""
    if isinstance(x, Value):
        x = known(x).reshape(-1)[0].item() if x.type.size == 1 else None
    if not isinstance(x, int | float):
        raise BadInput(f"a whole number is needed, not {x!r}"[:120])
    return int(x)


def ints(xs: Any, count: int | None = None) -> tuple[int, ...]:
    """Whole numbers; one stands for `count` of the same."""
    items = list(xs) if isinstance(xs, list | tuple) else [xs]
    if count is not None and len(items) == 1:
        items = items * count
    if count is not None and len(items) != count:
        raise BadInput(f"{count} numbers are needed, not {items}")
    return tuple(integer(x) for x in items)


def known(x: Value, what: str = "a tensor that decides a shape or a branch") -> Array:
    """The elements of a tensor that must not depend on the inputs."""
    if x.data is None:
        raise Unsupported(
            f"{what} is known only at run time; make it a constant, or fix the "
            "inputs that it comes from with values="
        )
    return x.data


def axis_of(dim: Any, x: Value) -> int:
    return normalize_axis(integer(dim), max(x.type.rank, 1))


def axes_of(dims: Any, x: Value) -> tuple[int, ...]:
    """Axes in order; none given means all."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return tuple(range(x.type.rank))
    return tuple(
        sorted({axis_of(d, x) for d in (dims if isinstance(dims, list | tuple) else [dims])})
    )


def reshaped(x: Value, shape: Sequence[int]) -> Value:
    made: Value = x if tuple(shape) == x.shape else ops.reshape(x, shape=tuple(shape))
    return made


def permuted(x: Value, perm: Sequence[int]) -> Value:
    same = tuple(perm) == tuple(range(x.type.rank))
    made: Value = x if same else ops.transpose(x, perm=tuple(perm))
    return made


# ---- quantised tensors ---------------------------------------------------------------------------
def real(q: Quantized) -> Value:
    """The numbers that a quantised tensor means."""
    dtype = q.stored.dtype
    scale, zero = np.array(q.scale, np.float32), np.array(q.zero)
    low, high = dtypes.limits(dtype)
    if zero.size and (zero.min() < low or zero.max() > high):
        raise BadInput(f"zero point {zero.min()} or {zero.max()} does not fit into {dtype}")
    if q.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    made: Value = ops.dequantize_linear(
        q.stored, scale, zero.astype(dtypes.numpy_of(dtype)), axis=q.axis or 0
    )
    return made


def quantized(x: Value, scale: Any, zero: Any, dtype: str, axis: int | None = None) -> Quantized:
    """Real numbers on the grid of a quantised tensor."""
    scales = tuple(float(s) for s in (scale if isinstance(scale, tuple) else (scale,)))
    zeros = tuple(int(z) for z in (zero if isinstance(zero, tuple) else (zero,)))
    s, z = np.array(scales, np.float32), np.array(zeros)
    low, high = dtypes.limits(dtype)
    if not np.all(s > 0) or z.min() < low or z.max() > high:
        raise BadInput(f"scale {scales[0]} and zero point {zeros[0]} do not fit {dtype}")
    if axis is None:
        s, z = s.reshape(()), z.reshape(())
    stored = ops.quantize_linear(
        as_dtype(x, "f32"), s, z.astype(dtypes.numpy_of(dtype)), axis=axis or 0, dtype=dtype
    )
    return Quantized(stored, scales, zeros, axis)


def like(x: Value, q: Quantized) -> Quantized:
    """Real numbers on the same grid as `q`."""
    return quantized(x, q.scale, q.zero, q.stored.dtype, q.axis)
