"""From a float model and some samples to one that computes in integers."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import intaglio
from intaglio import dtypes, passes, targets
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess, split_options
from intaglio.ir import Array, Graph
from intaglio.passes.fold import FOLD
from intaglio.quant.huge_pages import small_pages
from intaglio.quant.options import METHODS as METHODS
from intaglio.quant.options import Options as Options
from intaglio.quant.options import with_keywords
from intaglio.quant.placement.concat_ranges import separate_concat_ranges
from intaglio.quant.placement.f16_overflow import instead_of_f16, refuse_large, too_large
from intaglio.quant.placement.formats import formats, refuse_missing, refuse_types, refuse_weights
from intaglio.quant.placement.insert_qdq import insert, round_halves
from intaglio.quant.placement.place import PRODUCTS, layer
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.ranges.observe import Observation, Progress, observe
from intaglio.quant.ranges.probe import collecting_late
from intaglio.quant.samples.dataset import Samples
from intaglio.quant.samples.dataset import samples as data_samples
from intaglio.quant.samples.streaming import calibrated, given_inputs
from intaglio.quant.samples.subset import SAMPLES, some_at, some_of
from intaglio.quant.samples.sufficiency import Sufficiency, spread
from intaglio.quant.search.choose_settings import choose_settings, worth_trying
from intaglio.quant.search.mixed_precision import Found, Point
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial
from intaglio.quant.state import Draft
from intaglio.quant.weight_only.recurrent import candidates, quantize_recurrent
from intaglio.quant.weights.bias_correction import shift_bias
from intaglio.quant.weights.equalization import equalizable, equalize
from intaglio.quant.weights.integers import from_integers
from intaglio.quant.weights.smoothing import smooth
from intaglio.quant.weights.storage import (
    bias_shift,
    bias_shifts,
    rounded_by_data,
    store_all,
    stored_weights,
)
from intaglio.quant.weights.unpacking import already, own_scales, unpack_weights
from intaglio.targets import Target

EVEN = 16  # samples that tell the sizes of channels


@dataclass
class Quantized:
    """A quantised graph, and how it came to be."""

    graph: Graph  # with quantize_linear and dequantize_linear spelled out
    float_graph: Graph  # what it was made of: optimised, every tensor with a name of its own
    scheme: Scheme = field(repr=False)
    floats: dict[str, str]  # products that stay in floats, and why
    observations: dict[str, Observation] = field(repr=False)
    notes: list[str] = field(default_factory=list)  # what a user should know of it
    curve: list[Point] = field(
        default_factory=list, repr=False
    )  # layers in floats against accuracy
    samples: int = 0  # that were looked at


def quantize(
    model: str | Path | Graph, data: Any = None, *, mode: str = "static", **how: Any
) -> Graph:
    """A graph that computes in integers what `model` computes in floats.

    `data` are samples like those that the model will see, from any source that `data.samples`
    reads; the keywords are those of `calibrate`. Modes "dynamic" and "weights" need no samples (but
    weights of 4 bits gain by them): the keywords are then those of `datafree.without_data`. What
    comes back is for `intaglio.compile`, and for `intaglio.save_onnx`.
    """
    if mode == "static":
        return calibrate(model, data, **how).graph
    from intaglio.quant.weight_only.datafree import without_data

    return without_data(model, mode, data=data, **how).graph


@small_pages()
def calibrate(
    model: str | Path | Graph,
    data: Any,
    *,
    target: str | Target = "cpu",
    options: Options | None = None,
    scheme: Scheme | str | Path | None = None,
    mean: Any = None,
    std: Any = None,
    layout: str = "auto",
    color: str = "rgb",
    resize: str = "stretch",
    pad_value: float = 114,
    input_type: str = "float",
    input_layout: Any = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    warn: Callable[[str], None] = warnings.warn,
    **load: Any,
) -> Quantized:
    """`quantize`, with everything that was learnt on the way.

    Fields of `options` may be keywords of their own: `method="kl"`, `accuracy=0.99`. What `scheme`
    says of layers and tensors wins over what is found; `mean` to `seed` are for
    `data.samples`; what else is given is for `intaglio.load`. With `input_type` "uint8" the graph
    takes pictures as bytes, and `mean` and `std` become a part of it; with that, `input_layout`
    "nhwc", `swap_rb` and others of `frontends.preprocess` say how they come.
    """
    options, load = with_keywords(options, load)
    pictures, load = split_options(load)
    pictures |= {"input_type": input_type, "input_layout": input_layout, "layout": layout}
    pictures = put_in(pictures, mean, std)
    chip = targets.find(target)
    how = formats(
        chip,
        options.activations,
        options.weights,
        options.per,
        options.symmetric,
        options.weight_zeros,
        options.floats,
    )
    graph = prepare(model, chip, **load)
    preprocess(graph.copy(), **pictures)  # says what is wrong with it before the long work
    refuse_weights(graph)
    wanted = Scheme(layers=dict(options.layers), source="options").wanted(graph, warn)
    if isinstance(scheme, str | Path):
        scheme = Scheme.load(scheme)
    given = scheme.tensors if scheme else {}
    if scheme:
        wanted |= scheme.wanted(graph, warn)
    refuse_missing(chip, wanted)
    draft = Draft(graph, chip, options, how, wanted, given, progress)
    recurrent = [layer(n) for n in candidates(graph, wanted, chip)]
    if not draft.placement.nodes and not recurrent:
        why = "; ".join(dict.fromkeys(draft.placement.floats.values()))
        raise BadInput(
            "there is nothing to quantise: no convolution or product with constant "
            f"weights in f32{f' ({why})' if why else ''}{already(graph)}"
        )
    refuse_types(draft.placement, given)
    draft.given = own_scales(draft.placement, how.precision) | given
    samples = data_samples(
        data,
        given_inputs(graph),
        mean=mean,
        std=std,
        layout=layout,
        color=color,
        resize=resize,
        pad_value=pad_value,
        limit=limit,
        seed=seed,
        warn=warn,
    )
    state = graph.state
    samples = calibrated(graph, samples, data_samples)
    even_out(graph, samples, options, progress)
    reference, ahead = first_look(draft, samples, warn)
    refuse_large(draft.placement, draft.seen)
    notes = separate_concat_ranges(graph, draft.placement, draft.ranges())
    if notes:
        if how.wider:
            draft.wanted |= {name: how.wider[-1] for note in notes for name in note.floats}
        draft.place()
        draft.look()
        draft.weights = store_all(draft.placement, options, draft.given, how)
        if ahead:
            ahead.close()
        ahead = None
    if options.rounding == "data":
        draft.weights |= rounded_by_data(graph, draft.weights, draft.samples, options, progress)
    if options.correct:
        draft.shifts = bias_shifts(draft.weights, draft.seen)
    found = choose_settings(draft, reference, ahead)
    promote(draft, found)
    draft.options = replace(
        options,
        methods={**found.methods, **options.methods},
        room=found.room,
        deep_room=found.deep_room,
    )
    made = build(draft)
    made.notes += [*map(str, notes), *found.notes]
    made.curve, made.samples = found.curve, len(draft.samples)
    if recurrent:
        quantize_recurrent(made, recurrent, draft.samples, options.accuracy, wanted, progress)
    made.graph.state = state
    preprocess(made.graph, **pictures)
    return made


def put_in(given: Mapping[str, Any], mean: Any, std: Any) -> dict[str, Any]:
    """Of what is given for preprocessing, what becomes a part of a quantised graph: `mean` and
    `std` only where pictures come as bytes; else they are for the samples alone."""
    known = {"float": None, "float32": None, "uint8": "uint8"}
    kinds = given.get("input_type")
    each = list(kinds.values()) if isinstance(kinds, Mapping) else [kinds or "float"]
    for kind in each:
        if kind not in known:
            raise BadInput(f"input_type is '{kind}'; known are {', '.join(known)}")
    if "uint8" in each:
        return {**given, "mean": mean, "std": std}
    names = ("input_layout", "swap_rb", "letterbox", "input_range")
    if wrong := [k for k in names if given.get(k)]:
        raise BadInput(f"{wrong[0]} is for input_type 'uint8', which is not given")
    return {k: v for k, v in given.items() if k in ("output_layout", "layout")}


def prepare(model: str | Path | Graph, target: str | Target = "cpu", **load: Any) -> Graph:
    """The float model as it is quantised: optimised, and every tensor has a name of its own."""
    chip = targets.find(target)
    replace = passes.Rules([*chip.replace, *FOLD], chip.cost)
    with collecting_late():
        if isinstance(model, Graph):
            if load:
                raise BadInput(
                    f"{next(iter(load))}= is no option of quantisation, and for model "
                    "files only: a Graph is read already; leave it out"
                )
            graph = model.copy()
        else:
            graph = intaglio.load(os.fspath(model), **load)
        unpack_weights(graph)
        passes.run(graph, [*passes.neutral(chip.cost), passes.Pass("replace", replace)], level=2)
        name_tensors(graph)
        gc.collect()  # the file's own weights: what they took is for what comes next
    return graph


def name_tensors(graph: Graph) -> None:
    """Give every tensor without a name, or with one that another has, a name of its own."""
    taken = {v.name for v in graph.inputs}
    for v in graph.values():
        if v in graph.inputs:
            continue
        stem = v.name or (v.producer.origin or v.producer.op if v.producer else "constant")
        name, i = stem, 1
        while not name or name in taken:
            name, i = f"{stem}_{i}", i + 1
        v.name = name
        taken.add(name)


def even_out(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    options: Options,
    progress: Progress | None = None,
) -> None:
    """Scale channels, in place, so that those of one tensor come to one size."""
    few = some_of(samples, EVEN) if options.smooth or options.equalize else []
    if options.smooth:
        smooth(graph, few, progress=progress)
    if options.equalize and (links := equalizable(graph)):
        axes = {link.tensor: link.axis for link in links}
        equalize(graph, observe(graph, list(axes), few, progress=progress, channels=axes))


def first_look(
    draft: Draft, samples: Samples, warn: Callable[[str], None]
) -> tuple[Reference, PrecompiledTrial | None]:
    """Run the samples, as many as help, and store the weights meanwhile.

    Comes back with what the float model makes of some of them, and the model to try things with.
    """
    draft.samples, draft.count = samples, len(samples)
    enough, shown = None, some_at(draft.count)
    if samples.spare and draft.many:
        order = spread(draft.count)
        draft.samples, shown = samples.at(order), sorted(range(SAMPLES), key=order.__getitem__)
        low, high = dtypes.limits(draft.how.tensors[draft.how.precision])
        enough = Sufficiency(high - low)
    draft.find_between()
    outputs: dict[int, dict[str, Array]] = {i: {} for i in shown}
    with ThreadPoolExecutor(1) as aside:  # what does not depend on samples, while they are run
        storing = aside.submit(store_all, draft.placement, draft.options, draft.given, draft.how)
        running, ahead = Event(), None
        if worth_trying(draft) and draft.options.rounding != "data":
            ahead = PrecompiledTrial.of(
                draft.graph, draft.placement, storing.result, running, aside
            )
        try:
            draft.look(outputs, enough, running.set)
        finally:
            running.set()
    draft.weights = storing.result()
    if enough and (used := max(o.samples for o in draft.seen.values())) < draft.count:
        draft.samples, shown = draft.samples.at(range(used)), [i for i in shown if i < used]
        warn(enough.words(used, draft.count))
    return Reference.by([draft.samples[i] for i in shown], [outputs[i] for i in shown]), ahead


def promote(draft: Draft, found: Found) -> None:
    """Give layers the precision that was found for them, or one that holds what they meet."""
    if found.layers:
        draft.place(found.layers)
        for n in draft.placement.floats:
            if layer(n) in found.layers:
                draft.placement.floats[n] = f"{draft.how.precision} is too coarse for what it reads"
        draft.look()
    if large := too_large(draft.placement, draft.seen):
        other = instead_of_f16(draft.chip)
        found.notes += [f"'{layer(n)}' computes in {other}, not f16: {w}" for n, w in large.items()]
        found.layers |= {layer(n): other for n in large}
        draft.place(found.layers)
        draft.look()


def build(draft: Draft) -> Quantized:
    """The quantised graph by all that is known; the draft's graph itself becomes it."""
    graph, placement, options = draft.graph, draft.placement, draft.options
    before = graph.copy()
    tensors = draft.schemes(draft.ranges())
    placement.drop(v for v in placement.tensors if not tensors[v.name].scale)
    products = [n for n in placement.nodes if n.op in PRODUCTS]
    weights = {
        n: draft.weights.get(n)
        or stored_weights(n, options, draft.given, draft.how, placement.nodes[n])
        for n in products
    }
    scheme = Scheme(dict(tensors), model=graph.name)
    for n in graph.nodes():
        if n in placement.nodes or n in placement.floats:
            own = placement.nodes.get(n) or placement.halves.get(n, "f32")
            scheme.layers[n.outputs[0].name] = own
    for n, (_, made) in weights.items():
        scheme.tensors[n.inputs[1].name] = made  # type: ignore[union-attr]
    floats = {n.outputs[0].name: why for n, why in placement.floats.items()}
    observations = {v.name: o for v, o in draft.seen.items()}
    for n, integers in weights.items() if options.correct else ():
        known = draft.shifts
        shift = known[n] if n in known else bias_shift(n, from_integers(*integers), draft.seen)
        if shift is not None:
            shift_bias(n, shift)
    insert(graph, placement, tensors, weights)
    round_halves(placement)
    return Quantized(graph, before, scheme, floats, observations)
