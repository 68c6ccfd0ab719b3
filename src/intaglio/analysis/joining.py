"""Join the tensors of two models: by name, by the name of their node, by structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from intaglio import dtypes, ops
from intaglio.analysis.channel_factors import by_channel, constant_of
from intaglio.analysis.meaning import why_not_comparable
from intaglio.errors import BadInput, option
from intaglio.interpret import initial_state
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY

NHWC = (0, 2, 3, 1)  # axes of [N, C, H, W] in the order [N, H, W, C]
NCHW = (0, 3, 1, 2)
Add = Callable[[Value, Value, str], None]
SAME_NORM = 0.02  # relative difference of weights of the same layer, quantised or not
ENOUGH_BY_NAME = 0.5  # share of the products above which names alone join


@dataclass
class Joined:
    """The tensors of two graphs that hold the same thing."""

    pairs: dict[Value, Value]  # of the golden graph, of the other
    how: dict[Value, str]  # by golden tensor: "name", "node", "structure", "order" or "output"
    golden_only: list[str] = field(default_factory=list)
    other_only: list[str] = field(default_factory=list)
    shapes_differ: list[str] = field(default_factory=list)  # same name, another shape
    not_comparable: list[str] = field(default_factory=list)  # outputs of one shape, and why
    # factors of the channels of the other tensor, by golden tensor
    factors: dict[Value, Array] = field(default_factory=dict)

    def real(self, golden: Value, result: Array) -> Array:
        """The other model's result with the axes and the factors of the golden tensor."""
        result = turned(result, golden.shape)
        by = self.factors.get(golden)
        return result if by is None else (result / by).astype(result.dtype)

    def named_factors(self) -> dict[str, Array]:
        """The factors by the name of the golden tensor."""
        return {v.name: by for v, by in self.factors.items()}

    def counterparts(self) -> dict[Value, str]:
        """Names of golden tensors by tensors of the other graph, whose axes may be turned.

        The exact value before a rounding has the same counterpart as the rounded one.
        """
        found: dict[Value, str] = {}
        for golden, other in self.pairs.items():
            if same_axes(golden.shape, other.shape) is not None:
                found[other] = golden.name
                if (exact := exact_of(other)) is not None and exact.shape == other.shape:
                    found[exact] = golden.name
        return found


def join(golden: Graph, other: Graph) -> Joined:
    """Join every float tensor of the golden graph with one of the other."""
    ours, theirs = list(tensors(golden)), list(tensors(other))
    result = Joined({}, {})
    taken: set[Value] = set()

    def add(a: Value, b: Value, how: str) -> None:
        if a not in result.pairs and b not in taken:
            result.pairs[a], result.how[a] = b, how
            taken.add(b)

    named = by_name(other)
    refused: set[Value] = set()
    ends_of = {rounded(b) for b in other.outputs if b.producer}
    for v in ours:
        other_v = named.get(v.name)
        if v.name and other_v is not None:
            ends = (end_of_norm(v), end_of_norm(other_v))
            if (ends[0] is v) != (ends[1] is other_v):  # one name before a batch norm, one behind
                if _comparable(*ends):
                    add(ends[0], ends[1], "name")
            elif same_axes(v.shape, other_v.shape) is not None:
                both = v in golden.outputs and other_v in ends_of
                if both and (why := why_not_comparable(v, other_v)):
                    result.not_comparable.append(why)
                    refused.add(v)
                    taken.add(other_v)
                else:
                    add(v, other_v, "name")
            else:
                result.shapes_differ.append(v.name)
    _inputs(golden, other, add)
    result.factors = by_channel(ours, named, add)
    products = [n for n in golden.nodes() if REGISTRY[n.op].macs(n)]
    joined = sum(any(v in result.pairs for v in layer_of(n)) for n in products)
    if joined < ENOUGH_BY_NAME * len(products) or not result.pairs:
        # where names are kept, a tensor with another name is another tensor
        _by_node(golden, other, add)
        _by_structure(golden, other, add)
    left = [rounded(b) for b in other.outputs if b.producer and rounded(b) not in taken]
    for a in golden.outputs:
        fits = [b for b in left if _comparable(a, b)]
        if a.producer and a not in result.pairs and fits and a not in refused:
            same = [(b, why_not_comparable(a, b)) for b in fits]
            best = next((b for b, why in same if not why), None)
            if best is None:
                result.not_comparable.append(same[0][1])
                continue
            add(a, best, "output")
            left.remove(best)
    result.golden_only = [v.name for v in ours if v.name and v not in result.pairs]
    result.other_only = [v.name for v in theirs if v.name and rounded(v) not in taken]
    order = {v: i for i, v in enumerate([*golden.inputs, *ours])}
    result.pairs = dict(sorted(result.pairs.items(), key=lambda p: order.get(p[0], 0)))
    return result


