"""Formulas that permute, merge and split the axes of a tensor: `a,bc,d[b=2]->ab,1,dc`.

The left side names the axes of the model's tensor, the right side those of the new one. A letter is
an axis. Letters side by side are one axis: on the left it is split, on the right it is merged. `1`
is an axis of extent 1. Extents in brackets say how an axis is split; one letter of each axis may be
left out, because it follows from the shape.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from intaglio.errors import BadInput
from intaglio.ir import Array

Shape = tuple[int | str, ...]  # per axis: extent, or the symbol of an open one ("" without one)
EXAMPLE = "a,b,c,d->a,c,d,b"
_EXTENT = re.compile(r"([a-z])=(\d+)")


@dataclass(frozen=True)
class OpenExtent:
    """An extent that is known at run time: a product of source axes, times and over constants."""

    axes: tuple[int, ...]
    factor: int = 1
    divisor: int = 1


@dataclass(frozen=True)
class Reshape:
    extents: tuple[int | OpenExtent, ...]


@dataclass(frozen=True)
class Transpose:
    permutation: tuple[int, ...]


@dataclass(frozen=True)
class Formula:
    """A parsed formula. Each axis is a string of letters; "" is an axis of extent 1."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    extents: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Formula:
        """BadInput if the text is not a formula."""
        return _parse(text)

    def __str__(self) -> str:
        given = ",".join(f"{letter}={n}" for letter, n in self.extents.items())
        left, right = (",".join(axis or "1" for axis in side) for side in (self.left, self.right))
        return f"{left}{f'[{given}]' if given else ''}->{right}"

    def bind(self, shape: Sequence[int | str]) -> BoundFormula:
        """The formula for a tensor of this shape; BadInput if they do not fit."""
        if len(shape) != len(self.left):
            raise BadInput(
                f"formula '{self}' has {len(self.left)} axes on its left side, the tensor has "
                f"{len(shape)}: {shape_text(shape)}; name each of them"
            )
        found: dict[str, int | str] = {}
        for axis, (letters, extent) in enumerate(zip(self.left, shape, strict=True)):
            found |= self._split(axis, letters, extent)
        return BoundFormula(self, tuple(shape), found)

    def _split(self, axis: int, letters: str, extent: int | str) -> dict[str, int | str]:
        """Extents of the letters of one axis."""
        found: dict[str, int | str] = {c: self.extents[c] for c in letters if c in self.extents}
        missing = [c for c in letters if c not in found]
        known = math.prod(self.extents[c] for c in letters if c in self.extents)
        if len(missing) > 1 and extent != 1:
            raise BadInput(
                f"formula '{self}': axis {axis} has extent {extent or '?'}, which does not say how "
                f"to split it into {', '.join(letters)}; give all but one of them, for example "
                f"[{letters[0]}=2]"
            )
        if isinstance(extent, str):
            left = f"{extent}/{known}" if extent and known > 1 else extent
            return found | dict.fromkeys(missing, left)
        rest, over = divmod(extent, known)
        if over or not extent or (not missing and rest != 1):
            shown = " x ".join(f"{c}={self.extents.get(c, '?')}" for c in letters) or "1"
            raise BadInput(
                f"formula '{self}': axis {axis} has extent {extent}, which is not {shown}; extents "
                "are whole numbers whose product is the extent of the axis"
            )
        return found | dict.fromkeys(missing, rest)

    def apply(self, array: Array) -> Array:
        """The array with its axes rearranged."""
        bound = self.bind(array.shape)
        letters = "".join(self.left)
        split = array.reshape([bound.extents[c] for c in letters])  # type: ignore[misc]
        order = [letters.index(c) for c in "".join(self.right)]
        return split.transpose(order).reshape(bound.new_shape)

    def inverse(self, shape: Sequence[int | str]) -> Formula:
        """The formula that undoes this one for a tensor of this shape."""
        known = self.bind(shape).extents
        merged = {c for axis in self.right if len(axis) > 1 for c in axis}
        fixed = {c: n for c, n in known.items() if isinstance(n, int) and c in merged}
        return Formula(self.right, self.left, fixed)


