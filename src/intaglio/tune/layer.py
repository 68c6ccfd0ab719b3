"""Extract one layer of a model as a graph of its own, which takes as long as in the model."""

from __future__ import annotations

import zlib

import numpy as np

from intaglio import dtypes
from intaglio.ir import Graph, Node, Type, Value
from intaglio.ops import cast, channels_first, channels_last
from intaglio.ops.registry import REGISTRY

IMAGE_OPS = {"conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool"}
EXACT_OPS = {"cpu.qconv"}  # timed alone, with their real constants: scales matter
MAX_FOLLOWERS = 2  # elementwise nodes timed with the layer: a residual and an activation
MAX_LEADERS = 2  # nodes before an op of the target that it may be fused with


def layer(node: Node, precision: str = "f32") -> Graph | None:
    """`node` and its epilogue with random constants; None if a shape is dynamic.

    Images are channels-last, as between the layers of a model, and have the type `precision`.
    The graph's text contains everything that the time depends on, so it is the cache key.
    """
    result = _Copies(node.op in IMAGE_OPS, node.op in EXACT_OPS, precision)
    nodes = [*_leaders(node), node, *_followers(node)]
    if any(v is not None and v.type.dynamic for n in nodes for v in (*n.inputs, *n.outputs)):
        return None
    for n in nodes:
        again = REGISTRY[n.op].node(*map(result.of, n.inputs), **n.attrs)
        result.known.update(zip(n.outputs, again.outputs, strict=True))
    out = result.known[nodes[-1].outputs[0]]
    if precision != "f32" and out.dtype == "f32":
        out = cast(out, dtype=precision)
    if result.images and out.type.rank > 2:
        out = channels_last(out)
    return Graph(result.inputs, [out], ["y"])


def _leaders(node: Node) -> list[Node]:
    """Before an op of the target: the ops of the target that only it reads."""
    found: list[Node] = []
    while "." in node.op and node.op not in EXACT_OPS and len(found) < MAX_LEADERS:
        v = node.inputs[0]
        if v is None or v.producer is None or len(v.uses) > 1 or "." not in v.producer.op:
            break
        node = v.producer
        found.append(node)
    return found[::-1]


def _followers(node: Node) -> list[Node]:
    """The elementwise nodes that are fused into the node."""
    found: list[Node] = []
    v = node.outputs[0]
    while len(found) < MAX_FOLLOWERS and len(v.uses) == 1:
        user = next(iter(v.uses))
        if user.op == "result" or not REGISTRY[user.op].elementwise or len(user.outputs) > 1:
            break
        others = [u for u in user.inputs if u is not None and u is not v and u.data is None]
        if user.outputs[0].type != v.type or any(u.type != v.type for u in others):
            break
        found.append(user)
        v = user.outputs[0]
    return found


class _Copies:
    """Values of the new graph, by the values of the model that they stand for."""

    def __init__(self, images: bool, exact: bool, precision: str):
        self.images, self.exact, self.precision = images, exact, precision
        self.known: dict[Value, Value] = {}
        self.inputs: list[Value] = []

    def of(self, v: Value | None) -> Value | None:
        if v is None:
            return None
        if v not in self.known:
            self.known[v] = self._input(v.type) if v.data is None else self._constant(v)
        return self.known[v]

    def _constant(self, v: Value) -> Value:
        name = f"{v.type}#{len(self.known)}"
        if v.type.size == 1 or self.exact or not dtypes.is_float(v.dtype):
            return Value(v.type, name, v.data)  # a bound or an index: the value matters
        result = np.random.default_rng(zlib.crc32(name.encode())).random(v.shape, np.float32) - 0.5
        return Value(v.type, name, result.astype(dtypes.numpy_of(v.dtype)))

    def _input(self, t: Type) -> Value:
        shape, image = t.shape, self.images and t.rank > 2
        if image:
            shape = (shape[0], *shape[2:], shape[1])
        narrow = self.precision != "f32" and t.dtype == "f32"
        v = Value(Type(self.precision if narrow else t.dtype, shape), f"x{len(self.inputs)}")
        self.inputs.append(v)
        if image:
            v = channels_first(v)
        return cast(v, dtype="f32") if narrow else v
