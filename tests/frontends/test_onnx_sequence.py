"""ONNX sequences of known length, against onnxruntime; others are not supported."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.frontends.onnx_text import model

from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret

X = np.arange(30, dtype=np.float32).reshape(2, 5, 3)


def same(body: str, result: str = "float[?,?,?] y") -> None:
    m = model(f"(float[2,5,3] x) => ({result}) {{ {body} }}")
    session = onnxruntime.InferenceSession(m.SerializeToString())
    (want,), got = session.run(None, {"x": X}), interpret(load_onnx(m), {"x": X})["y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "split", ["int64 k = {2}", "int64[3] k = {1, 3, 1}", "int64[2] k = {5, 0}"]
)
@pytest.mark.parametrize("at", [0, 1, -1])
def test_split(split: str, at: int) -> None:
    body = "s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, i)"
    same(f"k = Constant <value = {split}> () i = Constant <value = int64 i {{{at}}}> () {body}")


@pytest.mark.parametrize("keepdims", [0, 1])
def test_split_into_single_elements(keepdims: int) -> None:
    shape = "float[?,?,?] y" if keepdims else "float[?,?] y"
    same(
        f"""i = Constant <value = int64 i {{3}}> ()
             s = SplitToSequence <axis = -2, keepdims = {keepdims}> (x) y = SequenceAt (s, i)""",
        shape,
    )


@pytest.mark.parametrize(("axis", "new"), [(1, 0), (-1, 0), (0, 1), (-1, 1)])
def test_join(axis: int, new: int) -> None:
    body = f"""a = Relu (x) b = Neg (x) s = SequenceConstruct (a, x, b)
               y = ConcatFromSequence <axis = {axis}, new_axis = {new}> (s)"""
    same(body, "float[?,?,?,?] y" if new else "float[?,?,?] y")


def test_length() -> None:
    same("s = SequenceConstruct (x, x) y = SequenceLength (s)", "int64 y")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("y = SequenceConstruct (x)", Unsupported, "'y' is a sequence that must exist at run time"),
        ("s = SequenceConstruct (x) y = Relu (s)", Unsupported, "'s' is a sequence that must"),
        ("y = SequenceLength (x)", BadInput, "a tensor; a sequence is needed"),
        (
            "i = Constant <value = int64 i {1}> () s = SequenceConstruct (x) y = SequenceAt (s, i)",
            BadInput,
            "position 1 is outside of a sequence of 1 tensors",
        ),
        (
            "k = Constant <value_int = 0> () s = SplitToSequence (x, k) y = SequenceAt (s, k)",
            BadInput,
            "it must be positive",
        ),
        (
            "n = NonZero (x) s = SplitToSequence <axis = 1> (n) y = SequenceLength (s)",
            Unsupported,
            "known only at run time",
        ),
        (
            """k = Constant <value_ints = [1]> () e = Constant <value_ints = [0]> ()
            z = Slice (x, e, e) s = SplitToSequence (z) y = ConcatFromSequence <axis = 0> (s)""",
            BadInput,
            "the sequence is empty",
        ),
        (
            """s = SequenceConstruct (x) c = ReduceMax <keepdims = 0> (x) b = Cast <to = 9> (c)
            y = If (b) <then_branch = t () => (int64 l) { l = SequenceLength (s) },
                        else_branch = e () => (int64 l) { l = SequenceLength (s) }>""",
            Unsupported,
            "'s' is a sequence that must exist at run time",
        ),
    ],
)
def test_refused(body: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load_onnx(model(f"(float[2,5,3] x) => (float[2,5,3] y) {{ {body} }}"))
