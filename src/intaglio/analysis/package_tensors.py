"""Run a package and read its intermediate tensors, which it was not compiled to return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.analysis.channel_factors import SUFFIX, ChannelFactors
from intaglio.analysis.golden_layers import GoldenLayers, own_error
from intaglio.analysis.joining import turned
from intaglio.analysis.package_alone import COPY, GOLDEN, WRITTEN, alone
from intaglio.analysis.package_reading import Reading, known_scales, nearest, places, rounded_input
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Value
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor

STRANGE = 4.0  # times the error of the best step of a tensor above which another is not it
LEAST = 1e-20  # errors that are none


class PackageTensors:
    """A package with the results of its steps as outputs, copied out right after each step.

    The steps, their kernels and the places of tensors in memory stay the same.
    """

    def __init__(self, package: Package, golden: Graph):
        if len(package.plans) != 1:
            raise BadInput("the package has several sizes; compile one for a single size")
        self.plan, self.isa = package.plan, package.contents.isa
        exposed, self.steps = _exposed(package.plan)
        self.outputs = dict(zip(golden.output_names, golden.outputs, strict=True))
        self.scales = {t.name: t.type.quant for t in package.plan.outputs}
        self.session = intaglio.open(Package.build([exposed], isa=self.isa))
        self.known = known_scales(package, self.steps)
        names = {v.name: v for v in golden.values() if v.producer and v.name}
        inputs = {v.name: v for v in golden.inputs if dtypes.is_float(v.dtype)}
        self.places = {
            name: found
            for name, s in self.steps.items()
            if (found := rounded_input(s, inputs) or places(s, golden, names, self.known.get(name)))
        }
        self._golden = golden
        self._layers: GoldenLayers | None = None
        self.readings: dict[str, Reading] = {}  # by step
        self._alone: intaglio.Session | None = None
        self._factors: dict[Value, ChannelFactors] = {}

    @property
    def by_tensor(self) -> dict[Value, Reading]:
        """The readings of golden tensors."""
        return {v: self.readings[n] for v, n in self._steps.items()}

    def run(self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]) -> dict[Value, Array]:
        """The golden graph's tensors that the package has, as real numbers.

        A fused step stands for the nearest tensor of its layer. Integers whose scale the package
        does not hold are scaled and shifted to fit the first sample best.
        """
        if self.plan.states:
            self.session.reset()
        results = self.session.run(dict(feeds))
        if not self.readings:
            self.readings = self._read(self.places, results, golden)
            if all(r.tensor.producer is None for r in self.readings.values()):
                self.readings = {}  # rounded inputs alone: the package does not name its layers
            self._drop_strangers(results, golden)
            guessed = [n for n, r in self.readings.items() if r.fitted or len(self.places[n]) > 1]
            alone = self._run_alone(feeds, golden) if guessed else {}
            if alone:  # errors of the layers before may have misled
                self.readings |= self._read(guessed, alone, golden)
        self._find_factors(feeds, golden)
        found = {v: self.readings[n].real(results[n]) for v, n in self._steps.items()}
        for name, v in self.outputs.items():
            if name in results and v in golden:
                found[v] = _real(results[name], self.scales.get(name))
        return found

    def _read(
        self, steps: Iterable[str], results: Mapping[str, Array], golden: Mapping[Value, Array]
    ) -> dict[str, Reading]:
        """The nearest golden tensors of steps."""
        found = {}
        for name in steps:
            every = [v for v in self.places[name] if v in golden]
            best = nearest(results[name], every, golden, self.known.get(name))
            if best is not None:
                step = self.steps[name]
                best.origin, best.name = step.origin, step.outputs[0].name
                found[name] = best
        return found

    def single(
        self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]
    ) -> dict[Value, Array]:
        """The same tensors, each with the error of its own layer alone; after the first `run`.

        Each step reads golden tensors, rounded as the package stores them. What that rounding
        changes is not an error of the step: it is taken away, by the golden layer's result on the
        same rounded tensors. Empty if the package has control flow, or does not name its layers.
        """
        found: dict[Value, Array] = {}
        results = self._run_alone(feeds, golden) if self.readings else {}
        if not results:
            return found
        held = {n: self._held(n, golden) for n in self.readings}
        read = {v: held[n] for v, n in self._steps.items()}
        made = [(r.tensor, r.real(results[n]), held[n]) for n, r in self.readings.items()]
        made += [
            (v, _real(results[n], self.scales.get(n)), golden[v])
            for n, v in self.outputs.items()
            if n in results and v in golden
        ]
        if self._layers is None:
            self._layers = GoldenLayers(self._golden, list(read), list({v: 0 for v, _, _ in made}))
        expected = self._layers.run(feeds, read)
        for v, result, rounded_golden in made:
            y = turned(result, v.shape)
            own = own_error(golden[v], y, expected[v]) if v in expected else y
            if v not in found or _off(golden[v], own) > _off(golden[v], found[v]):
                found[v] = own
            expected[v] = rounded_golden  # which a later step of this tensor reads
        return found

    @property
    def _steps(self) -> dict[Value, str]:
        """The step of each golden tensor: the first one with integers, else the first one."""
        order = sorted(self.readings, key=lambda n: self.readings[n].limits is None)
        return {self.readings[n].tensor: n for n in reversed(order)}

    def _held(self, step: str, golden: Mapping[Value, Array]) -> Array:
        """The golden tensor of a step, rounded as that step stores it."""
        reading = self.readings[step]
        stored = reading.stored(golden[reading.tensor], self.steps[step].outputs[0].type)
        return reading.real(stored)

    def _run_alone(
        self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]
    ) -> dict[str, Array]:
        """The results of steps that read golden tensors, by step; empty if that cannot be."""
        if self._alone is None:
            plan = alone(self.plan, {n: self.steps[n] for n in self.readings})
            if plan is None:
                return {}
            self._alone = intaglio.open(Package.build([plan], isa=self.isa))
        given = dict(feeds)
        for name, t in self._alone.inputs.items():
            if name not in feeds:
                reading = self.readings[name.removeprefix(GOLDEN)]
                given[name] = reading.stored(golden[reading.tensor], t)
        return self._alone.run(given)

    def _drop_strangers(self, results: Mapping[str, Array], golden: Mapping[Value, Array]) -> None:
        """Of several steps with the name of one tensor, keep those that hold it: a fused layer
        that was compiled as two gives both its name. The last one whose integers the package
        names stays in any case: they may be wrong."""
        errors = {
            n: float(((golden[r.tensor] - r.real(results[n])) ** 2).sum())
            for n, r in self.readings.items()
        }
        best: dict[Value, float] = {}
        for n, r in self.readings.items():
            best[r.tensor] = min(best.get(r.tensor, np.inf), errors[n])
        told = {r.tensor: n for n, r in self.readings.items() if n in self.known}
        self.readings = {
            n: r
            for n, r in self.readings.items()
            if errors[n] <= STRANGE * best[r.tensor] + LEAST or told.get(r.tensor) == n
        }

    def _find_factors(self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]) -> None:
        """The factors of channels, from layers that read golden tensors; in every sample, because
        channels may be 0 in some."""
        scaled = [n for n in self.readings if str(self.known.get(n, "  ")[1]).endswith(SUFFIX)]
        results = self._run_alone(feeds, golden) if scaled else {}
        first = {self.readings[n].tensor: n for n in reversed(scaled)}  # others may only move it
        for v, name in first.items() if results else ():
            reading, kind = self.readings[name], np.iinfo(results[name].dtype)
            y = results[name].reshape(reading.form).transpose(reading.axes)
            inside = (y > kind.min) & (y < kind.max)
            real = replace(reading, factors=None).real(results[name])
            self._factors.setdefault(v, ChannelFactors(reading.scale)).add(golden[v], real, inside)
        for name in scaled if results else ():
            self.readings[name].factors = self._factors[self.readings[name].tensor].factors

    def close(self) -> None:
        self.session.close()
        if self._alone is not None:
            self._alone.close()


def _exposed(plan: Plan) -> tuple[Plan, dict[str, Step]]:
    """The plan with a copy of each step's result as an output, and the steps by output name."""
    outputs, steps = list(plan.outputs), []
    made: dict[str, Step] = {}
    last = {t.slot: s for s in plan.steps for t in s.outputs if t.memory == "output"}
    for step in plan.steps:
        steps.append(step)
        result = step.outputs[0] if step.outputs else None
        if result is None or result.memory not in WRITTEN or not result.type.fixed:
            continue
        if result.memory == "output" and last[result.slot] is step:
            continue  # the model's output itself, not what a later step replaces
        name = f"step{len(made)}"
        copy = Tensor(result.type, "output", slot=len(outputs), name=name)
        steps.append(Step(COPY, [result], [copy], {"dtype": result.type.dtype}))
        outputs.append(copy)
        made[name] = step
    return Plan(plan.inputs, outputs, steps, plan.arena, plan.name, plan.states), made


def _off(x: Array, y: Array) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.square(x - y, dtype=np.float64).sum())


def _real(a: Array, quant: object) -> Array:
    if quant is None or a.dtype.kind not in "iu":
        return a
    scale, zero = (np.asarray(n, np.float32) for n in (quant.scale, quant.zero))  # type: ignore[attr-defined]
    return (a.astype(np.float32) - zero) * scale
