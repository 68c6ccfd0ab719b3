"""The arguments of `RKNN.config`, checked, and what each of them does here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from intaglio.compat.rknn.platforms import platform
from intaglio.errors import BadInput, did_you_mean

DTYPES = {  # quantized_dtype -> types of activations and weights
    "w8a8": ("int8", "int8"),
    "asymmetric_quantized-8": ("int8", "int8"),
    "w8a16": ("int16", "int8"),
    "w16a16i": ("int16", "int16"),
    "w16a16i_dfp": ("int16", "int16"),
}
METHODS = {"normal": "minmax", "mmse": "mse", "kl_divergence": "kl", "gdq": "minmax"}
TARGETS = ("cpu", "npu", "gpu", "auto")  # of op_target
GROUP = re.compile(r"group(\d+)")
GROUPS = range(32, 257, 32)  # weights that share a scale
FOUR_BITS = "w4a16"

# What each argument does. "ignored" and "refused" begin the words of arguments that have no effect.
EFFECTS = {
    "mean_values": "subtracted from the inputs, inside of the model",
    "std_values": "divides the inputs, inside of the model; 0 is refused",
    "quantized_dtype": "types of activations and weights; w4a16: 4-bit weights, computed (and "
    "stored) as float16",
    "quantized_algorithm": "range method: normal is minmax, mmse mse, kl_divergence kl; gdq rounds "
    "weights by the samples",
    "quantized_method": "scales of weights: layer or channel; group32 to group256 with w4a16",
    "quantized_hybrid_level": "ignored: auto_hybrid and hybrid_quantization choose layers",
    "target_platform": "the chip that the model is compiled and simulated for",
    "quant_img_RGB2BGR": "swaps red and blue of the pictures of a dataset",
    "float_dtype": "float16",
    "optimization_level": "level of the optimiser for float models; quantised ones need 3",
    "custom_string": "kept in the metadata of the file",
    "remove_weight": "weights go to a file of their own beside the .rknn",
    "compress_weight": "ignored: weights are stored as the NPU reads them",
    "inputs_yuv_fmt": "nv12 or nv21 for each input: the model takes the planes X_y_channel and "
    "X_uv_channel",
    "single_core_mode": "refuses a core_mask of several cores",
    "dynamic_input": "one plan for each set of shapes, over the same weights",
    "model_pruning": "ignored: channels that are zero are always removed",
    "op_target": "cpu: floats in a quantised model, for layers by name or type; the cost model "
    "places all layers",
    "quantize_weight": "of float models: weights are rounded to 8 bits, computed (and stored) as "
    "float16",
    "remove_reshape": "ignored: reshapes that move nothing cost nothing",
    "sparse_infer": "ignored: sparse weights are found in the model itself",
    "mini_rknn": "leaves names and reports out of the file",
    "enable_flash_attention": "ignored: attention is fused where the pattern is found",
    "auto_hybrid_cos_thresh": "cosine that build(auto_hybrid=True) keeps",
    "auto_hybrid_euc_thresh": "ignored: the cosine decides",
    "memory_plan_strategy": "ignored: Intaglio plans memory in its own way",
    "compute_order": "ignored: the tiling search decides",
    "compiler_control_file": "ignored: it is for the vendor's compiler",
}
EXTRAS = (  # further keywords that the vendor's tool takes; all are ignored
    "output_optimize",
    "set_op_attr",
    "sram_prefer",
    "nbuf_prefer",
    "check_data",
    "stream_op",
    "disable_rules",
    "enable_const_share",
    "enable_rnn_loop",
    "enable_core0_only_mode",
    "disable_first_conv",
)


@dataclass(frozen=True)
class Config:
    """The arguments of `config`, with RKNN-Toolkit2's defaults."""

    mean_values: Any = None
    std_values: Any = None
    quantized_dtype: str = "w8a8"
    quantized_algorithm: str = "normal"
    quantized_method: str = "channel"
    quantized_hybrid_level: int = 0
    target_platform: Any = None
    quant_img_RGB2BGR: Any = False  # noqa: N815
    float_dtype: str = "float16"
    optimization_level: int = 3
    custom_string: str | None = None
    remove_weight: bool = False
    compress_weight: bool = False
    inputs_yuv_fmt: Any = None
    single_core_mode: bool = False
    dynamic_input: Any = None
    model_pruning: bool = False
    op_target: Any = None
    quantize_weight: bool = False
    remove_reshape: bool = False
    sparse_infer: bool = False
    mini_rknn: bool = False
    enable_flash_attention: bool = False
    auto_hybrid_cos_thresh: float = 0.98
    auto_hybrid_euc_thresh: float | None = None
    memory_plan_strategy: str = "BestFit"
    compute_order: str = "WidthFirst"
    compiler_control_file: Any = None

    @classmethod
    def of(
        cls, given: Mapping[str, Any], extras: Mapping[str, Any], warn: Callable[[str], None]
    ) -> Config:
        """The checked config; arguments without effect are warnings."""
        for name in extras:
            if name not in EXTRAS:
                known = (*EFFECTS, *EXTRAS)
                longer = [k for k in known if k.startswith(name)]  # mean: mean_values
                hint = did_you_mean(name, known) or did_you_mean(name, longer, likeness=0.1)
                raise BadInput(f"unknown argument '{name}'{hint or '; leave it out'}")
            warn(f"config: {name} is ignored: it tunes the vendor's compiler")
        level = given.get("optimization_level", 3)
        if level not in (0, 1, 2, 3):
            warn(f"config: optimization_level is {level!r}; levels are 0 to 3; 3 is used")
            level = 3
        name = platform(given.get("target_platform"))
        result = cls(**{**given, "optimization_level": int(level), "target_platform": name})
        for f in fields(cls):
            if getattr(result, f.name) != f.default and EFFECTS[f.name].startswith("ignored"):
                reason = EFFECTS[f.name].removeprefix("ignored").removeprefix(": ")
                warn(f"config: {f.name} is ignored" + (f": {reason}" if reason else ""))
        return result

    def __post_init__(self) -> None:
        _choice("quantized_dtype", self.quantized_dtype, (*DTYPES, FOUR_BITS))
        _choice("quantized_algorithm", self.quantized_algorithm, METHODS)
        if not GROUP.fullmatch(str(self.quantized_method)):
            _choice("quantized_method", self.quantized_method, ("layer", "channel", "group32"))
        elif self.group not in GROUPS:
            raise BadInput(
                f"quantized_method is '{self.quantized_method}'; groups are of 32, 64, ... 256 "
                "weights: 'group32'"
            )
        elif not self.four_bits:
            raise BadInput(
                f"quantized_method is '{self.quantized_method}' and quantized_dtype "
                f"'{self.quantized_dtype}'; groups are for quantized_dtype='w4a16'; use "
                "quantized_method='channel'"
            )
        _choice("float_dtype", self.float_dtype, ("float16",))
        yuv = self.inputs_yuv_fmt
        if yuv is not None and (
            not isinstance(yuv, list | tuple)
            or any(f not in ("nv12", "nv21", None, False) for f in yuv)
        ):
            raise BadInput(
                f"inputs_yuv_fmt is {yuv!r}; give a list with 'nv12', 'nv21' or None for each input"
            )
        target = {} if self.op_target is None else self.op_target
        if not isinstance(target, Mapping) or not all(t in TARGETS for t in target.values()):
            raise BadInput(
                f"op_target is {target!r}; give a dict of names or types of operators: "
                "{'Softmax': 'cpu'}; targets are cpu, npu, gpu and auto"
            )
        if not isinstance(self.custom_string, str | None):
            raise BadInput(f"custom_string is {self.custom_string!r}; give a text")
        object.__setattr__(self, "mean_values", _numbers("mean_values", self.mean_values))
        object.__setattr__(self, "std_values", _numbers("std_values", self.std_values))
        if any(x == 0 for one in self.std_values or () for x in one or ()):
            raise BadInput("std_values has a 0; inputs are divided by them; use 1 for no change")
        object.__setattr__(self, "dynamic_input", _shape_sets(self.dynamic_input))

    @property
    def four_bits(self) -> bool:
        """Whether weights have 4 bits and activations are float16."""
        return self.quantized_dtype == FOUR_BITS

    @property
    def group(self) -> int:
        """How many weights share a scale; 0 is all of a channel."""
        found = GROUP.fullmatch(str(self.quantized_method))
        return int(found[1]) if found else 0

    @property
    def types(self) -> tuple[str, str]:
        """Types of activations and weights."""
        return DTYPES[self.quantized_dtype]

    @property
    def largest(self) -> list[list[int]] | None:
        """The shapes of the dynamic inputs with the most elements, for calibration and reports."""
        sets: list[list[list[int]]] | None = self.dynamic_input
        return max(sets, key=_elements) if sets else None

    def is_bgr(self, index: int) -> bool:
        """Whether pictures for an input are swapped to BGR; the argument may be a list."""
        given = self.quant_img_RGB2BGR
        if isinstance(given, Sequence) and not isinstance(given, str):
            return bool(given[index]) if index < len(given) else False
        return bool(given)


