"""TorchScript interpreter: executes a model's code symbolically.

Numbers, lists and branches on them are computed, submodules are inlined, and operators on tensors
become nodes.
"""

from __future__ import annotations

import ast
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.program import UNKNOWN, Program
from intaglio.frontends.torch.scalars import Device
from intaglio.frontends.torch.script import Class, Module, Script
from intaglio.frontends.torch.script_expressions import BoundMethod
from intaglio.frontends.torch.script_frame import Frame, Return
from intaglio.frontends.torch.tensors import NamedTuple

MAX_CALL_DEPTH = 100


class Interpreter:
    """Executes methods of modules; a Program imports the operators."""

    def __init__(self, script: Script, program: Program):
        self.script, self.program = script, program
        self.steps = self.depth = 0
        self.changed: dict[str, tuple[Module, str]] = {}  # attributes that the code set

    def method(
        self, owner: Module, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        return self._follow(function, [owner, *args], kwargs, owner.path)

    def _follow(
        self, f: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any], path: str
    ) -> Any:
        self.depth += 1
        if self.depth > MAX_CALL_DEPTH:
            raise BadFile(
                f"torch: calls are nested more than {MAX_CALL_DEPTH} deep; the file is malicious"
            )
        frame = Frame(self, path)
        names = [a.arg for a in f.args.args]
        if len(args) > len(names):
            raise BadFile(f"torch: '{f.name}' takes {len(names)} arguments; {len(args)} are given")
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
        except Return as made:
            return made.value
        finally:
            self.depth -= 1
        return None

    def constant(self, expression: ast.expr) -> Any:
        """The value of a constant expression: the default of an argument."""
        return Frame(self, "").value(expression)

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Module):
            self._restore(owner)
            if name in owner.attributes:
                return owner.attributes[name]
            found = self.script.lookup(owner.kind)
            if isinstance(found, Class) and name in found.values:
                return Frame(self, owner.path).value(found.values[name])
            if self.script.method(owner.kind, name) is not None:
                return BoundMethod(owner, name)
            raise BadFile(
                f"torch: '{owner.path or owner.kind}' has no attribute '{name}'; the "
                "file is damaged"
            )
        if owner is UNKNOWN:
            return UNKNOWN
        if isinstance(owner, NamedTuple):
            return owner.get(name)
        raise BadFile(f"torch: '{name}' is read from a {type(owner).__name__}; the file is damaged")

    def _restore(self, owner: Module) -> None:
        """Call __setstate__ of a module that stored its own state."""
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
            return NamedTuple(args, found.fields)
        if isinstance(found, Class):
            result = Module(path, {}, here)
            if "__init__" in found.methods:
                self._follow(found.methods["__init__"], [result, *args], kwargs, here)
            return result
        raise Unsupported(
            f"torch: the code calls '{path}', which the file does not contain; save the model again"
        )
