"""Whether a network is quantised: most chips compute with bytes only."""

from __future__ import annotations

from intaglio.errors import Unsupported, option
from intaglio.ir import Graph


def is_quantised(graph: Graph) -> bool:
    """Whether a network has quantised tensors."""
    ops = {n.op for n in graph.nodes()}
    return bool(ops & {"quantize_linear", "dequantize_linear"}) or any(
        o.startswith("qlinear") for o in ops
    )


def require_quantised(graph: Graph, chip: str) -> None:
    """Unsupported for a network in floats, with the remedy."""
    if not is_quantised(graph) and any(v.dtype == "f32" for v in graph.inputs):
        raise Unsupported(
            f"{chip}: the network computes in floats; the chip computes with bytes: quantise it "
            f"first, for {option('target', chip)}"
        )
