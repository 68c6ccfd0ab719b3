"""Run a package and read its intermediate tensors, which it was not compiled to return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.analysis.channel_factors import SUFFIX, factors_between
from intaglio.analysis.golden_layers import GoldenLayers, own_error
from intaglio.analysis.joining import NCHW, NHWC, rounded, same_axes, turned
from intaglio.analysis.package_alone import COPY, GOLDEN, WRITTEN, alone
from intaglio.analysis.step_names import COUNTED, tensor_name
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Type, Value
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor

FIELDS = 5  # of a row of meta["scales"]
STRANGE = 4.0  # times the error of the best step of a tensor above which another is not it
LEAST = 1e-20  # errors that are none
MOST_FUSED = 8  # elementwise operations that a step may hold after its node


@dataclass
class Reading:
    """How the result of a step becomes a golden tensor."""

    tensor: Value
    form: tuple[int, ...]  # the result's shape, or the golden one where axes of 1 differ
    axes: tuple[int, ...]  # that turn it
    scale: float = 1.0  # of integers
    zero: int = 0
    fitted: bool = False  # whether the scale is a guess from the golden values
    factors: Array | None = None  # of the golden tensor's channels
    limits: tuple[float, float] | None = None  # the real values that integers reach
    origin: str = ""  # the node of the step
    name: str = ""  # its tensor

    def real(self, result: Array) -> Array:
        """The golden tensor as the package has it."""
        y = result.reshape(self.form).transpose(self.axes)
        if result.dtype.kind in "iu":
            y = (y.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)
        return y if self.factors is None else y / self.factors

    def stored(self, golden: Array, t: Type) -> Array:
        """The result that stands for the golden tensor's values exactly, or is nearest to it."""
        x = golden if self.factors is None else golden * self.factors
        x = x.transpose(np.argsort(self.axes))
        kind = dtypes.numpy_of(t.dtype)
        if not dtypes.is_float(t.dtype):
            low, high = dtypes.limits(t.dtype)
            x = np.clip(np.rint(x / np.float32(self.scale)) + self.zero, low, high)
        return np.ascontiguousarray(x.astype(kind).reshape(t.shape))


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
        self.known = _known_scales(package, self.steps)
        names = {v.name: v for v in golden.values() if v.producer and v.name}
        inputs = {v.name: v for v in golden.inputs if dtypes.is_float(v.dtype)}
        self.places = {
            name: found
            for name, s in self.steps.items()
            if (
                found := _rounded_input(s, inputs)
                or _places(s, golden, names, self.known.get(name))
            )
        }
        self._golden = golden
        self._layers: GoldenLayers | None = None
        self.readings: dict[str, Reading] = {}  # by step
        self._alone: intaglio.Session | None = None

    @property
    def by_tensor(self) -> dict[Value, Reading]:
        """The readings of golden tensors; the first step that makes one."""
        return {r.tensor: r for r in reversed(self.readings.values())}

    def run(self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]) -> dict[Value, Array]:
        """The golden graph's tensors that the package has, as real numbers.

        A fused step stands for the nearest tensor of its layer. Integers whose scale the package
        does not hold are scaled and shifted to fit the first sample best.
        """
        if self.plan.states:
            self.session.reset()
        results = self.session.run(dict(feeds))
        if not self.readings:
            for name, places in self.places.items():
                known = [v for v in places if v in golden]
                best = _nearest(results[name], known, golden, self.known.get(name))
                if best is not None:
                    step = self.steps[name]
                    best.origin, best.name = step.origin, step.outputs[0].name
                    self.readings[name] = best
            if all(r.tensor.producer is None for r in self.readings.values()):
                self.readings = {}  # rounded inputs alone: the package does not name its layers
            self._drop_strangers(results, golden)
            self._find_factors(feeds, golden)
        found: dict[Value, Array] = {}
        for name, reading in self.readings.items():
            found.setdefault(reading.tensor, reading.real(results[name]))
        for name, v in self.outputs.items():
            if name in results and v in golden:
                found[v] = _real(results[name], self.scales.get(name))
        return found

    def single(
        self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]
    ) -> dict[Value, Array]:
        """The same tensors, each with the error of its own layer alone; after the first `run`.

        Each step reads golden tensors, rounded as the package stores them. What that rounding
        changes is not an error of the step: it is taken away, by the golden layer's result on the
        same rounded tensors. Empty if the package has control flow, or does not name its layers.
        """
        if not self.readings:
            return {}
        results = self._run_alone(feeds, golden)
        found: dict[Value, Array] = {}
        if not results:
            return found
        for name, reading in self.readings.items():
            found.setdefault(reading.tensor, reading.real(results[name]))
        for name, v in self.outputs.items():
            if name in results and v in golden:
                found[v] = _real(results[name], self.scales.get(name))
        read = {v: r.real(r.stored(golden[v], self._type(r))) for v, r in self.by_tensor.items()}
        if self._layers is None:
            self._layers = GoldenLayers(self._golden, list(read), list(found))
        for v, expected in self._layers.run(feeds, read).items():
            found[v] = own_error(golden[v], turned(found[v], v.shape), expected)
        return found

    def _type(self, reading: Reading) -> Type:
        return next(self.steps[n].outputs[0].type for n, r in self.readings.items() if r is reading)

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
        that was compiled as two gives both its name."""
        errors = {
            n: float(((golden[r.tensor] - r.real(results[n])) ** 2).sum())
            for n, r in self.readings.items()
        }
        best: dict[Value, float] = {}
        for n, r in self.readings.items():
            best[r.tensor] = min(best.get(r.tensor, np.inf), errors[n])
        self.readings = {
            n: r for n, r in self.readings.items() if errors[n] <= STRANGE * best[r.tensor] + LEAST
        }

    def _find_factors(self, feeds: Mapping[str, Array], golden: Mapping[Value, Array]) -> None:
        """The factors of channels, from layers that read golden tensors without any."""
        scaled = [n for n in self.readings if str(self.known.get(n, "  ")[1]).endswith(SUFFIX)]
        results = self._run_alone(feeds, golden) if scaled else {}
        found: dict[Value, Array | None] = {}
        for name in scaled if results else ():  # later steps may only move what the first made
            reading, result = self.readings[name], results[name]
            if reading.tensor not in found:
                form, kind = reading.form, np.iinfo(result.dtype)
                y = result.reshape(form).transpose(reading.axes)
                inside, x = (y > kind.min) & (y < kind.max), golden[reading.tensor]
                found[reading.tensor] = factors_between(x, reading.real(result), inside)
            reading.factors = found[reading.tensor]

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


def _known_scales(package: Package, steps: Mapping[str, Step]) -> dict[str, Sequence[Any]]:
    """What the package says of the integers of each step: [node, tensor, type, scale, zero]."""
    rows = [row for row in package.meta.get("scales", ()) if len(row) == FIELDS]
    keys = Counter((name, row[2]) for row in rows for name in {row[0], row[1]} if name)
    once = {(row[i], row[2]): row for row in rows for i in (1, 0) if keys[row[i], row[2]] == 1}
    found = {}
    for name, step in steps.items():
        result = step.outputs[0]
        for told in (tensor_name(result.name), step.origin):
            if (told, result.type.dtype) in once:
                found[name] = once[told, result.type.dtype]
                break
    return found


def _places(
    step: Step, golden: Graph, names: Mapping[str, Value], known: Sequence[Any] | None
) -> list[Value]:
    """The golden tensors that the result of a step may be: by its name, else by its node."""
    shape = step.outputs[0].type.shape
    told = str(known[1]) if known else ""
    for name in (told, tensor_name(step.outputs[0].name)):
        v = names.get(name) or names.get(name.removesuffix(SUFFIX))
        if v is not None and _form(shape, v.shape) is not None:
            return [v]
    found: list[Value] = []
    origins = {n.origin for n in golden.nodes()}
    origin = step.origin if step.origin in origins else COUNTED.sub("", step.origin)
    for n in golden.nodes():
        if origin and n.origin == origin:
            v = rounded(n.outputs[0])
            while True:
                if dtypes.is_float(v.dtype) and _form(shape, v.shape) is not None:
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


def _rounded_input(step: Step, inputs: Mapping[str, Value]) -> list[Value]:
    """The golden input that a step rounds to integers; empty if it does something else."""
    given = step.inputs[0] if step.op == "quantize_linear" else None
    v = inputs.get(given.name) if given is not None and given.memory == "input" else None
    return [v] if v is not None and same_axes(v.shape, step.outputs[0].type.shape) else []


def _integers(step: Step) -> bool:
    return not dtypes.is_float(step.outputs[0].type.dtype)


def _nearest(
    result: Array,
    places: Sequence[Value],
    golden: Mapping[Value, Array],
    known: Sequence[Any] | None,
) -> Reading | None:
    """How the result is read as the golden tensor that it is nearest to."""
    best: tuple[float, Reading] | None = None
    for v in places:
        form = _form(result.shape, v.shape) or result.shape
        for axes in _turns(form, v.shape):
            reading = _reading(v, axes, result.reshape(form), golden[v], known)
            x = golden[v].astype(np.float64)
            off = float(((x - reading.real(result)) ** 2).sum())
            if best is None or off < best[0]:
                best = off, reading
    return None if best is None else best[1]


def _form(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape, or the wanted one if they differ by axes of 1; None if they differ otherwise."""
    if same_axes(wanted, shape) is not None:
        return shape
    plain = [tuple(n for n in s if n != 1) for s in (shape, wanted)]
    return wanted if plain[0] == plain[1] else None


