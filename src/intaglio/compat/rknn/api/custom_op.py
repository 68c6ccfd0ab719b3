"""`rknn.api.custom_op`: attributes of ONNX nodes, for the methods of custom operators."""

from __future__ import annotations

from intaglio.compat.rknn.custom_operators import get_node_attr as get_node_attr

__all__ = ["get_node_attr"]
