"""Quantisation without samples: weight-only, or dynamic int8.

Weights of 4 bits are fitted to samples if there are some.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from intaglio import targets
from intaglio.errors import BadInput, option
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.options import Options, split_keywords
from intaglio.quant.placement.formats import TYPES
from intaglio.quant.placement.place import FLOATS, layer
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.prepare import prepare
from intaglio.quant.result import Quantized
from intaglio.quant.samples.dataset import Samples
from intaglio.quant.samples.dataset import samples as data_samples
from intaglio.quant.samples.streaming import samples_with_state, user_inputs, with_graph_state
from intaglio.quant.samples.synthetic_text import with_random_words
from intaglio.quant.weight_only.dynamic import dynamic
from intaglio.quant.weight_only.weights import weight_only
from intaglio.quant.weights.unpacking import already_quantized
from intaglio.targets import Target

MODES = ("dynamic", "weights")
GROUP = 32  # default number of 4-bit weights that share a scale


def without_data(
    model: str | Path | Graph,
    mode: str | None = None,
    *,
    data: Any = None,
    options: Options | None = None,
    warn: Callable[[str], None] = warnings.warn,
    **keywords: Any,
) -> Quantized:
    """Quantise the matrix products of a model, with integer weights.

    `mode` "weights" computes in floats from weights of 8 or 4 bits, of which every `group` share a
    scale (0: a whole column); "dynamic" computes in 8-bit integers and quantises activations row
    by row at run time. Of a `scheme`, only the layers that it wants in floats count. Weights of 4
    bits are fitted, layer by layer, to their inputs on the samples of `data` (as for `calibrate`);
    "uint4" has a zero point for every group. Keywords are fields of `Options`, or for
    `intaglio.load`.
    """
    own = {} if mode is None else {"mode": mode}
    options, load = split_keywords(options, {**keywords, **own})
    mode, weights = options.mode, options.weights or "int8"
    if mode == "static":
        raise BadInput(f"mode is 'static', which needs samples; give {' or '.join(MODES)}")
    chip = targets.find(options.target)
    group = (GROUP if "4" in weights else 0) if options.group is None else options.group
    _refuse(chip, mode, TYPES[weights], group)
    graph = prepare(model, chip, **load)
    preprocess(graph.copy(), **options.preprocessing())  # only a check: applied at the end
    keep = _kept(options.load_scheme(), graph, warn)
    found = None
    if data is not None:
        found = data_samples(data, user_inputs(graph), warn=warn, **options.reading())
    if mode == "dynamic":
        made = dynamic(graph, keep)
    else:
        stored = TYPES[weights]
        seen = _samples(graph, found) if found is not None and "4" in weights else []
        made = weight_only(
            with_graph_state(graph, {}),
            stored,
            group,
            symmetric=stored != "u4",
            keep=keep,
            samples=seen,
        )
        made.state = dict(graph.state)
    before = {layer(n) for n in graph.nodes() if _changed(n)}  # by the file itself
    kind = "int8" if mode == "dynamic" else f"{weights} weights"
    layers = {layer(n): kind for n in made.nodes() if _changed(n) and layer(n) not in before}
    if not layers:
        hint = already_quantized(graph) or f"; give samples and use {option('mode', 'static')}"
        raise BadInput(
            f"there is nothing to quantise in {option('mode', mode)}: no product with a constant "
            f"matrix in f32{hint}"
        )
    floats = dict.fromkeys(keep, "f32 was asked for")
    scheme = Scheme(layers=layers, model=graph.name)
    result = Quantized(made, graph, scheme, floats, {}, dataset=found)
    result.embed(options.preprocessing(), options.reading())
    return result


def _refuse(chip: Target, mode: str, dtype: str, group: int) -> None:
    """BadInput if the target does not support the mode or the weights' format."""
    if mode == "dynamic" and not chip.dynamic:
        raise BadInput(
            f"{chip.name} cannot quantise activations at run time; "
            f"give samples and use {option('mode', 'static')}"
        )
    if mode == "weights" and chip.weight_only is None:
        raise BadInput(
            f"{chip.name} cannot compute in floats with integer weights; "
            f"give samples and use {option('mode', 'static')}"
        )
    if mode == "weights" and chip.weight_only is not None:
        why = chip.weight_only.why_not(dtype, False, "group" if group else "channel")
        if why:
            raise BadInput(f"{chip.name} computes in floats with no weights {why}")


def _samples(graph: Graph, samples: Samples) -> list[Mapping[str, Array]]:
    """The samples; for a language model also synthetic text."""
    given = list(samples)
    return with_random_words(graph, samples_with_state(graph, given) if graph.state else given)


def _kept(scheme: Scheme | None, graph: Graph, warn: Callable[[str], None]) -> list[str]:
    """The layers that the scheme keeps in floats."""
    if scheme is None:
        return []
    if scheme.tensors:
        warn(f"{scheme.source}: its tensors are for static quantisation and are ignored")
    return [name for name, p in scheme.wanted(graph, warn).items() if p in FLOATS]


def _changed(node: Node) -> bool:
    """Does the node read integer weights?"""
    return node.op.startswith("dynamic_") or any(map(_is_stored, node.inputs))


def _is_stored(v: Value | None) -> bool:
    if v is None or v.producer is None or v.producer.op != "dequantize_linear":
        return False
    return v.producer.inputs[0] is not None and v.producer.inputs[0].data is not None
