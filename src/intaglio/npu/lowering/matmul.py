"""Matrix products of two activations become npu.matmul."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.npu.lowering.builder import (
    Builder,
    Refused,
    before_reshapes,
    integer,
    require_integers,
    scale_of,
)
from intaglio.npu.ops import matmul
from intaglio.rewrite import P, Rule, rule

a, b, az, bz = P["a b az! bz!"]
as_, bs, ys, yz = P["as! bs! ys!? yz!?"]
TURN = (0, 2, 1)


def matmul_rules(make: Builder) -> tuple[Rule, ...]:
    """The rule by which matrix products of two quantised activations become npu.matmul."""

    @rule(P.qlinear_matmul(a, as_, az, b, bs, bz, ys, yz))
    def matmul_on_npu(node: Node, b: Value) -> Any:
        """Lower qlinear_matmul of two activations to npu.matmul between two transposes."""
        return None if b.data is not None else make.attempt(_matmul, node)

    return (matmul_on_npu,)


def batched_matmul(make: Builder, a: Value, b: Value, **attrs: Any) -> Value:
    """[.., M, K] times [.., K, C] by npu.matmul; matrices of a batch become images of a batch."""
    if a.shape[:-2] != b.shape[:-2] or min(a.type.rank, b.type.rank) < 2:
        raise Refused(
            f"{a.type} times {b.type} broadcasts matrices; both need the same batch dimensions"
        )
    if a.type.dynamic or b.type.dynamic:
        raise Refused(f"{a.type} times {b.type} has an extent that is known only at run time")
    (m, k), c, n = a.shape[-2:], b.shape[-1], math.prod(a.shape[:-2])

    def product(turned: bool) -> Value:
        # npu.matmul sums over the channels of its first operand, so `a` is transposed.
        left = make.reshaped(_columns(make, a, (n, m, k)), (n, k, m, 1))
        if turned:
            return make(matmul, left, make.reshaped(b, (n, k, c, 1)), turned=True, **attrs)
        right = make.reshaped(_columns(make, b, (n, k, c)), (n, c, k, 1))
        return make(matmul, left, right, turned=False, **attrs)

    try:
        result = product(True)
    except Refused:  # some chips read the columns of the second operand
        result = product(False)
    return make.on_cpu(ops.transpose, make.reshaped(result, (n, c, m)), perm=TURN)


def _columns(make: Builder, v: Value, shape: tuple[int, int, int]) -> Value:
    """Matrices of `shape` transposed by the CPU, or what they were transposed from."""
    found = before_reshapes(v, lambda u: u.shape == shape and _is_turned(u))
    if found is None:
        return make.on_cpu(ops.transpose, make.reshaped(v, shape), perm=TURN)
    return found.producer.inputs[0]  # type: ignore[union-attr,return-value]


def _is_turned(v: Value) -> bool:
    maker = v.producer
    return maker is not None and maker.op == "transpose" and tuple(maker.attrs["perm"]) == TURN


def _matmul(make: Builder, node: Node) -> Value:
    given: list[Any] = node.inputs
    a, a_scale, a_zero, b, b_scale, b_zero, ys, yz = given
    for v in (a_zero, b_zero):
        if v.type.size != 1:
            raise Refused(f"an activation has {v.type.size} zero points; one per tensor is needed")
    require_integers(a, b)
    factor = scale_of(a_scale) * scale_of(b_scale)
    factor = factor if ys is None else factor / scale_of(ys)
    end: dict[str, Any] = {"dtype": "f32"}
    if yz is not None:
        low, high = dtypes.limits(yz.dtype)
        end = {"y_zero": integer(yz), "low": low, "high": high, "dtype": yz.dtype}
    zeros = {"a_zero": integer(a_zero), "b_zero": integer(b_zero)}
    rows = batched_matmul(make, a, b, factor=float(factor), **zeros, **end)
    return make.reshaped(rows, node.outputs[0].shape)
