"""A plan as lines of text without its constants' values: what two packages must have in common to
run with the same weight file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from intaglio.plan import Plan, Step, Tensor

SHOWN_WORDS = 4  # of a line, in a message


def digest(plans: Sequence[Plan]) -> bytes:
    """SHA-256 of everything in the plans but values of constants and names of internal tensors."""
    text = hashlib.sha256()
    for line, _ in lines(plans):
        text.update(line.encode() + b"\n")
    return text.digest()


def difference(old: Sequence[Plan], new: Sequence[Plan]) -> str | None:
    """The first difference of two lists of plans in words; None if only constants differ."""
    for a, b in zip_longest(lines(old), lines(new), fillvalue=("nothing", "")):
        if a[0] != b[0]:
            where = f"at '{a[1] or b[1]}' " if a[1] or b[1] else ""
            return f"{where}{_differing(a[0], b[0])}"
    return None


def lines(plans: Sequence[Plan]) -> Iterator[tuple[str, str]]:
    """Each tensor and step as a line, and the place in the user's model that it comes from."""
    for plan in plans:
        family = list(plan.walk())
        numbers: dict[Tensor | None, str] = {None: "-"}
        used = {
            t: step.origin
            for p in family
            for step in p.steps
            for t in (*step.inputs, *step.outputs)
            if t is not None
        }
        ports = {t for t in (*plan.inputs, *plan.outputs) if t is not None}
        for t in plan.tensors():
            numbers[t] = str(len(numbers) - 1)
            yield f"tensor {_tensor(t, t in ports)}", used.get(t, "")
        for p in family:
            listed = [", ".join(numbers[t] for t in some) for some in (p.inputs, p.outputs)]
            yield f"plan ({listed[0]}) -> ({listed[1]}) arena {p.arena}", ""
            for step in p.steps:
                yield _step(step, numbers, family), step.origin
        for s in plan.states:
            begins = "zeros" if s.initial is None else "a constant"
            yield f"state {s.input} {s.output} begins with {begins}", ""


def _tensor(t: Tensor, named: bool) -> str:
    kind, place = t.type, "" if t.fixed else f" {t.slot} {t.offset}"
    quant = f" {kind.quant}" if kind.quant is not None else ""
    name = f"'{t.name}' " if named else ""
    code = f" {hashlib.sha256(t.data.tobytes()).hexdigest()}" if _is_code(t) else ""  # type: ignore[union-attr]
    shape = "x".join(str(d) for d in kind.shape)
    return f"{name}{kind.dtype}[{shape}] {kind.dynamic}{quant} {t.memory}{place} {t.size}{code}"


def _is_code(t: Tensor) -> bool:
    return t.memory == "code" and t.data is not None


def _step(step: Step, numbers: dict[Tensor | None, str], family: Sequence[Plan]) -> str:
    def plain(value: Any) -> Any:
        return family.index(value) if isinstance(value, Plan) else value

    attrs = ", ".join(f"{k}={plain(v)}" for k, v in sorted(step.attrs.items()))
    inputs, outputs = (", ".join(numbers[t] for t in some) for some in (step.inputs, step.outputs))
    return f"step {step.op} ({inputs}) -> ({outputs}) {attrs}"


def _differing(a: str, b: str) -> str:
    """`a` and `b` from shortly before the word in which they differ."""
    first, second = a.split(" "), b.split(" ")
    at = next((i for i, (x, y) in enumerate(zip(first, second)) if x != y), 0)  # noqa: B905
    kind = " ".join(first[:2]) if at > 1 and a.startswith("step") else first[0]
    old, new = (" ".join(words[at : at + SHOWN_WORDS]) for words in (first, second))
    return f"{kind} has '{old}' and would have '{new}'"
