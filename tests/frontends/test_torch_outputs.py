"""Names of outputs: keys of dicts, fields of named tuples and dataclasses, places in tuples."""

from __future__ import annotations

import collections
import dataclasses
import io
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra 'torch')")

import torch
from torch import nn
from torch.utils import _pytree

import intaglio

X = torch.arange(6.0).reshape(2, 3)


class Boxes(NamedTuple):
    boxes: torch.Tensor
    scores: torch.Tensor


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: object = None
    past: object = None


class ModelOutput(collections.OrderedDict):
    """As Hugging Face's: a dict with attributes, known to pytree."""


torch.export.register_dataclass(Answer, serialized_type_name="tests.Answer")
_pytree.register_pytree_node(
    ModelOutput,
    lambda o: (list(o.values()), list(o.keys())),
    lambda values, keys: ModelOutput(zip(keys, values, strict=True)),
    serialized_type_name="tests.ModelOutput",
)


class Returns(nn.Module):
    def __init__(self, build):
        super().__init__()
        self.build = build

    def forward(self, x):
        return self.build(x + 1, x * 2, x.sum(1))


CASES = {
    "dict": (lambda a, b, c: {"boxes": a, "scores": b, "n": c}, ["boxes", "scores", "n"]),
    "order": (lambda a, b, c: {"z": a, "a": b, "m": c}, ["z", "a", "m"]),
    "nested": (
        lambda a, b, c: {"out": (a, {"aux": b}), "rest": [c]},
        ["out.0", "out.1.aux", "rest"],
    ),
    "numbers": (lambda a, b, c: {0: a, 1: b, 7: c}, ["0", "1", "7"]),
    "in a tuple": (lambda a, b, c: (a, {"b": b, "c": c}), ["output.0", "output.1.b", "output.1.c"]),
    "tuple": (lambda a, b, c: (a, b, c), ["output.0", "output.1", "output.2"]),
    "one": (lambda a, b, c: a + b, ["output"]),
    "dataclass": (lambda a, b, c: Answer(a, (b, c)), ["logits", "hidden.0", "hidden.1"]),
    "model output": (
        lambda a, b, c: ModelOutput(logits=a, past=((b, b), (c,))),
        ["logits", "past.0.0", "past.0.1", "past.1"],
    ),
    "same": (lambda a, b, c: {"x": {"y": a}, "x.y": b}, ["x.y", "x.y.1"]),
}


def leaves(made: object) -> list[torch.Tensor]:
    return [t for t in _pytree.tree_leaves(made) if t is not None]


def check(graph: intaglio.Graph, module: nn.Module, names: list[str]) -> None:
    assert graph.output_names == names
    got = intaglio.interpret(graph, {graph.inputs[0].name: X.numpy()})
    for name, want in zip(names, leaves(module(X)), strict=True):
        np.testing.assert_allclose(got[name], want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_live_modules(case: str):
    build, names = CASES[case]
    module = Returns(build)
    check(intaglio.load(module, inputs=(X,)), module, names)


def test_named_tuples_and_classes_that_pytree_does_not_know():
    module = Returns(lambda a, b, c: Boxes(a, b))
    check(intaglio.load(module, inputs=(X,)), module, ["boxes", "scores"])

    @dataclasses.dataclass
    class Plain:
        mask: torch.Tensor
        none: object = None

    module = Returns(lambda a, b, c: Plain(a))
    graph = intaglio.load(module, inputs=(X,))
    assert graph.output_names == ["mask"]


@pytest.mark.parametrize("case", CASES)
def test_exported_files(case: str):
    build, names = CASES[case]
    module = Returns(build)
    program = torch.export.export(module, (X,))
    check(intaglio.load(program), module, names)


class Scripted(nn.Module):
    def forward(self, x: torch.Tensor) -> Boxes:
        return Boxes(x + 1, x * 2)


def test_named_tuples_of_scripts():
    graph = intaglio.load(torch.jit.script(Scripted()), shapes={"x": (2, 3)})
    check(graph, Scripted(), ["boxes", "scores"])


def test_a_package_has_the_keys(tmp_path):
    module = Returns(CASES["dict"][0])
    file = io.BytesIO()
    torch.export.save(torch.export.export(module, (X,)), file)
    path = tmp_path / "m.pt2"
    path.write_bytes(file.getvalue())
    with intaglio.open(intaglio.compile(path)) as session:
        assert list(session.outputs) == ["boxes", "scores", "n"]
