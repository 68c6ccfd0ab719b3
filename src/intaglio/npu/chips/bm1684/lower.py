"""From a quantised graph to the layers of the BM1684: the part that a bmodel holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import passes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.chips.bm1684 import limits, ops
from intaglio.npu.chips.bm1684.arithmetic import Product, of_convolution, of_mean, of_scaled, of_sum
from intaglio.npu.chips.bm1684.variant import WORD
from intaglio.npu.chips.file_part import Port, Reals, file_part
from intaglio.npu.chips.own_arithmetic import with_ops_of_chip
from intaglio.npu.chips.shifted_maps import ZEROS, copies, shifted
from intaglio.npu.lowering.target import npu_target
from intaglio.npu.ops import depthwise
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Chip

OTHER = {"i8": ("u8", -128), "u8": ("i8", 128)}  # the type without zero point, and the zero point
PRODUCTS = ("npu.conv", "npu.depthwise")


@dataclass(slots=True)
class Lowered:
    """A graph of NPU ops for tiling, the same graph with the chip's arithmetic, and the rest."""

    layers: Graph
    graph: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def lower(graph: Graph, chip: Chip, level: int = 3) -> Lowered:
    """The layers of a quantised graph, which changes; Unsupported names ops in the way."""
    target = npu_target(replace(chip, sram=chip.sram // WORD), also=limits.why_not)
    reals = Reals()
    reals.learn(graph)
    passes.run(graph, passes.neutral(), level)
    reals.learn(graph)
    passes.run(graph, passes.offload(target)[:-1], level)
    graph.tidy()
    part = file_part(graph, target, reals)
    layers = prepared(part.layers)
    for ports, values in ((part.inputs, layers.inputs), (part.outputs, layers.outputs)):
        for port, v in zip(ports, values, strict=True):
            if port.dtype != v.dtype:
                port.zero -= OTHER[port.dtype][1]
                port.dtype = v.dtype
    return Lowered(layers, meaning(layers), part.inputs, part.outputs, part.before, part.after)


def prepared(layers: Graph) -> Graph:
    """Layers as the TPU computes them: no zero points, no means, scales that are powers of two."""
    zeros = _zeros(layers)
    for dtype, (to, zero) in OTHER.items():
        chosen = {v for v, z in zeros.items() if v.dtype == dtype and z == zero}
        if chosen:
            layers = shifted(layers, chosen, to)
            zeros = _zeros(layers)
    if bad := [v for v, z in zeros.items() if z]:
        raise Unsupported(
            f"bm1684: map '{bad[0].name}' has the zero point {zeros[bad[0]]}; the chip has none"
        )
    for node in list(layers.nodes()):
        if node.op == "npu.pool" and node.attrs["kind"] == "avg":
            layers.replace(node.outputs[0], _mean(node))
        elif node.op in PRODUCTS:
            layers.replace(node.outputs[0], _product(node))
    return layers


def _zeros(graph: Graph) -> dict[Value, int]:
    """The zero points of all maps; those that only move are equal."""
    leader: dict[Value, Value] = {}

    def find(v: Value) -> Value:
        while leader.setdefault(v, v) is not v:
            v = leader[v]
        return v

    found: dict[Value, int] = {}
    nodes = list(graph.nodes())
    for node in nodes:
        if copies(node):
            for v in node.inputs:
                if v is not None:
                    leader[find(v)] = find(node.outputs[0])
    for node in nodes:
        for i, v in enumerate(node.inputs):
            name = ZEROS.get((node.op, i))
            if v is not None and name in node.attrs and not copies(node) and name != "base":
                found[find(v)] = node.attrs[name]
        if "y_zero" in node.attrs and not copies(node):
            found[find(node.outputs[0])] = node.attrs["y_zero"]
    maps = [*graph.inputs, *(v for n in nodes for v in n.outputs)]
    return {v: found.get(find(v), 0) for v in maps}


def _product(node: Node) -> Value:
    """A convolution with the chip's weights and biases, and scales that are powers of two."""
    made = of_convolution(node)
    return _with(node, made).outputs[0]


def _with(node: Node, made: Product) -> Node:
    scales = (2.0 ** -made.shifts.astype(np.float64)).astype(np.float32)
    constants = made.weights, scales, made.bias.astype(np.int32)
    given = [node.inputs[0], *map(constant, constants), *node.inputs[4:]]
    new = REGISTRY[node.op].node(*given, origin=node.origin, **node.attrs)
    new.outputs[0].name = node.outputs[0].name
    return new


def _mean(node: Node) -> Value:
    """An average pool as a depthwise convolution."""
    weight, shift = of_mean(node)
    x, a = node.inputs[0], node.attrs
    assert x is not None
    many = x.shape[1]
    weights = np.full((many, 1, *a["kernel"]), weight, np.int8)
    scales = np.full(many, 2.0**-shift, np.float32)
    rest = {k: a[k] for k in ("stride", "pad", "dilation", "x_zero", "low", "high", "dtype")}
    none = [None, None]
    given = [x, *map(constant, (weights, scales, np.zeros(many, np.int32))), *none]
    made = depthwise.node(*given, origin=node.origin, **rest)
    made.outputs[0].name = node.outputs[0].name
    return made.outputs[0]


# ---- the chip's arithmetic -----------------------------------------------------------------------
def product_of(node: Node) -> Product:
    """The constants of a convolution that is prepared: nothing is rounded any more."""
    w, scale, bias = (v.data for v in node.inputs[1:4] if v is not None)
    assert w is not None
    assert scale is not None
    assert bias is not None
    return Product(w, bias.astype(np.int64), np.rint(-np.log2(scale)).astype(np.int64))


def meaning(graph: Graph) -> Graph:
    """A graph of NPU ops with those that round replaced by the chip's own."""
    return with_ops_of_chip(graph, _chip_node)


def _chip_node(n: Node, given: list[Value | None]) -> Node:
    a = n.attrs
    end: dict[str, Any] = {k: a[k] for k in ("low", "high", "dtype") if k in a}
    if n.op in PRODUCTS:
        assert given[0] is not None
        p = product_of(n)
        groups = given[0].shape[1] if n.op == "npu.depthwise" else 1
        window: dict[str, Any] = {k: a[k] for k in ("stride", "pad", "dilation")}
        constants = [constant(c) for c in (p.weights, p.bias, p.shifts)]
        return ops.conv.node(given[0], *constants, **window, groups=groups, **end, origin=n.origin)
    if n.op == "npu.eltwise" and a["kind"] == "mul":
        return ops.mul.node(*given[:2], **asdict(of_scaled(n)), **end, origin=n.origin)
    if n.op == "npu.eltwise":
        return ops.add.node(*given[:2], **asdict(of_sum(n)), **end, origin=n.origin)
    return REGISTRY[n.op].node(*given, **a, origin=n.origin)
