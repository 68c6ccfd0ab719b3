"""A custom operator as the user writes it, a Python class, checked and made an Op."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import Infer, Op, at_upper_bound, broadcast, described_error

FORMATS = ("onnx", "tflite", "torch")  # model formats that may name a custom operator
QUANTIZE = ("float", "like input")
OUT = "out"  # parameter of `compute` for the array of the result
RESERVED = ("cpu", "npu", "onnx", "python")  # prefixes of operators of our own
NAME = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+")
MAX_NAME = 53  # characters, so that "python." and the name fit into 60
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An input as a shape function sees it."""

    dtype: str  # "f32", "i8", ...
    shape: Shape
    data: Array | None = None  # the value of a constant

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Definition:
    """What the class of a custom operator says, checked."""

    name: str
    body: Callable[..., Any] | None  # `compute`; None: only a plug-in computes it
    shape: Callable[..., Any]
    names: dict[str, str]  # by model format
    quantize: str
    elementwise: bool
    dynamic: bool  # results may be smaller than `shape` says
    macs: Callable[..., int] | None

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        given = inspect.signature(self.body or self.shape)
        return given.replace(parameters=[p for p in given.parameters.values() if p.name != OUT])

    @property
    def takes_out(self) -> bool:
        """Does `compute` write into arrays that it is given?"""
        return self.body is not None and OUT in inspect.signature(self.body).parameters

    def types(self, operands: Sequence[Operand | None], attrs: dict[str, Any]) -> list[Type]:
        """The types of the results."""
        try:
            return as_types(self.shape(*operands, **attrs), operands)
        except Unsupported as e:  # a number that open dimensions leave open
            raise type(e)(f"{self.name}: {e}") from e
        except Exception as e:
            words = described_error(e).replace("Python", "shape")
            raise BadInput(f"{self.name}: {words}") from e


def define(operator: Any) -> Definition:
    """The definition in a class or an object; BadInput if something in it is missing or wrong."""
    it = _made(operator)
    name = getattr(it, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise BadInput(
            f"custom operator {_called(operator)}: name is {name!r}; it needs a prefix of its own "
            f'and at most {MAX_NAME} characters, as in name = "acme.soft_clip"'
        )
    if name.partition(".")[0] in RESERVED:
        raise BadInput(f"custom operator '{name}': prefix '{name.partition('.')[0]}' is taken")
    body, shape = getattr(it, "compute", None), getattr(it, "shape", None)
    elementwise = bool(getattr(it, "elementwise", False))
    if shape is None and elementwise:
        shape = _broadcast
    if shape is None:
        raise BadInput(
            f"custom operator '{name}' has no method shape; it gets the inputs and attributes of "
            "compute, and returns the shape of the result"
        )
    _compare_signatures(name, body, shape)
    quantize = getattr(it, "quantize", "float")
    if quantize not in QUANTIZE:
        raise BadInput(
            f"custom operator '{name}': quantize is {quantize!r}; it is 'float' or 'like input'"
        )
    names = {f: str(getattr(it, f)) for f in FORMATS if getattr(it, f, None)}
    macs = getattr(it, "macs", None)
    dynamic = bool(getattr(it, "dynamic", False))
    return Definition(name, body, shape, names, quantize, elementwise, dynamic, macs)


def _made(operator: Any) -> Any:
    if not inspect.isclass(operator):
        return operator
    try:
        return operator()
    except TypeError as e:
        raise BadInput(
            f"custom operator {operator.__name__}: {e}; register an object of the class instead"
        ) from None


def _called(operator: Any) -> str:
    return getattr(operator, "__name__", type(operator).__name__)


def _compare_signatures(name: str, body: Any, shape: Any) -> None:
    """BadInput if `shape` and `compute` do not take the same arguments."""
    if body is None or shape is _broadcast:
        return
    taken = []
    for function in (body, shape):
        given = inspect.signature(function).parameters.values()
        taken.append([(p.name, p.kind.description) for p in given if p.name != OUT])
    if taken[0] != taken[1]:
        words = [", ".join(n for n, _ in one) for one in taken]
        raise BadInput(
            f"custom operator '{name}': compute takes ({words[0]}) and shape takes ({words[1]}); "
            "give both the same parameters: inputs, then attributes after a *"
        )


def _broadcast(*operands: Operand, **attrs: Any) -> Type:
    return broadcast(*[Value(Type(o.dtype, o.shape)) for o in operands if o is not None])


# ---- results of shape functions ----------------------------------------------------------------
def as_types(given: Any, operands: Sequence[Operand | None]) -> list[Type]:
    """Results of a shape function as types.

    One result is an Operand or a Type, a shape (its element type is that of the first input), or a
    pair of element type and shape; a list of these is several results.
    """
    if isinstance(given, list) or (isinstance(given, tuple) and _several(given)):
        return [_type(one, operands) for one in given]
    return [_type(given, operands)]


def _several(given: tuple[Any, ...]) -> bool:
    """Is it a tuple of results, not one shape or one pair?"""
    return bool(given) and all(isinstance(one, tuple | list | Operand | Type) for one in given)


def _type(given: Any, operands: Sequence[Operand | None]) -> Type:
    if isinstance(given, Type):
        return given
    if isinstance(given, Operand):
        return Type(given.dtype, given.shape)
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], tuple | list):
        return Type(_dtype(given[0]), _extents(given[1]))
    if isinstance(given, tuple | list):
        first = next((o for o in operands if o is not None), None)
        return Type("f32" if first is None else first.dtype, _extents(given))
    raise BadInput(
        f"its shape function returned {given!r}; return a shape such as (1, 3), a pair such as "
        '("f32", (1, 3)), or a list of these'
    )