def _choice(name: str, given: Any, known: Any) -> None:
    if given not in known:
        hint = did_you_mean(str(given), known)
        raise BadInput(f"{name} is {given!r}; it is one of {', '.join(known)}{hint}")


def _numbers(name: str, given: Any) -> list[list[float] | None] | None:
    """One list of numbers for each input; a flat list is for the only input."""
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise BadInput(f"{name} is {given!r}; give a list for each input, such as [[0, 0, 0]]")
    each = [given] if all(isinstance(x, Real) for x in given) else given
    result: list[list[float] | None] = []
    for one in each:
        if one is None:
            result.append(None)
        elif isinstance(one, Sequence) and one and all(isinstance(x, Real) for x in one):
            result.append([float(x) for x in one])
        else:
            raise BadInput(f"{name} has {one!r}; give numbers per channel, such as [[0, 0, 0]]")
    return result


def _shape_sets(given: Any) -> list[list[list[int]]] | None:
    """Sets of shapes: the first list is of sets, the second of inputs, the third of extents."""
    if given is None:
        return None
    form = "give sets of shapes, one shape for each input: [[[1, 3, 224, 224]], [[1, 3, 192, 192]]]"
    try:
        sets = [[[int(d) for d in shape] for shape in one] for one in given]
    except (TypeError, ValueError):
        raise BadInput(f"dynamic_input is {given!r}; {form}") from None
    if not sets or len({len(one) for one in sets}) > 1 or not all(map(all, sets)):
        raise BadInput(f"dynamic_input is {given!r}; {form}, as many in every set")
    if any(d < 1 for one in sets for shape in one for d in shape):
        raise BadInput(f"dynamic_input is {given!r}; extents are at least 1")
    return sets


def _elements(shapes: Sequence[Sequence[int]]) -> int:
    count = 0
    for shape in shapes:
        size = 1
        for d in shape:
            size *= d
        count += size
    return count
