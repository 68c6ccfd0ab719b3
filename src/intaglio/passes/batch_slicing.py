"""Run large batches in slices: a few images pass through all layers before the next few.

The activations of a large batch do not stay in the caches, so every layer waits for memory. If no
layer mixes images, the model becomes a scan over slices of its batch. A slice is as large as
`limit` bytes allow for the layer with the most activation bytes. Every slice reads all weights
again, so models with many weights get larger slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from intaglio.errors import IntaglioError
from intaglio.ir import Graph, Node, Type, Value
from intaglio.ops import reshape, scan
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, No, Rule, Trace, no

WEIGHTS_PER_ACTIVATION = (
    3  # weight bytes that justify one more activation byte per slice; from ResNet-18
)
MIN_EXCESS = 2  # times the limit; below that, the caches suffice
WINDOWS = (
    "conv",
    "conv_transpose",
    "max_pool",
    "avg_pool",
    "lp_pool",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "lrn",
    "depth_to_space",
    "space_to_depth",
    "channel_shuffle",
)
ALONG = (
    "softmax",
    "log_softmax",
    "hardmax",
    "layer_norm",
    "rms_norm",
    "concat",
    "lp_norm",
    "glu",
    "argmax",
    "argmin",
)
Attrs = dict[str, Any]


def in_slices_of(limit: int) -> Callable[[Graph, Trace], int]:
    """The pass for a machine whose caches hold `limit` bytes of activations."""

    def slice_batch(graph: Graph, trace: Trace) -> int:
        """Run a large batch in slices that stay in the caches."""
        found = _slice(graph, limit)
        if found:
            refusal = found if isinstance(found, No) else None
            trace(Rule(ANY, slice_batch), graph.result, refusal)
        return int(found is True)

    return slice_batch


def _slice(graph: Graph, limit: int) -> bool | No:
    """Whether the graph was sliced; a refusal if it is large enough but cannot be."""
    inputs = graph.inputs
    if not inputs or any(v.type.rank < 1 or not v.type.fixed for v in inputs):
        return False
    batch = inputs[0].shape[0]
    nodes = list(graph.nodes())
    large = max((_bytes(n) for n in nodes), default=0)
    held = {v for n in nodes for v in n.inputs if v is not None and v.data is not None}
    limit = max(
        limit, sum(v.data.nbytes for v in held if v.data is not None) // WEIGHTS_PER_ACTIVATION
    )
    if batch < 2 or large <= MIN_EXCESS * limit:
        return False
    if any(v.shape[0] != batch for v in inputs):
        return no("the inputs differ in their batch size")
    if any(v in inputs for v in graph.outputs):
        return no("an output is an input")
    most = max(1, limit * batch // large)
    few = max(d for d in _divisors(batch) if d <= most)
    body = _body(graph, nodes, batch, few)
    if isinstance(body, No):
        return body
    cut = [reshape(v, shape=(batch // few, few, *v.shape[1:])) for v in inputs]
    results = scan.node(*cut, body=body, states=0, scans=len(cut)).outputs
    whole = [reshape(v, shape=(batch, *v.shape[2:])) for v in results]
    for old, new in zip(list(graph.outputs), whole, strict=True):
        graph.replace(old, new)
    return True


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return [*small, *(n // d for d in small)]


def _bytes(node: Node) -> int:
    """Bytes of the activations that a node reads and makes."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and v.data is None]
    return sum(v.type.bytes for v in values)