def _turns(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of axes that may turn one shape into another."""
    same = tuple(range(len(shape)))
    every = [same, *((NHWC, NCHW) if len(shape) == 4 else ())]
    return [axes for axes in every if tuple(shape[i] for i in axes) == wanted]


def _reading(
    v: Value, axes: tuple[int, ...], result: Array, x: Array, known: Sequence[Any] | None
) -> Reading:
    made = Reading(v, result.shape, axes)
    if result.dtype.kind in "iu":
        kind = np.iinfo(result.dtype)
        y = result.transpose(axes).astype(np.float64)
        if known:
            made.scale, made.zero = float(known[3]), int(known[4])
        else:
            made.scale, made.zero, made.fitted = *_fit(y, x.astype(np.float64), kind), True
        ends = ((e - made.zero) * made.scale for e in (kind.min - 0.5, kind.max + 0.5))
        low, high = sorted(ends)
        made.limits = (low, high) if made.scale else None
    return made


def _fit(y: Array, x: Array, kind: np.iinfo) -> tuple[float, int]:
    """The scale, and the zero point among the integers, that bring `y` nearest to `x`."""
    spread = float(y.var())
    scale = float(((y - y.mean()) * (x - x.mean())).mean()) / spread if spread else 0.0
    if not scale:
        return 0.0, 0
    zero = int(np.clip(np.rint(y.mean() - x.mean() / scale), kind.min, kind.max))
    own = float(((y - zero) ** 2).sum())
    return (float(((y - zero) * x).sum()) / own if own else scale), zero


def _real(a: Array, quant: object) -> Array:
    if quant is None or a.dtype.kind not in "iu":
        return a
    scale, zero = (np.asarray(n, np.float32) for n in (quant.scale, quant.zero))  # type: ignore[attr-defined]
    return (a.astype(np.float32) - zero) * scale
