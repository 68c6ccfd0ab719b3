"""The CPU's own operations: channel-last, with packed weights and a fused epilogue.

Each is an ordinary op whose numpy body, the neutral op's in another layout, says what its kernel
must compute. Their epilogue is `act(y + bias + residual)`, or, where `add_last` is set,
`act(y + bias) + residual`. The activation prelu has its slopes, one per channel, as an operand.
Products of f32 can make bf16 or f16 and the other way round: `made` says so, sums are f32 then.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, heap, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.precision import SMALL
from intaglio.ops.registry import REGISTRY, op

Ints = tuple[int, ...]
Floats = tuple[float, ...]
HALVES = ("bf16", "f16")  # products of these sum up in f32
PANEL = 16  # columns per panel of a packed matrix, on every ISA; a test compares the kernel table

# The activations that an epilogue can apply: the elementwise op of that name, but see gelu_tanh.
FUSABLE = (
    "relu",
    "clip",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "swish",
    "hardswish",
    "hard_sigmoid",
    "gelu",
    "gelu_tanh",
    "elu",
    "selu",
    "celu",
    "mish",
    "softplus",
    "softsign",
    "thresholded_relu",
    "shrink",
    "abs",
    "neg",
    "exp",
    "log",
    "sqrt",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "sign",
    "reciprocal",
)


def activation_of(node: Node) -> tuple[str, Floats] | None:
    """An elementwise node's name and arguments in an epilogue; None if it has no place there."""
    if node.op == "gelu":
        return ("gelu_tanh" if node.attrs["approximate"] == "tanh" else "gelu"), ()
    if node.op not in FUSABLE:
        return None
    return node.op, tuple(float(node.attrs[a]) for a in REGISTRY[node.op].attr_names)


def activate(y: Array, act: str, args: Sequence[float]) -> Array:
    """The activation of an epilogue; `args` may have more than it takes."""
    if act == "none":
        return y
    if act.startswith("gelu"):
        approximate = "tanh" if act == "gelu_tanh" else "none"
        return np.asarray(ops.gelu.body(y, approximate=approximate), y.dtype)
    made = REGISTRY[act]
    return np.asarray(made.body(y, **dict(zip(made.attr_names, args, strict=False))), y.dtype)


def finish(
    y: Array,
    bias: Array | None,
    residual: Array | None,
    slope: Array | None,
    act: str,
    act_args: Floats,
    add_last: bool,
) -> Array:
    if bias is not None:
        y = y + bias
    if residual is not None and not add_last:
        y = y + residual
    y = activate(y, act, act_args) if slope is None else np.asarray(ops.prelu.body(y, slope))
    return y + residual if residual is not None and add_last else y


def check_epilogue(
    y: Type, bias: Value | None, residual: Value | None, slope: Value | None, act: str
) -> Type:
    sums = "f32" if y.dtype in HALVES else y.dtype  # these act before rounding
    for name, v in (("bias", bias), ("slope", slope)):
        if v is not None and (v.shape != y.shape[-1:] or v.dtype != sums):
            raise BadInput(f"{name} is {v.type}; one {sums} per output channel is needed: {y}")
    if residual is not None and (residual.shape != y.shape or residual.dtype != y.dtype):
        raise BadInput(f"residual is {residual.type}; it must be like the output: {y}")
    if act not in ("none", *FUSABLE, "prelu"):
        raise BadInput(f"activation {act!r} cannot be fused; known are {', '.join(FUSABLE)}, prelu")
    if (act == "prelu") != (slope is not None):
        raise BadInput("prelu takes a slope per output channel, no other activation does")
    return y


def _made_type(y: Type, made: str) -> Type:
    """What a product makes: its input's type, or of f32 and a 16-bit one what `made` says."""
    if made == "same":
        return y
    mixed = {made, y.dtype}
    if not mixed <= {"f32", *HALVES} or mixed == set(HALVES):
        raise BadInput(f"a product of {y.dtype} cannot make {made}: f32 mixes with bf16 or f16")
    return y.but(dtype=made)