def _body(graph: Graph, nodes: list[Node], batch: int, few: int) -> Graph | No:
    """The same graph for `few` images."""
    now: dict[Value, Value] = {}
    for v in graph.inputs:
        now[v] = Value(v.type.but(shape=(few, *v.shape[1:])), v.name)
    for node in nodes:
        if node.bodies() or any(v.type.dynamic for v in node.outputs):
            return no(f"{node.op} has dynamic axes or a body")
        attrs = _attrs(node, batch, few)
        if isinstance(attrs, No):
            return attrs
        ins: list[Value | None] = []
        for given in node.inputs:
            if given is not None and given.data is not None and given not in now:
                now[given] = Value(given.type, given.name, given.data)
            ins.append(None if given is None else now[given])
        try:
            result = REGISTRY[node.op].node(*ins, origin=node.origin, **attrs).outputs
        except IntaglioError as e:
            return no(f"{node.op}: {e}")
        for old, new in zip(node.outputs, result, strict=True):
            if not _is_slice(old.type, new.type, batch, few):
                return no(
                    f"{node.op} makes {new.type} from a slice and {old.type} from the whole batch"
                )
            now[old], new.name = new, old.name
    outputs = [now[v] for v in graph.outputs if v in now]
    if len(outputs) < len(graph.outputs):
        return no("an output is a constant")
    return Graph([now[v] for v in graph.inputs], outputs, graph.output_names, graph.name)


def _is_slice(whole: Type, part: Type, batch: int, few: int) -> bool:
    if not whole.shape or whole.shape[0] != batch:
        return False
    return part == whole.but(shape=(few, *whole.shape[1:]))


def _attrs(node: Node, batch: int, few: int) -> Attrs | No:
    """The node's attributes for `few` images; a refusal if it may mix images."""
    a, op, values = node.attrs, node.op, [v for v in node.inputs if v is not None]
    moving = [v for v in values if v.data is None]
    if not moving or any(v.type.rank < 1 or v.shape[0] != batch for v in moving):
        return no(f"{op} reads a tensor without a batch axis")
    rank = moving[0].type.rank
    if REGISTRY[op].elementwise:
        alike = all(v.type.rank == node.outputs[0].type.rank for v in moving)
        each = any(v.type.rank == rank and v.shape[0] > 1 for v in values if v.data is not None)
        return dict(a) if alike and not each else no(f"{op} broadcasts along the batch")
    only_first = moving == values[:1]
    if op in WINDOWS:
        return (
            dict(a)
            if only_first and not a.get("with_indices")
            else no(f"{op} has more than one variable operand or returns indices")
        )
    if op in ALONG or op.startswith("reduce_"):
        axes = a["axes"] if "axes" in a else (a["axis"],)
        constant_rows = op == "concat" and len(moving) != len(values)
        if constant_rows or not axes or any(i in (0, -rank) for i in axes):
            return no(f"{op} works along the batch axis")
        return dict(a)
    if op == "transpose":
        return dict(a) if a["perm"][0] == 0 else no("transpose moves the batch axis")
    if op == "reshape":
        shape = a["shape"]
        same = shape[:1] == (batch,) and math.prod(shape) == values[0].type.size
        return {"shape": (few, *shape[1:])} if same else no("reshape changes the batch axis")
    if op == "slice":
        whole = (a["start"][0], a["stop"][0], a["step"][0]) == (0, batch, 1)
        return {**a, "stop": (few, *a["stop"][1:])} if whole else no("slice cuts the batch axis")
    if op == "pad":
        whole = only_first and a["before"][0] == a["after"][0] == 0
        return dict(a) if whole else no("pad enlarges the batch axis")
    if op == "resize":
        return _resized(a, rank, batch, few)
    if op == "matmul":
        rows = only_first or (len(moving) == 2 and rank > 2 and moving[1].type.rank == rank)
        return dict(a) if rows else no("matmul mixes images")
    if op == "gemm":
        added = values[2:] and values[2].type.rank == 2 and values[2].shape[0] > 1
        return dict(a) if only_first and not a["trans_a"] and not added else no("gemm mixes images")
    if op == "attention":
        return (
            dict(a)
            if all(v.type.rank > 2 for v in moving) and moving == values
            else no("attention has a mask that all images share")
        )
    return no(f"it is not known whether {op} mixes images")


def _resized(a: Attrs, rank: int, batch: int, few: int) -> Attrs | No:
    axes = a["axes"] or tuple(range(rank))
    if any(i in (0, -rank) for i in axes) and a["axes"]:
        return no("resize changes the batch axis")
    if not a["axes"] and a["shape"]:
        return {**a, "shape": (few, *a["shape"][1:])}
    return dict(a)
