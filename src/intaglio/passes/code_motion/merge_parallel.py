"""Merge equal work on parallel branches: concats, common factors, and matmuls with one input."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Graph, Node, Value, constant, release
from intaglio.ops.registry import REGISTRY
from intaglio.passes.code_motion.hoist_activations import MOVES, leads_to_product
from intaglio.rewrite import ANY, Cost, P, Rule, no, rule

x, y, z, c, d = P["x y z c! d!"]
ELEMENTWISE = tuple(name for name, o in REGISTRY.items() if o.elementwise)
UNARY = tuple(
    n
    for n in ELEMENTWISE
    if len(REGISTRY[n].signature.parameters) - len(REGISTRY[n].attr_names) == 1
)
MAX_MERGED = 8  # matmuls of one input that are merged at most


def _alone(v: Value | None) -> Node | None:
    node = v.producer if v is not None and len(v.uses) == 1 else None
    return node if node is not None and len(node.outputs) == 1 else None


# ---- concats -------------------------------------------------------------------------------------
@rule(ANY, weigh=True)
def hoist_concat(node: Node) -> Any:
    """Replace the same op on every operand of a concat by that op on the concat."""
    if node.op != "concat" or len(node.inputs) < 2:
        return None
    results = [_alone(v) for v in node.inputs]
    first = results[0]
    if first is None or any(n is None or not _same_work(n, first) for n in results):
        return None
    if any(leads_to_product(n.inputs[0], MOVES) for n in results if n is not None):
        return no(f"a matmul or convolution before it computes {first.op} in its epilogue")
    joined = ops.concat(*(n.inputs[0] for n in results if n is not None), **node.attrs)
    return REGISTRY[first.op](joined, *first.inputs[1:], **first.attrs)


def _same_work(a: Node, b: Node) -> bool:
    """Do both nodes apply the same elementwise op with the same constants?"""
    if a.op != b.op or a.attrs != b.attrs or not REGISTRY[a.op].elementwise:
        return False
    rest = list(zip(a.inputs[1:], b.inputs[1:], strict=True))
    if a.inputs[0] is None or a.inputs[0].shape != a.outputs[0].shape:
        return False
    return all(
        v is not None
        and w is not None
        and v.data is not None
        and w.data is not None
        and v.type.size == 1
        and v.type == w.type
        and v.data.item() == w.data.item()
        for v, w in rest
    )


# ---- common factors ------------------------------------------------------------------------------
TIMES = ("mul", "matmul")


@rule(P.op(("add", "sub"), P.op(TIMES, x, y) @ "a", P.op(TIMES, z, y) @ "b"), weigh=True)
def common_factor(x: Value, y: Value, z: Value, a: Node, b: Node, node: Node) -> Any:
    """Write x * y + z * y as (x + z) * y."""
    if a.op != b.op or not dtypes.is_float(x.dtype) or x.shape != z.shape:
        return None
    return REGISTRY[a.op](REGISTRY[node.op](x, z), y)


@rule(P.pow(P.mul(x, c), d))
def factor_out_of_power(x: Value, c: Value, d: Value) -> Any:
    """Write (x * c) ^ n as x ^ n * c ^ n, so that other rules can fold the factor."""
    if not dtypes.is_float(x.dtype) or d.type.size != 1 or x.data is not None:
        return None
    n = float(d.data.item())  # type: ignore[union-attr]
    if n not in (2, 3, 4):
        return no(f"the exponent is {n:g}; only 2, 3 and 4 keep signs and range")
    power = (c.data.astype(np.float64) ** n).astype(c.data.dtype)  # type: ignore[union-attr]
    return ops.mul(ops.pow(x, d), constant(power))


@rule(P.mul(x, P.reciprocal(y)))
def reciprocal_as_division(x: Value, y: Value) -> Any:
    """Write x * (1 / y) as x / y."""
    return ops.div(x, y) if x.shape == y.shape and x.data is None else None


# ---- matmuls and convolutions of one input -------------------------------------------------------
ENDS = ("conv", "matmul", "add", *UNARY)  # ops that a unit may end in


class Unit:
    """A matmul or convolution with constant weights, its constant addend and its activation."""

    def __init__(self, product: Node):
        self.product, self.bias, self.act = product, None, None
        self.out = product.outputs[0]
        follows = _only_reader(self.out)
        if product.op == "conv":
            self.bias = product.inputs[2]
        elif follows is not None and follows.op == "add":
            other = follows.inputs[1] if follows.inputs[0] is self.out else follows.inputs[0]
            if other is not None and other.data is not None and other.shape == self.out.shape[-1:]:
                self.bias, self.out = other, follows.outputs[0]
                follows = _only_reader(self.out)
        if follows is not None and follows.op in UNARY and len(follows.inputs) == 1:
            self.act, self.out = follows, follows.outputs[0]

    def nodes(self) -> list[Node]:
        """From the matmul or convolution to the last node of the unit."""
        found, v = [self.product], self.product.outputs[0]
        while v is not self.out:
            found.append(next(iter(v.uses)))
            v = found[-1].outputs[0]
        return found

    def like(self, other: Unit) -> bool:
        """Can both units become one matmul or convolution?"""
        a, b = self.product, other.product
        if a.op != b.op or a.inputs[0] is not b.inputs[0] or a.attrs != b.attrs:
            return False
        if a.op == "conv" and a.inputs[1].shape[1:] != b.inputs[1].shape[1:]:  # type: ignore[union-attr]
            return False
        mine, its = self.act, other.act
        if mine is None or its is None:
            return mine is its
        return mine.op == its.op and mine.attrs == its.attrs


def _only_reader(v: Value) -> Node | None:
    node = next(iter(v.uses)) if len(v.uses) == 1 else None
    return node if node is not None and node.outputs else None


def _unit(node: Node | None) -> Unit | None:
    """`node` as a unit that can be merged with others of the same input."""
    if node is None or node.op not in ("conv", "matmul"):
        return None
    w, bias = node.inputs[1], node.inputs[2] if node.op == "conv" else None
    if w is None or w.data is None or (bias is not None and bias.data is None):
        return None
    if node.op == "conv" and node.attrs["groups"] != 1:
        return None
    if node.op == "matmul" and (w.type.rank != 2 or node.outputs[0].type.rank < 2):
        return None
    return None if node.outputs[0].type.dynamic else Unit(node)


def _joined(units: list[Unit]) -> Value:
    """One matmul or convolution for several units, with their outputs concatenated."""
    first, weights = units[0].product, [u.product.inputs[1] for u in units]
    is_conv = first.op == "conv"
    w = constant(np.concatenate([v.data for v in weights], 0 if is_conv else 1))  # type: ignore[union-attr]
    bias = None
    if any(u.bias is not None for u in units):
        widths = [v.shape[0 if is_conv else 1] for v in weights]  # type: ignore[union-attr]
        parts = [
            np.zeros(n, w.data.dtype) if u.bias is None else u.bias.data  # type: ignore[union-attr]
            for u, n in zip(units, widths, strict=True)
        ]
        bias = constant(np.concatenate(parts))  # type: ignore[arg-type]
    result: Value
    if is_conv:
        result = ops.conv(first.inputs[0], w, bias, origin=first.origin, **first.attrs)
    else:
        result = ops.matmul(first.inputs[0], w, origin=first.origin)
        result = result if bias is None else ops.add(result, bias)
    act = units[0].act
    return result if act is None else REGISTRY[act.op](result, **act.attrs)


def _unit_ending_at(node: Node | None) -> Unit | None:
    """The unit whose last node is `node`."""
    end = node.outputs[0] if node is not None and node.outputs else None
    for _ in range(3):
        if node is None or node.op not in ENDS:
            return None
        unit = _unit(node)
        if unit is not None:
            return unit if unit.out is end else None
        node = _alone(next((u for u in node.inputs if u is not None and u.data is None), None))
    return None


@rule(ANY)
def merge_concatenated_products(node: Node) -> Any:
    """Merge matmuls or convolutions of one input whose results are concatenated."""
    if node.op != "concat" or len(node.inputs) < 2:
        return None
    rank = node.outputs[0].type.rank
    runs: list[Any] = []
    for v in node.inputs:
        unit = _unit_ending_at(_alone(v))
        channel = unit is not None and (1 if unit.product.op == "conv" else rank - 1)
        unit = unit if channel == node.attrs["axis"] % rank else None
        if unit and runs and isinstance(runs[-1], list) and unit.like(runs[-1][0]):
            runs[-1].append(unit)
        else:
            runs.append([unit] if unit else v)
    if len(runs) == len(node.inputs):
        return None
    parts: list[Any] = [
        r if not isinstance(r, list) else r[0].out if len(r) == 1 else _joined(r) for r in runs
    ]
    return ops.concat(*parts, **node.attrs) if len(parts) > 1 else parts[0]


def merge_parallel_products(cost: Cost) -> Rule:
    """The rule that merges matmuls of one input where `cost` says that it pays."""

    @rule(ANY)
    def merge_parallel_products(node: Node, graph: Graph) -> Any:
        """Merge matmuls or convolutions of one input and slice the result, if that costs less."""
        mine = _unit_ending_at(node)
        x = mine.product.inputs[0] if mine is not None else None
        if mine is None or x is None or x.data is not None or len(x.uses) < 2:
            return None
        units = [
            u for n in list(x.uses)[:MAX_MERGED] if (u := _unit(n)) is not None and u.like(mine)
        ]
        if len(units) < 2 or units[0].product is not mine.product:
            return None  # the first unit merges them all
        if any(_ends_in_epilogue(u) for u in units):
            return no("one of them is followed by an op that its epilogue could compute")
        before = sum(cost(n) for u in units for n in u.nodes())
        joined = _joined(units)
        axis = 1 if mine.product.op == "conv" else joined.type.rank - 1
        edges = np.cumsum([0, *(u.out.shape[axis] for u in units)]).tolist()
        parts = [ops.part(joined, a, b, axis=axis) for a, b in itertools.pairwise(edges)]
        after = sum(cost(n) for n in _new(parts, x))
        if after >= before:
            for p in parts:
                release(p.producer)
            return no(f"the estimate is {after / 1e3:.3g} us instead of {before / 1e3:.3g}")
        for u, part in zip(units[1:], parts[1:], strict=True):
            graph.replace(u.out, part)
        return parts[0]

    return merge_parallel_products


def _ends_in_epilogue(u: Unit) -> bool:
    reader = _only_reader(u.out)
    return reader is not None and REGISTRY[reader.op].elementwise


def _new(parts: list[Value], x: Value) -> list[Node]:
    found: dict[Node, None] = {}
    stack = [p.producer for p in parts]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found[node] = None
            stack += [v.producer for v in node.inputs if v is not None and v is not x]
    return list(found)


MERGE_PARALLEL = [hoist_concat]
MERGE_PARALLEL_FLOATS = [
    common_factor,
    factor_out_of_power,
    reciprocal_as_division,
    merge_concatenated_products,
]
