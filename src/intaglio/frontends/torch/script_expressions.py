"""Expressions of TorchScript code: values are computed, only tensors stay symbolic."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from intaglio import ops
from intaglio.errors import BadFile, Unsupported, option
from intaglio.frontends.torch.importer import as_dtype, promoted
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import DAMAGE, UNKNOWN
from intaglio.frontends.torch.scalars import Device, to_number
from intaglio.frontends.torch.script import Module
from intaglio.frontends.torch.tensors import Quantized
from intaglio.ir import Value

if TYPE_CHECKING:
    from intaglio.frontends.torch.script_interpreter import Interpreter

_NAMES = {"inf": math.inf, "nan": math.nan, "True": True, "False": False, "None": None}
_TYPES = {
    "Tensor",
    "List",
    "Optional",
    "Tuple",
    "Dict",
    "int",
    "float",
    "bool",
    "str",
    "NoneType",
    "number",
    "Any",
    "Device",
    "Future",
    "Union",
    "complex",
}


class Path:
    """An unresolved dotted name: torch.nn, ops.prim, __torch__.a.b, CONSTANTS."""

    def __init__(self, name: str):
        self.name = name


class BoundMethod:
    def __init__(self, owner: Module, name: str):
        self.owner, self.name = owner, name


def _is_instance(x: Any, kind: ast.expr) -> bool:
    """isinstance for the types of TorchScript."""
    if isinstance(kind, ast.Tuple | ast.List):
        return any(_is_instance(x, k) for k in kind.elts)
    name = ast.unparse(kind).split("[")[0].rpartition(".")[2]
    if isinstance(x, Module):
        return x.kind.rpartition(".")[2] == name
    kinds: dict[str, Any] = {
        "Tensor": MutableTensor,
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "List": list,
        "Tuple": tuple,
        "Dict": dict,
        "NoneType": type(None),
        "None": type(None),
        "number": int | float,
        "Device": Device,
    }
    return isinstance(x, kinds.get(name, ())) and not (name == "int" and isinstance(x, bool))


class Expressions:
    """Evaluates expressions with the variables of one call."""

    def __init__(self, interpreter: Interpreter, path: str):
        self.interpreter, self.path = interpreter, path
        self.env: dict[str, Any] = {}
        self.target = "output"

    def value(self, x: ast.expr) -> Any:
        step = getattr(self, f"_x_{type(x).__name__.lower()}", None)
        if step is None:
            raise Unsupported(f"torch: '{type(x).__name__}' expressions are not supported")
        return step(x)

    def _x_constant(self, x: ast.Constant) -> Any:
        return x.value

    def _x_name(self, x: ast.Name) -> Any:
        if x.id in self.env:
            return self.env[x.id]
        if x.id in _NAMES:
            return _NAMES[x.id]
        if x.id in ("torch", "ops", "CONSTANTS", "__torch__") or x.id in _TYPES:
            return Path(x.id)
        raise BadFile(f"torch: '{x.id}' is read before it is set; the file is damaged")

    def _x_attribute(self, x: ast.Attribute) -> Any:
        owner = self.value(x.value)
        if not isinstance(owner, Path):
            return self.interpreter.attribute(owner, x.attr)
        if owner.name == "CONSTANTS":
            constants = self.interpreter.script.constants
            at = int(x.attr[1:]) if x.attr[1:].isdigit() else -1
            if not 0 <= at < len(constants):
                raise BadFile(
                    f"torch: constant '{x.attr}' does not exist; the file has {len(constants)} "
                    "constants"
                )
            return constants[at]
        return Path(f"{owner.name}.{x.attr}")

    def _x_tuple(self, x: ast.Tuple) -> Any:
        return tuple(self.value(y) for y in x.elts)

    def _x_list(self, x: ast.List) -> Any:
        return [self.value(y) for y in x.elts]

    def _x_dict(self, x: ast.Dict) -> Any:
        keys = [self.value(k) for k in x.keys if k is not None]
        return dict(zip(keys, (self.value(v) for v in x.values), strict=True))

    def _x_unaryop(self, x: ast.UnaryOp) -> Any:
        v = self.value(x.operand)
        if isinstance(x.op, ast.Not):
            return self.interpreter.program.call("__not__", [v], {}, self.label())
        if isinstance(x.op, ast.USub) and isinstance(v, int | float):
            return -v
        raise Unsupported(f"torch: operator {type(x.op).__name__} is not supported")

    def _x_subscript(self, x: ast.Subscript) -> Any:
        owner = self.value(x.value)
        if owner is UNKNOWN or isinstance(owner, Path):
            return owner
        if isinstance(x.slice, ast.Slice):
            ends = (None if e is None else self.value(e) for e in (x.slice.lower, x.slice.upper))
            return owner[slice(*ends)]
        return self._item(owner, self.value(x.slice))

    def _item(self, owner: Any, at: Any) -> Any:
        try:
            return owner[at]
        except DAMAGE as e:
            raise BadFile(f"torch: item {at!r:.40} does not exist ({type(e).__name__})") from None

    def _x_ifexp(self, x: ast.IfExp) -> Any:
        condition = self.truth(self.value(x.test))
        if isinstance(condition, bool):
            return self.value(x.body if condition else x.orelse)
        return self.select_value(condition, self.value(x.body), self.value(x.orelse), self.target)

    def _x_compare(self, x: ast.Compare) -> Any:
        left, right = self.value(x.left), self.value(x.comparators[0])
        names = {
            ast.Eq: "eq",
            ast.NotEq: "ne",
            ast.Lt: "lt",
            ast.LtE: "le",
            ast.Gt: "gt",
            ast.GtE: "ge",
            ast.Is: "__is__",
            ast.IsNot: "__isnot__",
        }
        name = names.get(type(x.ops[0]))
        if name is None or len(x.ops) > 1:
            raise Unsupported("torch: chained comparisons are not supported; the file is damaged")
        return self.interpreter.program.call(name, [left, right], {}, self.label())

    def _x_call(self, x: ast.Call) -> Any:
        f = x.func
        if isinstance(f, ast.Name) and f.id not in self.env:
            return self._builtin(f.id, x)
        owner = self.value(f.value) if isinstance(f, ast.Attribute) else self.value(f)
        target = self.target
        args = [self.value(a) for a in x.args]
        kwargs = {k.arg: self.value(k.value) for k in x.keywords if k.arg is not None}
        self.target = target
        if isinstance(owner, Path):
            name = f"{owner.name}.{f.attr}" if isinstance(f, ast.Attribute) else owner.name
            return self.interpreter.call_path(name, args, kwargs, self.label(), self.path)
        if isinstance(owner, Module) and isinstance(f, ast.Attribute):
            return self._method(owner, f.attr, args, kwargs)
        if owner is UNKNOWN:
            return UNKNOWN
        if isinstance(f, ast.Attribute) and isinstance(owner, MutableTensor | list | dict | str):
            return self.interpreter.program.call(f.attr, [owner, *args], kwargs, self.label())
        raise BadFile(f"torch: the code calls an object that is not a function in '{self.path}'")

    def _method(self, owner: Module, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = self.interpreter.script.method(owner.kind, name)
        if function is None:
            raise BadFile(
                f"torch: '{owner.path or owner.kind}' has no method '{name}'; the file is damaged"
            )
        return self.interpreter.method(owner, function, args, kwargs)

    def _builtin(self, name: str, x: ast.Call) -> Any:
        if name in ("annotate", "unchecked_cast"):
            return self.value(x.args[1])
        if name == "uninitialized":
            return UNKNOWN
        args = [self.value(a) for a in x.args]
        if any(a is UNKNOWN for a in args):
            return UNKNOWN
        match name:
            case "getattr":
                return self.interpreter.attribute(args[0], str(args[1]))
            case "int" | "float" | "bool":
                return self._number(name, args[0])
            case "range":
                return range(*args)
            case "str":
                return str(args[0])[:1000]
            case "isinstance":
                return _is_instance(args[0], x.args[1])
            case "len" | "list" | "ord" | "chr" | "abs" | "min" | "max" | "round" | "pow":
                return self.interpreter.program.call(name, args, {}, self.label())
        raise Unsupported(f"torch: the built-in function '{name}' is not supported")

    def _number(self, name: str, x: Any) -> Any:
        if isinstance(x, MutableTensor) and isinstance(x.held, Value) and x.held.data is None:
            dtype = {"int": "i64", "float": "f32", "bool": "bool"}[name]
            value = as_dtype(x.held, dtype)
            return MutableTensor(ops.reshape(value, shape=()))
        return to_number(x, {"int": int, "float": float, "bool": bool}[name])

    def label(self) -> str:
        return f"{self.path}/{self.target}" if self.path else self.target

    def truth(self, x: Any) -> bool | Value:
        """A condition: a bool, or a tensor that is known only at run time."""
        if x is UNKNOWN:
            self.interpreter.program.refuse_unknown()
        if isinstance(x, MutableTensor):
            held = x.held
            if isinstance(held, Value) and held.data is None:
                return held
        return bool(to_number(x, bool))

    def select_value(self, condition: Value, a: Any, b: Any, name: str) -> Any:
        if isinstance(a, tuple | list) and isinstance(b, tuple | list) and len(a) == len(b):
            items = [self.select_value(condition, x, y, name) for x, y in zip(a, b, strict=True)]
            return items if isinstance(a, list) else tuple(items)
        if not isinstance(a, MutableTensor) and not isinstance(b, MutableTensor) and a == b:
            return a
        values = []
        for x in (a, b):
            held = x.held if isinstance(x, MutableTensor) else x
            if isinstance(held, Quantized) or not isinstance(held, Value | int | float | bool):
                return UNKNOWN  # an error if it is used
            values.append(held)
        left, right = promoted(*values)
        if left.shape != right.shape:
            raise Unsupported(
                f"torch: '{name}' in '{self.path}' is {left.type} or {right.type}, "
                "which is known only at run time; bind the input that decides it "
                f"with {option('values')}"
            )
        test = ops.reshape(as_dtype(condition, "bool"), shape=())
        return MutableTensor(ops.where(left, right, test))
