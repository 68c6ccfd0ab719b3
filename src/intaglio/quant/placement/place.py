"""Decide which layers compute in integers, and which tensors are quantised for them.

Integers pay off for products with constant weights (convolutions, matrix products). Ops between two
products (sums, pools, concatenations, unary functions, ops that move values) follow if that saves a
conversion. Other ops after the last product stay in floats: they cost little, and boxes and scores
keep their precision. On a chip with an NPU, where the CPU would have to compute them, functions and
sums whose results only become outputs (the sigmoid of a head, a last residual) are integers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from intaglio import targets
from intaglio.ir import Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.lookup_tables import MAX_OPS
from intaglio.targets import Target
from intaglio.targets.precision import Precision

PRODUCTS = ("conv", "conv_transpose", "gemm", "matmul")
CLAMPS = ("relu", "clip")
MOVES = (
    "reshape",
    "transpose",
    "slice",
    "channel_shuffle",
    "depth_to_space",
    "space_to_depth",
    "expand",
    "tile",
)
SAME_SCALE = (*MOVES, "max_pool")  # every output value is one of the input values
JOINS = ("add", "mul", "concat")
MEANS = ("avg_pool", "reduce_mean")
SMALL = 0.001  # share of the model's MACs below which an isolated product stays in floats
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class DepthwiseInput:
    """A tensor that only depthwise convolutions read, and the layers around it."""

    maker: Node
    values: tuple[Value, ...]  # from the maker's output through clamps to the tensor
    readers: tuple[Node, ...]
    bound: float  # upper limit of the clamps


@dataclass
class Placement:
    """Nodes that compute in integers, with their precision, and the tensors quantised for them."""

    nodes: dict[Node, str] = field(default_factory=dict)
    tensors: list[Value] = field(default_factory=list)  # producers first
    floats: dict[Node, str] = field(default_factory=dict)  # products left in floats, and why
    chip: Target = field(default_factory=lambda: targets.find("cpu"))  # the target
    half_layers: dict[Node, str] = field(default_factory=dict)  # of `floats`: in f16 or bf16
    # tensors that may have a scale for each channel
    depthwise_inputs: dict[Value, DepthwiseInput] = field(default_factory=dict)

    def quantized(self, v: Value | None) -> bool:
        return v in self._set

    def __post_init__(self) -> None:
        self._set = set(self.tensors)

    def drop(self, values: Iterable[Value]) -> None:
        """Do not quantise these tensors."""
        self._set -= set(values)
        self.tensors = [v for v in self.tensors if v in self._set]

    def add(self, v: Value) -> None:
        if v not in self._set:
            self._set.add(v)
            self.tensors.append(v)


def activations(node: Node) -> list[Value]:
    """The inputs of a node that are no constants."""
    return [v for v in node.inputs if v is not None and v.data is None]


def weight_axis(node: Node) -> int | None:
    """The axis of output channels of a product's weights; None: they cannot be quantised."""
    x, w = node.inputs[:2]
    if x is None or w is None or w.data is None or x.data is not None or w.dtype != "f32":
        return None
    a = node.attrs
    if node.op == "conv":
        return 0
    if node.op == "conv_transpose":
        if is_depthwise_transposed(node):
            return 0
        return 1 if a["groups"] == 1 else None
    if node.op == "gemm":
        plain = not a["trans_a"] and a["alpha"] == 1 and a["beta"] == 1
        return (0 if a["trans_b"] else 1) if plain and w.type.rank == 2 else None
    return 1 if node.op == "matmul" and w.type.rank == 2 else None


def is_depthwise_transposed(node: Node) -> bool:
    """Is it a transposed convolution with one window per channel?"""
    w = node.inputs[1] if node.op == "conv_transpose" else None
    return w is not None and node.attrs["groups"] == w.shape[0] > 1 and w.shape[1] == 1


