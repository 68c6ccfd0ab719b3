"""Products of two activations become npu.matmul."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.npu.lowering.builder import Maker, Refused, number, of_integers, real
from intaglio.npu.ops import matmul
from intaglio.rewrite import P, Rule, rule

a, b, az, bz = P["a b az! bz!"]
as_, bs, ys, yz = P["as! bs! ys!? yz!?"]


def matmuls(make: Maker) -> tuple[Rule, ...]:
    """The rule by which such products become those of NPU units."""

    @rule(P.qlinear_matmul(a, as_, az, b, bs, bz, ys, yz))
    def matmul_on_npu(node: Node, b: Value) -> Any:
        """qlinear_matmul of two activations -> transpose, npu.matmul, transpose"""
        return None if b.data is not None else make.tried(_matmul, node)

    return (matmul_on_npu,)


def _matmul(make: Maker, node: Node) -> Value:
    """[.., M, K] times [.., K, C]: rows become columns, matrices before them images."""
    given: list[Any] = node.inputs
    a, a_scale, a_zero, b, b_scale, b_zero, ys, yz = given
    out = node.outputs[0]
    if a.shape[:-2] != b.shape[:-2] or min(a.type.rank, b.type.rank) < 2:
        raise Refused(f"{a.type} times {b.type} repeats matrices; there must be as many of both")
    if a.type.dynamic or b.type.dynamic:
        raise Refused(f"{a.type} times {b.type} has an extent that is known only at run time")
    for v in (a_zero, b_zero):
        if v.type.size != 1:
            raise Refused(f"an activation has {v.type.size} zeros; one per tensor is needed")
    of_integers(a, b)
    factor = real(a_scale) * real(b_scale)
    factor = factor if ys is None else factor / real(ys)
    end: dict[str, Any] = {"dtype": "f32"}
    if yz is not None:
        low, high = dtypes.limits(yz.dtype)
        end = {"y_zero": number(yz), "low": low, "high": high, "dtype": yz.dtype}
    (m, k), c, n = a.shape[-2:], b.shape[-1], math.prod(a.shape[:-2])
    # The rows of `a` are to be columns: its channels are what is summed up.
    left = make.moved(ops.transpose, make.shaped(a, (n, m, k)), perm=(0, 2, 1))
    made = make(
        matmul,
        make.shaped(left, (n, k, m, 1)),
        make.shaped(b, (n, k, c, 1)),
        turned=True,
        a_zero=number(a_zero),
        b_zero=number(b_zero),
        factor=float(factor),
        **end,
    )
    rows = make.moved(ops.transpose, make.shaped(made, (n, c, m)), perm=(0, 2, 1))
    return make.shaped(rows, out.shape)
