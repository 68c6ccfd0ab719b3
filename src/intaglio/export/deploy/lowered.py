"""A model as a plan of exported kernels."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio import passes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Graph
from intaglio.open_graph import symbols_of
from intaglio.passes.memory import plan_memory
from intaglio.plan import Plan
from intaglio.targets import micro
from intaglio.targets.micro.floats import FLOAT_FUNCTIONS


@dataclass(frozen=True)
class Lowered:
    """The optimised graph for test vectors, in neutral ops but for functions of floats, and the
    plan of its kernels."""

    neutral: Graph
    plan: Plan


def lower(graph: Graph) -> Lowered:
    """Optimise and plan; Unsupported names the first node that no kernel can run."""
    if symbols := symbols_of(graph):
        name = next(iter(symbols))
        raise BadInput(f"dimension '{name}' is open; exported C has fixed shapes; give dims=")
    graph = graph.copy()
    if graph.state:
        raise Unsupported(
            f"deploy: the model keeps state '{next(iter(graph.state))}' between runs; "
            "exported C has no states; load it with the state as input and output"
        )
    target = micro.target()
    passes.run(graph, passes.neutral(target.cost))
    functions = passes.Rules(FLOAT_FUNCTIONS, target.cost)
    passes.run(graph, [passes.Pass("functions of floats", functions)])
    neutral = graph.copy()
    passes.run(graph, passes.lowering(target))
    plan, _ = plan_memory(graph, graph.name or "main")
    return Lowered(neutral, plan)
