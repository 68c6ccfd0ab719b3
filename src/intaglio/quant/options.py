"""How to quantise: what a user can ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from intaglio.errors import BadInput
from intaglio.quant.placement.formats import TYPES
from intaglio.quant.ranges.methods import parse_method
from intaglio.quant.search.policy import POLICY, Policy

METHODS = ("auto", "minmax", "moving", "percentile", "kl", "mse")
ROUNDINGS = ("auto", "nearest", "squant", "data")


@dataclass(frozen=True)
class Options:
    """How to quantise."""

    method: str = "auto"  # how a range follows from what was observed: one of METHODS
    methods: Mapping[str, str] = field(default_factory=dict)  # by tensor, where it is another one
    accuracy: float | None = 0.995  # the cosine that every part of every output is to keep
    activations: str | None = None  # int8, uint8, int16; None: what the target is best at
    symmetric: bool | None = None  # activations have no zero points; None: those of 16 bits
    weights: str | None = None  # int8, uint8, int16, int4, uint4, as the target has them
    per: str | None = None  # what of a weight shares a scale: channel or tensor
    weight_zeros: bool = False  # weights have zero points
    floats: str | None = None  # what is not quantised computes in: f32, f16, bf16
    layers: Mapping[str, str] = field(default_factory=dict)  # precision by layer, where asked for
    room: float | None = None  # times that ranges reach beyond what was seen; None: by method auto
    rounding: str = "auto"  # of weights: one of ROUNDINGS; auto: squant, or data where it matters
    correct: bool = True  # take what rounding weights adds on average off the biases
    resume: str | None = None  # a file that keeps what was tried, to go on where it was stopped
    equalize: bool = False  # share out channels' sizes between convolutions
    smooth: bool = False  # move outlier channels after norms into the weights that read them

    policy: Policy = POLICY  # bounds of the search, for experiments

    def __post_init__(self) -> None:
        if self.accuracy is not None and not 0 < self.accuracy < 1:
            raise BadInput(f"accuracy is {self.accuracy}; give a cosine such as 0.99, or None")
        if self.room is not None and not 1 <= self.room <= 16:
            raise BadInput(f"room is {self.room}; give a factor from 1 to 16, or None")
        parse_method(self.method, METHODS)
        for method in self.methods.values():
            parse_method(method)
        for what, given, known in (
            ("rounding", self.rounding, ROUNDINGS),
            ("weights", self.weights or "int8", tuple(TYPES)),
            ("activations", self.activations or "int8", tuple(TYPES)),
        ):
            if given not in known:
                raise BadInput(f"{what} is '{given}'; known are {', '.join(known)}")


def with_keywords(
    options: Options | None, given: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """The options with those that are keywords of their own, and the other keywords.

    `weights` may also name the second file of a model, for `intaglio.load`.
    """
    names = {f.name for f in fields(Options)}
    if str(given.get("weights")) not in TYPES:
        names.discard("weights")
    own = {k: v for k, v in given.items() if k in names}
    return replace(options or Options(), **own), {k: v for k, v in given.items() if k not in own}
