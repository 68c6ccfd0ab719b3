"""`rknn.utils`: edits of ONNX models."""

from __future__ import annotations

from intaglio.compat.rknn.onnx_edit import onnx_edit as onnx_edit

__all__ = ["onnx_edit"]
