"""Layers of floats on units of f16: products, what joins and follows them, pools.

Nodes of f16 are taken as they are. Those of f32 compute in f16 where the user asked for that, and
products also where the model rounds both operands so: their results are cast back, and what reads
them next looks through the cast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import MOVING, Maker, Refused, data, is_npu
from intaglio.npu.lowering.products import Product, as_seen, second_axis, ways
from intaglio.npu.ops import depthwise, eltwise, f16_arithmetic, lut, matmul, pool
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, Rule, rule
from intaglio.targets.chip import Chip

x, w, b = P["x w! b!?"]
a, r = P["a r"]
CLOSE = 4.0  # units of f16 by which a table may miss its function
MOVES = (
    "concat",
    "slice",
    "resize",
    "channel_shuffle",
    "gather",
    "space_to_depth",
    "reshape",
    "transpose",
)
ENDS = ("npu.conv", "npu.depthwise", "npu.eltwise", "npu.pool")
FLOATS = ("f16", "f32")


def narrow(v: Value) -> Value | None:
    """The f16 that a value is, or was before it became f32."""
    made = v.producer
    if v.dtype == "f16":
        return v
    if v.dtype == "f32" and made is not None and made.op == "cast":
        before = made.inputs[0]
        return before if before is not None and before.dtype == "f16" else None
    return None


def from_units(v: Value | None) -> bool:
    """Does an NPU make this of f16, maybe with moves in between?"""
    found = None if v is None else narrow(v)
    while found is not None and found.producer is not None and found.producer.op in MOVES:
        found = found.producer.inputs[0]
    return found is not None and found.producer is not None and is_npu(found.producer)


class Halves:
    """Makes operands f16, and results what they were."""

    def __init__(self, make: Maker, every: bool):
        self.make, self.every = make, every

    def __call__(self, v: Value) -> Value:
        """A value as f16; Refused where it is to stay f32."""
        if (found := narrow(v)) is not None:
            return found
        if v.dtype != "f32" or not self.every:
            raise Refused(f"it computes in {v.dtype}; units work on f16")
        return self.make.moved(ops.cast, v, dtype="f16")

    def back(self, y: Value, like: Value) -> Value:
        """A result in the shape and type of the node's."""
        shaped = self.make.shaped(y, like.shape)
        return shaped if like.dtype == "f16" else self.make.moved(ops.cast, shaped, dtype="f32")

    def weights(self, w: Value) -> Array:
        """Constant weights in f16; Refused where they do not fit, or are finer and nobody asked."""
        full = data(w).astype(np.float32)
        with np.errstate(over="ignore"):
            small = full.astype(np.float16)
        if not np.isfinite(small).all():
            raise Refused("a weight is larger than f16 can hold")
        if not self.every and not np.array_equal(small.astype(np.float32), full):
            raise Refused("its weights are finer than f16")
        return small


# ---- products ------------------------------------------------------------------------------------
def _product(
    make: Maker,
    half: Halves,
    chip: Chip,
    node: Node,
    x: Value,
    weights: Array,
    bias: Array,
    window: dict[str, Any],
) -> Value:
    """A convolution in the first of its ways that the chip can do."""
    why: list[Refused] = []
    small = half(x)
    image = make.shaped(small, x.shape)
    many = constant(weights)
    for way in ways(image, many, window):
        try:
            a = dict(window)
            groups, w = a.pop("groups"), weights
            if image.type.rank == 3:
                w, a = w[..., None], second_axis(a)
            seen, w = as_seen(make, image, w, a, way)
            ones = np.ones(len(w), np.float32)
            attrs = {**a, "x_zero": 0, "dtype": "f16"}
            made = Product(seen, w, ones, bias, None, groups, attrs)(make, chip)
            out = node.outputs[0]
            made = make.rows(made, out.shape) if way == "column" else make.shaped(made, out.shape)
            return half.back(made, out)
        except Refused as e:
            why.append(e)
    raise why[0]


def _bias(b: Value | None, many: int) -> Array:
    if b is None:
        return np.zeros(many, np.float32)
    if b.type.size not in (1, many) or (b.type.size > 1 and b.shape[-1] != many):
        raise Refused(f"the bias is {b.type}; one number for each of {many} channels is needed")
    return np.ascontiguousarray(np.broadcast_to(data(b).astype(np.float32).reshape(-1), (many,)))


def _conv(
    make: Maker, half: Halves, chip: Chip, node: Node, x: Value, w: Value, b: Value | None
) -> Value:
    if x.type.dynamic or x.type.rank not in (3, 4):
        raise Refused(f"{x.type} is no image of fixed extents")
    return _product(make, half, chip, node, x, half.weights(w), _bias(b, w.shape[0]), node.attrs)


