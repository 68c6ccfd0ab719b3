"""Statements of TorchScript code: assignments, branches and loops.

Loops of known length are unrolled. A branch on a tensor that is known only at run time follows both
sides and selects.
"""

from __future__ import annotations

import ast
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import UNKNOWN
from intaglio.frontends.torch.scalars import Raised
from intaglio.frontends.torch.script import Module
from intaglio.frontends.torch.script_expressions import Expressions
from intaglio.ir import Value

MAX_STATEMENTS = 1_000_000


class Return(Exception):
    def __init__(self, value: Any):
        self.value = value


class Frame(Expressions):
    """Executes the statements of one call."""

    def block(self, body: list[ast.stmt]) -> None:
        for s in body:
            self.interpreter.steps += 1
            if self.interpreter.steps > MAX_STATEMENTS:
                raise BadFile(
                    f"torch: more than {MAX_STATEMENTS} statements; the file is "
                    "malicious, or a loop is too long to unroll"
                )
            step = getattr(self, f"_{type(s).__name__.lower()}", None)
            if step is None:
                raise Unsupported(f"torch: '{type(s).__name__}' statements are not supported")
            step(s)

    def _pass(self, s: ast.Pass) -> None:
        pass

    def _expr(self, s: ast.Expr) -> None:
        self.value(s.value)

    def _return(self, s: ast.Return) -> None:
        raise Return(None if s.value is None else self.value(s.value))

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
                raise BadFile(
                    f"torch: {len(items)} values are unpacked into {len(target.elts)} names"
                )
            for t, v in zip(target.elts, items, strict=True):
                self._store(t, v)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if not isinstance(owner, Module):
                raise BadFile("torch: an attribute is set on an object that is not a module")
            if target.attr in owner.attributes:
                self.interpreter.changed[f"{owner.path}.{target.attr}".strip(".")] = (
                    owner,
                    target.attr,
                )
            owner.attributes[target.attr] = value
        else:
            raise Unsupported(f"torch: an assignment to {type(target).__name__} is not supported")

    def _if(self, s: ast.If) -> None:
        condition = self.truth(self.value(s.test))
        if isinstance(condition, bool):
            self.block(s.body if condition else s.orelse)
        else:
            self._select(condition, s)

    def _select(self, condition: Value, s: ast.If) -> None:
        """Execute both branches, and select every variable by the condition."""
        sides: list[dict[str, Any] | None] = []
        for body in (s.body, s.orelse):
            side = Frame(self.interpreter, self.path)
            side.env = dict(self.env)
            before, writes = len(self.interpreter.changed), self.interpreter.program.writes
            try:
                side.block(body)
                sides.append(side.env)
            except Raised:  # a check of the inputs: take the other branch
                sides.append(None)
            except Return:
                raise Unsupported(
                    f"torch: '{self.path}' returns inside of a branch whose "
                    "condition is known only at run time; return behind it"
                ) from None
            if self.interpreter.program.writes > writes:
                raise Unsupported(
                    f"torch: '{self.path}' overwrites a tensor inside of a branch "
                    "whose condition is known only at run time; write the model without it"
                )
            if len(self.interpreter.changed) > before:
                last = list(self.interpreter.changed)[-1]
                raise Unsupported(
                    f"torch: '{last}' is set inside of a branch whose condition "
                    "is known only at run time; state is not supported there"
                )
        then, other = sides
        if then is None or other is None:
            self.env = then or other or self.env
            return
        for name in then:
            if name in other and then[name] is not other[name]:
                self.env[name] = self.select_value(condition, then[name], other[name], name)

    def _for(self, s: ast.For) -> None:
        items = self.value(s.iter)
        if items is UNKNOWN:
            self.interpreter.program.refuse_unknown()
        if isinstance(items, MutableTensor):
            items = self.interpreter.program.call("unbind", [items, 0], {}, self.label())
        for item in items:
            self._store(s.target, item)
            self.block(s.body)

    def _while(self, s: ast.While) -> None:
        while True:
            again = self.truth(self.value(s.test))
            if not isinstance(again, bool):
                raise Unsupported(
                    f"torch: '{self.path}' has a loop whose trip count is known "
                    "only at run time; give it a fixed trip count, or move it out of the model"
                )
            if not again:
                return
            self.block(s.body)
            self.interpreter.steps += 1
