"""Number formats of activations and weights: the options, checked against the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.quant.placement.place import PRODUCTS, Placement, layer
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.targets import Target
from intaglio.targets.precision import NAMES, Precision, name_of

TYPES = {user: dtype for dtype, user in NAMES.items()}
PER = ("channel", "tensor")


@dataclass(frozen=True)
class Formats:
    """Types and kinds of scales by precision, and the wider precisions."""

    precision: str = "int8"  # of layers without a precision of their own
    tensors: Mapping[str, str] = field(default_factory=lambda: {"int8": "i8", "int16": "i16"})
    symmetric: frozenset[str] = frozenset({"int16"})  # precisions whose tensors have no zero point
    weights: Mapping[str, str] = field(default_factory=lambda: {"int8": "i8", "int16": "i8"})
    per: str = "channel"  # weights that share a scale: channel or tensor
    weight_zeros: bool = False
    wider: tuple[str, ...] = ("f32",)  # for layers that need more bits, cheapest first
    table_bits: int = 10  # of the index into an activation table
    one_sided: frozenset[str] = frozenset()  # of `symmetric`: with a zero point if all are >= 0

    def is_symmetric(self, precision: str, low: float) -> bool:
        """Whether a tensor of this precision has no zero point; `low` is its smallest number."""
        return precision in self.symmetric and not (precision in self.one_sided and low >= 0)


USUAL = Formats()


def formats(
    chip: Target,
    tensors: str | None = None,
    weights: str | None = None,
    per: str | None = None,
    symmetric: bool | None = None,
    weight_zeros: bool = False,
    floats: str | None = None,
) -> Formats:
    """The formats that the options name; the target chooses the rest. BadInput if it lacks one.

    `tensors` and `weights` are int8, uint8, int16, int4 or uint4; weights share a scale per
    "channel" or per "tensor"; `symmetric` tensors have no zero points (None: those of more than 8
    bits); `weight_zeros` gives weights zero points.
    """
    for what, given in (("activations", tensors), ("weights", weights)):
        if given is not None and given not in TYPES:
            raise BadInput(f"{what} is '{given}'; known are {', '.join(TYPES)}")
    if per is not None and per not in PER:
        raise BadInput(f"per is '{per}'; known are {', '.join(PER)}")
    usual = _holding(chip, tensors)
    grain = per or usual.weights.grains[0]
    of_weights = TYPES[weights] if weights else usual.weights.types[0]
    if why := usual.weights.why_not(of_weights, weight_zeros, grain):
        others = [
            p.name
            for p in chip.precisions
            if not p.is_float and not p.weights.why_not(of_weights, weight_zeros, grain)
        ]
        hint = f"; with activations of {' or '.join(others)} it does" if others else ""
        raise BadInput(f"{chip.name} computes {usual.name} layers with no weights {why}{hint}")
    whole = [p for p in chip.precisions if not p.is_float]
    types = {p.name: p.tensors.types[0] for p in whole}
    if tensors:
        types[usual.name] = TYPES[tensors]
    if symmetric is False and not usual.tensors.zeros:
        why = usual.tensors.why_not(types[usual.name], zeros=True)
        raise BadInput(f"{chip.name} computes {usual.name} layers with no activations {why}")
    mirrored = {p.name for p in whole if not _has_zero_point(p, types[p.name], symmetric)}
    stored = {p.name: p.weights.types[0] for p in whole} | {usual.name: of_weights}
    return Formats(
        usual.name,
        types,
        frozenset(mirrored),
        stored,
        grain,
        weight_zeros,
        _wider(chip, usual, floats),
        usual.table_bits,
        frozenset(p.name for p in whole if p.tensors.one_sided and not symmetric),
    )


def _has_zero_point(p: Precision, dtype: str, symmetric: bool | None) -> bool:
    return p.tensors.zeros and not (
        dtypes.TABLE[dtype].bits > 8 if symmetric is None else symmetric
    )


def _holding(chip: Target, tensors: str | None) -> Precision:
    """The target's precision whose activations have this type."""
    if tensors is None:
        return chip.preferred_precision
    for p in chip.precisions:
        if TYPES[tensors] in p.tensors.types:
            return p
    has = [name_of(t) for p in chip.precisions if not p.is_float for t in p.tensors.types]
    raise BadInput(f"{chip.name} takes no activations of {tensors}; it takes {', '.join(has)}")


def _wider(chip: Target, usual: Precision, name: str | None) -> tuple[str, ...]:
    """Integers of more bits, if cheaper than floats, then floats."""
    reals = [p for p in chip.precisions if p.is_float]
    if name is not None:
        reals = [chip.in_precision(name)]
        if not reals[0].is_float:
            raise BadInput(f"floats is '{name}'; give f32, f16 or bf16")
    last = reals[:1]
    more = [p for p in chip.precisions if not p.is_float and _bits(p) > _bits(usual)]
    more = [p for p in more if not last or p.cost < last[0].cost]
    return tuple(p.name for p in [*sorted(more, key=lambda p: p.cost), *last])


def _bits(p: Precision) -> int:
    return dtypes.TABLE[p.tensors.types[0]].bits


def refuse_missing(chip: Target, wanted: Mapping[str, str]) -> None:
    """BadInput if a layer is to have a precision that the target lacks."""
    for name, precision in wanted.items():
        try:
            chip.in_precision(precision)
        except BadInput as e:
            raise BadInput(f"layer '{name}': {e}") from None


def refuse_weights(graph: Graph) -> None:
    """BadInput if weights or biases of a product are NaN or infinite."""
    for n in graph.nodes():
        for v in n.inputs[1:] if n.op in PRODUCTS else ():
            if v is not None and v.data is not None and dtypes.is_float(v.dtype):
                wrong = ~np.isfinite(v.data.astype(np.float32))
                if wrong.any():
                    raise BadInput(
                        f"the constant '{v.name}' of layer '{layer(n)}' ({n.op}) holds "
                        f"{np.count_nonzero(wrong)} NaN or infinite values: it cannot "
                        "be quantised; repair the model"
                    )


def refuse_types(placement: Placement, given: Mapping[str, TensorScheme]) -> None:
    """BadInput if a scheme gives a tensor or weight a format that the target does not take."""
    chip = placement.chip
    for n, precision in placement.nodes.items():
        takes = chip.in_precision(precision)
        for v in n.inputs:
            t = given.get(v.name) if v is not None else None
            if v is None or t is None or not t.scale:
                continue
            takers = (
                [takes.weights]
                if v.data is not None
                else [p.tensors for p in chip.precisions if not p.is_float]
            )
            whole = t.axis is None or (t.axis == 1 and v in placement.depthwise_inputs)
            grain = "group" if t.block else "tensor" if whole else "channel"
            words = [s.why_not(t.dtype, _has_zeros(t), grain) for s in takers]
            if all(words):
                kind = "weights" if v.data is not None else "a tensor"
                raise BadInput(
                    f"'{v.name}' (read by '{layer(n)}'): {chip.name} does not take "
                    f"{kind} {words[0]}"
                )


def _has_zeros(t: TensorScheme) -> bool:
    """Is a zero point other than the middle of the type?"""
    middle = {"u8": 128, "u16": 32768, "u4": 8}.get(t.dtype, 0)
    return any(z != middle for z in t.zero)
