"""Run a package and read its intermediate tensors, which it was not compiled to return."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.analysis.joining import rounded, same_axes, turned
from intaglio.analysis.step_names import tensor_name
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Value
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor

COPY = "bitcast"  # to the same type
MOST_FUSED = 8  # elementwise operations that a step may hold after its node


class PackageTensors:
    """A package with the results of its steps as outputs, copied out right after each step.

    The steps, their kernels and the places of tensors in memory stay the same.
    """

    def __init__(self, package: Package, golden: Graph):
        if len(package.plans) != 1:
            raise BadInput("the package has several sizes; compile one for a single size")
        exposed, steps = _exposed(package.plan)
        self.outputs = dict(zip(golden.output_names, golden.outputs, strict=True))
        self.scales = {t.name: t.type.quant for t in package.plan.outputs}
        self.session = intaglio.open(Package.build([exposed], isa=package.contents.isa))
        self.places = {name: found for name, s in steps.items() if (found := _places(s, golden))}
        self.fitted: set[Value] = set()  # tensors whose scale the package does not hold
        self.limits: dict[Value, tuple[float, float]] = {}  # real values that integers reach

    def run(self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]) -> dict[Value, Array]:
        """The golden graph's tensors that the package has, as real numbers.

        A fused step stands for the nearest tensor of its layer. Integers whose scale the package
        does not hold are scaled and shifted to fit best.
        """
        results = self.session.run(dict(feeds))
        found: dict[Value, Array] = {}
        for name, places in self.places.items():
            best = _nearest(results[name], [v for v in places if v in golden], golden)
            if best is not None:
                found.setdefault(best[0], best[1])
                if results[name].dtype.kind in "iu":
                    self.fitted.add(best[0])
                if best[2] is not None:
                    self.limits[best[0]] = best[2]
        for name, v in self.outputs.items():
            if name in results and v in golden:
                found[v] = _real(results[name], self.scales.get(name))
                self.fitted.discard(v)
        return found

    def close(self) -> None:
        self.session.close()


def _exposed(plan: Plan) -> tuple[Plan, dict[str, Step]]:
    """The plan with a copy of each step's result as an output, and the steps by output name."""
    outputs, steps = list(plan.outputs), []
    made: dict[str, Step] = {}
    for step in plan.steps:
        steps.append(step)
        result = step.outputs[0] if step.outputs else None
        if result is None or result.memory != "arena" or not result.type.fixed:
            continue
        name = f"step{len(made)}"
        copy = Tensor(result.type, "output", slot=len(outputs), name=name)
        steps.append(Step(COPY, [result], [copy], {"dtype": result.type.dtype}))
        outputs.append(copy)
        made[name] = step
    return Plan(plan.inputs, outputs, steps, plan.arena, plan.name, plan.states), made


def _places(step: Step, golden: Graph) -> list[Value]:
    """The golden tensors that the result of a step may be: by its name, else by its node."""
    named = tensor_name(step.outputs[0].name)
    shape = step.outputs[0].type.shape
    for v in golden.values():
        if v.name == named and named and v.producer and same_axes(v.shape, shape) is not None:
            return [v]
    found: list[Value] = []
    for n in golden.nodes():
        if step.origin and n.origin == step.origin:
            v = rounded(n.outputs[0])
            while True:
                if dtypes.is_float(v.dtype) and same_axes(v.shape, shape) is not None:
                    found.append(v)
                reader = next(iter(v.uses), None)
                fused = reader is not None and reader.op in REGISTRY
                if not fused or len(v.uses) > 1 or len(found) >= MOST_FUSED:
                    break
                assert reader is not None
                if not REGISTRY[reader.op].elementwise and reader.op != "batch_norm":
                    break
                v = reader.outputs[0]
    return found


Nearest = tuple[Value, Array, tuple[float, float] | None]


def _nearest(result: Array, places: list[Value], golden: Mapping[Value, Array]) -> Nearest | None:
    """The golden tensor that a result is nearest to, the result with that tensor's axes, and the
    real values that its integers reach."""
    best: tuple[float, Nearest] | None = None
    for v in places:
        y = turned(result, v.shape).astype(np.float64)
        x = golden[v].astype(np.float64)
        limits = None
        if result.dtype.kind in "iu":
            scale, shift = _fit(y, x)
            kind = np.iinfo(result.dtype)
            ends = sorted(((kind.min - 0.5) * scale + shift, (kind.max + 0.5) * scale + shift))
            y, limits = y * scale + shift, (ends[0], ends[1]) if scale else None
        off = float(((x - y) ** 2).sum())
        if best is None or off < best[0]:
            best = (off, (v, y.astype(np.float32), limits))
    return None if best is None else best[1]


def _fit(y: Array, x: Array) -> tuple[float, float]:
    """The scale and shift that bring `y` nearest to `x`."""
    spread = float(y.var())
    scale = float(((y - y.mean()) * (x - x.mean())).mean()) / spread if spread else 0.0
    return scale, float(x.mean()) - scale * float(y.mean())


def _real(a: Array, quant: object) -> Array:
    if quant is None or a.dtype.kind not in "iu":
        return a
    scale, zero = (np.asarray(n, np.float32) for n in (quant.scale, quant.zero))  # type: ignore[attr-defined]
    return (a.astype(np.float32) - zero) * scale
