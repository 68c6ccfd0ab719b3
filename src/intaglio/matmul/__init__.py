"""Standalone matrix products: on this machine's CPU, on a simulated NPU, or only predicted.

mm = intaglio.Matmul(b, types="int8,int8,int32", m=(1, 16), target="rk3588")
c = mm(a)
print(mm.cost(16).milliseconds)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.arguments import described
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
    """C = A B, for the numbers of rows of A that it was created for."""

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
        """A matrix product on `target`: "cpu", or a chip, which is then simulated.

        `b` is a constant. If it is None, B is an argument of each call, and `k` and `n` give its
        shape. `types` are the types of A, B and C. `m` lists the numbers of rows that A may have.
        A real number is scale * (stored - zero). B has one scale, one per column [N], or one per
        group of rows and column [groups, N]. Layouts are "normal", "native" (the chip's), and
        "transposed" for B.
        """
        kinds = types_of(types)
        shape = _extents(b, k, n, b_layout)
        if not isinstance(target, str | Path):
            raise BadInput(f'target is {described(target)}; give "cpu" or the name of a chip')
        chip = None if target == "cpu" else chips.load(target)
        self.spec = Spec(*shape, kinds, chip, (a_layout, b_layout, c_layout))
        self.rows = tuple(dict.fromkeys(m if isinstance(m, list | tuple) else [m]))
        if not self.rows:
            raise BadInput("m is empty; list the numbers of rows that A may have")
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
        self._b = None if b is None else self.spec.normal_b(_as_type(b, kinds[1], "B"))

    @cached_property
    def package(self) -> Package:
        """A package with one plan per number of rows; all plans share the constants."""
        plans, isa = [], 0
        for m in self.rows:
            result = trace(graph(self.spec, m, self._b, self.scales, self.cores))
            plans.append(result.plan)
            isa |= result.package.contents.isa
        meta = {"name": "matmul", "types": ",".join(self.spec.types), "rows": list(self.rows)}
        return Package.build(plans, isa=isa, meta=meta)

    def __call__(self, a: Array, b: Array | None = None) -> Array:
        """C for A, and for B unless it is constant; each in its layout."""
        m = self._rows_of(np.asarray(a))
        layouts.check(np.asarray(a), self.spec.a_shape(m), "A", self.spec.layouts[0])
        if (b is None) == (self._b is None):
            raise BadInput(
                "B is missing; it comes with each call"
                if b is None
                else "B is given twice; it is constant here"
            )
        feeds = {"A": _i4_as_i8(_as_type(a, self.spec.types[0], "A"))}
        if b is not None:
            feeds["B"] = _i4_as_i8(self.spec.normal_b(_as_type(b, self.spec.types[1], "B")))
        if m not in self._sessions:
            plan = self.rows.index(m)
            self._sessions[m] = intaglio.open(self.package, threads=self._threads, plan=plan)
        return self._sessions[m].run(feeds)["C"]

    def cost(self, m: int | None = None, target: str | None = None) -> Cost:
        """The predicted cost of m rows [default: the first number] on the chip, or on `target`."""
        spec = self.spec
        if target is not None:
            spec = Spec(spec.k, spec.n, spec.types, chips.load(target))
        if spec.chip is None:
            raise BadInput("the CPU's time is measured, not predicted; give a chip: target=...")
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
                f"A of shape {list(a.shape)} has {m} rows; this product was created for {known}"
            )
        return m

    def __repr__(self) -> str:
        s, rows = self.spec, "|".join(map(str, self.rows))
        where = s.chip.name if s.chip else "cpu"
        return f"Matmul([{rows}, {s.k}] x [{s.k}, {s.n}], {','.join(s.types)} on {where})"


def _side(facts: Any, what: str, a: str, c: str) -> int:
    if what not in ("A", "C"):
        raise BadInput(f"matrix '{what}' does not exist; it is one of A, B and C")
    return int(facts.a[a] if what == "A" else facts.c[c])


def _extents(b: Array | None, k: int | None, n: int | None, layout: str) -> tuple[int, int]:
    """K and N, given or from the shape of B."""
    shape = None if b is None else np.asarray(b).shape
    if shape is not None and layout == "native" and len(shape) == 4:
        shape = (shape[1] * shape[3], shape[0] * shape[2])
    if shape is None or len(shape) != 2:
        if k is None or n is None:
            raise BadInput("K and N are unknown; give k= and n=, or B")
        return k, n
    found = shape[::-1] if layout == "transposed" else shape
    if (k or found[0], n or found[1]) != tuple(found):
        raise BadInput(f"B has K = {found[0]}, N = {found[1]}; k is {k} and n is {n}")
    return found[0], found[1]


def _as_type(array: Array, dtype: str, what: str) -> Array:
    """The array in its element type; 4-bit numbers may be given as int8."""
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


def _i4_as_i8(array: Array) -> Array:
    return array.astype(np.int8) if array.dtype == ml_dtypes.int4 else array