def _inputs(golden: Graph, other: Graph, add: Add) -> None:
    """Join float inputs with what the other model's rounded inputs stand for."""
    ours, theirs = ([v for v in g.inputs if v.name not in g.state] for g in (golden, other))
    names = {v.name: v for v in theirs}
    for i, v in enumerate(ours):
        given = names.get(v.name) or (theirs[i] if len(theirs) == len(ours) else None)
        real = None if given is None else rounded(given)
        if real is not None and real is not given and _comparable(v, real):
            add(v, real, "name" if given is names.get(v.name) else "order")


def tensors(graph: Graph) -> Iterator[Value]:
    """Computed float tensors with a fixed shape, in the order of the graph."""
    fixed: set[Value] = set()  # computed from constants alone
    for n in graph.nodes():
        if all(x is None or x.data is not None or x in fixed for x in n.inputs):
            fixed.update(n.outputs)
            continue
        for v in n.outputs:
            if dtypes.is_float(v.dtype) and v.type.fixed:
                yield v


def by_name(graph: Graph) -> dict[str, Value]:
    """Float tensors by name, after their rounding; of stored integers, what they stand for."""
    found: dict[str, Value] = {}
    for n in graph.nodes():
        for v in n.outputs:
            real = rounded(v)
            if v.name and dtypes.is_float(real.dtype) and real.type.fixed:
                found[v.name] = real
    return found


def rounded(v: Value) -> Value:
    """The tensor after quantize and dequantize, if nothing reads it before."""
    readers = list(v.uses)
    if len(readers) == 1 and readers[0].op == "quantize_linear" and readers[0].inputs[0] is v:
        v = readers[0].outputs[0]
    if not dtypes.is_float(v.dtype):
        made = [n for n in v.uses if n.op == "dequantize_linear" and n.inputs[0] is v]
        maker = v.producer
        if maker is not None and maker.op == "quantize_linear":
            made.sort(key=lambda n: not same_scale(maker, n))
            if made and not same_scale(maker, made[0]) and _counts(made[0]):
                return _dequantized(v, maker)
        if made:
            return made[0].outputs[0]
    return v


def _counts(node: Node) -> bool:
    """Whether a dequantize has the scale 1: the model goes on with the integers themselves."""
    scale = node.inputs[1]
    return scale is not None and scale.data is not None and bool((scale.data == 1).all())


def _dequantized(v: Value, maker: Node) -> Value:
    keep = {k: a for k, a in maker.attrs.items() if k in ("axis", "block_size")}
    result: Value = ops.dequantize_linear(v, *maker.inputs[1:3], **keep)
    return result


def same_scale(a: Node, b: Node) -> bool:
    """Whether quantize and dequantize have the same scale and zero point."""

    def data(n: Node, i: int) -> Array | None:
        v = n.inputs[i] if len(n.inputs) > i else None
        return None if v is None else v.data

    pairs = [(data(a, i), data(b, i)) for i in (1, 2)]
    return all(
        x is y or (x is not None and y is not None and np.array_equal(x.ravel(), y.ravel()))
        for x, y in pairs
    )


