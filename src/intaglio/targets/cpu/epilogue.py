"""The fused epilogue of the CPU's float ops: bias, residual and activation.

It is `act(y + bias + residual)`, or with `add_last` `act(y + bias) + residual`. The activation
prelu reads its slopes, one per channel, from an operand. `made` names the result's type if it
differs from the operands': f32 mixes with bf16 or f16, and sums are f32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, native, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.precision import SMALL
from intaglio.ops.registry import REGISTRY

Floats = tuple[float, ...]
HALVES = ("bf16", "f16")  # multiplied with f32 sums
# Activations that an epilogue can apply, by the name of their elementwise op (but see gelu_tanh).
FUSABLE = native.activations()


def activation_of(node: Node) -> tuple[str, Floats] | None:
    """An elementwise node's name and arguments in an epilogue; None if it cannot be fused."""
    if node.op == "gelu":
        return ("gelu_tanh" if node.attrs["approximate"] == "tanh" else "gelu"), ()
    if node.op not in FUSABLE:
        return None
    return node.op, tuple(float(node.attrs[a]) for a in REGISTRY[node.op].attr_names)


def activate(y: Array, act: str, args: Sequence[float]) -> Array:
    """Apply an epilogue's activation; extra `args` are ignored."""
    if act == "none":
        return y
    if act.startswith("gelu"):
        approximate = "tanh" if act == "gelu_tanh" else "none"
        return np.asarray(ops.gelu.body(y, approximate=approximate), y.dtype)
    result = REGISTRY[act]
    return np.asarray(result.body(y, **dict(zip(result.attr_names, args, strict=False))), y.dtype)


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
    sums = "f32" if y.dtype in HALVES else y.dtype  # bias and slope apply before rounding
    for name, v in (("bias", bias), ("slope", slope)):
        if v is not None and (v.shape != y.shape[-1:] or v.dtype != sums):
            raise BadInput(f"{name} is {v.type}; one {sums} per output channel is needed: {y}")
    if residual is not None and (residual.shape != y.shape or residual.dtype != y.dtype):
        raise BadInput(f"residual is {residual.type}; it must have the type of the output: {y}")
    if act not in ("none", *FUSABLE, "prelu"):
        raise BadInput(f"activation {act!r} cannot be fused; known are {', '.join(FUSABLE)}, prelu")
    if (act == "prelu") != (slope is not None):
        raise BadInput("prelu takes a slope per output channel, no other activation does")
    return y


def made_type(y: Type, made: str) -> Type:
    """The result type: the operand's, or the one that `made` names."""
    if made == "same":
        return y
    mixed = {made, y.dtype}
    if not mixed <= {"f32", *HALVES} or mixed == set(HALVES):
        raise BadInput(f"a product of {y.dtype} cannot make {made}: f32 mixes with bf16 or f16")
    return y.but(dtype=made)


def rounds_to_made(body: Callable[..., Array]) -> Callable[..., Array]:
    """Run the body in f32, then round once to the result's type."""

    @functools.wraps(body)
    def run(x: Array, *others: Array | None, made: str = "same", **attrs: Any) -> Array:
        wide = [
            a.astype(np.float32) if a is not None and a.dtype in SMALL else a for a in (x, *others)
        ]
        y = body(*wide, **attrs)
        return y.astype(x.dtype if made == "same" else dtypes.TABLE[made].numpy, copy=False)

    return run
