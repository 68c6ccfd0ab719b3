"""The options of quantisation: one frozen dataclass behind the API and the command line."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio import targets
from intaglio.errors import BadInput, option
from intaglio.frontends import load
from intaglio.quant.placement.formats import PER, TYPES
from intaglio.quant.ranges.methods import parse_method
from intaglio.quant.samples.dataset import check_reading
from intaglio.quant.search.policy import FAST, POLICY, Policy

if TYPE_CHECKING:
    from intaglio.quant.placement.scheme import Scheme
    from intaglio.targets import Target

MODES = ("static", "dynamic", "weights")
METHODS = ("auto", "minmax", "moving", "percentile", "kl", "mse")
ROUNDINGS = ("auto", "nearest", "squant", "data")
INPUT_TYPES = ("float", "float32", "uint8")
FAST_SAMPLES = 32  # most samples that `fast` reads
WEIGHT_ONLY_TYPES = ("int8", "uint8", "int4", "uint4")

# STATIC: options of mode "static" only. READING: how samples are read. ONLY_FOR_UINT8: how
# pictures are given as bytes.
STATIC = (
    "method",
    "methods",
    "accuracy",
    "policy",
    "fast",
    "activations",
    "symmetric",
    "per",
    "weight_zeros",
    "integer_results",
    "floats",
    "layers",
    "headroom",
    "rounding",
    "bias_correction",
    "resume",
    "equalize",
    "smooth",
)
READING = ("mean", "std", "layout", "color", "resize", "pad_value", "limit", "seed")
ONLY_FOR_UINT8 = ("input_layout", "swap_rb", "letterbox", "input_range")


@dataclass(frozen=True)
class Options:
    """Options of quantisation. Every field is also a keyword of `quantize` and `calibrate`."""

    # Ranges: how the range of a tensor follows from its observed values. One of METHODS, or
    # "percentile:99.9". "auto" tries several and keeps the one with the least output error.
    method: str = "auto"
    methods: Mapping[str, str] = field(default_factory=dict)  # other methods, by tensor
    headroom: float | None = None  # factor on the observed ranges; None: 1

    # Accuracy: the cosine that every part of every output keeps. Layers that stand in the way
    # compute in a wider type. None: no layer does.
    accuracy: float | None = 0.995
    resume: str | Path | None = None  # a file that keeps trials, to continue an interrupted search
    policy: Policy = POLICY  # bounds of the search, for experiments
    # At most FAST_SAMPLES samples and a shorter search: settings are tried on 8 samples, all
    # tensors have one range method, and weights are not rounded by the samples.
    fast: bool = False

    # Number formats. None: the target's own choice.
    activations: str | None = None  # int8, uint8, int16
    weights: str | None = None  # int8, uint8, int16, int4, uint4
    symmetric: bool | None = None  # activations without zero points; None: if of 16 bits
    per: str | None = None  # weights that share a scale: an output "channel" or the whole "tensor"
    weight_zeros: bool = False  # weights have zero points
    integer_results: bool = False  # layers without integer readers make integers, too
    floats: str | None = None  # the type of layers that are not quantised: f32, f16, bf16
    layers: Mapping[str, str] = field(default_factory=dict)  # precision by layer, fixed

    # Weights
    rounding: str = "auto"  # one of ROUNDINGS; "auto" is squant, or data where it matters
    bias_correction: bool = True  # subtract the mean error that rounded weights cause
    equalize: bool = False  # cross-layer equalisation between convolutions
    smooth: bool = False  # move outlier channels after norms into the weights that read them

    # "static" calibrates with samples. "dynamic" computes in int8 and scales activations at run
    # time; "weights" computes in floats with integer weights. Neither needs samples.
    mode: str = "static"
    group: int | None = None  # mode "weights": weights that share a scale; 0: a whole column
    target: str | Target = "cpu"
    scheme: Scheme | str | Path | None = None  # layers and tensors that you fix
    strict: bool = False  # names in `scheme` that the model lacks are errors

    # Samples: how they are read
    mean: Any = None  # per channel, in the model's order, for pixels from 0 to 255
    std: Any = None
    layout: str = "auto"  # of the model's inputs: nchw or nhwc
    color: str = "rgb"  # the model's order of channels: rgb or bgr
    resize: str = "stretch"  # stretch, letterbox or crop
    pad_value: float = 114  # of pixels beside a letterbox
    limit: int | None = None  # the number of samples; None: at most 100, fewer if they suffice
    seed: int = 0  # which samples are chosen, if there are more

    # Inputs: with input_type "uint8" the graph takes pictures as bytes, and `mean` and `std`
    # become part of it. The others are options of `frontends.preprocess`.
    input_type: Any = "float"
    input_layout: Any = None
    swap_rb: Any = False
    letterbox: Any = None
    input_range: Any = None
    output_layout: Any = None

    def __post_init__(self) -> None:
        self._check_mode()
        self._check_numbers()
        parse_method(self.method, METHODS)
        for method in self.methods.values():
            parse_method(method)
        _choice("rounding", self.rounding, ROUNDINGS)
        _choice("per", self.per, (None, *PER))
        _choice("activations", self.activations, (None, *TYPES))
        check_reading(self.layout, self.color, self.resize, self.pad_value, self.limit, self.seed)
        if self.strict and self.scheme is None:
            raise BadInput(f"{option('strict')} is for {option('scheme')}, which is not given")
        self.preprocessing()

    def _check_mode(self) -> None:
        _choice("mode", self.mode, MODES)
        mode = option("mode", self.mode)
        if self.mode != "static" and (given := [k for k in STATIC if self._is_given(k)]):
            raise BadInput(f"{option(given[0])} has no meaning in {mode}; leave it out")
        if self.mode != "weights" and self.group is not None:
            raise BadInput(
                f"{option('group')} has no meaning in {mode}: layers of integers add up products "
                f"of one scale; use {option('mode', 'weights')}"
            )
        by_mode = {"static": tuple(TYPES), "dynamic": ("int8",), "weights": WEIGHT_ONLY_TYPES}
        known = by_mode[self.mode]
        if self.weights is not None and self.weights not in known:
            where = "" if self.mode == "static" else f" in {mode}"
            raise BadInput(f"weights is {self.weights!r}; known{where} are {', '.join(known)}")

    def _is_given(self, name: str) -> bool:
        default = next(f for f in fields(self) if f.name == name)
        usual = default.default_factory() if callable(default.default_factory) else default.default
        return bool(getattr(self, name) != usual)

    def _check_numbers(self) -> None:
        """Numbers are numbers, and within their bounds."""
        if self.accuracy is not None and not (_is_number(self.accuracy) and 0 < self.accuracy < 1):
            raise BadInput(f"accuracy is {self.accuracy!r}; give a cosine such as 0.99, or None")
        if self.headroom is not None and not (
            _is_number(self.headroom) and 1 <= self.headroom <= 16
        ):
            raise BadInput(f"headroom is {self.headroom!r}; give a factor from 1 to 16, or None")
        for name in ("methods", "layers"):
            if not isinstance(getattr(self, name), Mapping):
                raise BadInput(f"{name} is {getattr(self, name)!r}; give a dict by name")

    def with_fast(self) -> Options:
        """These options with what `fast` changes; what the user set stays."""
        if not self.fast:
            return self
        limit = FAST_SAMPLES if self.limit is None else self.limit
        rounding = "squant" if self.rounding == "auto" else self.rounding
        return replace(self, limit=limit, rounding=rounding, policy=replace(self.policy, **FAST))

    def load_target(self) -> Target:
        """The target, without float results of integer layers if `integer_results` says so."""
        found = targets.find(self.target)
        if not self.integer_results:
            return found
        kinds = (p if p.is_float else replace(p, float_results=False) for p in found.precisions)
        return replace(found, precisions=tuple(kinds))

    def load_scheme(self) -> Scheme | None:
        """The scheme, read from its file if a path is given."""
        from intaglio.quant.placement.scheme import Scheme

        if isinstance(self.scheme, str | Path):
            return Scheme.load(self.scheme, self.strict)
        if self.scheme is not None and self.strict:
            return replace(self.scheme, strict=True)
        return self.scheme

    def reading(self) -> dict[str, Any]:
        """The options of `samples.dataset.samples`."""
        return {name: getattr(self, name) for name in READING}

    def preprocessing(self) -> dict[str, Any]:
        """The options of `frontends.preprocess` that become part of the quantised graph.

        `mean` and `std` are among them only if an input takes bytes; otherwise they apply to the
        samples alone.
        """
        names = ("input_type", *ONLY_FOR_UINT8, "output_layout", "layout")
        given = {k: v for k in names if (v := getattr(self, k)) is not None and v is not False}
        kinds = given.get("input_type", "float")
        each = list(kinds.values()) if isinstance(kinds, Mapping) else [kinds]
        for kind in each:
            _choice("input_type", kind, INPUT_TYPES)
        if "uint8" in each:
            pad = {"pad_value": self.pad_value} if "letterbox" in given else {}
            return {**given, **pad, "mean": self.mean, "std": self.std}
        if wrong := [k for k in ONLY_FOR_UINT8 if k in given]:
            raise BadInput(f"{wrong[0]} is for input_type 'uint8', which is not given")
        turned = "output_layout" in given
        return {k: given[k] for k in ("output_layout", "layout") if turned and k in given}


def _choice(name: str, given: Any, known: Collection[str | None]) -> None:
    if given not in known:
        raise BadInput(f"{name} is {given!r}; known are {', '.join(k for k in known if k)}")


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def split_keywords(
    options: Options | None, given: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """The options, with those among the keywords, and the remaining keywords.

    `weights` may also name the second file of a model, for `intaglio.load`.
    """
    if options is not None and not isinstance(options, Options):
        raise BadInput(f"options is a {type(options).__name__}; give intaglio.quant.Options")
    names = {f.name for f in fields(Options)}
    if not re.fullmatch(r"u?int\d+", str(given.get("weights"))):
        names.discard("weights")
    own = {k: v for k, v in given.items() if k in names}
    return replace(options or Options(), **own), {k: v for k, v in given.items() if k not in own}


def refuse_unknown(keywords: Collection[str]) -> None:
    """BadInput if a keyword is an option neither of quantisation nor of `intaglio.load`."""
    known = {f.name for f in fields(Options)}
    known |= {n for n, p in inspect.signature(load).parameters.items() if p.kind == p.KEYWORD_ONLY}
    for name in keywords:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {option(near[0])}?" if near else "leave it out"
            raise BadInput(
                f"{option(name)} is no option of quantisation or of intaglio.load; {hint}"
            )
