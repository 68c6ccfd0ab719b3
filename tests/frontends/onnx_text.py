"""Small ONNX models, written as text."""

from __future__ import annotations

import onnx
import onnx.parser


def model(graph: str, opset: int = 18, functions: str = "", more: str = "") -> onnx.ModelProto:
    """A model from ONNX's text syntax: `(float[N,3] x) => (float[N,3] y) { y = Relu(x) }`."""
    head = f'<ir_version: 8, opset_import: ["": {opset}{more}]>'
    return onnx.parser.parse_model(f"{head} main {graph} {functions}")
