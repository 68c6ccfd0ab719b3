"""The script language: verbs, names, quotes, comments, node expressions, line numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.edit.models import classifier, ops

import intaglio
from intaglio.edit.node_expression import NodeExpression, Place, Word, parse_value
from intaglio.edit.script import parse_line, read
from intaglio.edit.script_text import names, quoted, split, unquoted
from intaglio.edit.verbs import VERBS
from intaglio.errors import BadInput, Unsupported

SMALL = classifier()
SCRIPT = """
# comments and empty lines are skipped
insert after c1: Clip(min=0, max=6)    # and so is this

remove every Dropout
  Rename   conv1 = stem
change input image: a,b,c,d -> a,c,d,b
set attribute softmax.axis: -1
cut inputs: c1
cut outputs scores
"""


def test_a_script_makes_its_edits_in_order():
    made = intaglio.edit(classifier()).apply(SCRIPT)
    assert [e.line for e in made.edits] == [
        "insert after c1: Clip(min=0, max=6)",
        "remove every Dropout",
        "rename conv1: stem",
        "change input image: a,b,c,d -> a,c,d,b",
        "set attribute softmax.axis: -1",
        "cut outputs scores; cut inputs c1",
    ]
    assert ops(made)[:2] == ["Clip", "Relu"]


def test_every_line_of_the_log_is_a_script():
    first = intaglio.edit(classifier()).apply(SCRIPT)
    lines = "\n".join(e.line.replace("; ", "\n") for e in first.edits)
    second = intaglio.edit(classifier()).apply(lines)
    assert first.to_onnx() == second.to_onnx()
    assert [e.effect for e in first.edits] == [e.effect for e in second.edits]


def test_a_colon_may_follow_words_that_take_no_value():
    made = intaglio.edit(classifier()).apply("cut outputs: c1, r1")
    assert made.edits[0].line == "cut outputs c1, r1"


def test_python_and_script_write_the_same_lines():
    made = intaglio.edit(classifier())
    made.insert_after("c1", "Clip", min=0, max=6.5).set_shape("image", ("n", 3, "", 8))
    made.set_constant("b3", [1, 2.5, 3, 4, 5]).set_attribute("every Conv", "pads", [1, 1, 1, 1])
    made.rename("c2", "a, b").remove("add", keep="r1")
    lines = [e.line for e in made.edits]
    assert lines == [
        "insert after c1: Clip(min=0, max=6.5)",
        "set shape image: [n, 3, ?, 8]",
        "set constant b3: [1, 2.5, 3, 4, 5]",
        "set attribute every Conv.pads: [1, 1, 1, 1]",
        'rename c2: "a, b"',
        "remove add: r1",
    ]
    assert intaglio.edit(classifier()).apply("\n".join(lines)).to_onnx() == made.to_onnx()


def test_if_a_line_fails_no_line_is_carried_out():
    made = intaglio.edit(classifier()).remove("dropout")
    with pytest.raises(BadInput, match=r"^line 3: the model has no node 'relu9'"):
        made.apply("remove relu1\n\nremove relu9\nremove softmax")
    assert len(made.edits) == 1
    assert "Relu" in ops(made)


# ---- words ----
@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("c1: Relu", "c1", "Relu"),
        ("c1 = Relu", "c1", "Relu"),
        ("c1=Clip(min=0)", "c1", "Clip(min=0)"),
        ("x:0: Relu", "x:0", "Relu"),
        ("x:0", "x:0", ""),
        ('"a: b" : Relu', '"a: b"', "Relu"),
        ("a:", "a", ""),
        ("x: ab[a=2]->a,b", "x", "ab[a=2]->a,b"),
    ],
)
def test_target_and_value(text, target, value):
    assert split(text) == (target, value)


def test_names_and_quotes():
    assert names("a, b/c.d:0 ,'e f', \"g,h\"") == ["a", "b/c.d:0", "e f", "g,h"]
    for name in ("a", "a b", "a,b", "a:", "a=b", "#a", "x:0", "/model.1/Conv"):
        assert unquoted(quoted(name)) == name
        assert names(quoted(name)) == [name]
    assert quoted("/model.1/Conv") == "/model.1/Conv"
    with pytest.raises(BadInput, match="a name is empty"):
        names("a,,b")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("remve x", "line 1: no edit is called 'remve x'; did you mean 'remove'?"),
        (
            "\ninsert aftr c1: Relu",
            "line 2: no edit is called 'insert aftr'; did you mean 'insert after'",
        ),
        ("xyz", "known are cut inputs, cut outputs, add output"),
        ("insert after c1", "'insert after c1' has no value; write insert after TENSOR: NODE"),
        ("insert after: Relu", "'insert after Relu' has no value"),
        ("rename a:", "has no value; write rename OLD: NEW"),
        ("remove", "'remove ' has no target"),
        ('remove "a', r'line 1: .*a quote \("\) is not closed'),
        ("insert after c1: Relu(", r"'\)' is missing before the end|a value is missing"),
        ("insert after c1: Relu)", r"'\)' is left over"),
        ("insert after c1: 3", "does not begin with an operator"),
        ("insert after c1: Clip(min=0 max=6)", "',' is missing before 'max'"),
        ("insert after c1: Clip(min=0, min=1)", "'min' is given twice"),
        ("insert after c1: Clip(min=0, 3)", "an operand follows a name"),
        ("insert after c1: Clip(min=)", r"a value is missing before '\)'"),
        ("insert after c1: Clip(min=')", "a quote"),
        ("set attribute conv1.pads: [1, 2", "is missing before the end|a value is missing"),
    ],
)
def test_errors(script, words):
    with pytest.raises(BadInput, match=words) as refused:
        intaglio.edit(classifier()).apply(script)
    assert "\n" not in str(refused.value)


def test_messages_name_the_script():
    with pytest.raises(BadInput, match=r"^edits.txt, line 2: no edit"):
        read("remove a\nfoo b", "edits.txt")
    assert parse_line("insert   after  c1: Relu", "here").rest == "c1: Relu"


# ---- node expressions ----
def test_node_expressions():
    made = NodeExpression.parse(
        "com.microsoft.Fused(_, a/b:0, 'c d', [1, 2.5], , _2, k=x, t=\"y z\")"
    )
    assert (made.domain, made.op) == ("com.microsoft", "Fused")
    assert made.operands == [Place(0), Word("a/b:0"), Word("c d", True), [1, 2.5], None, Place(2)]
    assert made.keywords == {"k": Word("x"), "t": Word("y z", True)}
    assert NodeExpression.parse("Relu") == NodeExpression.parse(" Relu( ) ")
    assert NodeExpression.parse("ai.onnx.Relu").domain == ""
    assert NodeExpression.parse("Add('_')").operands == [Word("_", True)]
    numbers = ["1", "-2", "1e-3", "true", "False", "-inf"]
    assert [parse_value(n) for n in numbers] == [1, -2, 1e-3, True, False, float("-inf")]
    assert parse_value("[[1, 2], [3, 4]]") == [[1, 2], [3, 4]]


def test_every_verb_has_words_for_the_help():
    for words, verb in VERBS.items():
        assert verb.help.endswith(".")
        assert verb.form
        assert words == words.lower()


# ---- hostile text ----
WORDS = st.lists(
    st.sampled_from(
        ["c1", "conv1", "image", "every", "Relu", "_", "1", "[", "]", "(", ")", ",", ":", "=", ".",
         "->", "a,b", "'", '"', "#", " ", "*", "-1", "1e999", "nan", "pads", "NHWC", "x", "\t", "é"]
    ),
    max_size=9,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(VERBS)), WORDS, st.booleans())
def test_no_line_ends_in_another_error(verb: str, words: list[str], apart: bool):
    made = intaglio.edit(SMALL)
    refused = ""
    try:
        made.apply(f"{verb} {' '.join(words) if apart else ''.join(words)}")
    except (BadInput, Unsupported) as e:
        refused = str(e)
    assert "\n" not in refused
    assert bool(refused) != bool(made.edits)