def is_function(node: Node) -> bool:
    """Is it an elementwise function of one tensor, with scalar constants as other operands?"""
    op = REGISTRY[node.op]
    if not op.elementwise or len(node.outputs) != 1 or len(activations(node)) != 1:
        return False
    x = activations(node)[0]
    rest = [v for v in node.inputs if v is not None and v.data is not None]
    return x.dtype == node.outputs[0].dtype == "f32" and all(v.type.size == 1 for v in rest)


def adds_bias(node: Node) -> bool:
    """Does it add a bias vector to a matmul that no other node reads?"""
    if node.op != "add" or len(activations(node)) != 1:
        return False
    result = activations(node)[0].producer
    bias = next(v for v in node.inputs if v is not None and v.data is not None)
    return (
        result is not None
        and result.op == "matmul"
        and len(activations(node)[0].uses) == 1
        and bias.type.size == bias.shape[-1] == node.outputs[0].shape[-1]
    )


def can_follow(node: Node) -> bool:
    """Can the op compute in integers between integer products?"""
    if node.outputs[0].dtype != "f32" or node.outputs[0].type.dynamic or not activations(node):
        return False
    if node.op in JOINS and len(activations(node)) == len(node.inputs):
        return True
    return len(node.outputs) == 1 and (
        keeps_scale(node) or node.op in MEANS or is_function(node) or adds_bias(node)
    )


def keeps_scale(node: Node) -> bool:
    """Is every output value one of the input values, so that both share a scale?"""
    if REGISTRY[node.op].keeps_scale:
        return True
    return node.op in SAME_SCALE or (node.op == "resize" and node.attrs["mode"] == "nearest")


def layer(node: Node) -> str:
    """The name of a layer: that of its first output."""
    return node.outputs[0].name


def place(
    graph: Graph, wanted: Mapping[str, str], chip: Target | None = None, default: str | None = None
) -> Placement:
    """Decide for every node. `wanted` fixes the precision of layers by name.

    `chip` decides which nodes it computes in integers; `default` replaces its usual precision.
    """
    nodes = list(graph.nodes())
    result = Placement() if chip is None else Placement(chip=chip)
    usual = result.chip.in_precision(default) if default else result.chip.preferred_precision
    for n in nodes:
        if n.op in PRODUCTS and weight_axis(n) is not None:
            if result.chip.chip is None and is_depthwise_transposed(n):
                continue  # CPUs have no integer kernel for its groups
            result.nodes[n] = wanted.get(layer(n), usual.name)
    if any(p.is_float for p in result.chip.precisions):
        _leave_small(nodes, result, wanted)
    for n, precision in list(result.nodes.items()):
        if precision in FLOATS:
            result.floats[n] = f"{precision} was asked for"
            if precision != "f32":
                result.half_layers[n] = precision
            del result.nodes[n]
        elif why := result.chip.in_precision(precision).why_not(n):
            result.floats[n] = f"{result.chip.name} does not compute it in {precision}: {why}"
            del result.nodes[n]
    ends = _endings(nodes) if result.chip.chip is not None else set()
    _follow(nodes, result, wanted, usual, ends)
    for n in nodes:
        if n in result.nodes:
            for v in activations(n):
                if not _absorbed(v, n, result):
                    result.add(v)
            if n in ends or not result.chip.in_precision(result.nodes[n]).float_results:
                for v in n.outputs:
                    if not any(r in result.nodes and _absorbed(v, r, result) for r in v.uses):
                        result.add(v)
    return result


def _leave_small(nodes: list[Node], made: Placement, wanted: Mapping[str, str]) -> None:
    """Leave small products that have no integer neighbours in floats."""
    work = {n: REGISTRY[n.op].macs(n) for n in made.nodes}
    total = sum(work.values())
    before = set(made.nodes)  # nodes with a product before them
    for n in nodes:
        if can_follow(n) and any(v.producer in before for v in activations(n)):
            before.add(n)
    after = set(made.nodes)  # nodes with a product after them
    for n in reversed(nodes):
        if can_follow(n) and any(r in after for r in n.outputs[0].uses):
            after.add(n)
    for n, macs in work.items():
        x, y = activations(n)[0], n.outputs[0]
        lone = x.producer not in before and not any(r in after for r in y.uses)
        if lone and macs < SMALL * total and x.producer and layer(n) not in wanted:
            del made.nodes[n]
            made.floats[n] = "it is small, and its neighbours are in floats"


