"""Tensors that are computed from open extents: their elements as formulas.

`Shape` of a tensor with open dimensions stays a node, because its result is known only at run time.
Its elements are SymInts, though, and so is whatever the model computes from them: the target of a
Reshape, the end of a Slice. Importers that need such a value get it as an array of SymInts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.symint import SymInt, is_symbolic, maximum, minimum, values_of

MAX_ELEMENTS = 4096  # of a tensor that may be part of a shape computation
# Integer ops whose numpy bodies compare or round their operands. Extents are not negative.
BINARY = {"div": operator.floordiv, "mod": operator.mod, "minimum": minimum, "maximum": maximum}


class Ratio:
    """A fraction of SymInts: what a model computes in floats on the way to an extent."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Any, denominator: Any):
        self.numerator, self.denominator = numerator, denominator

    @classmethod
    def of(cls, x: Any) -> Ratio:
        if isinstance(x, Ratio):
            return x
        exact = x if isinstance(x, int | SymInt) else Fraction(float(x))
        if isinstance(exact, Fraction):
            near = exact.limit_denominator(1 << 16)
            exact = near if np.float32(near) == np.float32(exact) else exact
            return cls(exact.numerator, exact.denominator)
        return cls(exact, 1)

    def simple(self) -> Any:
        """A float if it has the same value at all sizes."""
        if not is_symbolic((self.numerator, self.denominator)):
            return self.numerator / self.denominator
        like = next(x for x in (self.numerator, self.denominator) if isinstance(x, SymInt))
        pairs = zip(values_of(self.numerator, like), values_of(self.denominator, like), strict=True)
        found = {Fraction(a, b) for a, b in pairs if b}
        return float(found.pop()) if len(found) == 1 else self

    def _with(self, other: Any, operation: str) -> Any:
        a, b, o = self.numerator, self.denominator, Ratio.of(other)
        c, d = o.numerator, o.denominator
        match operation:
            case "+":
                return Ratio(a * d + c * b, b * d).simple()
            case "-":
                return Ratio(a * d - c * b, b * d).simple()
            case "*":
                return Ratio(a * c, b * d).simple()
        return Ratio(a * d, b * c).simple()

    def __add__(self, other: Any) -> Any:
        return self._with(other, "+")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "-")

    def __rsub__(self, other: Any) -> Any:
        return Ratio.of(other)._with(self, "-")

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "*")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, "/")

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of(other)._with(self, "/")

    def __floor__(self) -> int:
        return self.numerator // self.denominator

    def __ceil__(self) -> int:
        return -(-self.numerator // self.denominator)

    __trunc__ = __floor__  # extents are not negative


def ceil_ratio(span: Any, step: Any) -> int:
    """ceil(span / step), at every size."""
    return math.ceil(Ratio.of(span) / step)


class SymbolicValues:
    """The known tensors, by their Value: arrays of Python objects, ints, SymInts and Ratios."""

    def __init__(self) -> None:
        self.known: dict[Value, Array] = {}

    def set(self, v: Value, elements: Sequence[int]) -> Value:
        """Note the elements of `v`."""
        self.known[v] = np.array(list(elements), object).reshape(v.shape)
        return v

    def of(self, v: Value | None) -> Array | None:
        """The elements of `v`; None if they are not known."""
        if v is None or v.data is not None:
            return None if v is None else v.data
        return self.known.get(v)

    def follow(self, node: Node) -> list[Array] | None:
        """The results of a node if they are constant after all; notes those that are symbolic."""
        inputs = [v for v in node.inputs if v is not None]
        if not any(v in self.known for v in inputs) or node.bodies():
            return None
        if any(v.data is None and v not in self.known for v in inputs):
            return None
        if any(v.type.size > MAX_ELEMENTS for v in (*inputs, *node.outputs)):
            return None
        results = self._evaluate(node)
        if results is None:
            return None
        if not any(isinstance(x, SymInt | Ratio) for a in results for x in a.flat):
            pairs = zip(node.outputs, results, strict=True)
            return [a.astype(dtypes.numpy_of(v.dtype)) for v, a in pairs]
        self.known.update(zip(node.outputs, results, strict=True))
        return None

    def _evaluate(self, node: Node) -> list[Array] | None:
        values = [self.of(v) for v in node.inputs]
        try:
            if node.op == "cast":
                return [_cast(values[0], node.outputs[0].dtype)]  # type: ignore[arg-type]
            whole = not dtypes.is_float(node.outputs[0].dtype)
            if node.op in BINARY and whole:
                got = np.frompyfunc(BINARY[node.op], 2, 1)(*values)
            else:
                got = REGISTRY[node.op].body(*values, **node.attrs)
            listed = got if isinstance(got, tuple | list) else (got,)
            results = [np.asarray(a, object) for a in listed]
        except Exception:  # a body may do anything with objects
            return None
        fits = all(a.shape == v.shape for a, v in zip(results, node.outputs, strict=True))
        return results if fits else None


def _cast(a: Array, dtype: str) -> Array:
    """Between integers and floats, without losing formulas."""
    if dtypes.is_float(dtype):
        elements = [Ratio(x, 1) if isinstance(x, SymInt) else x for x in a.flat]
    else:
        elements = [math.trunc(x) if isinstance(x, Ratio) else x for x in a.flat]
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape(a.shape)
