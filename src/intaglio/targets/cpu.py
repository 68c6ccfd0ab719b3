"""The CPU: what its kernels can do, and how neutral ops become theirs.

Convolutions and poolings move to channel-last between two transposes (the layout pass cancels
them), weights are packed by ordinary nodes (constant ones fold away), and what follows a product
or convolution becomes part of its epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from intaglio import native
from intaglio.errors import BadInput
from intaglio.ir import Node, Value, constant
from intaglio.ops import add, cast, expand, mul, reshape, transpose
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, No, P, Rule, no, rule
from intaglio.targets import Target, replace
from intaglio.targets.cpu_attention import ATTENTION
from intaglio.targets.cpu_bf16 import BF16
from intaglio.targets.cpu_chain import CHAIN
from intaglio.targets.cpu_int8 import INT8
from intaglio.targets.cpu_ops import (
    FUSABLE,
    PANEL,
    activation_of,
    conv,
    conv_transpose,
    depthwise,
    gemm,
    pack,
    pool,
)
from intaglio.targets.cpu_recurrent import RECURRENT
from intaglio.targets.winograd import conv_in_tiles, conv_in_tiles_or_bf16

x, w, a, b, c, y = P["x w a b c? y"]
bias, residual, slope = P["bias? residual? slope?"]


def _last(v: Value) -> Value:
    """Channels first -> channels last."""
    moved: Value = transpose(v, perm=(0, *range(2, v.type.rank), 1))
    return moved


def _first(v: Value) -> Value:
    """Channels last -> channels first."""
    rank = v.type.rank
    moved: Value = transpose(v, perm=(0, rank - 1, *range(1, rank - 1)))
    return moved


# ---- convolution and pooling ---------------------------------------------------------------------
@rule(P.conv(x, w, c))
def conv_channels_last(node: Node, x: Value, w: Value, c: Value | None) -> Value | No:
    """conv -> transpose, cpu.conv or cpu.depthwise with packed weights, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels take one to three")
    attrs = {k: node.attrs[k] for k in ("stride", "pad", "dilation")}
    groups, channels, kernel = node.attrs["groups"], w.shape[0], w.shape[2:]
    window = range(2, w.type.rank)
    plain = channels == groups or not x.type.dynamic
    if groups == x.shape[1] > 1 and x.dtype == "f32" and plain:
        flat = reshape(w, shape=(channels, *kernel))
        rows = transpose(flat, perm=(*range(1, flat.type.rank), 0))
        return _first(depthwise(_repeated(_last(x), channels // groups), rows, c, **attrs))
    grouped = reshape(w, shape=(groups, channels // groups, *w.shape[1:]))
    order = (0, *(i + 1 for i in window), 2, 1)
    packed = _packed_window(transpose(grouped, perm=order))
    made = conv(_last(x), packed, c, channels=channels, kernel=kernel, groups=groups, **attrs)
    return _first(made)


@rule(P.conv_transpose(x, w, c))
def conv_transpose_channels_last(node: Node, x: Value, w: Value, c: Value | None) -> Value | No:
    """conv_transpose -> transpose, cpu.conv_transpose with packed weights, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels take one to three")
    groups, kernel = node.attrs["groups"], w.shape[2:]
    grouped = reshape(w, shape=(groups, w.shape[0] // groups, *w.shape[1:]))
    packed = _packed_window(transpose(grouped, perm=(0, *range(3, w.type.rank + 1), 1, 2)))
    made = conv_transpose(_last(x), packed, c, channels=w.shape[1] * groups, kernel=kernel,
                          **node.attrs)  # fmt: skip
    return _first(made)


def _repeated(v: Value, times: int) -> Value:
    """Every channel `times` times in a row: a depthwise convolution may have more outputs."""
    if times == 1:
        return v
    wide = expand(reshape(v, shape=(*v.shape, 1)), shape=(*v.shape, times))
    repeated: Value = reshape(wide, shape=(*v.shape[:-1], v.shape[-1] * times))
    return repeated


def _packed_window(v: Value) -> Value:
    """[groups, window.., channel, m] -> cpu.pack of [groups, window * channel, m]."""
    depth = 1
    for n in v.shape[1:-1]:
        depth *= n
    packed: Value = pack(reshape(v, shape=(v.shape[0], depth, v.shape[-1])), tile=PANEL)
    return packed


@rule(P.op(("max_pool", "avg_pool", "lp_pool"), x))
def pool_channels_last(node: Node, x: Value) -> Value | No:
    """Pooling -> transpose, cpu.pool, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels take one to three")
    if node.attrs.get("with_indices"):
        return no("its indices count in channels-first order")
    attrs = {k: v for k, v in node.attrs.items() if k not in ("storage_order", "with_indices")}
    return _first(pool(_last(x), kind=node.op.removesuffix("_pool"), **attrs))


# ---- products ------------------------------------------------------------------------------------
@rule(P.matmul(a, b))
def matmul_packed(a: Value, b: Value, node: Node) -> Value | No:
    """matmul -> cpu.gemm with a packed right operand."""
    if a.dtype != "f32":
        return no(f"only f32 has a packed kernel, this is {a.dtype}")
    if b.type.rank > 1 and b.type.rank - 1 in b.type.dynamic:
        return no("the number of columns is known only at run time")
    left = a if a.type.rank > 1 else reshape(a, shape=(1, -1))
    right, transposed = _right_operand(b if b.type.rank > 1 else reshape(b, shape=(-1, 1)))
    n = right.shape[-2 if transposed else -1]
    made: Value = gemm(left, pack(right, tile=PANEL, transposed=transposed), n=n)
    out = node.outputs[0].type
    if made.shape == out.shape:
        return made
    if len(out.dynamic) > 1:
        return no("a vector times matrices whose number and rows are known only at run time")
    shape = tuple(-1 if i in out.dynamic else d for i, d in enumerate(out.shape))
    made = reshape(made, shape=shape)
    return made


def _right_operand(b: Value) -> tuple[Value, bool]:
    """Packing can swap the last two axes itself, so a transpose before it need not."""
    p, rank = b.producer, b.type.rank
    if p is None or p.op != "transpose" or p.attrs["perm"][-2] != rank - 1 or len(b.uses) > 1:
        return b, False
    perm = p.attrs["perm"]
    perm = (*perm[:-2], perm[-1], perm[-2])
    source = p.inputs[0]
    assert source is not None
    return (source if perm == tuple(range(rank)) else transpose(source, perm=perm)), True


@rule(P.gemm(a, b, c))
def gemm_packed(node: Node, a: Value, b: Value, c: Value | None) -> Value | No:
    """gemm -> cpu.gemm; the addend becomes bias or residual where its shape allows."""
    if a.dtype != "f32":
        return no(f"only f32 has a packed kernel, this is {a.dtype}")
    if node.outputs[0].type.rank - 1 in node.outputs[0].type.dynamic:
        return no("the number of columns is known only at run time")
    shape, t = node.outputs[0].shape, node.attrs
    if t["trans_a"]:
        a = transpose(a, perm=(1, 0))
    if t["alpha"] != 1:
        b = mul(b, constant(t["alpha"], dtype="f32"))
    if c is not None and t["beta"] != 1:
        c = mul(c, constant(t["beta"], dtype="f32"))
    packed = pack(b, tile=PANEL, transposed=bool(t["trans_b"]))
    made: Value
    if c is None:
        made = gemm(a, packed, n=shape[1])
    elif (vector := _per_channel(c, shape[1])) is not None:
        made = gemm(a, packed, vector, n=shape[1])
    elif c.shape == shape:
        made = gemm(a, packed, None, c, n=shape[1])
    else:
        made = add(gemm(a, packed, n=shape[1]), c)
    return made


def _per_channel(v: Value, channels: int) -> Value | None:
    """`v` as one number per output channel, where it is that (or one number for all)."""
    one, each = v.type.size == 1, v.type.size == channels and v.shape[-1:] == (channels,)
    if v.type.dynamic or not (one or each):
        return None
    flat = v if v.type.rank == 1 else reshape(v, shape=(v.type.size,))
    return flat if flat.shape == (channels,) else expand(flat, shape=(channels,))


# ---- small floats --------------------------------------------------------------------------------
# Hot in f32 alone: smaller floats are worth casts here, even where a slow kernel takes them.
HEAVY = ("conv", "conv_transpose", "matmul", "gemm", "max_pool", "avg_pool", "lp_pool")


@rule(ANY)
def heavy_in_f32(node: Node) -> Sequence[Value] | None:
    """f16 and bf16 products, convolutions and poolings compute in f32 between casts."""
    if node.op not in HEAVY or node.outputs[0].dtype not in ("f16", "bf16"):
        return None
    ins = [None if v is None else cast(v, dtype="f32") for v in node.inputs]
    outs = REGISTRY[node.op].node(*ins, **node.attrs).outputs
    dtype = node.outputs[0].dtype
    return [cast(v, dtype=dtype) if v.dtype == "f32" else v for v in outs]


LOWER: list[Rule] = [
    heavy_in_f32,
    *ATTENTION,
    conv_channels_last,
    conv_transpose_channels_last,
    pool_channels_last,
    matmul_packed,
    gemm_packed,
    *INT8,
    *RECURRENT,
]
CHOOSE = (conv_in_tiles,)  # faster ways to the same sums, in another order
CHOOSE_BF16 = (conv_in_tiles_or_bf16,)


# ---- epilogues -----------------------------------------------------------------------------------
PRODUCTS = ("cpu.gemm", "cpu.conv", "cpu.winograd", "cpu.depthwise", "cpu.conv_transpose")
product = P.op(PRODUCTS, a, w, bias, residual, slope) @ "before"


def _again(before: Node, *, bias: Value | None = None, residual: Value | None = None,
           slope: Value | None = None, **changes: Any) -> Value:  # fmt: skip
    """The product `before` with more in its epilogue."""
    ins = list(before.inputs)
    ins[2] = ins[2] if bias is None else bias
    ins[3] = ins[3] if residual is None else residual
    ins[4] = ins[4] if slope is None else slope
    made: Value = REGISTRY[before.op](*ins, origin=before.origin, **{**before.attrs, **changes})
    return made


@rule(P.op(tuple(n for n in FUSABLE if n != "gelu_tanh"), product))
def activation_into_product(node: Node, before: Node) -> Value | No | None:
    """An activation becomes the product's epilogue."""
    found = activation_of(node)
    if found is None:
        return None
    if before.outputs[0].dtype != "f32":
        return no("only f32 has a fused activation")
    if before.attrs["act"] != "none":
        return no(f"the product ends in {before.attrs['act']} already")
    return _again(before, act=found[0], act_args=found[1])


@rule(P.prelu(product, y))
def slopes_into_product(before: Node, y: Value) -> Value | No:
    """A PReLU with a slope per output channel becomes the product's epilogue."""
    out = before.outputs[0]
    if out.dtype != "f32" or before.attrs["act"] != "none":
        return no(f"the product is {out.dtype} and ends in {before.attrs['act']}")
    vector = _per_channel(y, out.shape[-1])
    if vector is None:
        return no(f"the slopes are {y.type}, not one per channel of {out.type}")
    return _again(before, slope=vector, act="prelu", act_args=())


@rule(P.add(product, y))
def addend_into_product(before: Node, y: Value) -> Value | No:
    """An added vector becomes the bias, an added tensor of the output's shape the residual."""
    out, ins = before.outputs[0], before.inputs
    plain = before.attrs["act"] == "none"
    if y.type.rank <= out.type.rank and (vector := _per_channel(y, out.shape[-1])) is not None:
        if plain and ins[3] is None:
            if ins[2] is not None:
                vector = add(ins[2], vector)
            return _again(before, bias=vector)
        if y.shape != out.shape:
            return no("a bias cannot be added after the activation or the residual")
    if y.shape != out.shape:
        return no(f"the addend is {y.type}, the product {out.type}")
    if ins[3] is not None:
        return no("the product has a residual already")
    return _again(before, residual=y, add_last=not plain)


@rule(P.op(tuple(n for n in FUSABLE if n != "gelu_tanh"), P.reshape(product)))
def activation_before_reshape(node: Node, before: Node) -> Value | No:
    """A reshape between a product and its activation comes after both."""
    if node.outputs[0].type.dynamic:
        return no("the shape is known only at run time")
    made = REGISTRY[node.op](before.outputs[0], **node.attrs)
    moved: Value = reshape(made, shape=node.outputs[0].shape)
    return moved


@rule(P.add(P.reshape(product), y))
def addend_before_reshape(node: Node, before: Node, y: Value) -> Value | No:
    """A reshape between a product and its residual comes after both."""
    out = node.outputs[0]
    if out.type.dynamic or y.shape != out.shape:
        return no(f"the addend is {y.type}, not of the same fixed shape as the product")
    if before.inputs[3] is not None:
        return no("the product has a residual already")
    made = add(before.outputs[0], reshape(y, shape=before.outputs[0].shape))
    moved: Value = reshape(made, shape=out.shape)
    return moved


@rule(P.op("cpu.gemm", P.reshape(P.transpose(x) @ "turn") @ "flat", w, bias, residual, slope))
def flattening_into_weights(
    x: Value, w: Value, turn: Node, flat: Node, node: Node
) -> Value | No | None:
    """A transpose before flattening is another order of the matrix rows, free in a constant."""
    if w.data is None or x.type.dynamic:
        return None
    perm, k = turn.attrs["perm"], flat.outputs[0].shape[-1]
    lead = next((i for i, p in enumerate(perm) if i != p), len(perm))
    rest, moved = math.prod(x.shape[lead:]), tuple(p - lead for p in perm[lead:])
    if rest != k:
        return no(f"the transpose moves {rest} elements of which {k} are one row")
    rows = np.arange(k).reshape([turn.outputs[0].shape[lead + i] for i in range(len(moved))])
    rows = rows.transpose(np.argsort(moved)).reshape(-1)
    weights = constant(np.ascontiguousarray(w.data.take(rows, axis=-2)))
    made: Value = gemm(
        reshape(x, shape=flat.outputs[0].shape), weights, *node.inputs[2:], **node.attrs
    )
    return made


FUSE: list[Rule] = [
    flattening_into_weights,
    activation_into_product,
    slopes_into_product,
    addend_into_product,
    activation_before_reshape,
    addend_before_reshape,
]


# ---- what it would rather run ------------------------------------------------------------------
def _few_channels(node: Node) -> bool:
    """Groups of a transposed convolution that leave most of a panel empty."""
    w = node.inputs[1]
    return w is not None and node.attrs["groups"] > 1 and w.shape[1] <= PANEL // 4


def _large_window(node: Node) -> bool:
    """A maximum over so many elements that two passes visit at least ten fewer."""
    kernel, stride = node.attrs["kernel"], node.attrs["stride"]
    return bool(kernel[0] * kernel[1] - (kernel[1] * stride[0] + kernel[0]) >= 10)


REPLACE = (
    *replace.estimated(lambda node: True, replace.join_groups(PANEL)),
    *replace.estimated(_large_window, replace.separate_max_pool(1)),
    *replace.estimated(_few_channels, replace.conv_transpose_as_depth_to_space),
)


# ---- the target ----------------------------------------------------------------------------------
LEVELS = {
    "scalar": 0,
    "avx2": 1,
    "avx512": 3,
    "avx512vnni": 7,
    "avx512bf16": 11,
}  # with what each implies


def target(isa: str | int | None = None, precision: str = "f32") -> Target:
    """A CPU with the named instruction set (or ISA bits); None means this machine's."""
    if isinstance(isa, str) and isa not in LEVELS:
        raise BadInput(f"no instruction set is called '{isa}'; known are {', '.join(LEVELS)}")
    bits = native.machine() if isa is None else LEVELS[isa] if isinstance(isa, str) else isa
    if precision == "bf16" and ~bits & LEVELS["avx512bf16"]:
        raise BadInput("precision bf16 needs a CPU with AVX512-BF16; compile with f32, "
                       "or with isa avx512bf16 for a machine that has it")  # fmt: skip
    narrow, choose = ((), CHOOSE) if precision == "f32" else (BF16, CHOOSE_BF16)
    return Target("cpu", partial(native.why_not, isa=bits), tuple(LOWER), tuple(FUSE),
                  tuple(CHAIN), bits, choose=choose, narrow=narrow,
                  replace=REPLACE)  # fmt: skip
