"""Make every node one that the target runs: by its own rules, by lowering, or by wider floats."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node
from intaglio.ops.registry import REGISTRY
from intaglio.passes.fold import FOLD
from intaglio.rewrite import ANY, Rule, Trace, rewrite, rule
from intaglio.targets import Target

NARROW = ("f16", "bf16")  # floats that are computed in f32 where the target has no kernel for them


def legalize(target: Target, graph: Graph, trace: Trace | None = None) -> None:
    """Rewrite until the target runs every node; Unsupported names the first that it cannot."""
    rewrite(graph, steps(target), trace, target.cost)
    refuse(target, graph)


def steps(target: Target) -> list[Rule]:
    """Every rule by which nodes become the target's."""
    return [*FOLD, *target.lower, *lowering(target)]


def lowering(target: Target) -> list[Rule]:
    """The rules for whatever the target's own rules leave."""

    @rule(ANY)
    def lower_composite(node: Node) -> Any:
        """an op without a kernel becomes the simpler ops that it is made of"""
        lower = REGISTRY[node.op].lower
        if lower is None or target.why_not(node) is None:
            return None
        return lower(*node.inputs, **node.attrs)

    @rule(ANY)
    def compute_in_f32(node: Node) -> Any:
        """half-precision floats are storage: computing with them is done in f32"""
        if not any(v is not None and v.dtype in NARROW for v in node.inputs):
            return None
        if node.bodies() or node.op == "cast" or target.why_not(node) is None:
            return None
        wide = [
            ops.cast(v, dtype="f32") if v is not None and v.dtype in NARROW else v
            for v in node.inputs
        ]
        made = REGISTRY[node.op].node(*wide, origin=node.origin, **node.attrs)
        return [
            ops.cast(w, dtype=v.dtype) if v.dtype != w.dtype else w
            for v, w in zip(node.outputs, made.outputs, strict=True)
        ]

    return [lower_composite, compute_in_f32]


def refuse(target: Target, graph: Graph) -> None:
    """Unsupported, in words, where a node is left that the target does not run."""
    for node in graph.nodes():
        for body in node.bodies():
            refuse(target, body)
        if why := target.why_not(node):
            made = ", ".join(f"'{v.name}' {v.type}" for v in node.outputs)
            read = ", ".join("-" if v is None else str(v.type) for v in node.inputs)
            where = f"{node.op} '{node.origin}'" if node.origin else node.op
            raise Unsupported(
                f"{target.name}: {where} reads {read} and makes {made}; {why}; "
                "cut the graph before it with outputs=[...]"
            )
