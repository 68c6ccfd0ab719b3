"""The registry of PyTorch importers, type promotion, and helpers for arguments.

An importer is a function with the argument names and defaults of the operator's schema. It gets
tensors as Values and numbers as Python numbers:

    @importer("leaky_relu")
    def leaky_relu(self, negative_slope=0.01): ...

An operator on tensors only that we have one to one needs no importer; `torch="relu"` in our `@op`
line names it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends import custom_ops
from intaglio.frontends.importers import Importers
from intaglio.frontends.torch.tensors import Number, Quantized, dtype_of, number
from intaglio.ir import Array, Value
from intaglio.ops.registry import Op, normalize_axis

Operand = Any  # a Value or a Python number
Import = Callable[..., Any]
RAW: set[str] = set()  # operators whose importers take Quantized operands
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
    """Register the decorated function as the importer of these operators."""
    RAW.update(names if raw else ())
    return IMPORTERS.register(*names)


def _import_same(op: Op, *args: Any, **attrs: Any) -> Any:
    if any(a is None for a in args) or attrs:
        raise Unsupported(f"arguments {attrs or args} are not supported")
    values = promoted(*args)
    if op.infer.__name__ == "floats" and not dtypes.is_float(values[0].dtype):
        values = [ops.cast(v, dtype="f32") for v in values]
    return op(*values)


def _takes_tensors_only(op: Op) -> bool:
    given = op.signature.parameters
    return not any(given[a].default is inspect.Parameter.empty for a in op.attr_names)


IMPORTERS: Importers[Import] = Importers("torch", _import_same, _takes_tensors_only)
_custom: dict[str, tuple[Op, Import]] = {}  # by name


def find_importer(name: str) -> Import | None:
    """The importer of an operator, or None; those of other namespaces may be custom operators."""
    own = custom_ops.registered("torch", name) if "::" in name else None
    if own is None and (found := IMPORTERS.find(name)) is not None:
        return found
    if own is None and "::" in name:
        own = custom_ops.search("torch", name)
    if own is None:
        return None
    if name not in _custom or _custom[name][0] is not own:
        _custom[name] = own, functools.partial(_import_custom, own)
    return _custom[name][1]


def _import_custom(op: Op, *args: Any, **keywords: Any) -> Any:
    """The results of an operator that the user registered; arguments go by order, then by name."""
    inputs: list[Value | None] = []
    attrs: dict[str, Any] = {}
    for p, given in _matched(op, args, keywords):
        if p.kind is p.KEYWORD_ONLY:
            attrs[p.name] = given.data.item() if isinstance(given, Value) else given  # type: ignore[union-attr]
        elif isinstance(given, list | tuple):
            inputs += tensors(given)
        else:
            inputs.append(None if given is None else tensor(given))
    made = custom_ops.make_nodes(op, inputs, attrs)
    return made[0] if len(made) == 1 else tuple(made)


def _matched(op: Op, args: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
    """Pairs of the operator's parameters and the arguments that they get."""
    parameters = list(op.signature.parameters.values())
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        count = sum(isinstance(a, Value) for a in args)
        parameters = [parameters[0]] * count + parameters[1:]
    if len(args) > len(parameters):
        raise BadInput(f"it has {len(args)} arguments; custom operator {op.name} takes fewer")
    by_name = {p.name: p for p in parameters}
    if unknown := [k for k in keywords if k not in by_name]:
        raise BadInput(f"argument '{unknown[0]}' is no parameter of custom operator {op.name}")
    given = [*zip(parameters, args, strict=False), *((by_name[k], v) for k, v in keywords.items())]
    return sorted(given, key=lambda pair: parameters.index(pair[0]))


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
            raise Unsupported(
                f"element types {a} and {b} cannot be combined; cast one of them in the model"
            )
    return max(a, b, key=_ORDER.index)


def _over(high: str | None, low: str | None) -> str | None:
    """Type promotion of a stronger category (tensors with axes) with a weaker one (scalars)."""
    if high is None or low is None:
        return high or low
    return _wider(high, low) if _category(low) > _category(high) else high


def result_type(*operands: Any) -> str:
    """The element type to which PyTorch promotes these operands."""
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
    result = _over(_over(groups[0], groups[1]), groups[2])
    return result or "f32"


