"""Follows the text of TorchScript: a small language, of which only tensors stay symbolic.

Numbers, lists and branches on them are computed while the model is read, submodules are inlined,
loops of known length are unrolled. A branch on a tensor that is known only at run time follows
both sides and selects.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.importer import as_dtype, promoted
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import DAMAGE, UNKNOWN, Program
from intaglio.frontends.torch.scalars import Device, Raised, to_number
from intaglio.frontends.torch.script import Class, Module, Script
from intaglio.frontends.torch.tensors import Quantized
from intaglio.ir import Value

_STEPS = 1_000_000  # statements that are followed before a file counts as hostile
_DEPTH = 100  # calls inside of calls
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


class _Return(Exception):
    def __init__(self, value: Any):
        self.value = value


class Path:
    """A dotted name that is not resolved yet: torch.nn, ops.prim, __torch__.a.b, CONSTANTS."""

    def __init__(self, name: str):
        self.name = name


class Evaluator:
    """Follows methods of modules and calls a Program for every operator."""

    def __init__(self, script: Script, program: Program):
        self.script, self.program = script, program
        self.steps = self.depth = 0
        self.changed: dict[str, tuple[Module, str]] = {}  # attributes that the code set: state

    def method(
        self, owner: Module, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        return self._follow(function, [owner, *args], kwargs, owner.path)

    def _follow(
        self, f: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any], path: str
    ) -> Any:
        self.depth += 1
        if self.depth > _DEPTH:
            raise BadFile(f"torch: calls are nested more than {_DEPTH} deep; the file is hostile")
        frame = _Frame(self, path)
        names = [a.arg for a in f.args.args]
        if len(args) > len(names):
            raise BadFile(f"torch: '{f.name}' takes {len(names)} arguments, {len(args)} are given")
        defaults = dict(
            zip(names[len(names) - len(f.args.defaults) :], f.args.defaults, strict=True)
        )
        for i, name in enumerate(names):
            if i < len(args):
                frame.env[name] = args[i]
            elif name in kwargs:
                frame.env[name] = kwargs[name]
            elif name in defaults:
                frame.env[name] = frame.value(defaults[name])
            else:
                raise BadFile(f"torch: '{f.name}' is called without its argument '{name}'")
        try:
            frame.block(f.body)
        except _Return as made:
            return made.value
        finally:
            self.depth -= 1
        return None

    def constant(self, expression: ast.expr) -> Any:
        """The value of an expression without variables: an argument's default."""
        return _Frame(self, "").value(expression)

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Module):
            self._restore(owner)
            if name in owner.attributes:
                return owner.attributes[name]
            found = self.script.lookup(owner.kind)
            if isinstance(found, Class) and name in found.values:
                return _Frame(self, owner.path).value(found.values[name])
            if self.script.method(owner.kind, name) is not None:
                return _Bound(owner, name)
            raise BadFile(
                f"torch: '{owner.path or owner.kind}' has no attribute '{name}'; the "
                "file is damaged"
            )
        if owner is UNKNOWN:
            return UNKNOWN
        if isinstance(owner, _Named):
            return owner.get(name)
        raise BadFile(f"torch: '{name}' is asked of a {type(owner).__name__}; the file is damaged")

    def _restore(self, owner: Module) -> None:
        """Let a module's own code make its attributes, where it stored them its own way."""
        if owner.state is None:
            return
        function = self.script.method(owner.kind, "__setstate__")
        if function is not None:
            state, owner.state = owner.state, None
            self.method(owner, function, [state], {})

    def call_path(
        self, path: str, args: list[Any], kwargs: dict[str, Any], label: str, here: str
    ) -> Any:
        """A call of an operator, of a function of the file, or of a class of the file."""
        if path.startswith("torch."):
            name = path.removeprefix("torch.")
            if name == "device":
                return Device("cpu")
            return self.program.call(name.removeprefix("ops.aten."), args, kwargs, label)
        if path.startswith("ops."):
            space, _, name = path.removeprefix("ops.").partition(".")
            return self.program.call(
                name if space == "aten" else f"{space}::{name}", args, kwargs, label
            )
        found = self.script.lookup(path)
        if isinstance(found, ast.FunctionDef):
            return self._follow(found, args, kwargs, here)
        if isinstance(found, Class) and found.tuple:
            return _Named(args, found.fields)
        if isinstance(found, Class):
            made = Module(path, {}, here)
            if "__init__" in found.methods:
                self._follow(found.methods["__init__"], [made, *args], kwargs, here)
            return made
        raise Unsupported(f"torch: the code calls '{path}', which the file does not hold")


