"""Weights of 4 and 8 bits, computed in float16: w4a16 and quantize_weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.dataset import Samples
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.quant.weight_only.rounded import rounded_weights

CHIPS = ("rk3576", "rv1126b")  # whose NPU reads weights of 4 bits, by the vendor's manual
FITTED = 32  # samples that gdq fits weights to


def in_four_bits(
    graph: Graph, config: Config, samples: Samples, warn: Callable[[str], None]
) -> Graph:
    """The float graph with its weights on a grid of 16 steps."""
    if config.target_platform not in CHIPS:
        warn(
            f"build: w4a16 is for {' and '.join(CHIPS)}; weights are rounded for "
            f"{config.target_platform} all the same"
        )
    # gdq fits weights to samples; several shapes need the same weights, which no samples decide
    fit = config.quantized_algorithm == "gdq" and config.dynamic_input is None
    seen = [dict(s) for s in islice(iter(samples), FITTED)] if fit else []
    return rounded_weights(graph, "i4", config.group, samples=seen)


def in_eight_bits(graph: Graph) -> Graph:
    """The float graph with its weights on a grid of 256 steps, one for each channel."""
    return rounded_weights(graph, "i8")


def as_float(config: Config) -> Config:
    """The config of the same model in float16, after its weights are rounded."""
    return replace(config, quantized_dtype="w8a8", quantized_method="channel", op_target=None)


def refuse_hybrid(config: Config) -> None:
    """BadInput: layers of w4a16 are in float16 already."""
    if config.four_bits:
        raise BadInput(
            "hybrid quantisation is for integer activations, quantized_dtype is 'w4a16'; use "
            "'w8a8', or build with 'w4a16'"
        )
