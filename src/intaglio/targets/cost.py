"""The cost model that decides between competing rewrite rules.

Only the order of the estimates matters, not the nanoseconds. A node's cost is the sum of its
multiply-accumulates, its memory traffic and a constant per step.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.symint import estimates

FREE = {"reshape", "bitcast"}  # views
VIEWS = {"slice", "gather", "transpose", "expand"}  # read as many bytes as they write


@dataclass(frozen=True)
class Cost:
    """A chip's rates; `cost(node)` estimates nanoseconds."""

    macs: float = 40.0  # multiply-accumulates per nanosecond at full use of the vector lanes
    bytes: float = 16.0  # read or written per nanosecond
    step: float = 400.0  # nanoseconds to start a step
    lanes: int = 16  # output channels that are computed together

    def __call__(self, node: Node) -> float:
        with estimates():
            return self._of(node)

    def _of(self, node: Node) -> float:
        results = [v for v in node.outputs if v.uses]
        if node.op in FREE or all(v is None or v.data is not None for v in node.inputs):
            return 0.0  # a view, or folded
        if _is_epilogue(node):
            return 0.0
        read = 0 if node.op in VIEWS else sum(v.type.bytes for v in node.inputs if v is not None)
        written = sum(v.type.bytes for v in results or node.outputs)
        written *= 2 if node.op in VIEWS else 1
        macs = REGISTRY[node.op].macs(node)
        return (
            self.step + macs * self._waste(node, macs) / self.macs + (read + written) / self.bytes
        )

    def _waste(self, node: Node, macs: int) -> float:
        """The factor by which a product takes longer because of vector lanes without a channel."""
        if not macs:
            return 1.0
        out = node.outputs[0]
        if node.op == "conv":
            channels, groups = out.shape[1], node.attrs["groups"]
            channels = channels if groups == channels else channels // groups
        else:
            channels = out.shape[-1] if out.shape else 1
        return -(-channels // self.lanes) * self.lanes / max(channels, 1)


def _is_epilogue(node: Node) -> bool:
    """Whether the node is fused into the product that makes one of its operands."""
    return REGISTRY[node.op].elementwise and any(map(_is_product, node.inputs))


def _is_product(v: Value | None) -> bool:
    if v is None or v.producer is None or len(v.uses) != 1:
        return False
    return bool(REGISTRY[v.producer.op].macs(v.producer))


USUAL = Cost()  # a CPU core with wide vector units
