"""Layers that an activation is fused with: users name the activation and mean the whole layer."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.ir import Graph
from intaglio.ops.registry import REGISTRY


def fused_layers(graph: Graph, layers: Mapping[str, str]) -> dict[str, str]:
    """Precisions of the layers in front of activations, by the name of their first output."""
    makers = {v.name: v.producer for v in graph.values() if v.name and v.producer is not None}
    found: dict[str, str] = {}
    for name, precision in layers.items():
        node = makers.get(name)
        while node is not None and REGISTRY[node.op].elementwise:
            computed = [x for x in node.inputs if x is not None and x.data is None]
            if len(computed) != 1 or len(computed[0].uses) > 1 or computed[0].producer is None:
                break
            node = computed[0].producer
            if node.outputs[0].name in layers:
                break
            found[node.outputs[0].name] = precision
    return found