def exact_of(v: Value) -> Value | None:
    """The tensor before quantize and dequantize."""
    node = v.producer
    if node is None or node.op != "dequantize_linear" or node.inputs[0] is None:
        return None
    before = node.inputs[0].producer
    return before.inputs[0] if before is not None and before.op == "quantize_linear" else None


def rounding_of(v: Value) -> tuple[Node, Node] | None:
    """The quantize and dequantize nodes that make a tensor."""
    node = v.producer
    if node is None or node.op != "dequantize_linear" or node.inputs[0] is None:
        return None
    before = node.inputs[0].producer
    if before is None or before.op != "quantize_linear":
        return None
    return (before, node) if same_scale(before, node) else None


def same_axes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The permutation that turns shape `b` into shape `a`; None if there is none."""
    if a == b:
        return tuple(range(len(a)))
    if len(a) == len(b) == 4:
        for perm in (NHWC, NCHW):
            if tuple(b[i] for i in perm) == a:
                return perm
    return None


def turned(array: Array, shape: tuple[int, ...]) -> Array:
    """The array with its axes in the order of `shape`."""
    perm = same_axes(shape, array.shape)
    return array.reshape(shape) if perm is None else array.transpose(perm)


def _by_node(golden: Graph, other: Graph, add: Add) -> None:
    """Join the last tensors of nodes with the same name in the file."""
    ends = [
        {n.origin: v for n in g.nodes() if n.origin for v in n.outputs[:1]} for g in (golden, other)
    ]
    for origin, v in ends[0].items():
        b = rounded(ends[1][origin]) if origin in ends[1] else None
        if b is not None and _comparable(v, b):
            add(v, b, "node")


def _by_structure(golden: Graph, other: Graph, add: Add) -> None:
    """Join products of the same work and shape behind joined products, or with like weights."""
    products = [[n for n in g.nodes() if REGISTRY[n.op].macs(n)] for g in (golden, other)]
    before = [_upstream(g) for g in (golden, other)]
    facts = {n: (_mark(n), _norm(n)) for each in products for n in each}
    mapped: dict[Node, Node] = {}
    free = dict.fromkeys(products[1])
    for m in products[0]:
        mark, norm = facts[m]
        alike = [n for n in free if facts[n][0] == mark]
        wanted = {mapped.get(x) for x in before[0][m] if x is not None}
        found = [n for n in alike if before[1][n] == wanted]
        if len(found) != 1:  # branches alike: their weights tell them apart, or nothing does
            among = found or alike
            found = [n for n in among if norm and abs(facts[n][1] / norm - 1) < SAME_NORM]
        if len(found) == 1:
            best = found[0]
            mapped[m] = best
            del free[best]
            x, y = end_of_layer(m), rounded(end_of_layer(best))
            if _comparable(x, y):
                add(x, y, "structure")


def _upstream(graph: Graph) -> dict[Node, set[Node | None]]:
    """The products whose results each product reads, through any other nodes."""
    sources: dict[Node, set[Node | None]] = {}
    found: dict[Node, set[Node | None]] = {}
    for n in graph.nodes():
        above: set[Node | None] = set()
        for x in n.inputs:
            if x is not None and x.producer is not None:
                above |= sources[x.producer]
        if REGISTRY[n.op].macs(n):
            found[n] = above
            above = {n}
        sources[n] = above
    return found


def _norm(node: Node) -> float:
    """The norm of a product's constant weights; 0 without any."""
    data = constant_of(node.inputs[1] if len(node.inputs) > 1 else None)
    return 0.0 if data is None else float(np.linalg.norm(data.astype(np.float64)))


def _comparable(a: Value, b: Value) -> bool:
    floats = dtypes.is_float(a.dtype) and dtypes.is_float(b.dtype)
    return floats and a.type.fixed and b.type.fixed and same_axes(a.shape, b.shape) is not None