def _dtype(given: Any) -> str:
    if given in dtypes.TABLE:
        return str(given)
    try:
        return dtypes.name_of(np.dtype(given))
    except (KeyError, TypeError):
        raise BadInput(
            f"its shape function returned element type {given!r}; it is one of "
            f"{', '.join(dtypes.TABLE)}"
        ) from None


def _extents(given: Sequence[Any]) -> Shape:
    found = tuple(int(d) if isinstance(d, np.integer) else d for d in given)
    if any(isinstance(d, float | str | bool | None) for d in found) or any(d < 0 for d in found):
        raise BadInput(f"its shape function returned {tuple(given)}; extents are whole numbers")
    return found


# ---- as an Op ------------------------------------------------------------------------------------
def operand(v: Value | None) -> Operand | None:
    """A value as a shape function sees it."""
    return None if v is None else Operand(v.dtype, v.shape, v.data)


def infer_of(definition: Definition) -> Infer:
    """The type inference of a custom operator."""

    def infer(*values: Value | None, **attrs: Any) -> list[Type]:
        found = definition.types([operand(v) for v in values], attrs)
        if any(t.dynamic for t in found) and not definition.dynamic:
            raise BadInput(
                f"{definition.name}: its shape function returned {found[0]}, an extent that is "
                "known at run time only; set dynamic = True in the class"
            )
        return found

    return infer


def make_op(definition: Definition, body: Callable[..., Any]) -> Op:
    """The Op of a definition, computed by `body`."""
    op = Op(
        definition.name,
        body,
        infer_of(definition),
        definition.names,
        elementwise=definition.elementwise,
        keeps_scale=definition.quantize == "like input",
        custom=True,
    )
    op.signature = definition.signature
    if definition.macs is not None:
        op.macs = functools.partial(at_upper_bound, _macs(definition.macs))
    return op


def _macs(count: Callable[..., int]) -> Callable[[Node], int]:
    return lambda node: count(*map(operand, node.inputs), **node.attrs)


def plain_attribute(op: str, name: str, value: Any) -> Any:
    """An attribute as numbers, words and tuples of these; BadInput for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(plain_attribute(op, name, one) for one in value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise BadInput(
        f"{op}: attribute '{name}' is a {type(value).__name__}; attributes of custom operators are "
        "numbers, words and lists of these"
    )
