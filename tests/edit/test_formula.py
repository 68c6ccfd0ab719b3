"""Formulas: the rules of the language, numpy's results, inverses, and the steps in ONNX."""

from __future__ import annotations

import math
import re
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.edit.formula import Formula, OpenExtent, Reshape, Transpose
from intaglio.errors import BadInput


def numbered(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


# ---- examples of rknn-toolkit2's manual ----
@pytest.mark.parametrize(
    ("formula", "shape", "expected"),
    [
        ("a,b,c->a,b,1,c", (2, 3, 4), lambda x: x[:, :, None]),
        ("a,b,c,d,e->ab,c,d,e", (2, 3, 4, 5, 6), lambda x: x.reshape(6, 4, 5, 6)),
        ("a,b,c,d->a,d,b,c", (2, 3, 4, 5), lambda x: x.transpose(0, 3, 1, 2)),
        (
            "a,b,c,d->d,acb,1",
            (2, 3, 4, 5),
            lambda x: x.transpose(3, 0, 2, 1).reshape(5, 24, 1),
        ),
        (
            "a,bc,de,f[b=2,d=4]->ab,fe,dc,1",
            (3, 4, 8, 5),
            lambda x: x.reshape(3, 2, 2, 4, 2, 5).transpose(0, 1, 5, 4, 3, 2).reshape(6, 10, 8, 1),
        ),
        (
            "ab,c,d,qk[a=2,k=8]->aq,cd,1,kb",
            (32, 4, 1, 64),
            lambda x: x.reshape(2, 16, 4, 8, 8).transpose(0, 3, 2, 4, 1).reshape(16, 4, 1, 128),
        ),
        ("a,1,c,d->ac,d,1", (2, 1, 3, 4), lambda x: x.reshape(6, 4, 1)),
        ("a,b,c->a,1,cb,1,1", (2, 3, 4), lambda x: x.transpose(0, 2, 1).reshape(2, 1, 12, 1, 1)),
        ("a,b,c,d->1,ad,b,c", (2, 3, 4, 5), lambda x: x.transpose(0, 3, 1, 2).reshape(1, 10, 3, 4)),
    ],
)  # fmt: skip
def test_examples_of_the_manual(formula, shape, expected):
    x = numbered(*shape)
    np.testing.assert_array_equal(Formula.parse(formula).apply(x), expected(x))


def test_letters_have_no_order():
    x = numbered(2, 3)
    one, two = (Formula.parse(f).apply(x) for f in ("a,b->b,a", "c,a->a,c"))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "formula",
    ["ab,c[a=2]->a,b,c", "ab,c->a,b,c[a=2]", " ab , c [ a = 2 ] -> a , b , c ", "ab[a=2],c->a,b,c"],
)
def test_extents_may_stand_on_either_side(formula):
    assert Formula.parse(formula).apply(numbered(6, 4)).shape == (2, 3, 4)


def test_extents_of_whole_axes_are_checked():
    assert Formula.parse("a,b[a=32]->b,a").apply(numbered(32, 2)).shape == (2, 32)
    with pytest.raises(BadInput, match="axis 0 has extent 31, which is not a=32"):
        Formula.parse("a,b[a=32]->b,a").apply(numbered(31, 2))


def test_scalars_and_extent_1():
    assert Formula.parse("->1").apply(numbered()).shape == (1,)
    assert Formula.parse("1->").apply(numbered(1)).shape == ()
    assert Formula.parse("ab->a,b").apply(numbered(1)).shape == (1, 1)


@pytest.mark.parametrize(
    ("formula", "shape", "words"),
    [
        ("a,b", (1, 2), "it has no '->'"),
        ("", (), "it has no '->'"),
        ("a,2->a,2", (1, 2), "'2' is no axis; axes are letters from a to z; the only number is 1"),
        ("a,12->a", (1, 1), "'12' is no axis"),
        ("a,B->a,B", (1, 2), "'B' is no axis"),
        ("a,b->a", (1, 2), "'b' is not on the right; only axes of extent 1 may be dropped"),
        ("a,1,c,d->ac,1", (2, 1, 3, 4), "'d' is not on the right"),
        ("a->ab", (2,), "'b' is not on the left; a new axis has extent 1"),
        ("a,a->a,a", (2, 2), "'a' is twice on the left"),
        ("a,b->ab,a", (2, 2), "'a' is twice on the right"),
        ("a,,b->a,b", (2, 1), "an axis is empty"),
        ("a[b=2]->a", (2,), r"\[b=...\] is no axis of it"),
        ("a[a]->a", (2,), "'a' is no extent"),
        ("a[a=0]->a", (2,), "'a=0' is no extent"),
        ("a[a=2]->a[a=3]", (2,), "'a' has two extents"),
        ("a[a=2->a", (2,), "is no axis"),
        ("a,b->b,a", (1, 2, 3), "has 2 axes on its left side, the tensor has 3: 1x2x3"),
        ("ab->a,b", (4,), r"how to split it into a, b; give all but one of them"),
        ("ab[a=5]->a,b", (32,), r"axis 0 has extent 32, which is not a=5 x b=\?"),
        ("ab[a=5,b=5]->a,b", (32,), "which is not a=5 x b=5"),
        ("a,1->a", (2, 3), "axis 1 has extent 3, which is not 1"),
    ],
)
def test_errors(formula, shape, words):
    with pytest.raises(BadInput, match=words) as refused:
        Formula.parse(formula).bind(shape)
    assert "\n" not in str(refused.value)


