"""The steps of a calibration, each a function that reads and fills a `Calibration`.

`pipeline` has them in order.
"""

from __future__ import annotations

from dataclasses import replace

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Array, Node
from intaglio.open_graph import require_fixed
from intaglio.quant.placement.concat_ranges import concat_tensors, separate_concat_ranges
from intaglio.quant.placement.f16_overflow import (
    overflowing_layers,
    refuse_overflow,
    wider_than_f16,
)
from intaglio.quant.placement.formats import refuse_missing, refuse_types, refuse_weights
from intaglio.quant.placement.insert_qdq import insert, round_half_layers
from intaglio.quant.placement.place import PRODUCTS, layer, place
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.prepare import prepare
from intaglio.quant.ranges.observe import observe
from intaglio.quant.result import Quantized
from intaglio.quant.samples.dataset import samples as read_dataset
from intaglio.quant.samples.streaming import state_as_inputs, user_inputs
from intaglio.quant.samples.subset import evenly_spaced, evenly_spaced_indices
from intaglio.quant.samples.sufficiency import MAY_STOP_EARLY, Sufficiency, spread
from intaglio.quant.search.choose_settings import choose_settings, worth_trying
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial
from intaglio.quant.state import Calibration
from intaglio.quant.weight_only.recurrent import candidates, quantize_recurrent
from intaglio.quant.weights.bias_correction import shift_bias
from intaglio.quant.weights.equalization import equalizable, equalize
from intaglio.quant.weights.integers import Integers, from_integers
from intaglio.quant.weights.smoothing import smooth
from intaglio.quant.weights.storage import (
    bias_shift,
    bias_shifts,
    rounded_by_data,
    store_all,
    stored_weights,
)
from intaglio.quant.weights.unpacking import already_quantized, scales_in_file

FEW = 16  # samples that show the sizes of channels and of the parts of concatenations


def load_model(c: Calibration) -> None:
    """Load and optimise the float model; refuse weights that are NaN or infinite."""
    c.graph = prepare(c.model, c.target, **c.load)
    require_fixed(c.graph, "calibration")
    preprocess(c.graph.copy(), **c.options.preprocessing())  # only a check: applied at the end
    refuse_weights(c.graph)


def read_requests(c: Calibration) -> None:
    """Collect the precisions of layers and schemes of tensors that options and scheme fix."""
    asked = Scheme(layers=dict(c.options.layers), source="options")
    c.fixed_layers = asked.wanted(c.graph, c.warn)
    if c.scheme:
        c.fixed_layers |= c.scheme.wanted(c.graph, c.warn)
        c.fixed_tensors = c.scheme.tensors
    refuse_missing(c.target, c.fixed_layers)


def read_samples(c: Calibration) -> None:
    """Find the samples. The state of a streaming model becomes plain inputs of the graph."""
    c.dataset = read_dataset(c.data, user_inputs(c.graph), warn=c.warn, **c.options.reading())
    c.graph_state = c.graph.state
    c.samples = state_as_inputs(c.graph, c.dataset, read_dataset)
    c.sample_count = len(c.samples)


def smooth_norms(c: Calibration) -> None:
    """Move outlier channels after norms into the weights that read them."""
    smooth(c.graph, evenly_spaced(c.samples, FEW), progress=c.progress)


def equalize_convolutions(c: Calibration) -> None:
    """Balance the channels between consecutive convolutions."""
    if links := equalizable(c.graph):
        axes = {link.tensor: link.axis for link in links}
        few = evenly_spaced(c.samples, FEW)
        equalize(c.graph, observe(c.graph, list(axes), few, progress=c.progress, channels=axes))


def separate_concats(c: Calibration) -> None:
    """Let the parts of a concatenation keep their own scales if their ranges differ much.

    This changes the graph or fixes layers in floats, so it comes before placement and uses few
    samples.
    """
    placement = place(c.graph, c.fixed_layers, c.target, c.formats.precision)
    tensors = concat_tensors(placement)
    if not tensors:
        return
    seen = observe(c.graph, tensors, c.samples.take(FEW), progress=c.progress)
    separated = separate_concat_ranges(c.graph, placement, c.ranges(of=seen))
    if c.formats.wider:
        c.fixed_layers |= {name: c.formats.wider[-1] for one in separated for name in one.floats}
    c.notes += map(str, separated)


def place_integers(c: Calibration) -> None:
    """Decide which layers compute in integers; refuse a model that has none."""
    c.place()
    c.recurrent = [layer(n) for n in candidates(c.graph, c.fixed_layers, c.target)]
    if not c.placement.nodes and not c.recurrent:
        why = "; ".join(dict.fromkeys(c.placement.floats.values()))
        raise BadInput(
            "there is nothing to quantise: no convolution or product with constant "
            f"weights in f32{f' ({why})' if why else ''}{already_quantized(c.graph)}"
        )
    refuse_types(c.placement, c.fixed_tensors)
    c.fixed_tensors = scales_in_file(c.placement, c.formats.precision) | dict(c.fixed_tensors)


def store_weights(c: Calibration) -> None:
    """Start rounding the weights to integers, in the background."""
    c.storing = c.background.submit(store_all, c.placement, c.options, c.fixed_tensors, c.formats)


