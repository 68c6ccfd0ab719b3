"""The registry of TensorFlow importers, and TfNode, the view of a node that importers get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends.importers import Importers
from intaglio.frontends.tensorflow.file import Node
from intaglio.ir import Array, Value

if TYPE_CHECKING:
    from intaglio.frontends.tensorflow.scope import Scope


# ---- values of edges that are not tensors --------------------------------------------------------
@dataclass(frozen=True)
class Variable:
    """A variable handle, with the name of its node."""

    name: str


@dataclass(frozen=True)
class Text:
    """A string tensor."""

    words: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TensorList:
    """A list of tensors of one shape, stacked; None until the element shape is known."""

    value: Value | None
    count: int
    dtype: str
    element: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Complex:
    """Complex numbers: a last axis of 2, real and imaginary part."""

    value: Value


class NoValue:
    """The untaken side of a branch (DEAD), or the result of an unsupported op (UNKNOWN)."""


DEAD, UNKNOWN = NoValue(), NoValue()
EdgeValue = Value | Variable | Text | TensorList | Complex | NoValue

# ---- importers -----------------------------------------------------------------------------------
Import = Callable[["TfNode"], Any]
IMPORTERS: Importers[Import] = Importers("tf", lambda op, n: op(*n.values()))
importer, find_importer = IMPORTERS.register, IMPORTERS.find


class TfNode:
    """One node and its operands."""

    def __init__(self, node: Node, inputs: Sequence[EdgeValue], origin: str, scope: Scope):
        self.node, self.inputs, self.origin, self.scope = node, list(inputs), origin, scope
        self.op = node.op

    def operand(self, i: int) -> EdgeValue:
        if not -len(self.inputs) <= i < len(self.inputs):
            raise BadInput(f"operand {i} is missing; {self.op} needs it")
        return self.inputs[i]

    def value(self, i: int) -> Value:
        """Operand `i`, which must be a tensor."""
        v = self.operand(i)
        if not isinstance(v, Value):
            raise BadInput(f"operand {i} is not a tensor of numbers; {self.op} needs one")
        return v

    def values(self) -> list[Value]:
        return [self.value(i) for i in range(len(self.inputs))]

    def is_const(self, i: int) -> bool:
        v = self.operand(i)
        return isinstance(v, Value) and v.data is not None

    def const(self, i: int) -> Array:
        """The array of an operand that must be constant."""
        v = self.value(i)
        if v.data is None:
            self.unsupported(
                f"operand {i} ('{v.name}') must be constant, but is known only at run time; "
                f"bind its sources with {option('shapes')} or {option('values')}"
            )
        return v.data

    def ints(self, i: int) -> tuple[int, ...]:
        """A constant operand as a tuple of integers."""
        return tuple(int(d) for d in np.asarray(self.const(i)).reshape(-1))

    def whole(self, i: int) -> int:
        """A constant operand that is one integer."""
        found = self.ints(i)
        if len(found) != 1:
            raise BadInput(f"operand {i} has {len(found)} entries; one is needed")
        return found[0]

    def number(self, i: int) -> float:
        """A constant operand that is one number."""
        found = self.const(i)
        if found.size != 1:
            raise BadInput(f"operand {i} has {found.size} entries; one is needed")
        return float(found.reshape(-1)[0])

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, or `default`."""
        found = self.node.attrs.get(name)
        if found is None:
            return default
        if default is not None and not isinstance(found, type(default)):
            if isinstance(default, float) and isinstance(found, int):
                return float(found)
            raise BadInput(f"attribute '{name}' is {found!r:.40}, which is invalid")
        return found

    def dtype(self, name: str, default: str | None = None) -> str:
        """An attribute that is a numeric element type."""
        found = self.attr(name, default or "unknown")
        if found not in dtypes.TABLE:
            self.unsupported(f"its '{name}' is {found}; only numbers are supported")
        return str(found)

    def unsupported(self, why: str) -> NoReturn:
        raise Unsupported(f"tensorflow: {self.op} '{self.origin}': {why}")
