"""How the results of a package's steps are read as the tensors of a golden graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.analysis.channel_factors import SUFFIX
from intaglio.analysis.joining import NCHW, NHWC, rounded, same_axes
from intaglio.analysis.step_names import COUNTED, tensor_name
from intaglio.ir import Array, Graph, Type, Value
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.plan import Step

FIELDS = 5  # of a row of meta["scales"]
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


def known_scales(package: Package, steps: Mapping[str, Step]) -> dict[str, Sequence[Any]]:
    """What the package says of the integers of each step: [node, tensor, type, scale, zero].

    The tensor is "" if the node makes several with this scale.
    """
    rows = [row for row in package.meta.get("scales", ()) if len(row) == FIELDS]
    nodes, tensors = (_by_name(rows, field) for field in (0, 1))
    found = {}
    for name, step in steps.items():
        result = step.outputs[0]
        told, kind = tensor_name(result.name), result.type.dtype
        for known, key in ((tensors, told), (nodes, step.origin), (tensors, step.origin)):
            if key and (key, kind) in known:
                found[name] = known[key, kind]
                break
        else:
            own = _own_scale(step)
            if own is not None:
                found[name] = ["", "", kind, *own]
    return found


def _own_scale(step: Step) -> tuple[float, int] | None:
    """The scale and zero of a step that rounds, which are its constants."""
    if step.op != "quantize_linear" or len(step.inputs) < 3:
        return None
    scale, zero = (None if t is None else t.data for t in step.inputs[1:3])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return float(scale.ravel()[0]), int(zero.ravel()[0])


def _by_name(rows: Sequence[Sequence[Any]], field: int) -> dict[tuple[str, str], Sequence[Any]]:
    """The rows by a name and the type, where all rows with that name have one scale and zero."""
    groups: dict[tuple[str, str], list[Sequence[Any]]] = {}
    for row in rows:
        groups.setdefault((row[field], row[2]), []).append(row)
    alike = {k: g for k, g in groups.items() if len({tuple(r[3:]) for r in g}) == 1}
    return {
        k: g[0] if len({r[1] for r in g}) == 1 else [g[0][0], "", *g[0][2:]]
        for k, g in alike.items()
    }


def places(
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


def rounded_input(step: Step, inputs: Mapping[str, Value]) -> list[Value]:
    """The golden input that a step rounds to integers; empty if it does something else."""
    given = step.inputs[0] if step.op == "quantize_linear" else None
    v = inputs.get(given.name) if given is not None and given.memory == "input" else None
    return [v] if v is not None and same_axes(v.shape, step.outputs[0].type.shape) else []


def nearest(
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