def as_dtype(x: Any, dtype: str) -> Value:
    """A tensor or number as a tensor of that element type."""
    if not isinstance(x, Value):
        if not isinstance(x, int | float | bool):
            raise BadInput(f"an argument is a {type(x).__name__}; a tensor or a number is needed")
        return number(x, dtype)
    result: Value = x if x.dtype == dtype else ops.cast(x, dtype=dtype)
    return result


def promoted(*operands: Any) -> list[Value]:
    """Operands cast to the element type to which PyTorch promotes them."""
    dtype = result_type(*operands)
    return [as_dtype(x, dtype) for x in operands]


def floating(x: Any) -> Value:
    """A float tensor; integers become f32."""
    v = tensor(x)
    return v if dtypes.is_float(v.dtype) else as_dtype(v, "f32")


def cast_to(x: Value, dtype: int | None) -> Value:
    """`x` cast to the element type with this PyTorch number; unchanged if None."""
    return x if dtype is None else as_dtype(x, dtype_of(dtype))


# ---- arguments -----------------------------------------------------------------------------------
def tensor(x: Any) -> Value:
    if isinstance(x, bool | int | float):
        return number(x, result_type(x))
    if not isinstance(x, Value):
        raise BadInput(f"an argument is a {type(x).__name__}; a tensor is needed")
    return x


def tensors(xs: Any) -> list[Value]:
    if not isinstance(xs, list | tuple):
        raise BadInput(f"an argument is a {type(xs).__name__}; a list of tensors is needed")
    return [tensor(x) for x in xs]


def integer(x: Any) -> int:
    """An integer: a Python number, or a constant tensor of one element."""
    if isinstance(x, Value):
        x = constant_elements(x).reshape(-1)[0].item() if x.type.size == 1 else None
    if not isinstance(x, int | float):
        raise BadInput(f"an argument is {x!r}; an integer is needed"[:120])
    return int(x)


def ints(xs: Any, count: int | None = None) -> tuple[int, ...]:
    """A list of integers; a single one is repeated `count` times."""
    items = list(xs) if isinstance(xs, list | tuple) else [xs]
    if count is not None and len(items) == 1:
        items = items * count
    if count is not None and len(items) != count:
        raise BadInput(f"an argument is {items}; {count} numbers are needed")
    return tuple(integer(x) for x in items)


def constant_elements(x: Value, what: str = "a tensor that decides a shape or a branch") -> Array:
    """The elements of a tensor that must be constant."""
    if x.data is None:
        raise Unsupported(
            f"{what} is known only at run time; make it a constant, or bind the "
            f"inputs that it depends on with {option('values')}"
        )
    return x.data


def axis_of(dim: Any, x: Value) -> int:
    return normalize_axis(integer(dim), max(x.type.rank, 1))


def axes_of(dims: Any, x: Value) -> tuple[int, ...]:
    """Sorted axes; all if none is given."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return tuple(range(x.type.rank))
    return tuple(
        sorted({axis_of(d, x) for d in (dims if isinstance(dims, list | tuple) else [dims])})
    )


def reshaped(x: Value, shape: Sequence[int]) -> Value:
    result: Value = x if tuple(shape) == x.shape else ops.reshape(x, shape=tuple(shape))
    return result


def permuted(x: Value, perm: Sequence[int]) -> Value:
    same = tuple(perm) == tuple(range(x.type.rank))
    result: Value = x if same else ops.transpose(x, perm=tuple(perm))
    return result


# ---- quantised tensors ---------------------------------------------------------------------------
def real(q: Quantized) -> Value:
    """A quantised tensor, dequantised."""
    dtype = q.stored.dtype
    scale, zero = np.array(q.scale, np.float32), np.array(q.zero)
    low, high = dtypes.limits(dtype)
    if zero.size and (zero.min() < low or zero.max() > high):
        raise BadInput(f"zero point {zero.min()} or {zero.max()} does not fit into {dtype}")
    if q.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    result: Value = ops.dequantize_linear(
        q.stored, scale, zero.astype(dtypes.numpy_of(dtype)), axis=q.axis or 0
    )
    return result


def quantized(x: Value, scale: Any, zero: Any, dtype: str, axis: int | None = None) -> Quantized:
    """Real numbers, quantised."""
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


def quantized_like(x: Value, q: Quantized) -> Quantized:
    """Real numbers quantised with the scale of `q`."""
    return quantized(x, q.scale, q.zero, q.stored.dtype, q.axis)