@dataclass(frozen=True)
class BoundFormula:
    """A formula with the extents of its letters."""

    formula: Formula
    shape: Shape
    extents: Mapping[str, int | str]

    @property
    def new_shape(self) -> Shape:
        """The shape of the rearranged tensor; a product of symbols is written `4*batch`."""
        return tuple(_product([self.extents[c] for c in axis]) for axis in self.formula.right)

    def steps(self) -> list[Reshape | Transpose]:
        """Reshape, Transpose and Reshape, without those that change nothing."""
        before, after = "".join(self.formula.left), "".join(self.formula.right)
        order = tuple(before.index(c) for c in after)
        split = Reshape(tuple(self._split_extents()))
        merged = Reshape(tuple(self._merged(axis, after) for axis in self.formula.right))
        splits = any(len(axis) != 1 for axis in self.formula.left)
        merges = any(len(axis) != 1 for axis in self.formula.right)
        permutes = order != tuple(range(len(order)))
        if splits and merges and not permutes and all(isinstance(e, int) for e in merged.extents):
            return [merged]
        steps: list[Reshape | Transpose] = [split] if splits else []
        steps += [Transpose(order)] if permutes else []
        return steps + ([merged] if merges else [])

    def _split_extents(self) -> list[int | OpenExtent]:
        result: list[int | OpenExtent] = []
        for axis, letters in enumerate(self.formula.left):
            extents = [self.extents[c] for c in letters]
            known = math.prod(e for e in extents if isinstance(e, int))
            result += [
                e if isinstance(e, int) else OpenExtent((axis,), divisor=known) for e in extents
            ]
        return result

    def _merged(self, letters: str, order: str) -> int | OpenExtent:
        known = math.prod(e for c in letters if isinstance(e := self.extents[c], int))
        opened = tuple(order.index(c) for c in letters if isinstance(self.extents[c], str))
        return OpenExtent(opened, factor=known) if opened else known


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape as it is printed: 1x3x?x224."""
    return "x".join(str(d) if d != "" else "?" for d in shape) or "scalar"


def _product(extents: Sequence[int | str]) -> int | str:
    known = math.prod(e for e in extents if isinstance(e, int))
    symbols = [e for e in extents if isinstance(e, str)]
    if not symbols:
        return known
    if "" in symbols:
        return ""
    return "*".join([*([str(known)] if known > 1 else []), *symbols])


# ---- parsing -------------------------------------------------------------------------------------
def _parse(text: str) -> Formula:
    plain = "".join(text.split())
    extents: dict[str, int] = {}
    for group in re.findall(r"\[([^][]*)\]", plain):
        for part in group.split(","):
            found = _EXTENT.fullmatch(part)
            if found is None or not int(found[2]):
                raise _wrong(text, f"'{part}' is no extent", "write a letter and a number: [a=2]")
            if extents.setdefault(found[1], int(found[2])) != int(found[2]):
                raise _wrong(text, f"'{found[1]}' has two extents", "give one")
    left, arrow, right = re.sub(r"\[[^][]*\]", "", plain).partition("->")
    if not arrow:
        raise _wrong(text, "it has no '->'", f"write old axes -> new axes, as in {EXAMPLE}")
    formula = Formula(_axes(text, left), _axes(text, right), extents)
    _check_letters(text, formula)
    return formula


def _axes(text: str, side: str) -> tuple[str, ...]:
    """The axes of one side. A scalar has none."""
    axes = side.split(",") if side else []
    for axis in axes:
        if not axis:
            raise _wrong(text, "an axis is empty", "write 1 for an axis of extent 1")
        if bad := re.search(r"\d{2,}|[^a-z1]", axis):
            rule = "axes are letters from a to z; the only number is 1"
            remedy = "name the axis by a letter and give its extent in brackets: [b=3]"
            raise _wrong(text, f"'{bad[0]}' is no axis; {rule}", remedy)
    return tuple(axis.replace("1", "") for axis in axes)


def _check_letters(text: str, formula: Formula) -> None:
    left, right = Counter("".join(formula.left)), Counter("".join(formula.right))
    for side, counts in (("left", left), ("right", right)):
        if twice := [c for c, n in counts.items() if n > 1]:
            raise _wrong(text, f"'{twice[0]}' is twice on the {side}", "use another letter")
    if lost := sorted(left.keys() - right.keys()):
        rule = f"'{lost[0]}' is not on the right; only axes of extent 1 may be dropped"
        raise _wrong(text, rule, f"add {lost[0]}, or write 1 for it on the left")
    if new := sorted(right.keys() - left.keys()):
        rule = f"'{new[0]}' is not on the left; a new axis has extent 1"
        raise _wrong(text, rule, "write 1 for it")
    if unknown := sorted(formula.extents.keys() - left.keys()):
        raise _wrong(text, f"[{unknown[0]}=...] is no axis of it", "give extents of its letters")


def _wrong(text: str, what: str, remedy: str) -> BadInput:
    return BadInput(f"formula '{' '.join(text.split())}': {what}; {remedy}")
