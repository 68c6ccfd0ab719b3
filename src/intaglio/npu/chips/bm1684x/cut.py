"""The part of a network that a bmodel holds, and the ops before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from intaglio import passes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node
from intaglio.npu.chips.bm1684x.float_layers import FloatLayers
from intaglio.npu.chips.bm1684x.float_ops import FLOATS
from intaglio.npu.chips.bm1684x.float_types import FloatTypes
from intaglio.npu.chips.file_part import (
    SAME_ELEMENTS,
    Reals,
    distinct,
    input_port,
    is_view,
    output_port,
)
from intaglio.npu.chips.file_part import Port as Port
from intaglio.npu.lowering.builder import is_npu
from intaglio.npu.lowering.limits import UNITS
from intaglio.ops.registry import REGISTRY
from intaglio.passes.partition import gather, given_back, stages_of
from intaglio.passes.partition_report import CONSEQUENCES, IN_A_PACKAGE
from intaglio.targets import Target

PRODUCTS = ("conv", "gemm", "matmul")  # that have weights
NAMED = 8  # ops that an error names


@dataclass(slots=True)
class Lowered:
    """The chip's layers as a graph, its ports, and the ops that the caller's CPU has to do."""

    graph: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def lower(
    graph: Graph,
    target: Target,
    dtype: str = "",
    reals: Reals | None = None,
    layers: Mapping[str, str] | None = None,
) -> Lowered:
    """The chip's layers of an optimised graph; Unsupported names all ops that are in the way.

    `dtype` is the type in which ops of f32 are computed on the chip; without one those that no
    layer of the chip needs stay with the caller. `reals` knows the scales of
    its integers. `layers` has other types, by operator.
    """
    passes.run(graph, passes.offload(target)[:-1])
    graph.tidy()
    assert target.chip is not None
    every = bool(dtype) or _has_weights(graph)
    types = FloatTypes(target.chip, dtype or "f32", every, layers)
    why: dict[Node, str] = {}
    if types.every:
        why = _floats_on_chip(graph, types)
        if dtype:
            _refuse_late(target, graph, why)
    stages = stages_of(list(graph.nodes()))
    npu = [i for i, nodes in stages.items() if is_npu(nodes[0])]
    if not npu:
        reasons = [f"{_name(n)} ({n.op}): {why.get(n) or target.why_not(n)}" for n in graph.nodes()]
        raise Unsupported(
            f"{target.name}: no layer runs on the TPU: {'; '.join(reasons[:3]) or 'there is none'}"
        )
    if not types.every and _in_the_middle(stages, npu):
        why = _floats_on_chip(graph, types)
        stages = stages_of(list(graph.nodes()))
        npu = [i for i, nodes in stages.items() if is_npu(nodes[0])]
    first = npu[0]
    _refuse_middle(target, stages, npu, why)
    for i in npu[1:]:
        for node in reversed(stages[i]):
            given_back(graph, node)
    before = [n for i, nodes in stages.items() if i < first for n in nodes]
    if early := [n for n in before if REGISTRY[n.op].macs(n)]:
        named = [f"{_name(n)} ({n.op}): {why.get(n) or target.why_not(n)}" for n in early]
        raise Unsupported(
            f"{target.name}: the TPU does not do {len(early)} products before its first layer: "
            f"{'; '.join(named[:NAMED])}; {IN_A_PACKAGE}"
        )
    gather(graph, stages[first], graph.name or "net")
    graph.tidy()
    (program,) = [n for n in graph.nodes() if n.op == "npu.program"]
    body: Graph = program.attrs["body"]
    after = [n for n in graph.nodes() if n is not program and n not in before]
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    outer = [v for v in program.inputs if v is not None]
    reals = reals or Reals()
    returned = reals.returned(graph)
    inputs = [
        replace(input_port(v, reals), dtype=inner.dtype, shape=inner.shape)
        for v, inner in zip(outer, body.inputs, strict=True)
    ]
    outputs = [
        replace(output_port(v, names, reals, returned), dtype=inner.dtype, shape=inner.shape)
        for v, inner in zip(program.outputs, body.outputs, strict=True)
    ]
    for ports in (inputs, outputs):
        distinct(ports)
    body.output_names = [p.name for p in outputs]
    for v, port in zip(body.inputs, inputs, strict=True):
        v.name = port.name
    words = [(n, _why_after(n, why, target)) for n in after]
    return Lowered(body, inputs, outputs, before, words)


def _why_after(node: Node, why: dict[Node, str], target: Target) -> str:
    if is_view(node):
        return SAME_ELEMENTS
    return why.get(node) or target.why_not(node) or "it follows ops on the CPU"


def _floats_on_chip(graph: Graph, types: FloatTypes) -> dict[Node, str]:
    """Turn ops of floats into layers; returns why some stay on the CPU."""
    layers = FloatLayers(graph, types)
    layers.run()
    return layers.why


def _has_weights(graph: Graph) -> bool:
    """Whether the network has convolutions or linear layers of floats."""

    def weighs(n: Node) -> bool:
        return n.op in PRODUCTS and n.inputs[1] is not None and n.inputs[1].data is not None

    return any(weighs(n) and n.outputs[0].dtype in FLOATS for n in graph.nodes())


def _name(node: Node) -> str:
    return node.origin or node.outputs[0].name or node.op


def _in_the_middle(stages: dict[int, list[Node]], npu: list[int]) -> list[Node]:
    """Products on the TPU that read results of the CPU that depend on other layers."""
    return [n for i in npu[1:] for n in stages[i] if REGISTRY[n.op].macs(n)]


def _refuse_middle(
    target: Target, stages: dict[int, list[Node]], npu: list[int], why: dict[Node, str]
) -> None:
    """Unsupported where ops on the CPU stand before products on the TPU."""
    blocked = _in_the_middle(stages, npu)
    if not blocked:
        return
    last = max(i for i in npu if any(REGISTRY[n.op].macs(n) for n in stages[i]))
    own = [n for i, nodes in stages.items() if npu[0] < i < last and i not in npu for n in nodes]
    own = [n for n in own if n in why] or own
    own = [n for n in own if n.op not in CONSEQUENCES] or own
    reasons = [why.get(n) or target.why_not(n) or "no rule lowers it" for n in own]
    named = [f"{_name(n)} ({n.op}): {r}" for n, r in zip(own, reasons, strict=True)]
    raise _blocked(target, len(blocked), named)


def _blocked(target: Target, products: int, named: list[str]) -> Unsupported:
    rest = f"; and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return Unsupported(
        f"{target.name}: {products} products read results of ops that the TPU does not do: "
        f"{'; '.join(named[:NAMED])}{rest}; {IN_A_PACKAGE}"
    )


def _refuse_late(target: Target, graph: Graph, why: dict[Node, str]) -> None:
    """Unsupported where products of floats read what the TPU does not do."""
    nodes = [n for n in graph.nodes() if not is_npu(n)]
    late = [n for n in nodes if REGISTRY[n.op].macs(n)]
    if late:
        named = [f"{_name(n)} ({n.op}): {why[n] or target.why_not(n)}" for n in nodes if n in why]
        named = named or [f"{_name(n)} ({n.op}): {target.why_not(n)}" for n in late]
        raise _blocked(target, len(late), named)


def why_not(node: Node) -> str | None:
    """Why the encoder cannot write an NPU node; None: it can."""
    name = UNITS.get(node.op)
    kinds = {v.dtype for v in (*node.inputs[:1], *node.outputs) if v is not None}
    if bad := sorted(kinds - {"i8", "u8", "f32", "i32"}):
        return f"{name} of {bad[0]} has no commands yet"
    found: Callable[[Node], str | None] | None = LIMITS.get(node.op)
    return found(node) if found else None


def _product(node: Node) -> str | None:
    """Why the end of a convolution has no commands."""
    at = node.attrs
    if at["dtype"] == "f32" and (at["least"] > -math.inf or at["most"] < math.inf):
        return "it clips sums of floats, which has no commands yet"
    return _tables(node)


def _tables(node: Node) -> str | None:
    """Why a table cannot be looked up."""
    table = node.inputs[{"npu.lut": 1, "npu.eltwise": 2}.get(node.op, 5)]
    if table is None:
        return None
    if table.dtype not in ("i8", "u8"):
        return f"its table has {table.dtype}; tables of bytes are looked up"
    shift = node.attrs.get("y_zero", 0) - node.attrs["base"]
    if abs(shift) > MAX_SHIFT:
        return f"its table begins {shift} from the zero point; at most {MAX_SHIFT} is possible"
    return None


def _eltwise(node: Node) -> str | None:
    other = node.inputs[1]
    assert other is not None
    if other.dtype not in ("i8", "u8"):
        return f"its second operand is {other.dtype}"
    return _tables(node)


MAX_SHIFT = 16000
LIMITS = {
    "npu.conv": _product,
    "npu.depthwise": _product,
    "npu.eltwise": _eltwise,
    "npu.lut": _tables,
}
