"""cpu.qpool: average pooling of int8 channels-last images."""

from __future__ import annotations

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops import channels_first, channels_last
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints
from intaglio.rewrite import No, P, no, rule

x, xs, xz, ys, yz = P["x xs xz ys yz"]


def _first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _type(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
) -> Type:
    if not 3 <= x.type.rank <= 5:
        raise BadInput(f"cpu.qpool takes images of one to three spatial axes, not {x.type}")
    rank = x.type.rank
    first = Value(x.type.but(shape=tuple(x.shape[a] for a in _first(rank))))
    result = ops.qlinear_avg_pool.infer(
        first,
        x_scale,
        x_zero,
        y_scale,
        y_zero,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        count_include_pad=count_include_pad,
    )
    assert isinstance(result, Type)
    return result.but(shape=tuple(result.shape[a] for a in _last(rank)))


@op(_type, name="cpu.qpool")
def qpool(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
) -> Array:
    """qlinear_avg_pool of [n, .., c]."""
    result = ops.qlinear_avg_pool.body(
        x.transpose(_first(x.ndim)),
        x_scale,
        x_zero,
        y_scale,
        y_zero,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        count_include_pad=count_include_pad,
    )
    y: Array = result.transpose(_last(x.ndim)).copy()
    return y


@rule(P.qlinear_avg_pool(x, xs, xz, ys, yz))
def qlinear_avg_pool_channels_last(node: Node, x: Value) -> Value | No | None:
    """Lower qlinear_avg_pool to transpose, cpu.qpool, transpose."""
    if x.dtype not in BITS8 or node.outputs[0].dtype not in BITS8:
        return None  # only 8 bits have a kernel
    rank = x.type.rank
    if rank > 5:
        return no(f"{rank - 2} spatial axes; the kernel supports one to three")
    return channels_first(qpool(channels_last(x), *node.inputs[1:], **node.attrs))
