"""Products of matrices by themselves: on this machine's CPU, on a simulated NPU, or only predicted.

mm = intaglio.Matmul(b, types="int8,int8,int32", m=(1, 16), target="rk3588")
c = mm(a)
print(mm.cost(16).milliseconds)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.compiler import trace
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.matmul import layouts
from intaglio.matmul.graphs import graph
from intaglio.matmul.predict import Cost, cost
from intaglio.matmul.spec import COMBINATIONS, Scales, Spec, scales_of, types_of
from intaglio.package import Package
from intaglio.session import Session
from intaglio.targets import chip as chips

__all__ = ["COMBINATIONS", "Cost", "Matmul", "Spec", "cost", "types_of"]


class Matmul:
    """C = A B for A of so many rows as it was made for."""

    def __init__(
        self,
        b: Array | None = None,
        *,
        types: str | Sequence[str] = "i8,i8,i32",
        m: int | Sequence[int] = 1,
        k: int | None = None,
        n: int | None = None,
        target: str = "cpu",
        a_layout: str = "normal",
        b_layout: str = "normal",
        c_layout: str = "normal",
        a_scale: float = 1.0,
        a_zero: int = 0,
        b_scale: Any = 1.0,
        b_zero: Any = 0,
        c_scale: float = 1.0,
        c_zero: int = 0,
        cores: int = 1,
        threads: int | None = None,
    ):
        """A product on `target`, "cpu" or a chip whose simulator then runs it.

        `b` is constant, or, if None, comes with each call (then `k` and `n` say its extents).
        `types` are those of A, B and C, `m` the rows that A may have. Real numbers are
        scale * (stored - zero); those of B are one, one per column [N], or one per group of rows
        and column [groups, N]. Layouts are "normal", "native" (of the chip), and of B "transposed".
        """
        kinds = types_of(types)
        shape = _extents(b, k, n, b_layout)
        chip = None if target == "cpu" else chips.load(target)
        self.spec = Spec(*shape, kinds, chip, (a_layout, b_layout, c_layout))
        self.rows = tuple(dict.fromkeys([m] if isinstance(m, int) else m))
        if not self.rows:
            raise BadInput("m is empty; it has the rows that A may have")
        for one in self.rows:
            self.spec.rows(one)
        self.scales: Scales = scales_of(
            self.spec,
            a_scale=a_scale,
            a_zero=a_zero,
            b_scale=b_scale,
            b_zero=b_zero,
            c_scale=c_scale,
            c_zero=c_zero,
        )
        self.cores, self._threads, self._sessions = cores, threads, dict[int, Session]()
        self._b = None if b is None else self.spec.normal_b(_fitting(b, kinds[1], "B"))

    @cached_property
    def package(self) -> Package:
        """A package with one plan for each number of rows, over one set of constants."""
        plans, isa = [], 0
        for m in self.rows:
            made = trace(graph(self.spec, m, self._b, self.scales, self.cores))
            plans.append(made.plan)
            isa |= made.package.contents.isa
        meta = {"name": "matmul", "types": ",".join(self.spec.types), "rows": list(self.rows)}
        return Package.build(plans, isa=isa, meta=meta)

    def __call__(self, a: Array, b: Array | None = None) -> Array:
        """C in its layout, of A (and B, unless it is constant) in theirs."""
        m = self._rows_of(np.asarray(a))
        layouts.check(np.asarray(a), self.spec.a_shape(m), "A", self.spec.layouts[0])
        if (b is None) == (self._b is None):
            raise BadInput("B comes with each call" if b is None else "B is constant here")
        feeds = {"A": _stored(_fitting(a, self.spec.types[0], "A"))}
        if b is not None:
            feeds["B"] = _stored(self.spec.normal_b(_fitting(b, self.spec.types[1], "B")))
        if m not in self._sessions:
            plan = self.rows.index(m)
            self._sessions[m] = intaglio.open(self.package, threads=self._threads, plan=plan)
        return self._sessions[m].run(feeds)["C"]

    def cost(self, m: int | None = None, target: str | None = None) -> Cost:
        """What the chip, or another one, is predicted to take for m rows [default: the first]."""
        spec = self.spec
        if target is not None:
            spec = Spec(spec.k, spec.n, spec.types, chips.load(target))
        if spec.chip is None:
            raise BadInput("the CPU's time is measured, not predicted; name a chip: target=...")
        return cost(spec, self.rows[0] if m is None else m, self.cores)

    def native(self, what: str, array: Array) -> Array:
        """A normal A, B or C in the chip's native layout."""
        facts, (a, _, c) = self.spec.facts, self.spec.types
        if what == "B":
            return layouts.to_blocks(array, facts.b[a], facts.segment)
        return layouts.to_columns(array, _side(facts, what, a, c))

    def normal(self, what: str, array: Array) -> Array:
        """A native A, B or C in the normal layout."""
        s, facts = self.spec, self.spec.facts
        if what == "B":
            return layouts.from_blocks(array, s.k, s.n, facts.b[s.types[0]], facts.segment)
        _side(facts, what, s.types[0], s.types[2])
        return layouts.from_columns(array, s.k if what == "A" else s.n)

    def _rows_of(self, a: Array) -> int:
        m = a.shape[0 if self.spec.layouts[0] == "normal" else 1] if a.ndim > 1 else 0
        if m not in self.rows:
            known = ", ".join(map(str, self.rows))
            raise BadInput(
                f"A of shape {list(a.shape)} has {m} rows; this product was made for {known}"
            )
        return m

    def __repr__(self) -> str:
        s, rows = self.spec, "|".join(map(str, self.rows))
        where = s.chip.name if s.chip else "cpu"
        return f"Matmul([{rows}, {s.k}] x [{s.k}, {s.n}], {','.join(s.types)} on {where})"


def _side(facts: Any, what: str, a: str, c: str) -> int:
    if what not in ("A", "C"):
        raise BadInput(f"'{what}' is not one of A, B and C")
    return int(facts.a[a] if what == "A" else facts.c[c])


def _extents(b: Array | None, k: int | None, n: int | None, layout: str) -> tuple[int, int]:
    """K and N, as said or as B has them."""
    shape = None if b is None else np.asarray(b).shape
    if shape is not None and layout == "native" and len(shape) == 4:
        shape = (shape[1] * shape[3], shape[0] * shape[2])
    if shape is None or len(shape) != 2:
        if k is None or n is None:
            raise BadInput("which K and N? give k= and n=, or a B that has them")
        return k, n
    found = shape[::-1] if layout == "transposed" else shape
    if (k or found[0], n or found[1]) != tuple(found):
        raise BadInput(f"B has K = {found[0]}, N = {found[1]}, but k is {k}, n is {n}")
    return found[0], found[1]


def _fitting(array: Array, dtype: str, what: str) -> Array:
    """The array in its element type; numbers of 4 bits may come as bytes."""
    array, want = np.asarray(array), dtypes.numpy_of(dtype)
    if array.dtype == want:
        return array
    low, high = dtypes.limits(dtype) if dtypes.is_integer(dtype) else (0, 0)
    if dtype == "i4" and array.dtype == np.int8:
        if array.size and (array.min() < low or array.max() > high):
            raise BadInput(
                f"{what} has numbers from {array.min()} to {array.max()}; i4 holds {low} to {high}"
            )
        return array.astype(want)
    raise BadInput(f"{what} is {array.dtype}; {want} is needed")


def _stored(array: Array) -> Array:
    return array.astype(np.int8) if array.dtype == ml_dtypes.int4 else array
