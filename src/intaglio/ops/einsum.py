"""Einsum (sums of products in Einstein notation), and its lowering to matmul."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.elementwise import numbers
from intaglio.ops.linear import matmul
from intaglio.ops.precision import widen
from intaglio.ops.reduce import reduce_sum
from intaglio.ops.registry import op
from intaglio.ops.shape import expand, reshape, slice_, transpose


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """One string of labels per operand and one for the output; the axes of "..." get digits."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    bad = f"einsum equation '{equation}'"
    if len(terms) != len(ranks):
        raise BadInput(f"{bad} has {len(terms)} terms for {len(ranks)} operands")
    if any(not re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", t) for t in (*terms, right)):
        raise BadInput(f"{bad} has a term that is not letters with at most one '...'")
    widths = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    if any(w < 0 or (w > 0 and "..." not in t) for w, t in zip(widths, terms, strict=True)):
        raise BadInput(f"{bad} does not fit operands of ranks {tuple(ranks)}")
    widest = max((w for w, t in zip(widths, terms, strict=True) if "..." in t), default=0)
    if widest > 10:
        raise BadInput(f"{bad}: '...' stands for {widest} axes; at most 10 are supported")
    digits = "0123456789"[:widest]
    labels = [t.replace("...", digits[widest - w :]) for t, w in zip(terms, widths, strict=True)]
    every = "".join(terms).replace("...", "")
    if arrow:
        out = right.replace("...", digits)
    else:
        out = digits + "".join(c for c in sorted(set(every)) if every.count(c) == 1)
    if len(set(out)) != len(out) or not set(out) <= set("".join(labels)):
        raise BadInput(f"{bad}: the result repeats a letter or has one that no operand has")
    return labels, out


def _extents(labels: Sequence[str], xs: Sequence[Value]) -> dict[str, int]:
    found: dict[str, int] = {}
    for term, x in zip(labels, xs, strict=True):
        for c, d in zip(term, x.shape, strict=True):
            if found.setdefault(c, d) != d and d != 1:
                if found[c] != 1:
                    raise BadInput(f"einsum: extents {found[c]} and {d} of one index differ")
                found[c] = d
    return found


def _einsum(*xs: Value, equation: str) -> Type:
    labels, out = _parse(equation, [x.type.rank for x in xs])
    for x in xs:
        numbers(x)
        if x.dtype != xs[0].dtype:
            raise BadInput(f"operands have element types {xs[0].dtype} and {x.dtype}")
    extents = _extents(labels, xs)
    return Type(xs[0].dtype, tuple(extents[c] for c in out))


def _macs(node: Node) -> int:
    xs = [v for v in node.inputs if v is not None]
    labels, _ = _parse(node.attrs["equation"], [x.type.rank for x in xs])
    return math.prod(_extents(labels, xs).values()) * (len(xs) > 1)


@op(_einsum, macs=_macs, onnx="Einsum", torch="einsum")
@widen
def einsum(*xs: Array, equation: str) -> Array:
    return np.einsum(equation, *xs, optimize=len(xs) > 2).astype(xs[0].dtype)


@einsum.lowers
def _(*xs: Value, equation: str) -> Value:
    """Contract the operands from left to right, each pair with one matmul."""
    labels, out = _parse(equation, [x.type.rank for x in xs])
    extents = _extents(labels, xs)
    terms = [_diagonal(t, x) for t, x in zip(labels, xs, strict=True)]
    have, x = terms[0]
    for i, (term, y) in enumerate(terms[1:], 1):
        later = set(out).union(*(t for t, _ in terms[i + 1 :]))
        have, x = _contract(have, x, term, y, later, extents)
    have, x = _sum_out(have, x, set(out))
    return _ordered(x, have, out)


def _ordered(x: Value, have: str, want: str) -> Value:
    perm = tuple(have.index(c) for c in want)
    return x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)


def _diagonal(term: str, x: Value) -> tuple[str, Value]:
    """The operand with every index once: a repeated index takes the diagonal."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i, j = [k for k, d in enumerate(term) if d == c][:2]
            rest = [k for k in range(len(term)) if k not in (i, j)]
            moved = transpose(x, perm=(*rest, i, j))
            n = x.shape[i]
            shape = tuple(x.shape[k] for k in rest)
            zeros, ones = (0,) * len(rest), (1,) * len(rest)
            flat = reshape(moved, shape=(*shape, n * n))
            x = slice_(flat, start=(*zeros, 0), stop=(*shape, n * n), step=(*ones, n + 1))
            term = "".join(term[k] for k in rest) + c
    return term, x


def _sum_out(term: str, x: Value, keep: set[str]) -> tuple[str, Value]:
    axes = tuple(i for i, c in enumerate(term) if c not in keep)
    if not axes:
        return term, x
    return "".join(c for c in term if c in keep), reduce_sum(x, axes=axes, keepdims=False)


def _contract(
    a: str, x: Value, b: str, y: Value, keep: set[str], extents: dict[str, int]
) -> tuple[str, Value]:
    a, x = _sum_out(a, x, keep | set(b))
    b, y = _sum_out(b, y, keep | set(a))
    both = [c for c in a if c in b]
    batch = "".join(c for c in both if c in keep)
    inner = "".join(c for c in both if c not in keep)
    rows = "".join(c for c in a if c not in both)
    cols = "".join(c for c in b if c not in both)

    def matrix(v: Value, term: str, first: str, second: str) -> Value:
        v = _ordered(v, term, batch + first + second)
        full = tuple(extents[c] for c in batch + first + second)
        v = v if v.shape == full else expand(v, shape=full)
        size = [math.prod(extents[c] for c in part) for part in (first, second)]
        return reshape(v, shape=(*[extents[c] for c in batch], *size))

    out = batch + rows + cols
    z = matmul(matrix(x, a, rows, inner), matrix(y, b, inner, cols))
    return out, reshape(z, shape=tuple(extents[c] for c in out))
