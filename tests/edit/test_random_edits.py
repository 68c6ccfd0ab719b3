"""Random edits that change no result, one after another, on a random model."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.edit.models import classifier, close, image, run

import intaglio
from intaglio.edit.editor import Editor

PERMUTATIONS = ["a,b,c,d->a,c,d,b", "a,b,c,d->d,c,b,a", "a,b,c,d->ab,1,c,d", "a,b,c,d->a,b,d,c"]


def edit(made: Editor, data: st.DataObject) -> None:
    """One edit, drawn at random."""
    names = [n for n in made.state.tensor_names() if made.state.nodes.producer(n) is not None]
    inner = [n for n in names if not made.state.is_output(n)]
    kind = data.draw(st.sampled_from(["rename", "input", "output", "identity", "pair", "add"]))
    if kind == "rename":
        old = data.draw(st.sampled_from(made.state.tensor_names()))
        made.rename(old, f"{old}'")
    elif kind == "input":
        (port,) = made.state.inputs
        rank = len(port.type.tensor_type.shape.dim)
        if rank == 4:
            made.change_input(port.name, data.draw(st.sampled_from(PERMUTATIONS)))
    elif kind == "output":
        port = data.draw(st.sampled_from(made.state.outputs))
        if len(port.type.tensor_type.shape.dim) == 2:
            made.change_output(port.name, data.draw(st.sampled_from(["a,b->b,a", "a,b->1,a,b"])))
    elif kind == "identity":
        made.insert_after(data.draw(st.sampled_from(names)), "Identity")
    elif kind == "pair":
        tensor = data.draw(st.sampled_from(names))
        made.insert_after(tensor, "Neg").insert_after(tensor, "Neg")
    elif inner:
        made.add_output(data.draw(st.sampled_from(inner)))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_edits_keep_the_results(data: st.DataObject):
    before = classifier()
    made = intaglio.edit(before)
    for _ in range(data.draw(st.integers(1, 8))):
        edit(made, data)
    assert made.check().ok
    views = made.state.origin.views
    (port,) = made.state.inputs
    found = run(made, {port.name: views[port.name].forward(image())})
    want = run(intaglio.edit(before).add_output(*_inner(before)), {"image": image()})
    for name, got in found.items():
        negated = name in made.state.origin.altered and name.rstrip("'") != "scores"
        if name in views and not negated and views[name].tensor in want:
            close(got, np.asarray(views[name].forward(want[views[name].tensor])))


def _inner(before) -> list[str]:
    outputs = {o.name for o in before.graph.output}
    return [n for node in before.graph.node for n in node.output if n not in outputs]
