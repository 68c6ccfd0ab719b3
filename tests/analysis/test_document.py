"""docs/rules.md is up to date with the rules."""

from __future__ import annotations

from pathlib import Path

from intaglio.analysis.document import COMMAND, document, sections
from intaglio.rewrite import ANY, P

PATH = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_committed_file_is_current():
    assert PATH.read_text() == document(), f"docs/rules.md is out of date: run `{COMMAND}`"


def test_every_rule_says_what_it_does():
    rules = [r for s in sections() for r in s.rules]
    assert not [r.name for r in rules if not r.doc]
    text = document()
    assert all(f"### {r.name}\n" in text for r in rules)


def test_patterns_are_drawn():
    x, w, b = P["x W! b?"]
    assert str(P.mul(P.conv(x, w, b), 0.5)) == "mul(conv(x, W!, b?), 0.5)"
    assert str(P.relu(P.op(("add", "sub"), x, x).shared())) == "relu(&add|sub(x, x))"
    assert str(P.clip(P.add(x, 3.0), lo=0.0, hi=6.0)) == "clip(add(x, 3), lo=0, hi=6)"
    assert str(P.op(tuple("abcdefg"), x)) == "a|b|c|d|e|...(x)"
    assert str(ANY) == "*"


def test_results_and_refusals_are_read_from_the_function():
    text = document()
    assert "mul(x, sigmoid(x))\n  -> swish(x)\n" in text
    assert "conv(add(x, S!), W!, B?)\n  -> conv(x, W, …)\n" in text
    assert "- pad is …: the padding would be shifted too" in text