def rounds_to_made(body: Callable[..., Array]) -> Callable[..., Array]:
    """Run the body in f32, then round once, to the type that is made."""

    @functools.wraps(body)
    def run(x: Array, *others: Array | None, made: str = "same", **attrs: Any) -> Array:
        wide = [
            a.astype(np.float32) if a is not None and a.dtype in SMALL else a for a in (x, *others)
        ]
        y = body(*wide, **attrs)
        return y.astype(x.dtype if made == "same" else dtypes.TABLE[made].numpy, copy=False)

    return run


# ---- matrices ----------------------------------------------------------------------------------
def _pack_type(b: Value, *, tile: int, transposed: bool) -> Type:
    if b.type.rank < 2 or tile < 1:
        raise BadInput(f"cpu.pack takes a matrix or a batch of them, not {b.type}")
    k, n = b.shape[-2:] if not transposed else b.shape[:-3:-1]
    return Type(b.dtype, (*b.shape[:-2], -(-n // tile), k, tile))


@op(_pack_type, name="cpu.pack")
def pack(b: Array, *, tile: int, transposed: bool = False) -> Array:
    """Cut a matrix [k, n] (`transposed`: [n, k]) into panels of `tile` columns, padded with 0."""
    batch = b.shape[:-2]
    flat = b.reshape(math.prod(batch), *b.shape[-2:])
    made = in_panels(flat if transposed else np.swapaxes(flat, 1, 2), tile)
    return made.reshape(*batch, *made.shape[1:])


def in_panels(columns: Array, tile: int) -> Array:
    """[batch, n, k..], however it lies, as [batch, panels, k.., tile]: the one copy that it takes.

    What the last panel lacks is 0.
    """
    batch, n, *deep = columns.shape
    full, left = divmod(n, tile)
    made = heap.lasting((batch, -(-n // tile), *deep, tile), columns.dtype)
    whole = columns[:, : n - left].reshape(batch, full, tile, *deep)
    made[:, :full] = np.moveaxis(whole, 2, -1)
    if left:
        made[:, full, ..., :left] = np.moveaxis(columns[:, n - left :], 1, -1)
        made[:, full, ..., left:] = 0
    return made


def packed_window(w: Array, groups: int, tile: int = PANEL) -> Array:
    """Weights [m, channel, window..] as cpu.pack of [groups, m, window * channel], transposed."""
    per, deep, taps = w.shape[0] // groups, w.shape[1], math.prod(w.shape[2:])
    made = in_panels(w.reshape(groups, per, deep, taps).swapaxes(2, 3), tile)
    return made.reshape(*made.shape[:2], taps * deep, tile)


def in_pairs(b: Value) -> Value:
    """Packed rows side by side, two by two: [.., panels, k, tile] -> [.., panels, k / 2, tile * 2].

    One instruction multiplies and adds such pairs of bf16.
    """
    *lead, k, tile = b.shape
    axes = tuple(range(len(lead)))
    split = ops.reshape(b, shape=(*lead, k // 2, 2, tile))
    turned = ops.transpose(split, perm=(*axes, len(axes), len(axes) + 2, len(axes) + 1))
    made: Value = ops.reshape(turned, shape=(*lead, k // 2, 2 * tile))
    return made


def _unpack(b: Array, k: int, n: int) -> Array:
    """The first n columns of a packed matrix of k rows, which may lie in pairs."""
    *batch, panels, rows, wide = b.shape
    pair = 1 if rows == k else 2
    split = b.reshape(*batch, panels, rows, wide // pair, pair)
    flat = np.moveaxis(split, -1, -2).reshape(*batch, panels, k, wide // pair)
    return np.swapaxes(flat, -2, -3).reshape(*batch, k, panels * (wide // pair))[..., :n]


def _packed_shape(dtype: str, k: int, n: int) -> Ints:
    """The last axes of a packed k x n matrix."""
    pair = 2 if dtype == "bf16" else 1
    if dtype in HALVES and k % 2:
        raise BadInput(f"{dtype} products take pairs along k, which is {k}")
    return -(-n // PANEL), k // pair, PANEL * pair


def _gemm_type(
    a: Value,
    b: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    n: int,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    if a.type.rank < 2 or b.type.rank < 3 or a.dtype != b.dtype:
        raise BadInput(f"cpu.gemm takes [.., m, k] and a packed matrix, not {a.type} and {b.type}")
    batch = b.shape[:-3]
    if b.shape[-3:] != _packed_shape(a.dtype, a.shape[-1], n):
        raise BadInput(f"cpu.gemm: {b.type} does not hold a {a.shape[-1]} x {n} matrix")
    try:
        lead = np.broadcast_shapes(a.shape[:-2], batch)
    except ValueError:
        raise BadInput(f"cpu.gemm: batches of {a.type} and {b.type} cannot be broadcast") from None
    return check_epilogue(
        _made_type(Type(a.dtype, (*lead, a.shape[-2], n)), made), bias, residual, slope, act
    )


def _gemm_macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[0].shape[-1]  # type: ignore[union-attr]


@op(_gemm_type, name="cpu.gemm", macs=_gemm_macs)
@rounds_to_made
def gemm(
    a: Array,
    b: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    n: int,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Matrix product with a packed right operand of n columns."""
    product = np.matmul(a, _unpack(b, a.shape[-1], n))
    return finish(product, bias, residual, slope, act, act_args, add_last)


# ---- convolution -------------------------------------------------------------------------------
def _channels_first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


def _channels_last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _image(x: Value) -> Value:
    """The image as the neutral op, channels first, would see it."""
    if not 3 <= x.type.rank <= 5:
        raise BadInput(f"a channel-last image of one to three spatial axes is needed, not {x.type}")
    return Value(x.type.but(shape=(x.shape[0], x.shape[-1], *x.shape[1:-1])))


def _as_last(t: Type | list[Type]) -> Type:
    assert isinstance(t, Type)
    return t.but(shape=(t.shape[0], *t.shape[2:], t.shape[1]))


def _check_packed(x: Value, w: Value, channels: int, kernel: Ints, groups: int) -> None:
    if w.type.rank != 4 or x.dtype != w.dtype or groups < 1:
        raise BadInput(f"packed {x.dtype} weights in groups are needed, not {w.type}, {groups}")
    depth = math.prod(kernel) * (x.shape[-1] // groups)
    want = (groups, *_packed_shape(x.dtype, depth, channels // groups))
    if channels % groups or x.shape[-1] % groups or w.shape != want:
        raise BadInput(
            f"weights {w.type} are not packed for {x.shape[-1]} -> {channels} channels "
            f"in {groups} groups with kernel {kernel}"
        )


def _conv_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = _image(x)
    _check_packed(x, w, channels, kernel, groups)
    neutral = Value(Type(w.dtype, (channels, x.shape[-1] // groups, *kernel)))
    y = ops.conv.infer(
        image, neutral, None, stride=stride, pad=pad, dilation=dilation, groups=groups
    )
    return check_epilogue(_made_type(_as_last(y), made), bias, residual, slope, act)


def _conv_macs(node: Node) -> int:
    deep: int = node.inputs[0].shape[-1] // node.attrs["groups"]  # type: ignore[union-attr]
    return node.outputs[0].type.size * deep * math.prod(map(int, node.attrs["kernel"]))


@op(_conv_type, name="cpu.conv", macs=_conv_macs)
@rounds_to_made
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Convolution of an image [n, .., c]; `w` is cpu.pack of [groups, window * c / groups, m]."""
    deep, per = x.shape[-1] // groups, channels // groups
    neutral = np.moveaxis(
        _unpack(w, math.prod(kernel) * deep, per).reshape(groups, *kernel, deep, per),
        (-1, -2),
        (1, 2),
    )
    neutral = neutral.reshape(channels, deep, *kernel)
    y = ops.conv.body(
        _channels_first(x), neutral, stride=stride, pad=pad, dilation=dilation, groups=groups
    )
    return finish(_channels_last(y), bias, residual, slope, act, act_args, add_last)


def _depthwise_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = _image(x)
    small = "f32" if x.dtype in HALVES else x.dtype  # weights so few need not be narrow
    if w.type.rank != x.type.rank - 1 or w.dtype != small or w.shape[-1] != x.shape[-1]:
        raise BadInput(f"cpu.depthwise takes an image and [window, c], not {x.type} and {w.type}")
    neutral = Value(Type(x.dtype, (w.shape[-1], 1, *w.shape[:-1])))
    y = ops.conv.infer(
        image, neutral, None, stride=stride, pad=pad, dilation=dilation, groups=w.shape[-1]
    )
    return check_epilogue(_made_type(_as_last(y), made), bias, residual, slope, act)


def _depthwise_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[1].shape[:-1])  # type: ignore[union-attr]


@op(_depthwise_type, name="cpu.depthwise", macs=_depthwise_macs)
@rounds_to_made
def depthwise(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Convolution in which each channel has a window of its own; `w` is [window.., c]."""
    y = ops.conv.body(
        _channels_first(x),
        np.moveaxis(w, -1, 0)[:, None],
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=w.shape[-1],
    )
    return finish(_channels_last(y), bias, residual, slope, act, act_args, add_last)


def _conv_transpose_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = _image(x)
    _check_packed(x, w, channels, kernel, groups)
    neutral = Value(Type(w.dtype, (x.shape[-1], channels // groups, *kernel)))
    y = ops.conv_transpose.infer(
        image,
        neutral,
        None,
        stride=stride,
        pad=pad,
        output_pad=output_pad,
        dilation=dilation,
        groups=groups,
    )
    return check_epilogue(_made_type(_as_last(y), made), bias, residual, slope, act)


def _conv_transpose_macs(node: Node) -> int:
    window = math.prod(node.attrs["kernel"]) * node.attrs["channels"] // node.attrs["groups"]
    return node.inputs[0].type.size * int(window)  # type: ignore[union-attr]


@op(_conv_transpose_type, name="cpu.conv_transpose", macs=_conv_transpose_macs)
@rounds_to_made
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int = 1,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Transposed convolution of an image [n, .., c]; `w` is packed as for cpu.conv."""
    deep, per = x.shape[-1] // groups, channels // groups
    neutral = np.moveaxis(
        _unpack(w, math.prod(kernel) * deep, per).reshape(groups, *kernel, deep, per),
        (-2, -1),
        (1, 2),
    )
    neutral = neutral.reshape(groups * deep, per, *kernel)
    y = ops.conv_transpose.body(
        _channels_first(x),
        neutral,
        stride=stride,
        pad=pad,
        output_pad=output_pad,
        dilation=dilation,
        groups=groups,
    )
    return finish(_channels_last(y), bias, residual, slope, act, act_args, add_last)


# ---- pooling -----------------------------------------------------------------------------------
def _pool_type(
    x: Value,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
    p: int,
) -> Type:
    if kind not in ("max", "avg", "lp"):
        raise BadInput(f"cpu.pool has the kinds max, avg and lp, not {kind!r}")
    made = ops.lp_pool.infer(
        _image(x), kernel=kernel, stride=stride, pad=pad, dilation=dilation, p=p
    )
    return _as_last(made)


@op(_pool_type, name="cpu.pool")
def pool(
    x: Array,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
    p: int = 2,
) -> Array:
    """The largest element, the mean, or the p-norm of each window of an image [n, .., c]."""
    window = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    first = _channels_first(x)
    if kind == "max":
        y = ops.max_pool.body(first, **window)
    elif kind == "avg":
        y = ops.avg_pool.body(first, **window, count_include_pad=count_include_pad)
    else:
        y = ops.lp_pool.body(first, **window, p=p)
    return _channels_last(y)