def _endings(nodes: list[Node]) -> set[Node]:
    """Functions and sums, and moves behind them, whose results only become outputs.

    A clamp behind a product is none of them: units clamp sums of floats. A concat before an output
    stays in floats, because its parts may differ in scale; functions right behind products, whose
    results it joins, are such endings all the same.
    """
    lead: set[Node] = set()  # to outputs only
    joined: set[Node] = set()  # concats, and moves behind them, that lead to outputs only
    for n in reversed(nodes):
        readers = [r for v in n.outputs for r in v.uses]
        if not readers or any(r.op != "result" and r not in lead | joined for r in readers):
            continue
        before_concat = any(r in joined for r in readers)
        if n.op == "concat" or (n.op in MOVES and before_concat):
            joined.add(n)
            continue
        adds = n.op == "add" and len(activations(n)) == 2
        ends = _ends_product(n) if before_concat else adds or is_function(n) or keeps_scale(n)
        if can_follow(n) and ends:
            lead.add(n)
    found: set[Node] = set()
    for n in nodes:
        computes = n.op not in CLAMPS and not keeps_scale(n) and not adds_bias(n)
        if n in lead and (computes or any(v.producer in found for v in activations(n))):
            found.add(n)
    return found


def _ends_product(n: Node) -> bool:
    """Is it a function of nothing but a product's result?"""
    return is_function(n) and all(
        v.producer is not None and v.producer.op in PRODUCTS for v in activations(n)
    )


def _follow(
    nodes: list[Node], made: Placement, wanted: Mapping[str, str], usual: Precision, ends: set[Node]
) -> None:
    """Add the ops between integer products; for targets without float results also those after."""
    to_the_end = not usual.float_results
    reach: set[Node] = set(made.nodes)
    for n in reversed(nodes):
        if n not in reach and can_follow(n) and wanted.get(layer(n)) not in FLOATS:
            read = to_the_end or n in ends or any(r in reach for v in n.outputs for r in v.uses)
            reach |= {n} if read else set()
    for n in nodes:
        if n in reach and n not in made.nodes:
            sources = [v.producer for v in activations(n)]
            if all(s is None or s in made.nodes for s in sources):
                first = next((made.nodes[s] for s in sources if s is not None), usual.name)
                precision = wanted.get(layer(n), first)
                if not made.chip.in_precision(precision).why_not(n):
                    made.nodes[n] = precision


def _absorbed(v: Value, reader: Node, made: Placement) -> bool:
    """Is `v` fused into its reader, so that it is never rounded?"""
    maker = v.producer
    if maker is None or maker not in made.nodes or len(v.uses) != 1 or keeps_scale(maker):
        return False
    if is_function(reader):
        # one table holds a chain of functions; a clamp fuses into its producer
        return _tabulated(maker, made) or (reader.op in CLAMPS and not is_function(maker))
    if adds_bias(reader):
        return True
    if reader.op == "add" and len(activations(reader)) == 2:
        if not made.chip.in_precision(made.nodes[maker]).adds_residuals:
            return False
        sums = [u for u in activations(reader) if _is_sum(u, made)]
        return bool(sums) and v is sums[-1]
    return False


def _tabulated(node: Node | None, made: Placement) -> bool:
    """Is it a function of a quantised tensor, or one in a chain that starts with such?"""
    for _ in range(MAX_OPS):  # one table replaces no more
        if node is None or node not in made.nodes or not is_function(node):
            return False
        x = activations(node)[0]
        if made.quantized(x):
            return True
        node = x.producer if len(x.uses) == 1 else None
    return False


def _is_sum(v: Value, made: Placement) -> bool:
    """Is it a convolution's result with a single reader?"""
    n = v.producer
    return n is not None and n.op == "conv" and n in made.nodes and len(v.uses) == 1
