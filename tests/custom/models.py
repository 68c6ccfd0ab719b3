"""ONNX models with custom operators, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intaglio import custom, native
from intaglio.custom import table

DOMAIN = "sample.ops"
PLUGIN = Path(native.library()._name).with_name("libsample_plugin.so")
TYPES = {"f32": TensorProto.FLOAT, "i8": TensorProto.INT8, "i64": TensorProto.INT64}


def node(op: str, reads: Sequence[str], makes: Sequence[str], **attrs: Any) -> onnx.NodeProto:
    """A node; an op such as "sample.ops::SoftClip" has a domain. Its name is that of its result."""
    domain, _, op_type = op.rpartition("::")
    return helper.make_node(op_type, reads, makes, name=makes[0], domain=domain, **attrs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model; inputs are shapes of f32, or pairs of an element type and a shape."""

    def info(name: str, given: Any) -> Any:
        dtype, shape = given if given and given[0] in TYPES else ("f32", given)
        return helper.make_tensor_value_info(name, TYPES[dtype], shape)

    stored = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    ins = [info(name, given) for name, given in inputs.items()]
    outs = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", ins, outs, stored)
    domains = {n.domain for n in nodes} - {""}
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def clipped(shape: Sequence[Any] = (2, 8), op: str = f"{DOMAIN}::SoftClip", **attrs: Any) -> Any:
    """y = -soft_clip(relu(x))"""
    nodes = [node("Relu", ["x"], ["a"]), node(op, ["a"], ["b"], **attrs), node("Neg", ["b"], ["y"])]
    return model(nodes, {"x": shape}, ["y"])


def forget_all() -> None:
    """Remove every custom operator."""
    for name in list(table.CLASSES):
        custom.unregister(name)
    for name in {op.native_op.plugin.name for op in table.PLUGGED.values() if op.native_op.plugin}:
        custom.unregister(name)


class SoftClip:
    """The operator `sample.soft_clip` of csrc/test/sample_plugin.c in Python."""

    name = "sample.soft_clip"
    onnx = f"{DOMAIN}::SoftClip"
    tflite = "SoftClip"
    torch = "sample::soft_clip"

    def shape(self, x: Any, *, limit: float = 1.0) -> Any:
        return x.shape

    def compute(self, x: np.ndarray, *, limit: float = 1.0) -> np.ndarray:
        return np.tanh(x / np.float32(limit)) * np.float32(limit)