# ---- steps ----
def test_steps_leave_out_what_changes_nothing():
    def steps(formula, *shape):
        return Formula.parse(formula).bind(shape).steps()

    assert steps("a,b->a,b", 2, 3) == []
    assert steps("a,b->b,a", 2, 3) == [Transpose((1, 0))]
    assert steps("a,b->ab", 2, 3) == [Reshape((6,))]
    assert steps("ab,c[a=2]->a,bc", 6, 4) == [Reshape((2, 12))]
    assert steps("ab,c[a=2]->c,b,a", 6, 4) == [Reshape((2, 3, 4)), Transpose((2, 1, 0))]


def test_open_dimensions():
    bound = Formula.parse("a,b,c,d->ac,b,d").bind(("batch", 3, 4, ""))
    assert bound.new_shape == ("4*batch", 3, "")
    assert bound.steps() == [
        Transpose((0, 2, 1, 3)),
        Reshape((OpenExtent((0,), factor=4), 3, OpenExtent((3,)))),
    ]
    assert Formula.parse("ab[b=4]->a,b").bind(("n",)).new_shape == ("n/4", 4)
    assert Formula.parse("a,b->ab").bind(("n", "m")).new_shape == ("n*m",)
    assert Formula.parse("a,b[a=2]->ab").bind(("n", 3)).new_shape == (6,)
    with pytest.raises(BadInput, match=r"axis 0 has extent \?"):
        Formula.parse("ab->a,b").bind(("",))


# ---- inverses ----
@st.composite
def formulas(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """A formula that splits, permutes and merges, and a shape for it."""
    letters = draw(st.permutations(string.ascii_lowercase))[: draw(st.integers(0, 6))]
    extents = {c: draw(st.integers(1, 4)) for c in letters}

    def side(order: list[str]) -> list[str]:
        axes: list[str] = []
        for c in order:
            if axes and axes[-1] != "1" and draw(st.booleans()):
                axes[-1] += c
            else:
                axes.append(c)
            if draw(st.integers(0, 4)) == 0:
                axes.append("1")
        return axes

    left, right = side(letters), side(draw(st.permutations(letters)))
    given = [f"{c}={extents[c]}" for axis in left if len(axis) > 1 for c in axis[1:]]
    text = f"{','.join(left)}{f'[{chr(44).join(given)}]' if given else ''}->{','.join(right)}"
    shape = tuple(math.prod(extents.get(c, 1) for c in axis) for axis in left)
    return text, shape


@settings(max_examples=300, deadline=None)
@given(formulas())
def test_a_formula_and_its_inverse_change_nothing(drawn):
    text, shape = drawn
    formula = Formula.parse(text)
    assert Formula.parse(str(formula)) == formula
    x = numbered(*shape)
    y = formula.apply(x)
    assert y.shape == formula.bind(shape).new_shape
    np.testing.assert_array_equal(formula.inverse(shape).apply(y), x)


@settings(max_examples=300, deadline=None)
@given(formulas())
def test_steps_do_what_the_formula_says(drawn):
    text, shape = drawn
    formula = Formula.parse(text)
    x = numbered(*shape)
    y = x
    for step in formula.bind(shape).steps():
        y = (
            y.transpose(step.permutation)
            if isinstance(step, Transpose)
            else y.reshape(step.extents)
        )
    np.testing.assert_array_equal(y, formula.apply(x))


def test_the_table_of_the_docs_is_true():
    page = (Path(__file__).parents[2] / "docs/edit.md").read_text()
    rows = re.findall(r"^\| `([^`]+->[^`]+)` \| ([\dx]+) \| ([\dx]+) \|$", page, re.M)
    assert len(rows) == 6
    for formula, before, after in rows:
        shape = tuple(map(int, before.split("x")))
        assert Formula.parse(formula).bind(shape).new_shape == tuple(map(int, after.split("x")))
