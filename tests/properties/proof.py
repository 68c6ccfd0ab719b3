"""Run a plan on tags instead of numbers, to prove that every step reads the right bytes.

Each byte carries a tag of its origin. Ops that move bytes move tags; all other ops compute new tags
from the tags of their inputs. Running the graph gives the expected tags; running the plan reads and
writes tags in its planned memory, step by step. If the outputs agree, no tensor overwrote another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.ir import Graph, Type
from intaglio.plan import Plan, Tensor

MOVES = ("reshape", "slice", "concat", "transpose")


def new_tags(t: Type, *why: Any) -> np.ndarray:
    """One tag per byte of a tensor; equal origins give equal tags."""
    seed = int.from_bytes(hashlib.sha256(repr(why).encode()).digest()[:7], "little")
    return (np.arange(t.bytes, dtype=np.int64) + seed).reshape(*t.shape, -1)


def apply(op: str, attrs: dict[str, Any], ins: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """The tags of the outputs of one op."""
    if op in MOVES:
        if op == "reshape":
            return [ins[0].reshape(*types[0].shape, ins[0].shape[-1])]
        if op == "transpose":
            return [ins[0].transpose(*attrs["perm"], ins[0].ndim - 1)]
        if op == "concat":
            return [np.concatenate(ins, attrs["axis"] % types[0].rank)]
        cut = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
        return [ins[0][(*(slice(*c) for c in cut), slice(None))]]
    read = [None if a is None else hashlib.sha256(a.tobytes()).hexdigest() for a in ins]
    return [new_tags(t, op, sorted(attrs.items()), read, i) for i, t in enumerate(types)]


def tags_of_graph(graph: Graph) -> list[np.ndarray]:
    known = {v: new_tags(v.type, "input", i) for i, v in enumerate(graph.inputs)}

    def get(v: Any) -> Any:
        if v is not None and v not in known:
            known[v] = new_tags(v.type, "constant", v.data.tobytes())
        return None if v is None else known[v]

    for node in graph.nodes():
        types = [v.type for v in node.outputs]
        results = apply(node.op, node.attrs, [get(v) for v in node.inputs], types)
        known.update(zip(node.outputs, results, strict=True))
    return [get(v) for v in graph.outputs]


def tags_of_plan(plan: Plan) -> list[np.ndarray]:
    memory: dict[tuple[str, int], np.ndarray] = {("arena", 0): np.zeros(plan.arena, np.int64)}
    for t in plan.tensors():
        if t.memory in ("input", "output"):
            size = max(t.end, memory.get((t.memory, t.slot), np.zeros(0)).size)
            memory[t.memory, t.slot] = np.zeros(size, np.int64)
    for i, t in enumerate(plan.inputs):
        assert t is not None
        memory["input", i][: t.size] = new_tags(t.type, "input", i).ravel()

    def read(t: Tensor | None) -> Any:
        if t is None:
            return None
        if t.fixed:
            return new_tags(t.type, "constant", t.data.tobytes())  # type: ignore[union-attr]
        there = memory[t.memory, t.slot][t.offset : t.end]
        assert there.size == t.type.bytes, f"{t} lies outside of its memory"
        return there.reshape(*t.type.shape, dtypes.itemsize(t.type.dtype)).copy()

    for step in plan.steps:
        check_rules(step)
        results = apply(
            step.op, step.attrs, [read(t) for t in step.inputs], [t.type for t in step.outputs]
        )
        for t, tags in zip(step.outputs, results, strict=True):
            assert t.memory in ("arena", "output"), f"{step.op} writes to {t.memory}"
            memory[t.memory, t.slot][t.offset : t.end] = tags.ravel()
    return [read(t) for t in plan.outputs]


def check_rules(step: Any) -> None:
    """The runtime's rules for the memory of a step."""
    flags = native.ops()[step.op].flags
    for i, out in enumerate(step.outputs):
        assert out.offset % dtypes.itemsize(out.type.dtype) == 0
        assert not any(out.overlaps(o) for o in step.outputs[:i])
        for k, t in enumerate(step.inputs):
            if t is None or not t.size or not out.size or not out.overlaps(t):
                continue
            exact = t.offset == out.offset and t.size == out.size and i == 0
            same = exact and t.type == out.type
            allowed = (
                (same and flags & native.INPLACE)
                or (same and flags & native.INPLACE_FIRST and k == 0)
                or (exact and flags & native.VIEW and k == 0)
            )
            assert allowed, f"{step.op} {step.origin}: output {out} lies on input {t}"


def assert_sound(graph: Graph, plan: Plan) -> None:
    for want, got in zip(tags_of_graph(graph), tags_of_plan(plan), strict=True):
        np.testing.assert_array_equal(got.ravel(), want.ravel(), err_msg=str(graph))