class _Named(tuple):  # type: ignore[type-arg]
    """A named tuple of the file."""

    fields: list[str]

    def __new__(cls, items: list[Any], fields: list[str]) -> _Named:
        made = super().__new__(cls, items)
        made.fields = fields
        return made

    def get(self, name: str) -> Any:
        return self[self.fields.index(name)]


class _Bound:
    def __init__(self, owner: Module, name: str):
        self.owner, self.name = owner, name


class _Frame:
    """The variables of one call."""

    def __init__(self, evaluator: Evaluator, path: str):
        self.e, self.path = evaluator, path
        self.env: dict[str, Any] = {}
        self.target = "output"

    # ---- statements ----
    def block(self, body: list[ast.stmt]) -> None:
        for s in body:
            self.e.steps += 1
            if self.e.steps > _STEPS:
                raise BadFile(
                    f"torch: more than {_STEPS} statements are followed; the file is "
                    "hostile, or a loop too long to unroll"
                )
            step = getattr(self, f"_{type(s).__name__.lower()}", None)
            if step is None:
                raise Unsupported(f"torch: '{type(s).__name__}' statements are not known")
            step(s)

    def _pass(self, s: ast.Pass) -> None:
        pass

    def _expr(self, s: ast.Expr) -> None:
        self.value(s.value)

    def _return(self, s: ast.Return) -> None:
        raise _Return(None if s.value is None else self.value(s.value))

    def _assert(self, s: ast.Assert) -> None:
        pass

    def _assign(self, s: ast.Assign) -> None:
        target = s.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        self.target = first.id if isinstance(first, ast.Name) else self.target
        self._store(target, self.value(s.value))

    def _annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self._store(s.target, self.value(s.value))

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple):
            items = [UNKNOWN] * len(target.elts) if value is UNKNOWN else list(value)
            if len(items) != len(target.elts):
                raise BadFile(f"torch: {len(items)} values are unpacked into {len(target.elts)}")
            for t, v in zip(target.elts, items, strict=True):
                self._store(t, v)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if not isinstance(owner, Module):
                raise BadFile("torch: an attribute is set on something that is no module")
            if target.attr in owner.attributes:
                self.e.changed[f"{owner.path}.{target.attr}".strip(".")] = (owner, target.attr)
            owner.attributes[target.attr] = value
        else:
            raise Unsupported(f"torch: an assignment to {type(target).__name__} is not known")

    def _if(self, s: ast.If) -> None:
        condition = self._truth(self.value(s.test))
        if isinstance(condition, bool):
            self.block(s.body if condition else s.orelse)
        else:
            self._select(condition, s)

    def _truth(self, x: Any) -> bool | Value:
        """A branch's condition: a bool, or a tensor that is known only at run time."""
        if x is UNKNOWN:
            self.e.program.refuse_unknown()
        if isinstance(x, _Late):
            return x.value
        if isinstance(x, MutableTensor):
            held = x.held
            if isinstance(held, Value) and held.data is None:
                return held
        return bool(to_number(x, bool))

    def _select(self, condition: Value, s: ast.If) -> None:
        """Both branches, and for every variable the one that the condition chooses."""
        sides: list[dict[str, Any] | None] = []
        for body in (s.body, s.orelse):
            side = _Frame(self.e, self.path)
            side.env = dict(self.env)
            before, writes = len(self.e.changed), self.e.program.writes
            try:
                side.block(body)
                sides.append(side.env)
            except Raised:  # a check of the inputs: the other branch is the model
                sides.append(None)
            except _Return:
                raise Unsupported(
                    f"torch: '{self.path}' returns inside of a branch that is known "
                    "only at run time"
                ) from None
            if self.e.program.writes > writes:
                raise Unsupported(
                    f"torch: '{self.path}' overwrites a tensor inside of a branch "
                    "that is known only at run time"
                )
            if len(self.e.changed) > before:
                last = list(self.e.changed)[-1]
                raise Unsupported(
                    f"torch: '{last}' is set inside of a branch that "
                    "is known only at run time; state is not read there"
                )
        then, other = sides
        if then is None or other is None:
            self.env = then or other or self.env
            return
        for name in then:
            if name in other and then[name] is not other[name]:
                self.env[name] = self._either(condition, then[name], other[name], name)

    def _either(self, condition: Value, a: Any, b: Any, name: str) -> Any:
        if isinstance(a, tuple | list) and isinstance(b, tuple | list) and len(a) == len(b):
            items = [self._either(condition, x, y, name) for x, y in zip(a, b, strict=True)]
            return items if isinstance(a, list) else tuple(items)
        if not isinstance(a, MutableTensor) and not isinstance(b, MutableTensor) and a == b:
            return a
        values = []
        for x in (a, b):
            held = x.held if isinstance(x, MutableTensor) else x
            if isinstance(held, Quantized) or not isinstance(held, Value | int | float | bool):
                return UNKNOWN  # refused if it is ever used
            values.append(held)
        left, right = promoted(*values)
        if left.shape != right.shape:
            raise Unsupported(
                f"torch: '{name}' in '{self.path}' is {left.type} or {right.type}, "
                "which is known only at run time; fix the input that decides it "
                "with values="
            )
        test = ops.reshape(as_dtype(condition, "bool"), shape=())
        return MutableTensor(ops.where(left, right, test))

    def _for(self, s: ast.For) -> None:
        items = self.value(s.iter)
        if items is UNKNOWN:
            self.e.program.refuse_unknown()
        if isinstance(items, MutableTensor):
            items = self.e.program.call("unbind", [items, 0], {}, self._label())
        for item in items:
            self._store(s.target, item)
            self.block(s.body)

    def _while(self, s: ast.While) -> None:
        while True:
            again = self._truth(self.value(s.test))
            if not isinstance(again, bool):
                raise Unsupported(
                    f"torch: '{self.path}' has a loop whose length is known only at "
                    "run time; trace the model instead"
                )
            if not again:
                return
            self.block(s.body)
            self.e.steps += 1

    # ---- expressions ----
    def value(self, x: ast.expr) -> Any:
        step = getattr(self, f"_x_{type(x).__name__.lower()}", None)
        if step is None:
            raise Unsupported(f"torch: '{type(x).__name__}' expressions are not known")
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
            return self.e.attribute(owner, x.attr)
        if owner.name == "CONSTANTS":
            constants = self.e.script.constants
            at = int(x.attr[1:]) if x.attr[1:].isdigit() else -1
            if not 0 <= at < len(constants):
                raise BadFile(f"torch: constant '{x.attr}' is none of {len(constants)}")
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
            return not self._truth(v)
        if isinstance(x.op, ast.USub) and isinstance(v, int | float):
            return -v
        raise Unsupported(f"torch: operator {type(x.op).__name__} is not known")

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
            raise BadFile(f"torch: item {at!r:.40} is not there ({type(e).__name__})") from None

    def _x_ifexp(self, x: ast.IfExp) -> Any:
        condition = self._truth(self.value(x.test))
        if isinstance(condition, bool):
            return self.value(x.body if condition else x.orelse)
        return self._either(condition, self.value(x.body), self.value(x.orelse), self.target)

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
            raise Unsupported("torch: a comparison that TorchScript does not write")
        return self.e.program.call(name, [left, right], {}, self._label())

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
            return self.e.call_path(name, args, kwargs, self._label(), self.path)
        if isinstance(owner, Module) and isinstance(f, ast.Attribute):
            return self._method(owner, f.attr, args, kwargs)
        if owner is UNKNOWN:
            return UNKNOWN
        if isinstance(f, ast.Attribute) and isinstance(owner, MutableTensor | list | dict | str):
            return self.e.program.call(f.attr, [owner, *args], kwargs, self._label())
        raise BadFile(f"torch: something that is no function is called in '{self.path}'")

    def _method(self, owner: Module, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = self.e.script.method(owner.kind, name)
        if function is None:
            raise BadFile(
                f"torch: '{owner.path or owner.kind}' has no method '{name}'; the file is damaged"
            )
        return self.e.method(owner, function, args, kwargs)

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
                return self.e.attribute(args[0], str(args[1]))
            case "int" | "float" | "bool":
                return self._number(name, args[0])
            case "range":
                return range(*args)
            case "str":
                return str(args[0])[:1000]
            case "isinstance":
                return _is_a(args[0], x.args[1])
            case "len" | "list" | "ord" | "chr" | "abs" | "min" | "max" | "round" | "pow":
                return self.e.program.call(name, args, {}, self._label())
        raise Unsupported(f"torch: the built-in function '{name}' is not known")

    def _number(self, name: str, x: Any) -> Any:
        if isinstance(x, MutableTensor) and isinstance(x.held, Value) and x.held.data is None:
            dtype = {"int": "i64", "float": "f32", "bool": "bool"}[name]
            value = as_dtype(x.held, dtype)
            return _Late(value) if name == "bool" else MutableTensor(ops.reshape(value, shape=()))
        return to_number(x, {"int": int, "float": float, "bool": bool}[name])

    def _label(self) -> str:
        return f"{self.path}/{self.target}" if self.path else self.target


class _Late:
    """A condition that is known only at run time."""

    def __init__(self, value: Value):
        self.value = value


def _is_a(x: Any, kind: ast.expr) -> bool:
    """isinstance for the types that TorchScript tells apart."""
    if isinstance(kind, ast.Tuple | ast.List):
        return any(_is_a(x, k) for k in kind.elts)
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
