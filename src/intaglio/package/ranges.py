"""The sections of open dimensions: their ranges, the axes that have them, and the attributes that
depend on them, as formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import native
from intaglio.errors import Unsupported
from intaglio.formula import OPERATIONS, Formula
from intaglio.package import format as f
from intaglio.plan import Plan, Step
from intaglio.symint import SymInt

MAX_STACK = 32  # of csrc/shapes.c
CODES = {name: f.FIRST_OPERATION + i for i, name in enumerate(OPERATIONS)}
SWAPPED = {"+", "*", "min", "max"}  # operations whose operands may change places


class Ranges:
    """Collects the rows of SYMB, AXES, PTCH and FORM."""

    def __init__(self, name: Callable[[str], int]):
        self.name = name  # stores a string and returns its place
        self.symbols: list[tuple[int, ...]] = []
        self.axes: list[tuple[int, ...]] = []
        self.patches: list[tuple[int, ...]] = []
        self.terms: list[tuple[int, ...]] = []
        self.rows: dict[str, int] = {}  # of the symbols of the present plan

    def add_plan(self, main: int, plan: Plan) -> None:
        """Add the open dimensions of a main plan's inputs."""
        self.rows = {}
        for i, t in enumerate(plan.inputs):
            for axis, extent in enumerate(t.type.shape if t is not None else ()):
                if isinstance(extent, SymInt):
                    row = self._symbol(main, extent)
                    self.axes.append((main, i, axis, row))

    def _symbol(self, main: int, extent: SymInt) -> int:
        kind, name, *_ = extent.formula
        if kind != "symbol":
            raise ValueError(f"an input has the extent {extent}, which is not an open dimension")
        if name not in self.rows:
            s = extent.space.symbols[name]
            self.rows[name] = len(self.symbols)
            self.symbols.append((self.name(name), main, s.low, s.high, s.multiple))
        return self.rows[name]

    def add_step(self, number: int, step: Step) -> None:
        """Add the attributes of a step that depend on open dimensions."""
        op = native.ops().get(step.op)
        if op is None or op.flags & native.CONTROL:  # bounds of loops are those of the largest
            return
        for field, value in enumerate(op.numbers(step.attrs)):
            if isinstance(value, SymInt):
                terms = self._postfix(value.formula)
                if _depth(terms) > MAX_STACK:
                    raise Unsupported(
                        f"step '{step.origin}' ({step.op}): the formula of an attribute is nested "
                        f"deeper than {MAX_STACK}; compile for a list of sizes instead"
                    )
                self.patches.append((number, field, len(self.terms), len(terms)))
                self.terms += terms

    def _postfix(self, formula: Formula) -> list[tuple[int, ...]]:
        match formula:
            case ("number", n):
                return [(f.NUMBER_TERM, 0, n)]
            case ("symbol", name):
                return [(f.SYMBOL_TERM, 0, self.rows[name])]
        operation, *sides = formula
        left, right = (self._postfix(s) for s in sides)
        if operation in SWAPPED and _depth(right) > _depth(left):
            left, right = right, left  # needs less of the stack
        return [*left, *right, (CODES[operation], 0, 0)]

    def sections(self) -> dict[str, bytes]:
        """The sections that have rows."""
        rows: dict[str, tuple[np.dtype[Any], list[tuple[int, ...]]]] = {
            "SYMB": (f.SYMBOL, self.symbols),
            "AXES": (f.AXIS, self.axes),
            "PTCH": (f.PATCH, self.patches),
            "FORM": (f.TERM, self.terms),
        }
        return {k: np.array(r, dtype).tobytes() for k, (dtype, r) in rows.items() if r}


def _depth(terms: list[tuple[int, ...]]) -> int:
    """The largest number of results that wait on the stack."""
    depth = most = 0
    for code, *_ in terms:
        depth += 1 if code < f.FIRST_OPERATION else -1
        most = max(most, depth)
    return most
