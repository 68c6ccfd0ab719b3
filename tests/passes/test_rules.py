"""Every rule fires on its case, prints its golden file, and keeps the results."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import compare
from tests.passes import golden
from tests.passes.cases import CASES, graph_of
from tests.passes.every_rule import CPU, RULES

from intaglio import dtypes, passes
from intaglio.interpret import interpret
from intaglio.rewrite import rewrite
from intaglio.targets.cpu.attention import BF16_ATTENTION
from intaglio.targets.cpu.bf16 import BF16
from intaglio.targets.cpu.f16 import F16
from intaglio.verify import verify

ROUGH = {
    r.name: 0.03 for r in (*F16, *BF16, *BF16_ATTENTION)
}  # of the largest value: bf16 keeps two to three digits
CONTROL = {"if_of_constant", "constants_into_bodies"}  # tested with control flow
CUSTOM = {"dequantize_after_custom_selection"}  # tested with custom operators


def feeds(graph, seed=3):
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.standard_normal(v.shape).astype(dtypes.numpy_of(v.dtype)) for v in graph.inputs
    }


def test_every_rule_has_a_case():
    assert set(RULES) - CONTROL - CUSTOM == {name for name, *_ in CASES}


@pytest.mark.parametrize(("name", "build", "types"), CASES, ids=[c[0] for c in CASES])
def test_rule(name, build, types):
    graph = graph_of(build, types)
    inputs = feeds(graph)
    want = interpret(graph, inputs)
    fired = set()
    rewrite(graph, RULES[name], lambda r, n, no: no is None and fired.add(r.name))
    verify(graph)
    assert fired == {name}
    for key, got in interpret(graph, inputs).items():
        compare(got, want[key], name, ROUGH.get(name))


@pytest.mark.parametrize(("name", "build", "types"), CASES, ids=[c[0] for c in CASES])
def test_rule_among_all_others(name, build, types):
    graph = graph_of(build, types)
    inputs = feeds(graph)
    want = interpret(graph, inputs)
    passes.run(graph, [*passes.neutral(), *passes.lowering(CPU)])
    for key, got in interpret(graph, inputs).items():
        compare(got, want[key], name)


@pytest.mark.parametrize("name", golden.shown())
def test_golden_graph(name):
    """`python -m tests.passes.golden` writes these files anew; read what changed."""
    assert (golden.FOLDER / f"{name}.txt").read_text() == golden.shown()[name]


def test_no_golden_graph_without_its_rule():
    assert {p.stem for p in golden.FOLDER.glob("*.txt")} == set(golden.shown())