def _mark(node: Node) -> tuple[object, ...]:
    out = node.outputs[0]
    kind = "product" if node.op in ("gemm", "matmul") else node.op
    return kind, REGISTRY[node.op].macs(node), tuple(sorted(d for d in out.shape if d != 1))


def layer_of(node: Node) -> list[Value]:
    """The tensors of a product and of the functions that follow it."""
    v, found = node.outputs[0], [node.outputs[0]]
    while len(v.uses) == 1:
        reader = next(iter(v.uses))
        computed = [x for x in reader.inputs if x is not None and x.data is None]
        plain = reader.op in REGISTRY and len(computed) == 1
        follows = reader.op == "transpose" or (
            plain and (reader.op == "batch_norm" or REGISTRY[reader.op].elementwise)
        )
        if not follows:
            break
        v = reader.outputs[0]
        found.append(v)
    return found


def end_of_norm(v: Value) -> Value:
    """The result of the batch norms, or factors and terms of channels, that follow a product."""
    node = v.producer
    if node is None or node.op not in REGISTRY or not REGISTRY[node.op].macs(node):
        return v
    while len(v.uses) == 1:
        reader = next(iter(v.uses))
        computed = [x for x in reader.inputs if x is not None and x.data is None]
        scaled = reader.op in ("mul", "add") and len(computed) == 1 and reader.outputs
        if reader.op != "batch_norm" and not scaled:
            break
        v = reader.outputs[0]
    return v


def end_of_layer(node: Node) -> Value:
    """The result of a product with its activation; a transpose after it does not count."""
    tail = layer_of(node)
    while len(tail) > 1 and tail[-1].producer is not None and tail[-1].producer.op == "transpose":
        tail.pop()
    return tail[-1]


def real_outputs(graph: Graph) -> None:
    """Make outputs that hold rounded integers real numbers, in place."""
    for i, v in enumerate(graph.outputs):
        node = v.producer
        if node is not None and node.op == "quantize_linear":
            real = _dequantized(v, node)
            real.name = v.name or graph.output_names[i]
            v.name = f"{v.name}_stored" if v.name else ""
            graph.set_input(graph.result, i, real)


def feeds_for(graph: Graph, sample: Mapping[str, Array], golden: Graph) -> dict[str, Array]:
    """The golden graph's sample as inputs of another graph: by name, else by position."""
    feeds: dict[str, Array] = {}
    ours = [v for v in golden.inputs if v.name not in golden.state]
    theirs = [v for v in graph.inputs if v.name not in graph.state]
    if len(ours) < len(theirs):  # states that are plain inputs there
        carried = {v.name: v for v in golden.inputs if v.name in golden.state}
        plain = [carried[v.name] for v in theirs if v.name in carried]
        sample = {**sample, **{v.name: initial_state(v.type, golden.state[v.name]) for v in plain}}
        ours += plain
    if len(ours) != len(theirs):
        raise BadInput(
            f"the models have {len(ours)} and {len(theirs)} inputs; compare needs the same number"
        )
    for i, v in enumerate(theirs):
        source = v.name if v.name in sample else ours[i].name
        array = np.asarray(sample[source])
        if same_axes(v.shape, array.shape) is None:
            raise BadInput(
                f"input '{v.name}' is {v.type}, '{source}' of the golden model has shape "
                f"{'x'.join(map(str, array.shape))}; give both models the same size "
                f"({option('shapes')})"
            )
        array = turned(array, v.shape)
        q = v.type.quant
        if array.dtype.kind == "f" and not dtypes.is_float(v.dtype):
            if q is None:
                raise BadInput(
                    f"input '{v.name}' takes {v.dtype} without a scale, the golden model floats; "
                    "give models without embedded preprocessing"
                )
            low, high = dtypes.limits(v.dtype)
            array = np.clip(np.rint(array / np.float32(q.scale[0])) + q.zero[0], low, high)
        feeds[v.name] = np.ascontiguousarray(array.astype(dtypes.numpy_of(v.dtype)))
    return feeds
