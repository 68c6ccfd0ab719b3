"""Random graphs: every stage of the pipeline agrees with the interpreter."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.graphs import assert_same, feeds, graphs
from tests.properties.proof import assert_sound

import intaglio
from intaglio import passes, targets
from intaglio.passes.memory import Buffer, pack, plan_memory
from intaglio.targets.cost import Cost

quick = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@quick
@given(graphs())
def test_optimize_keeps_the_meaning(level, graph):
    inputs = feeds(graph)
    want = intaglio.interpret(graph, inputs)
    before = str(graph)
    got = intaglio.interpret(intaglio.optimize(graph, level), inputs)
    assert_same(got, want, graph, exact=level < 2)
    assert str(graph) == before, "optimize changed the graph that it was given"


@pytest.mark.parametrize("level", [1, 2])
@quick
@given(graphs(most=20))
def test_code_motion_keeps_the_meaning(level, graph):
    """If a step costs nothing, rules that only pay for large tensors fire for small ones too."""
    inputs = feeds(graph)
    want = intaglio.interpret(graph, inputs)
    optimized = graph.copy()
    passes.run(optimized, passes.neutral(Cost(step=0.0)), level)
    assert_same(intaglio.interpret(optimized, inputs), want, graph, exact=level < 2)


@quick
@given(graphs(), st.integers(0, 3))
def test_compile_keeps_the_meaning(graph, level):
    inputs = feeds(graph)
    want = intaglio.interpret(graph, inputs)
    package = intaglio.compile(graph, level=level)
    with intaglio.open(package.bytes, threads=1 + level % 2) as session:
        assert_same(session.run(inputs), want, graph)
        assert_same(session.run(inputs), want, graph)


@quick
@given(graphs(most=20))
def test_the_planner_never_overlaps(graph):
    target = targets.find("cpu")
    passes.run(graph, [*passes.neutral(), *passes.lowering(target)])
    plan, _ = plan_memory(graph)
    assert_sound(graph, plan)


@quick
@given(graphs())
def test_compiling_is_repeatable(graph):
    assert intaglio.compile(graph).bytes == intaglio.compile(graph).bytes


@quick
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 10)), max_size=40)
)
def test_live_buffers_do_not_overlap(rows):
    buffers = [Buffer(size, first, first + length) for size, first, length in rows]
    total = pack(buffers)
    for i, a in enumerate(buffers):
        assert a.offset % 64 == 0
        assert a.offset + a.size <= total
        for b in buffers[:i]:
            both_live = a.first <= b.last and b.first <= a.last
            disjoint = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert disjoint or not both_live