def _linear(
    make: Maker,
    half: Halves,
    chip: Chip,
    node: Node,
    x: Value,
    w: Value,
    b: Value | None,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Value:
    """gemm and matmul with constant weights: a 1x1 convolution of rows."""
    if trans_a or alpha != 1 or (b is not None and beta != 1):
        raise Refused("its first operand is transposed, or something is scaled")
    if w.type.rank != 2 or x.type.rank < 2 or x.type.dynamic or not x.type.size:
        raise Refused(f"{x.type} times {w.type} is not one product of fixed size")
    small = half.weights(w)
    rows = np.ascontiguousarray(small if trans_b else small.T)[..., None]
    deep = rows.shape[1]
    flat = make.shaped(half(x), (x.type.size // deep, deep, 1))
    window = {"stride": (1,), "pad": (0, 0), "dilation": (1,), "groups": 1}
    return _product(make, half, chip, node, flat, rows, _bias(b, len(rows)), window)


def _two(make: Maker, half: Halves, node: Node) -> Value:
    """[.., M, K] times [.., K, C]: rows become columns, matrices before them images."""
    left, right, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert left is not None
    assert right is not None
    if left.shape[:-2] != right.shape[:-2] or min(left.type.rank, right.type.rank) < 2:
        raise Refused(f"{left.type} times {right.type} repeats matrices")
    if left.type.dynamic or right.type.dynamic:
        raise Refused(f"{left.type} times {right.type} has an extent known only at run time")
    (m, k), c, n = left.shape[-2:], right.shape[-1], math.prod(left.shape[:-2])
    turned = make.moved(ops.transpose, make.shaped(half(left), (n, m, k)), perm=(0, 2, 1))
    made = make(
        matmul,
        make.shaped(turned, (n, k, m, 1)),
        make.shaped(half(right), (n, k, c, 1)),
        turned=True,
        a_zero=0,
        b_zero=0,
        factor=1.0,
        dtype="f16",
    )
    rows = make.moved(ops.transpose, make.shaped(made, (n, c, m)), perm=(0, 2, 1))
    return half.back(rows, out)


# ---- what follows them ---------------------------------------------------------------------------
def _pair(make: Maker, half: Halves, node: Node) -> Value:
    """add, sub and mul of two images; the one that is not spread comes first."""
    one, other, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert one is not None
    assert other is not None
    factors = {"a_factor": 1.0, "b_factor": -1.0 if node.op == "sub" else 1.0}
    if one.shape != out.shape:
        one, other = other, one
        factors = {"a_factor": factors["b_factor"], "b_factor": 1.0}
    if one.shape != out.shape or one.type.rank != other.type.rank:
        raise Refused(f"{one.type} and {other.type} are both spread; one has the result's shape")
    kind = "mul" if node.op == "mul" else "add"
    images = make.image(half(one)), make.image(half(other))
    made = make(eltwise, *images, kind=kind, a_zero=0, b_zero=0, **factors, dtype="f16")
    return half.back(made, out)


def _per_channel(make: Maker, half: Halves, node: Node, x: Value, c: Value) -> Value:
    """A constant for each channel is a depthwise convolution of one pixel."""
    out, many = node.outputs[0], x.shape[1] if x.type.rank == 4 else 0
    if x.shape != out.shape or c.type.size != many or c.shape[-3:] != (many, 1, 1):
        raise Refused(f"{c.type} is not one number for each channel of {x.type}")
    numbers = data(c).astype(np.float32).reshape(-1)
    scale, bias = np.ones(many, np.float32), np.zeros(many, np.float32)
    if node.op == "mul":
        scale = numbers
    elif node.op == "add":
        bias = numbers
    else:
        first = node.inputs[0] is x
        scale, bias = (scale, -numbers) if first else (-scale, numbers)
    ones = constant(np.ones((many, 1, 1, 1), np.float16))
    made = make(
        depthwise,
        half(x),
        ones,
        constant(np.ascontiguousarray(scale)),
        constant(np.ascontiguousarray(bias)),
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        dtype="f16",
    )
    return half.back(made, out)


def _function(make: Maker, half: Halves, node: Node, x: Value) -> Value:
    """A function of one tensor: bounds or a table at the end of what is before it, or a table."""
    out, before = node.outputs[0], _end_of(x)
    bounds = {"relu": (0.0, math.inf), "clip": (node.attrs.get("lo"), node.attrs.get("hi"))}
    if node.op in bounds and before is not None:
        low, high = bounds[node.op]
        at = before.attrs
        new = {"least": max(at["least"], low), "most": min(at["most"], high)}
        if new["least"] > new["most"]:
            raise Refused(f"nothing of {low} to {high} lies between {at['least']} and {at['most']}")
        return half.back(_again(make, before, **new), out)
    table, missed = f16_arithmetic.curve(lambda v: _values(node, x, v))
    if missed > CLOSE:
        raise Refused(
            f"a table of {len(table)} numbers misses {node.op} by {missed:.3g} units of f16"
        )
    if before is not None and before.op != "npu.pool":
        return half.back(_again(make, before, constant(table)), out)
    return half.back(make(lut, make.image(half(x)), constant(table), base=0), out)


def _values(node: Node, x: Value, numbers: Array) -> Array:
    """A function of one tensor at these f64."""
    given = [
        numbers if v is x else None if v is None else data(v).astype(np.float64).reshape(())
        for v in node.inputs
    ]
    return np.asarray(REGISTRY[node.op].body(*given, **node.attrs)).astype(np.float64)


def _end_of(x: Value) -> Node | None:
    """The unit's work that makes `x` for nobody else, where its end is still free."""
    small, readers = narrow(x), list(x.uses)
    made = small.producer if small is not None else None
    if made is None or made.op not in ENDS or len(readers) != 1 or made.attrs["dtype"] != "f16":
        return None
    assert small is not None
    if small is not x and len(small.uses) != 1:
        return None
    at = {"npu.eltwise": 2, "npu.pool": None}.get(made.op, 5)
    return None if at is not None and made.inputs[at] is not None else made


def _again(make: Maker, before: Node, table: Value | None = None, **changes: Any) -> Value:
    ins = list(before.inputs)
    if table is not None:
        ins[2 if before.op == "npu.eltwise" else 5] = table
    return make(REGISTRY[before.op], *ins, origin=before.origin, **{**before.attrs, **changes})


def _pooled(make: Maker, half: Halves, node: Node, x: Value, kind: str) -> Value:
    if x.type.rank != 4 or x.type.dynamic:
        raise Refused(f"{x.type} is no image of fixed extents")
    if node.attrs.get("with_indices"):
        raise Refused("the places of the largest numbers are asked for, too")
    if node.op == "reduce_mean":
        axes = tuple(sorted(i % 4 for i in node.attrs["axes"]))
        if axes != (2, 3):
            raise Refused(f"a mean over axes {axes} of {x.type}; units take it over images")
        attrs: dict[str, Any] = {
            "kernel": x.shape[2:],
            "stride": (1, 1),
            "pad": (0, 0, 0, 0),
            "dilation": (1, 1),
        }
    else:
        attrs = {k: node.attrs[k] for k in ("kernel", "stride", "pad", "dilation")}
    count = bool(node.attrs.get("count_include_pad"))
    made = make(pool, half(x), kind=kind, count_include_pad=count, dtype="f16", **attrs)
    return half.back(made, node.outputs[0])


def _is_function(node: Node) -> Value | None:
    """The one tensor that an elementwise node is a function of."""
    read = [v for v in node.inputs if v is not None and v.data is None]
    rest = [v for v in node.inputs if v is not None and v.data is not None]
    plain = REGISTRY[node.op].elementwise and len(node.outputs) == 1 and len(read) == 1
    if not plain or node.op == "cast" or any(v.type.size != 1 for v in rest):
        return None
    fits = read[0].type == node.outputs[0].type and read[0].dtype in FLOATS
    return read[0] if fits else None


# ---- rules ---------------------------------------------------------------------------------------
def floats(make: Maker, chip: Chip, every: bool) -> tuple[Rule, ...]:
    """The rules by which layers of floats become those of `chip`; `every`: those of f32, too."""
    half = Halves(make, every)

    def ours(*values: Value | None) -> bool:
        """Is this to be computed in f16? What products make is, and what the model says is."""
        given = [v for v in values if v is not None]
        if any(v.dtype not in FLOATS for v in given):
            return False
        return all(v.dtype == "f16" for v in given) or (every and any(map(from_units, given)))

    @rule(P.op("conv", x, w, b))
    def conv_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """conv of floats -> npu.conv or npu.depthwise of f16"""
        if x.dtype not in FLOATS or not (every or narrow(x) is not None):
            return None
        return make.tried(_conv, half, chip, node, x, w, b)

    def linear(node: Node, x: Value, w: Value, b: Value | None = None, **attrs: Any) -> Any:
        if x.dtype not in FLOATS or not (every or narrow(x) is not None):
            return None
        return make.tried(_linear, half, chip, node, x, w, b, **attrs)

    @rule(P.op("gemm", x, w, b))
    def gemm_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """gemm of floats with constant weights -> npu.conv of f16"""
        return linear(node, x, w, b, **node.attrs)

    @rule(P.add(P.matmul(x, w), b))
    def biased_matmul_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """matmul of floats with constant weights and a bias -> npu.conv of f16"""
        return linear(node, x, w, b)

    @rule(P.matmul(x, w))
    def linear_in_f16(node: Node, x: Value, w: Value) -> Any:
        """matmul of floats with constant weights -> npu.conv of f16"""
        out = node.outputs[0]
        readers = list(out.uses)
        if len(readers) == 1 and readers[0].op == "add":
            other = next((v for v in readers[0].inputs if v is not out), None)
            if other is not None and other.data is not None and other.type.size in (1, w.shape[-1]):
                return None  # goes with its bias
        return linear(node, x, w)

    @rule(P.op("matmul", a, r))
    def matmul_in_f16(node: Node, a: Value, r: Value) -> Any:
        """matmul of two activations -> npu.matmul of f16"""
        if (
            a.data is not None
            or r.data is not None
            or not (every or narrow(a) is not None is not narrow(r))
        ):
            return None
        return make.tried(_two, half, node)

    @rule(P.op(("add", "sub", "mul"), a, r))
    def pair_in_f16(node: Node, a: Value, r: Value) -> Any:
        """sums and products of images of f16 -> npu.eltwise"""
        if not ours(a, r) or a.type.dynamic or r.type.dynamic:
            return None
        if a.data is None and r.data is None:
            return make.tried(_pair, half, node)
        image, number = (a, r) if a.data is None else (r, a)
        if image.data is not None or number.type.size == 1:
            return None
        return make.tried(_per_channel, half, node, image, number)

    @rule(P.op(("max_pool", "avg_pool", "reduce_mean"), x))
    def pool_in_f16(node: Node, x: Value) -> Any:
        """pools and means of images of f16 -> npu.pool"""
        if not ours(x):
            return None
        return make.tried(_pooled, half, node, x, "max" if node.op == "max_pool" else "avg")

    @rule(ANY)
    def function_before_moves_in_f16(node: Node) -> Any:
        """a function of moved f16 is one of them before, where it can join what makes them"""
        image = _is_function(node)
        small = None if image is None or not ours(image) else narrow(image)
        move = small.producer if small is not None else None
        if image is None or small is None or move is None or move.op not in MOVING:
            return None
        if len(small.uses) != 1 or len(image.uses) != 1 or not from_units(small):
            return None
        before = move.inputs[0]
        given = [
            before
            if v is image
            else None
            if v is None
            else constant(data(v).astype(np.float16).reshape(()))
            for v in node.inputs
        ]
        moved = REGISTRY[move.op](REGISTRY[node.op](*given, **node.attrs), **move.attrs)
        return moved if node.outputs[0].dtype == "f16" else ops.cast(moved, dtype="f32")

    @rule(ANY)
    def function_in_f16(node: Node) -> Any:
        """a function of f16 -> the end of the unit's work before it, or npu.lut"""
        image = _is_function(node)
        if image is None or not ours(image) or image.type.dynamic:
            return None
        return make.tried(_function, half, node, image)

    @rule(P.any("npu.eltwise"))
    def residual_in_f16(node: Node) -> Any:
        """a sum of what a product makes -> the product's residual"""
        at, (a, r) = node.attrs, node.inputs[:2]
        assert a is not None
        assert r is not None
        if at["kind"] != "add" or a.dtype != "f16" or a.shape != r.shape or a is r:
            return None
        for made, other, factors in (
            (a, r, ("a_factor", "b_factor")),
            (r, a, ("b_factor", "a_factor")),
        ):
            before = _end_of(made)
            if before is None or before.op not in ("npu.conv", "npu.depthwise"):
                continue
            end = before.attrs
            free = (
                before.inputs[4] is None and end["least"] == -math.inf and end["most"] == math.inf
            )
            if free and at[factors[0]] == 1:
                given = [*before.inputs[:4], other, node.inputs[2]]
                ends = {k: at[k] for k in ("least", "most")}
                new = {**end, "r_factor": at[factors[1]], **ends}
                return make.tried(
                    lambda m, g=given, n=new, o=before: m(REGISTRY[o.op], *g, origin=o.origin, **n)
                )
        return None

    @rule(ANY)
    def move_in_f16(node: Node) -> Any:
        """what only moves numbers that units made of f16 moves these"""
        if node.op not in MOVES or node.outputs[0].dtype != "f32" or not every:
            return None
        if node.attrs.get("mode", "nearest") != "nearest":
            return None  # it mixes them
        parts = node.inputs if node.op == "concat" else node.inputs[:1]
        small = [narrow(v) for v in parts if v is not None]
        if len(small) != len(parts) or any(v is None for v in small):
            return None
        moved = REGISTRY[node.op](*small, *node.inputs[len(parts) :], **node.attrs)
        return ops.cast(moved, dtype="f32")

    return (
        conv_in_f16,
        gemm_in_f16,
        biased_matmul_in_f16,
        linear_in_f16,
        matmul_in_f16,
        residual_in_f16,
        pair_in_f16,
        pool_in_f16,
        function_before_moves_in_f16,
        function_in_f16,
        move_in_f16,
    )
