"""What a package says of each of its NPU modules: layers by number, and memory."""

from __future__ import annotations

from typing import Any

from intaglio.npu.compile import Compiled
from intaglio.npu.layers import Layer, Range
from intaglio.npu.memory import memory
from intaglio.npu.weight_packing import TABLE_INPUT


def describe(made: Compiled) -> dict[str, Any]:
    """For the package's metadata: reports are made of this and of the program itself."""
    groups = {k: g for g, one in enumerate(made.arrangement.layouts) for k in one.group.numbers}
    layers = [_layer(layer) | {"group": groups[layer.number]} for layer in made.net.layers]
    return {"layers": layers, "memory": memory(made).to_dict()}


def _layer(layer: Layer) -> dict[str, Any]:
    node, kind = layer.node, layer.op
    table = TABLE_INPUT.get(layer.op)
    if layer.residual >= 0:
        kind += "+add"
    if kind != "lut" and node is not None and table and node.inputs[table] is not None:
        kind += "+lut"
    made: dict[str, Any] = {
        "op": kind,
        "name": layer.name,
        "dtype": layer.reads[0].store.dtype,
        "inputs": [_shape(r) for r in layer.reads],
        "output": _shape(layer.dst),
        "macs": layer.macs(layer.dst.store.height) * layer.dst.store.images,
    }
    if node is not None and layer.is_product:
        made["kernel"] = list(node.inputs[1].shape)  # type: ignore[union-attr]
    return made


def _shape(r: Range) -> list[int]:
    return [r.store.images, r.channels, r.store.height, r.store.width]
