"""cpu.gemm: a matrix product with a packed right operand and a fused epilogue."""

from __future__ import annotations

import numpy as np

from intaglio import symint
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.epilogue import Floats, check_epilogue, finish, made_type, rounds_to_made
from intaglio.targets.cpu.packing import packed_shape, unpack


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
    if b.shape[-3:] != packed_shape(a.dtype, a.shape[-1], n):
        raise BadInput(f"cpu.gemm: {b.type} does not hold a {a.shape[-1]} x {n} matrix")
    try:
        lead = symint.broadcast(a.shape[:-2], batch)
    except ValueError:
        raise BadInput(f"cpu.gemm: batches of {a.type} and {b.type} cannot be broadcast") from None
    return check_epilogue(
        made_type(Type(a.dtype, (*lead, a.shape[-2], n)), made), bias, residual, slope, act
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
    product = np.matmul(a, unpack(b, a.shape[-1], n))
    return finish(product, bias, residual, slope, act, act_args, add_last)
