"""Quantisation that needs no samples: integer weights, or rows quantised as they come.

Weights of 4 bits are fitted to samples where there are some.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from intaglio import targets
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.placement.place import FLOATS, layer
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.prepare import prepare
from intaglio.quant.result import Quantized
from intaglio.quant.samples.dataset import samples as data_samples
from intaglio.quant.samples.streaming import given_inputs, keeping, with_state
from intaglio.quant.samples.synthetic_text import with_random_words
from intaglio.quant.weight_only.weights import dynamic, weight_only
from intaglio.quant.weights.unpacking import already
from intaglio.targets import Target

MODES = ("dynamic", "weights")
WEIGHTS = {"int8": "i8", "uint8": "u8", "int4": "i4", "uint4": "u4"}
GROUP = 32  # weights of 4 bits that share a scale, unless told otherwise


def without_data(
    model: str | Path | Graph,
    mode: str,
    *,
    target: str | Target = "cpu",
    weights: str = "int8",
    group: int | None = None,
    scheme: Scheme | str | Path | None = None,
    data: Any = None,
    warn: Callable[[str], None] = warnings.warn,
    **load: Any,
) -> Quantized:
    """A model of matrix products with weights of integers.

    `mode` "weights" computes in floats from weights of 8 or 4 bits, of which every `group` share a
    scale (0: a whole column); "dynamic" computes in 8-bit integers, quantising rows as they come.
    Of a `scheme`, what it wants in floats stays so. Weights of 4 bits are fitted, layer by layer,
    to what `data` (as for `calibrate`) makes of their inputs; "uint4" has a zero for every group.
    """
    if mode not in MODES:
        raise BadInput(f"mode is '{mode}'; without samples it is one of {', '.join(MODES)}")
    known = WEIGHTS if mode == "weights" else {"int8": "i8"}
    if weights not in known:
        raise BadInput(f"weights is '{weights}'; mode '{mode}' has {', '.join(known)}")
    if mode == "dynamic" and group:
        raise BadInput(f"group is {group}; mode 'dynamic' has a scale for each column of weights")
    each = (GROUP if "4" in weights else 0) if group is None else group
    chip = targets.find(target)
    _refuse(chip, mode, known[weights], each)
    graph = prepare(model, chip, **load)
    keep = _kept(scheme, graph, warn)
    if mode == "dynamic":
        made = dynamic(graph, keep)
    else:
        stored = WEIGHTS[weights]
        seen = _samples(graph, data, warn) if data is not None and "4" in weights else []
        made = weight_only(
            keeping(graph, {}), stored, each, symmetric=stored != "u4", keep=keep, samples=seen
        )
        made.state = dict(graph.state)
    before = {layer(n) for n in graph.nodes() if _changed(n)}  # by the file itself
    kind = "int8" if mode == "dynamic" else f"{weights} weights"
    layers = {layer(n): kind for n in made.nodes() if _changed(n) and layer(n) not in before}
    if not layers:
        hint = already(graph) or "; give samples and quantise the whole model"
        raise BadInput(
            f"there is nothing to quantise in mode '{mode}': no product with a constant "
            f"matrix in f32{hint}"
        )
    floats = dict.fromkeys(keep, "f32 was asked for")
    return Quantized(made, graph, Scheme(layers=layers, model=graph.name), floats, {})


def _refuse(chip: Target, mode: str, dtype: str, group: int) -> None:
    """BadInput where the target cannot compute so."""
    if mode == "dynamic" and not chip.dynamic:
        raise BadInput(
            f"{chip.name} does not quantise what layers read as it comes; "
            "give samples and quantise statically"
        )
    if mode == "weights" and chip.weight_only is None:
        raise BadInput(
            f"{chip.name} does not compute in floats with weights of integers; "
            "give samples and quantise statically"
        )
    if mode == "weights" and chip.weight_only is not None:
        why = chip.weight_only.why_not(dtype, False, "group" if group else "channel")
        if why:
            raise BadInput(f"{chip.name} computes in floats with no weights {why}")


def _samples(graph: Graph, data: Any, warn: Callable[[str], None]) -> list[Mapping[str, Array]]:
    """The samples, and as many more as can be made of words."""
    given = list(data_samples(data, given_inputs(graph), warn=warn))
    return with_random_words(graph, with_state(graph, given) if graph.state else given)


def _kept(
    scheme: Scheme | str | Path | None, graph: Graph, warn: Callable[[str], None]
) -> list[str]:
    """The layers that a scheme wants in floats."""
    if isinstance(scheme, str | Path):
        scheme = Scheme.load(scheme)
    if scheme is None:
        return []
    if scheme.tensors:
        warn(f"{scheme.source}: what it says of tensors is for static quantisation and left out")
    return [name for name, p in scheme.wanted(graph, warn).items() if p in FLOATS]


def _changed(node: Node) -> bool:
    """Reads integer weights."""
    return node.op.startswith("dynamic_") or any(map(_is_stored, node.inputs))


def _is_stored(v: Value | None) -> bool:
    if v is None or v.producer is None or v.producer.op != "dequantize_linear":
        return False
    return v.producer.inputs[0] is not None and v.producer.inputs[0].data is not None
