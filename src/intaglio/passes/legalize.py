"""Legalise: turn every node into ops that the target supports, or raise Unsupported."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node
from intaglio.ops.registry import REGISTRY
from intaglio.passes.fold import FOLD
from intaglio.rewrite import ANY, Rule, Trace, rewrite, rule
from intaglio.targets import Target

HALF_PRECISION = ("f16", "bf16")


def legalize(target: Target, graph: Graph, trace: Trace | None = None) -> None:
    """Rewrite until the target supports every node; Unsupported names the first that it
    does not.
    """
    rewrite(graph, steps(target), trace, target.cost)
    refuse(target, graph)


def steps(target: Target) -> list[Rule]:
    """All legalisation rules of a target."""
    return [*FOLD, *target.lower, *lowering(target)]


def lowering(target: Target) -> list[Rule]:
    """The generic rules for nodes that the target's own rules leave."""

    @rule(ANY)
    def lower_composite(node: Node) -> Any:
        """Expand an op without a kernel into simpler ops."""
        lower = REGISTRY[node.op].lower
        if lower is None or target.why_not(node) is None:
            return None
        return lower(*node.inputs, **node.attrs)

    @rule(ANY)
    def compute_in_f32(node: Node) -> Any:
        """Compute in f32 where the target has no half-precision kernel."""
        if not any(v is not None and v.dtype in HALF_PRECISION for v in node.inputs):
            return None
        if node.bodies() or node.op == "cast" or target.why_not(node) is None:
            return None
        wide = [
            ops.cast(v, dtype="f32") if v is not None and v.dtype in HALF_PRECISION else v
            for v in node.inputs
        ]
        result = REGISTRY[node.op].node(*wide, origin=node.origin, **node.attrs)
        return [
            ops.cast(w, dtype=v.dtype) if v.dtype != w.dtype else w
            for v, w in zip(node.outputs, result.outputs, strict=True)
        ]

    return [lower_composite, compute_in_f32]


def refuse(target: Target, graph: Graph) -> None:
    """Raise Unsupported if a node is left that the target does not support."""
    for node in graph.nodes():
        for body in node.bodies():
            refuse(target, body)
        if why := target.why_not(node):
            result = ", ".join(f"'{v.name}' {v.type}" for v in node.outputs)
            read = ", ".join("-" if v is None else str(v.type) for v in node.inputs)
            where = f"{node.op} '{node.origin}'" if node.origin else node.op
            raise Unsupported(
                f"{target.name}: {where} reads {read} and makes {result}; {why}; "
                "cut the graph before it with outputs=[...]"
            )