def compile_trial(c: Calibration) -> None:
    """Start compiling the model that the search runs, in the background."""
    if worth_trying(c) and c.options.rounding != "data":
        c.trial = PrecompiledTrial.of(
            c.graph, c.placement, c.storing.result, c.observing, c.background
        )


def observe_ranges(c: Calibration) -> None:
    """Run the samples and observe every tensor; stop early once the ranges are settled.

    The float model's outputs for some of the samples are the reference of the search.
    """
    trial_samples = c.options.policy.trial_samples
    enough, shown = None, evenly_spaced_indices(c.sample_count, trial_samples)
    if c.samples.spare and c.sample_count > MAY_STOP_EARLY:
        order = spread(c.sample_count)
        c.samples, shown = c.samples.at(order), sorted(range(trial_samples), key=order.__getitem__)
        low, high = dtypes.limits(c.formats.tensors[c.formats.precision])
        enough = Sufficiency(high - low)
    outputs: dict[int, dict[str, Array]] = {i: {} for i in shown}
    c.observe(outputs, enough, c.observing.set)
    if enough and (used := max(o.samples for o in c.observations.values())) < c.sample_count:
        c.samples, shown = c.samples.at(range(used)), [i for i in shown if i < used]
        c.warn(enough.words(used, c.sample_count))
    some, their_outputs = [c.samples[i] for i in shown], [outputs[i] for i in shown]
    c.reference = Reference.by(some, their_outputs, c.graph, c.options.policy)
    c.weights = c.storing.result()
    refuse_overflow(c.placement, c.observations)


def round_weights_by_data(c: Calibration) -> None:
    """Round weights so that each layer's output error on the samples is least."""
    c.weights |= rounded_by_data(c.graph, c.weights, c.samples, c.options, c.progress)


def correct_biases(c: Calibration) -> None:
    """Compute the bias corrections for the rounded weights."""
    c.bias_shifts = bias_shifts(c.weights, c.observations)


def search_settings(c: Calibration) -> None:
    """Choose range methods and mixed precision by the error of the outputs."""
    c.found = found = choose_settings(c, c.reference, c.trial)
    c.options = replace(c.options, methods={**found.methods, **c.options.methods})


def promote_layers(c: Calibration) -> None:
    """Give layers the wider precision that the search found, or one that holds their values."""
    layers = dict(c.found.layers)
    if layers:
        c.place(layers)
        for n in c.placement.floats:
            if layer(n) in layers:
                c.placement.floats[n] = f"{c.formats.precision} is too coarse for what it reads"
        c.observe()
    c.notes += c.found.notes
    if large := overflowing_layers(c.placement, c.observations):
        other = wider_than_f16(c.target)
        c.notes += [f"'{layer(n)}' computes in {other}, not f16: {w}" for n, w in large.items()]
        c.place(layers | {layer(n): other for n in large})
        c.observe()


def insert_qdq(c: Calibration) -> None:
    """Build the quantised graph: correct the biases, insert quantize and dequantize nodes."""
    graph, placement = c.graph, c.placement
    before = graph.copy()
    tensors = c.schemes(c.ranges())
    placement.drop(v for v in placement.tensors if not tensors[v.name].scale)
    weights = _final_weights(c)
    scheme = Scheme(dict(tensors), model=graph.name)
    for n in graph.nodes():
        if n in placement.nodes or n in placement.floats:
            own = placement.nodes.get(n) or placement.half_layers.get(n, "f32")
            scheme.layers[n.outputs[0].name] = own
    for n, (_, result) in weights.items():
        scheme.tensors[n.inputs[1].name] = result  # type: ignore[union-attr]
    floats = {n.outputs[0].name: why for n, why in placement.floats.items()}
    observations = {v.name: o for v, o in c.observations.items()}
    if c.options.bias_correction:
        _shift_biases(c, weights)
    insert(graph, placement, tensors, weights)
    round_half_layers(placement)
    c.result = Quantized(
        graph,
        before,
        scheme,
        floats,
        observations,
        c.notes,
        c.found.curve,
        len(c.samples),
        c.dataset,
    )


def _final_weights(c: Calibration) -> dict[Node, Integers]:
    """The weights of every product; those of layers in another precision are stored anew."""
    of = c.placement.nodes
    return {
        n: c.weights.get(n) or stored_weights(n, c.options, c.fixed_tensors, c.formats, of[n])
        for n in of
        if n.op in PRODUCTS
    }


def _shift_biases(c: Calibration, weights: dict[Node, Integers]) -> None:
    for n, integers in weights.items():
        if n in c.bias_shifts:
            shift = c.bias_shifts[n]
        else:
            shift = bias_shift(n, from_integers(*integers), c.observations)
        if shift is not None:
            shift_bias(n, shift)


def quantize_recurrent_layers(c: Calibration) -> None:
    """Compute LSTMs and GRUs in dynamic int8 where accuracy allows."""
    if c.recurrent:
        accuracy = c.options.accuracy
        quantize_recurrent(c.result, c.recurrent, c.samples, accuracy, c.fixed_layers, c.progress)


def finish_inputs(c: Calibration) -> None:
    """Restore the state of a streaming model; make preprocessing of bytes part of the graph."""
    c.result.graph.state = dict(c.graph_state)
    c.result.embed(c.options.preprocessing(), c.options.reading())
