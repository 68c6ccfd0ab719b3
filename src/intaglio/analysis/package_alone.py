"""A plan whose steps each read golden tensors, not the results of the steps before them."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.plan import Plan, Step, Tensor

COPY = "bitcast"  # to the same type
WRITTEN = ("arena", "output")  # memory that steps write to
GOLDEN = "golden "  # before the names of steps in names of inputs


def alone(plan: Plan, marked: Mapping[str, Step]) -> Plan | None:
    """The plan with an input "golden NAME" in the place of each marked step's result, and the
    result itself as the output NAME. None if a step holds other plans.

    Steps between marked ones read each other's results as before.
    """
    if any(s.plans for s in plan.steps) or plan.states:
        return None
    names = {id(step): name for name, step in marked.items()}
    made = _Alone(plan)
    for step in plan.steps:
        made.add(step, names.get(id(step)))
    return Plan(made.inputs, made.outputs, made.steps, plan.arena, plan.name)


class _Alone:
    def __init__(self, plan: Plan):
        self.inputs, self.outputs = list(plan.inputs), list(plan.outputs)
        self.steps: list[Step] = []
        # bytes of the arena or of an output: start, end, and the golden input in their place if any
        self.written: dict[tuple[str, int], list[tuple[int, int, Tensor | None, int]]] = {}

    def add(self, step: Step, name: str | None) -> None:
        inputs = [None if t is None else self._read(t) for t in step.inputs]
        self.steps.append(Step(step.op, inputs, step.outputs, step.attrs, step.origin, step.macs))
        for t in step.outputs:
            self._write(t, None)
        if name is not None:
            result = step.outputs[0]
            copy = Tensor(result.type, "output", slot=len(self.outputs), name=name)
            self.outputs.append(copy)
            self.steps.append(Step(COPY, [result], [copy], {"dtype": result.type.dtype}))
            given = Tensor(result.type, "input", slot=len(self.inputs), name=f"{GOLDEN}{name}")
            self.inputs.append(given)
            self._write(result, given)

    def _read(self, t: Tensor) -> Tensor:
        """The tensor, or the same bytes of the golden input that stands in its place."""
        over = [
            w for w in self.written.get((t.memory, t.slot), ()) if w[0] < t.end and t.offset < w[1]
        ]
        if len(over) != 1 or over[0][2] is None or over[0][0] > t.offset or over[0][1] < t.end:
            return t
        _, _, given, start = over[0]
        assert given is not None
        return Tensor(t.type, "input", t.offset - start, given.slot, t.name, size=t.size)

    def _write(self, t: Tensor, given: Tensor | None) -> None:
        if t.memory not in WRITTEN or not t.size:
            return
        rest, place = [], (t.memory, t.slot)
        for a, b, old, start in self.written.get(place, ()):
            if a < t.offset:
                rest.append((a, min(b, t.offset), old, start))
            if b > t.end:
                rest.append((max(a, t.end), b, old, start))
        self.written[place] = [*rest, (t.offset, t.end, given, t.offset)]
