"""Lower neutral ops to cpu.* ops.

Convolutions and poolings become channels-last between two transposes, which the layout pass
cancels. Weights are packed by ordinary nodes, which fold if the weights are constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intaglio.ir import Node, Value, constant
from intaglio.ops import add, cast, channels_first, channels_last, mul, reshape, transpose
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, No, P, Rule, no, rule
from intaglio.targets.cpu.attention import ATTENTION
from intaglio.targets.cpu.channel_shuffle import CHANNEL_SHUFFLE_LOWER
from intaglio.targets.cpu.conv import conv, conv_transpose, depthwise
from intaglio.targets.cpu.depthwise_packing import repeat_channels
from intaglio.targets.cpu.dynamic_quantize import DYNAMIC_PRODUCTS
from intaglio.targets.cpu.epilogue_fusion import per_channel
from intaglio.targets.cpu.gemm import gemm
from intaglio.targets.cpu.grouped_conv import grouped_conv, pack_groups, why_not_grouped
from intaglio.targets.cpu.integer_products import INTEGER_PRODUCTS
from intaglio.targets.cpu.packing import PANEL, pack, packed_window
from intaglio.targets.cpu.pool import pool
from intaglio.targets.cpu.qgemm import QGEMM
from intaglio.targets.cpu.qlinear import INT8
from intaglio.targets.cpu.qpool import qlinear_avg_pool_channels_last
from intaglio.targets.cpu.qrecurrent import QRECURRENT
from intaglio.targets.cpu.recurrent import RECURRENT
from intaglio.targets.cpu.wgemm import WGEMM

x, w, a, b, c = P["x w a b c?"]


# ---- convolution and pooling ---------------------------------------------------------------------
@rule(P.conv(x, w, c))
def conv_channels_last(node: Node, x: Value, w: Value, c: Value | None) -> Value | No:
    """Lower conv to transpose, cpu.conv, cpu.grouped_conv or cpu.depthwise, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels support one to three")
    attrs = {k: node.attrs[k] for k in ("stride", "pad", "dilation")}
    groups, channels, kernel = node.attrs["groups"], w.shape[0], w.shape[2:]
    plain = channels == groups or not x.type.dynamic
    if groups == x.shape[1] > 1 and x.dtype == "f32" and plain:
        flat = reshape(w, shape=(channels, *kernel))
        rows = transpose(flat, perm=(*range(1, flat.type.rank), 0))
        return channels_first(
            depthwise(repeat_channels(channels_last(x), channels // groups), rows, c, **attrs)
        )
    if why_not_grouped(node) is None and w.data is not None:
        packed = constant(pack_groups(w.data))
        near = {k: attrs[k] for k in ("stride", "pad")}
        return channels_first(grouped_conv(channels_last(x), packed, c, **near))
    packed = _packed_window(w, groups)
    result = conv(
        channels_last(x), packed, c, channels=channels, kernel=kernel, groups=groups, **attrs
    )
    return channels_first(result)


@rule(P.conv_transpose(x, w, c))
def conv_transpose_channels_last(node: Node, x: Value, w: Value, c: Value | None) -> Value | No:
    """Lower conv_transpose to transpose, cpu.conv_transpose with packed weights, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels support one to three")
    groups, kernel, taps = node.attrs["groups"], w.shape[2:], math.prod(w.shape[2:])
    grouped = reshape(w, shape=(groups, w.shape[0] // groups, w.shape[1], taps))
    rows = transpose(grouped, perm=(0, 3, 1, 2))
    flat = reshape(rows, shape=(groups, taps * grouped.shape[1], w.shape[1]))
    packed = pack(flat, tile=PANEL)
    result = conv_transpose(
        channels_last(x), packed, c, channels=w.shape[1] * groups, kernel=kernel, **node.attrs
    )
    return channels_first(result)


def _packed_window(w: Value, groups: int) -> Value:
    """Weights [m, channel, window..] -> cpu.pack of [groups, m, window * channel], transposed."""
    if w.data is not None:
        return constant(packed_window(w.data, groups))
    per, deep, taps = w.shape[0] // groups, w.shape[1], math.prod(w.shape[2:])
    if taps > 1:
        w = transpose(reshape(w, shape=(groups, per, deep, taps)), perm=(0, 1, 3, 2))
    flat = reshape(w, shape=(groups, per, taps * deep))
    packed: Value = pack(flat, tile=PANEL, transposed=True)
    return packed


@rule(P.op(("max_pool", "avg_pool", "lp_pool"), x))
def pool_channels_last(node: Node, x: Value) -> Value | No:
    """Lower a pooling to transpose, cpu.pool, transpose."""
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels support one to three")
    if node.attrs.get("with_indices"):
        return no("it returns indices, which count in channels-first order")
    attrs = {k: v for k, v in node.attrs.items() if k not in ("storage_order", "with_indices")}
    return channels_first(pool(channels_last(x), kind=node.op.removesuffix("_pool"), **attrs))


# ---- matmul --------------------------------------------------------------------------------------
@rule(P.matmul(a, b))
def matmul_packed(a: Value, b: Value, node: Node) -> Value | No:
    """Lower matmul to cpu.gemm with a packed right operand."""
    if a.dtype != "f32":
        return no(f"only f32 has a packed kernel, this is {a.dtype}")
    if b.type.rank > 1 and b.type.rank - 1 in b.type.dynamic:
        return no("the number of columns is known only at run time")
    left = a if a.type.rank > 1 else reshape(a, shape=(1, -1))
    right, transposed = _right_operand(b if b.type.rank > 1 else reshape(b, shape=(-1, 1)))
    n = right.shape[-2 if transposed else -1]
    result: Value = gemm(left, pack(right, tile=PANEL, transposed=transposed), n=n)
    out = node.outputs[0].type
    if result.shape == out.shape:
        return result
    if len(out.dynamic) > 1:
        return no("a vector times a batch of matrices with two dynamic axes")
    shape = tuple(-1 if i in out.dynamic else d for i, d in enumerate(out.shape))
    result = reshape(result, shape=shape)
    return result


def _right_operand(b: Value) -> tuple[Value, bool]:
    """The operand to pack, and whether packing transposes it: that saves a transpose node."""
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
    """Lower gemm to cpu.gemm; the addend becomes bias or residual if its shape allows."""
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
    result: Value
    if c is None:
        result = gemm(a, packed, n=shape[1])
    elif (vector := per_channel(c, shape[1])) is not None:
        result = gemm(a, packed, vector, n=shape[1])
    elif c.shape == shape:
        result = gemm(a, packed, None, c, n=shape[1])
    else:
        result = add(gemm(a, packed, n=shape[1]), c)
    return result


# ---- half precision ------------------------------------------------------------------------------
# Only f32 has fast kernels for these: casts pay even if a slow half-precision kernel exists.
HEAVY = ("conv", "conv_transpose", "matmul", "gemm", "max_pool", "avg_pool", "lp_pool")


@rule(ANY)
def conv_and_matmul_in_f32(node: Node) -> Sequence[Value] | None:
    """Compute f16 and bf16 matmuls, convolutions and poolings in f32, between casts."""
    if node.op not in HEAVY or node.outputs[0].dtype not in ("f16", "bf16"):
        return None
    ins = [None if v is None else cast(v, dtype="f32") for v in node.inputs]
    outs = REGISTRY[node.op].node(*ins, **node.attrs).outputs
    dtype = node.outputs[0].dtype
    return [cast(v, dtype=dtype) if v.dtype == "f32" else v for v in outs]


LOWER: list[Rule] = [
    conv_and_matmul_in_f32,
    *ATTENTION,
    *DYNAMIC_PRODUCTS,
    conv_channels_last,
    conv_transpose_channels_last,
    pool_channels_last,
    *WGEMM,
    matmul_packed,
    gemm_packed,
    *CHANNEL_SHUFFLE_LOWER,
    *INT8,
    qlinear_avg_pool_channels_last,
    *QGEMM,
    *INTEGER_PRODUCTS,
    *RECURRENT,
    *QRECURRENT,
]
