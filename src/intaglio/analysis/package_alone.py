"""A plan whose steps each read golden tensors, not the results of the steps before them."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.plan import Plan, Step, Tensor

COPY = "bitcast"  # to the same type
WRITTEN = ("arena", "output")  # memory that steps write to
GOLDEN = "golden "  # before the names of steps in names of inputs


def alone(plan: Plan, marked: Mapping[str, Step]) -> Plan | None:
    """The plan with an input "golden NAME" that is copied over each marked step's result, and the
    result itself as the output NAME. None if a step holds other plans.

    Steps between marked ones read each other's results as before.
    """
    if any(s.plans for s in plan.steps) or plan.states:
        return None
    names = {id(step): name for name, step in marked.items()}
    inputs, outputs, steps = list(plan.inputs), list(plan.outputs), list[Step]()
    for step in plan.steps:
        steps.append(step)
        name = names.get(id(step))
        if name is None:
            continue
        result = step.outputs[0]
        copy = Tensor(result.type, "output", slot=len(outputs), name=name)
        given = Tensor(result.type, "input", slot=len(inputs), name=f"{GOLDEN}{name}")
        outputs.append(copy)
        inputs.append(given)
        same = {"dtype": result.type.dtype}
        steps += [Step(COPY, [result], [copy], same), Step(COPY, [given], [result], same)]
    return Plan(inputs, outputs, steps, plan.arena, plan.name)
