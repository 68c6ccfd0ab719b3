"""The metadata that a package keeps about each NPU program: its layers and its memory."""

from __future__ import annotations

from typing import Any

from intaglio.npu.compile import Compiled
from intaglio.npu.layers import ChannelRange, Layer
from intaglio.npu.memory import memory
from intaglio.npu.weight_packing import TABLE_INPUT


def describe(made: Compiled, commands: int | None = None) -> dict[str, Any]:
    """Layers and memory of a program; reports read this and the program itself.

    `commands` are the bytes of a chip's own commands; None: of our instruction set.
    """
    return {"layers": layers_of(made), "memory": memory(made, commands).to_dict()}


def layers_of(made: Compiled) -> list[dict[str, Any]]:
    """The layers of a program: their ops, names, types and shapes, and what they read."""
    groups = {k: g for g, one in enumerate(made.memory_plan.layouts) for k in one.group.numbers}
    layers = [_layer(layer) | {"group": groups[layer.number]} for layer in made.net.layers]
    for plain, layer in zip(layers, made.net.layers, strict=True):
        plain |= _ports(layer, made.net.layers)
    return layers


def _ports(layer: Layer, layers: list[Layer]) -> dict[str, Any]:
    """`from`: the layers that it reads, -1 - slot for an input; `to`: the outputs it writes."""
    sources: dict[int, None] = {}
    for r in layer.reads:
        made = [x.number for x in layers if x.dst.map is r.map and _overlap(x.dst, r)]
        sources |= dict.fromkeys(made or [-1 - r.map.input_slot] * (r.map.input_slot >= 0))
    ends = layer.dst.map.output_ranges
    to = [
        slot
        for slot, first, n in ends
        if _overlap(layer.dst, ChannelRange(layer.dst.map, first, n))
    ]
    return {"from": list(sources), **({"to": to} if to else {})}


def _overlap(a: ChannelRange, b: ChannelRange) -> bool:
    return a.first < b.first + b.channels and b.first < a.first + a.channels


def _layer(layer: Layer) -> dict[str, Any]:
    node, kind = layer.node, layer.op
    table = TABLE_INPUT.get(node.op.removeprefix("npu.")) if node is not None else None
    if layer.residual >= 0:
        kind += "+add"
    if kind != "lut" and node is not None and table and node.inputs[table] is not None:
        kind += "+lut"
    results: dict[str, Any] = {
        "op": kind,
        "name": layer.name,
        "dtype": (layer.reads or [layer.dst])[0].map.dtype,  # constants read nothing
        "inputs": [_shape(r) for r in layer.reads],
        "output": _shape(layer.dst),
        "macs": layer.macs(layer.dst.map.height) * layer.dst.map.images,
    }
    if node is not None and layer.is_product:
        results["kernel"] = list(node.inputs[1].shape)  # type: ignore[union-attr]
    return results


def _shape(r: ChannelRange) -> list[int]:
    return [r.map.images, r.channels, r.map.height, r.map.width]
