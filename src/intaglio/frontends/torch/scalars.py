"""TorchScript operators on numbers, strings and lists, and queries of shapes and types.

`NUMBERS` is used if no argument is a tensor; `QUESTIONS` take MutableTensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.torch import script_limits as limits
from intaglio.frontends.torch.importer import constant_elements
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.tensors import CODE_OF, Quantized
from intaglio.ir import Array, Type, Value, constant


class Raised(Unsupported):
    """The model's code raises an exception for its inputs."""


class Device(str):
    """A PyTorch device; it is always the CPU."""


def held_type(c: MutableTensor) -> Type:
    held = c.held
    return held.stored.type if isinstance(held, Quantized) else held.type


def extents(c: MutableTensor) -> list[int]:
    """The shape of a tensor, which must be known."""
    t = held_type(c)
    if t.dynamic:
        raise Unsupported(
            f"the model reads the shape of a tensor {t}, which is known only "
            f"at run time; cut the model before it with {option('outputs')}"
        )
    return list(t.shape)


def elements(c: Any) -> Array:
    """The elements of a constant tensor."""
    held = c.held
    if isinstance(held, Quantized):
        raise Unsupported("the model reads elements of a quantised tensor; dequantise it first")
    return constant_elements(held)


def to_number(x: Any, kind: Callable[[Any], Any]) -> Any:
    if isinstance(x, MutableTensor):
        array = elements(x)
        if array.size != 1:
            raise BadInput(f"a tensor has shape {array.shape}; one number is needed")
        x = array.reshape(-1)[0].item()
    if isinstance(x, str) and (len(x) > 40 or kind is bool):
        raise BadInput(f"{x[:40]!r} is not a number")
    return in_64_bits(kind(x))


def _item(x: Any) -> Any:
    """A Python number; of a tensor that is known only at run time, a scalar tensor."""
    held = x.held if isinstance(x, MutableTensor) else None
    if isinstance(held, Value) and held.data is None and held.type.size == 1:
        return MutableTensor(ops.reshape(held, shape=()) if held.type.rank else held)
    return to_number(x, lambda v: v)


def _size(x: Any, dim: int | None = None) -> Any:
    shape = extents(x)
    return shape if dim is None else shape[dim]


def _dtype(x: Any) -> int:
    t = held_type(x)
    if isinstance(x.held, Quantized):
        return {"i8": 12, "u8": 13, "i32": 14}[t.dtype]
    return CODE_OF[t.dtype]


def _same_object(a: Any, b: Any) -> bool:
    return a is b or (
        not isinstance(a, MutableTensor | list | dict) and type(a) is type(b) and a == b
    )


def _raise(*words: Any, **kwargs: Any) -> Any:
    raise Raised(f"the model's code refuses its inputs: {str(words[0])[:200]}")


def _pop(xs: Any, at: Any = -1, default: Any = None) -> Any:
    return xs.pop(at, default) if isinstance(xs, dict) else xs.pop(at)


def _set_item(xs: Any, at: Any, x: Any) -> Any:
    xs[at] = x
    return xs


def in_64_bits(x: Any) -> Any:
    """`x`, unless it is an integer that PyTorch's 64 bits cannot hold."""
    if isinstance(x, int) and not -(1 << 63) <= x < 1 << 63:
        raise BadFile(f"an integer of {x.bit_length()} bits is computed; PyTorch's have 64 bits")
    return x


def _range_length(low: int, high: int, step: int) -> int:
    return len(range(low, high, step))


def _slice(xs: Any, start: int | None = None, stop: int | None = None, step: int = 1) -> Any:
    return xs[start:stop:step]


def _format(text: str, *values: Any) -> str:
    """A formatted message; its arguments are left out because it has no effect."""
    return text[:200]


def _remainder(a: Any, b: Any) -> Any:
    return a % b


def _as_tensor(x: Any) -> MutableTensor:
    return MutableTensor(constant(np.asarray(x)[...]))


def _min(*xs: Any) -> Any:
    return min(xs[0] if len(xs) == 1 else xs)


def _max(*xs: Any) -> Any:
    return max(xs[0] if len(xs) == 1 else xs)


def _whole(f: Callable[[float], Any]) -> Callable[[Any], Any]:
    return lambda x: x if isinstance(x, int) else f(x)


NUMBERS: dict[str, Callable[..., Any]] = {
    "add": limits.add,
    "sub": lambda a, b, alpha=1: a - b * alpha,
    "mul": limits.mul,
    "pow": limits.pow,
    "div": operator.truediv,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": _remainder,
    "mod": _remainder,
    "fmod": math.fmod,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "and_": operator.and_,
    "or_": operator.or_,
    "not_": operator.not_,
    "__not__": operator.not_,
    "__lshift__": limits.shift,
    "__rshift__": lambda a, b: a >> b,
    "abs": abs,
    "min": _min,
    "max": _max,
    "prim::min": _min,
    "prim::max": _max,
    "prim::abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "trunc": _whole(int),
    "sym_not": operator.not_,
    "sym_sum": sum,
    "sym_min": min,
    "sym_max": max,
    "sym_sqrt": math.sqrt,
    "sym_ite": lambda c, a, b: a if c else b,
    "sym_int": int,
    "sym_float": float,
    "isinf": math.isinf,
    "isnan": math.isnan,
    "isfinite": math.isfinite,
    "__range_length": _range_length,
    "__derive_index": lambda i, start, step: start + i * step,
    "slice": _slice,
    "lower": str.lower,
    "upper": str.upper,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "split": str.split,
    "strip": str.strip,
    "join": limits.join,
    "ord": ord,
    "chr": chr,
    "sorted": sorted,
    "reverse": list.reverse,
    "sort": list.sort,
    "sum": sum,
    "all": all,
    "any": any,
    "replace": limits.replace,
    "find": str.find,
}

QUESTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "sym_size": _size,
    "prim::shape": extents,
    "dim": lambda x: held_type(x).rank,
    "ndimension": lambda x: held_type(x).rank,
    "prim::ndim": lambda x: held_type(x).rank,
    "numel": lambda x: math.prod(extents(x)),
    "sym_numel": lambda x: math.prod(extents(x)),
    "stride": lambda x, *a: _stride(x, *a),
    "sym_stride": lambda x, *a: _stride(x, *a),
    "storage_offset": lambda x: 0,
    "sym_storage_offset": lambda x: 0,
    "len": lambda x: extents(x)[0] if isinstance(x, MutableTensor) else len(x),
    "prim::dtype": _dtype,
    "prim::device": lambda x: Device("cpu"),
    "prim::layout": lambda x: 0,
    "prim::is_cuda": lambda x: False,
    "prim::is_cpu": lambda x: True,
    "prim::is_mkldnn": lambda x: False,
    "prim::is_sparse": lambda x: False,
    "prim::is_nested": lambda x: False,
    "prim::is_meta": lambda x: False,
    "prim::is_mps": lambda x: False,
    "prim::is_xla": lambda x: False,
    "prim::is_quantized": lambda x: isinstance(x.held, Quantized),
    "prim::requires_grad": lambda x: False,
    "requires_grad": lambda x: False,
    "prim::name": lambda x: None,
    "prim::itemsize": lambda x: dtypes.itemsize(held_type(x).dtype),
    "element_size": lambda x: dtypes.itemsize(held_type(x).dtype),
    "is_floating_point": lambda x: dtypes.is_float(held_type(x).dtype),
    "is_complex": lambda x: False,
    "is_contiguous": lambda x, *a: True,
    "get_device": lambda x: -1,
    "is_same_size": lambda a, b: extents(a) == extents(b),
    "is_grad_enabled": lambda: False,
    "prim::is_tracing": lambda: False,
    "jit::is_tracing": lambda: False,
    "is_scripting": lambda: True,
    "prim::is_scripting": lambda: True,
    "is_autocast_enabled": lambda *a: False,
    "is_autocast_cpu_enabled": lambda *a: False,
    "__is__": _same_object,
    "__isnot__": lambda a, b: not _same_object(a, b),
    "item": _item,
    "ScalarImplicit": _item,
    "IntImplicit": _item,
    "FloatImplicit": _item,
    "Int": lambda x: to_number(x, int),
    "Float": lambda x: to_number(x, float),
    "Bool": lambda x: to_number(x, bool),
    "Scalar": _item,
    "_local_scalar_dense": _item,
    "prim::NumToTensor": lambda x: _as_tensor(x) if not isinstance(x, MutableTensor) else x,
    "_shape_as_tensor": lambda x: MutableTensor(constant(np.array(extents(x), np.int64))),
    "prim::unchecked_unwrap_optional": lambda x: x,
    "_unwrap_optional": lambda x: x,
    "prim::data": lambda x: x,
    "prim::requires_grad_": lambda x, *a: x,
    "append": limits.append,
    "extend": limits.extend,
    "insert": limits.insert,
    "pop": _pop,
    "_set_item": _set_item,
    "clear": lambda xs: xs.clear(),
    "list": list,
    "copy": lambda xs: xs.copy(),
    "__getitem__": lambda xs, i: xs[i],
    "__contains__": lambda xs, x: x in xs,
    "keys": lambda d: list(d.keys()),
    "values": lambda d: list(d.values()),
    "items": lambda d: [tuple(i) for i in d.items()],
    "get": lambda d, k, v=None: d.get(k, v),
    "getitem": lambda xs, i: xs[i],
    "dict": dict,
    "update": lambda d, e: d.update(e),
    "prim::TupleIndex": lambda xs, i: xs[i],
    "prim::TupleUnpack": lambda xs: xs,
    "format": _format,
    "percentFormat": _format,
    "str": lambda x: limits.bounded(str(x)),
    "warn": lambda *a, **k: None,
    "prim::RaiseException": _raise,
    "prim::Print": lambda *a: None,
    "prim::AutogradZero": lambda *a: None,
    "set_grad_enabled": lambda *a: None,
    "_assert_async": lambda *a, **k: None,
    "_assert_scalar": lambda *a, **k: None,
    "sym_constrain_range": lambda *a, **k: None,
    "_assert_tensor_metadata": lambda *a, **k: None,
    "sym_constrain_range_for_size": lambda *a, **k: None,
    "prim::isinstance": lambda *a: True,
    "manual_seed": lambda *a: None,
    "_functional_assert_scalar": lambda *a, **k: None,
    "_functional_assert_async": lambda *a, **k: None,
    "prim::unchecked_cast": lambda x: x,
    "prim::rangelist": limits.range_list,
    "_grad_sum_to_size": lambda x, *a: x,
    "prim::tolist": lambda x: _tolist(x),
}


def _stride(x: MutableTensor, dim: int | None = None) -> Any:
    shape = extents(x)
    results = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return results if dim is None else results[dim]


def _tolist(x: MutableTensor) -> Any:
    return limits.bounded(elements(x).tolist())
