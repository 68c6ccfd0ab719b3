"""From a float model and some samples to one that computes in integers."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import intaglio
from intaglio import dtypes, passes, targets
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess, split
from intaglio.ir import Array, Graph, Node, Value
from intaglio.passes.fold import FOLD
from intaglio.quant import channels, room
from intaglio.quant.apart import keep_apart
from intaglio.quant.assign import Integers, assign, from_integers
from intaglio.quant.compare import Reference
from intaglio.quant.correct import channel_axis, shift_bias
from intaglio.quant.data import samples as data_samples
from intaglio.quant.enough import Enough, spread
from intaglio.quant.equalize import equalizable, equalize
from intaglio.quant.formats import (
    USUAL,
    Formats,
    formats,
    refuse_missing,
    refuse_types,
    refuse_weights,
)
from intaglio.quant.halves import instead_of_f16, refuse_large, too_large
from intaglio.quant.insert import insert, round_halves
from intaglio.quant.observe import Observation, Progress, Stops, observe
from intaglio.quant.options import METHODS as METHODS
from intaglio.quant.options import Options as Options
from intaglio.quant.options import with_keywords
from intaglio.quant.pages import small_pages
from intaglio.quant.place import PRODUCTS, Between, Placement, layer, place
from intaglio.quant.probe import collecting_late
from intaglio.quant.promote import Found, Guard, Point
from intaglio.quant.recurrent import candidates, quantize_recurrent
from intaglio.quant.scheme import Scheme, TensorScheme
from intaglio.quant.search import SAMPLES, Cache, Search, some_at, some_of, subject
from intaglio.quant.smooth import smooth
from intaglio.quant.store import (
    bias_shift,
    bias_shifts,
    rounded_by_data,
    store_all,
)
from intaglio.quant.store import stored_weights as stored_weights
from intaglio.quant.streaming import calibrated, given_inputs
from intaglio.quant.trial import Ahead, Trial
from intaglio.quant.unpack import already, own_scales, unpack_weights
from intaglio.targets import Target

EVEN = 16  # samples that tell the sizes of channels
WORSE = 2.0  # times the error that late tensors' room may come to
WEIGHTY = 0.25  # share of what the outputs may lose that makes rounding weights by data worth it


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
    from intaglio.quant.datafree import without_data

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
    pictures, load = split(load)
    pictures |= {"input_type": input_type, "input_layout": input_layout, "layout": layout}
    pictures = put_in(pictures, mean, std)
    chip = targets.find(target)
    how = formats(chip, options.activations, options.weights, options.per, options.symmetric,
                  options.weight_zeros, options.floats)  # fmt: skip
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
    placement = place(graph, wanted, chip, how.precision)
    recurrent = [layer(n) for n in candidates(graph, wanted, chip)]
    if not placement.nodes and not recurrent:
        why = "; ".join(dict.fromkeys(placement.floats.values()))
        raise BadInput("there is nothing to quantise: no convolution or product with constant "
                       f"weights in f32{f' ({why})' if why else ''}{already(graph)}")  # fmt: skip
    placement.between = find_between(graph, placement, how, False, given)
    refuse_types(placement, given)
    given = own_scales(placement, how.precision) | given
    samples = data_samples(
        data, given_inputs(graph), mean=mean, std=std, layout=layout, color=color, resize=resize,
        pad_value=pad_value, limit=limit, seed=seed, warn=warn,
    )  # fmt: skip
    state = graph.state
    samples = calibrated(graph, samples, data_samples)
    even_out(graph, samples, options, progress)
    count, enough, shown = len(samples), None, some_at(len(samples))
    if samples.spare and count > room.MANY:
        order = spread(count)
        samples, shown = samples.at(order), sorted(range(SAMPLES), key=order.__getitem__)
        low, high = dtypes.limits(how.tensors[how.precision])
        enough = Enough(high - low)
    many = count > room.MANY
    placement.between = find_between(graph, placement, how, many, given)
    outputs: dict[int, dict[str, Array]] = {i: {} for i in shown}
    with ThreadPoolExecutor(1) as aside:  # what does not depend on samples, while they are run
        storing, running = aside.submit(store_all, placement, options, given, how), Event()
        ahead = None
        if worth_trying(placement, options, given) and options.rounding != "data":
            ahead = Ahead.of(graph, placement, storing.result, running, aside)
        try:
            seen = look(graph, placement, samples, progress, outputs=outputs, enough=enough,
                        started=running.set)  # fmt: skip
        finally:
            running.set()
    weights = storing.result()
    refuse_large(placement, seen)
    if enough and (used := max(o.samples for o in seen.values())) < count:
        samples, shown = samples.at(range(used)), [i for i in shown if i < used]
        warn(enough.words(used, count))
    notes = keep_apart(graph, placement, find_ranges(placement, seen, options, how))
    if notes:
        if how.wider:
            wanted |= {name: how.wider[-1] for note in notes for name in note.floats}
        placement = place(graph, wanted, chip, how.precision)
        placement.between = find_between(graph, placement, how, many, given)
        seen = look(graph, placement, samples, progress, seen)
        weights = store_all(placement, options, given, how)
        if ahead:
            ahead.close()
        ahead = None
    if options.rounding == "data":
        weights |= rounded_by_data(graph, weights, samples, options, progress)
    reference = Reference.by([samples[i] for i in shown], [outputs[i] for i in shown])
    shifts = bias_shifts(weights, seen) if options.correct else {}
    found = settle(graph, wanted, placement, seen, samples, reference, weights, shifts, options,
                   given, progress, how, count, ahead)  # fmt: skip
    if found.layers:
        placement = place(graph, {**wanted, **found.layers}, chip, how.precision)
        placement.between = find_between(graph, placement, how, many, given)
        for n in placement.floats:
            if layer(n) in found.layers:
                placement.floats[n] = f"{how.precision} is too coarse for what it reads"
        seen = look(graph, placement, samples, progress, seen)
    if large := too_large(placement, seen):
        other = instead_of_f16(chip)
        found.notes += [f"'{layer(n)}' computes in {other}, not f16: {w}" for n, w in large.items()]
        found.layers |= {layer(n): other for n in large}
        placement = place(graph, {**wanted, **found.layers}, chip, how.precision)
        seen = look(graph, placement, samples, progress, seen)
    options = replace(options, methods={**found.methods, **options.methods}, room=found.room,
                      deep_room=found.deep_room)  # fmt: skip
    made = build(graph, placement, seen, options, given, weights, shifts, how)
    made.notes += [*map(str, notes), *found.notes]
    made.curve, made.samples = found.curve, len(samples)
    if recurrent:
        quantize_recurrent(made, recurrent, samples, options.accuracy, wanted, progress)
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
                raise BadInput(f"{next(iter(load))}= is no option of quantisation, and for model "
                               "files only: a Graph is read already")  # fmt: skip
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


def look(
    graph: Graph,
    placement: Placement,
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
    seen: Mapping[Value, Observation] = {},
    outputs: MutableMapping[int, dict[str, Array]] | None = None,
    enough: Stops | None = None,
    started: Callable[[], None] = lambda: None,
) -> dict[Value, Observation]:
    """What the tensors hold that are rounded, unless all of it was `seen` already."""
    halves = [v for n in placement.halves for v in (n.inputs[0], n.outputs[0]) if v is not None]
    tensors = list(dict.fromkeys([*placement.tensors, *halves]))
    if seen and all(v in seen for v in tensors):
        return dict(seen)
    made = observe(
        graph, tensors, samples, progress=progress, channels=means(placement), outputs=outputs,
        enough=enough, started=started,
    )  # fmt: skip
    return made


def means(placement: Placement) -> dict[Value, int]:
    """Tensors of which the mean of every channel is of use, and the axis of those."""
    products = [n for n in placement.nodes if n.op in PRODUCTS]
    return {n.inputs[0]: channel_axis(n) for n in products if placement.quantized(n.inputs[0])}  # type: ignore[misc]


def find_ranges(placement: Placement, seen: Mapping[Value, Observation], options: Options,
                how: Formats = USUAL) -> dict[Value, tuple[float, float]]:  # fmt: skip
    """The range that each quantised tensor is to hold."""
    usual = "minmax" if options.method == "auto" else options.method
    methods = {v: options.methods.get(v.name, usual) for v in placement.tensors}
    dtype, symmetric = how.tensors[how.precision], how.precision in how.symmetric
    found = {v: seen[v].range(m, dtype, symmetric) for v, m in methods.items()}
    return room.with_room(found, seen, options.room or 1.0, options.deep_room)


def find_between(
    graph: Graph,
    placement: Placement,
    how: Formats,
    many: bool,
    given: Mapping[str, TensorScheme],
) -> dict[Value, Between]:
    """Tensors that get scales by channel: where `many` samples tell what those hold, or a scheme
    does."""
    found = channels.find(graph, placement) if how.per == "channel" else {}
    told = {name for name, t in given.items() if len(t.scale) > 1}
    return {v: around for v, around in found.items() if many or v.name in told}


def settle(
    graph: Graph,
    wanted: Mapping[str, str],
    placement: Placement,
    seen: Mapping[Value, Observation],
    samples: Sequence[Mapping[str, Array]],
    reference: Reference,
    weights: dict[Node, Integers],
    shifts: dict[Node, Array | None],
    options: Options,
    given: Mapping[str, TensorScheme],
    progress: Progress | None = None,
    how: Formats = USUAL,
    many: int = 0,
    ahead: Ahead | None = None,
) -> Found:
    """How to range each tensor, and the layers that must not be int8: by measuring the outputs.

    The samples stand for `many` that were given.
    Where rounding the weights costs the outputs too much, samples decide it, in place. `ahead` is
    the model to try things with, if it is there already.
    """
    if not worth_trying(placement, options, given):
        return Found(room=options.room or 1.0, deep_room=options.deep_room)

    deep, shares = options.deep_room, channels.shares(placement, seen)

    def make(methods: Mapping[str, str], more: float = options.room or 1.0,
             left_out: int | None = None) -> dict[str, TensorScheme]:  # fmt: skip
        own = replace(options, methods={**methods, **options.methods}, room=1.0, deep_room=1.0)
        ranges = find_ranges(placement, seen, own, how)
        if left_out is not None:
            ranges = room.without(ranges, seen, left_out)
        tensors = assign(placement, room.with_room(ranges, seen, more, deep), how, shares)
        tensors |= {name: given[name] for name in tensors if name in given}
        return {name: t for name, t in tensors.items() if t.scale}

    def stored(node: Node) -> tuple[Array, Array | None]:
        return from_integers(*weights[node]), shifts.get(node)

    def own(node: Node) -> tuple[Array, Array | None]:
        return node.inputs[1].data, None  # type: ignore[union-attr,return-value]

    count = many or len(samples)
    cache = None
    if options.resume:
        made = [(*weights[n], shifts.get(n)) for n in weights]
        cache = Cache(options.resume, subject(graph, reference, made))
    if ahead:
        ahead.correct(placement, shifts)
    trial = Trial(graph, placement, stored, reference, ahead)
    try:
        search = Search(graph, placement, trial, make, cache, progress, {*given, *wanted}, how)
        search.trial_without = lambda layers: Trial(
            graph, placement, lambda n: own(n) if layer(n) in layers else stored(n), reference
        )
        many_seen = count > room.MANY
        methods = search.choose_methods(many=many_seen) if options.method == "auto" else {}
        found = Found(methods, options.room or 1.0, options.deep_room)
        if options.accuracy is not None:
            guard = Guard(search, make(methods), wanted, options.accuracy)
            if options.rounding == "auto" and guard.weights_matter(WEIGHTY):
                weights |= rounded_by_data(graph, weights, samples, options, progress)
                if options.correct:
                    shifts |= bias_shifts(weights, seen)
                trial.close()
                search.trial = trial = Trial(graph, placement, stored, reference)
                if cache:
                    cache.weights = "data"
                guard = Guard(search, make(methods), wanted, options.accuracy)
            if options.method == "auto" and room.few(count) and guard.can_be_closer():
                # few samples show few of what scores are high for: nothing is cut off
                methods, deep = dict.fromkeys(methods, "minmax"), max(deep, room.DEEP)
                search.compare_roots(guard.strict)
                guard = Guard(search, make(methods), wanted, options.accuracy, closer=True)
            elif guard.strict:
                search.compare_highest(guard.strict)
                guard = Guard(search, make(methods), wanted, options.accuracy, highest=True)
                if options.method == "auto" and room.few(count):
                    deep, before = max(deep, room.DEEP), (deep, guard)
                    guard = Guard(search, make(methods), wanted, options.accuracy, highest=True)
                    if guard.over(guard.now) > max(1.0, WORSE * before[1].over(before[1].now)):
                        deep, guard = before
            found = replace(guard.meet(), methods=methods, room=found.room, deep_room=deep)
            if options.method == "auto" and options.room is None:
                found.room = room.choose(
                    search,
                    count,
                    lambda r, f: guard.kept(make(methods, r, f), found.layers),
                )
        return found
    finally:
        trial.close()


def worth_trying(placement: Placement, options: Options, given: Mapping[str, TensorScheme]) -> bool:
    """Is anything left to be found by trying?"""
    if options.method != "auto" and options.accuracy is None:
        return False
    return not all(v.name in given for v in placement.tensors)


def build(graph: Graph, placement: Placement, seen: Mapping[Value, Observation],
          options: Options, given: Mapping[str, TensorScheme] = {},
          weights: Mapping[Node, Integers] | None = None,
          shifts: Mapping[Node, Array | None] = {}, how: Formats = USUAL) -> Quantized:  # fmt: skip
    """The quantised graph by what was observed, and `given`; `graph` itself becomes it."""
    before = graph.copy()
    shares = channels.shares(placement, seen)
    tensors = assign(placement, find_ranges(placement, seen, options, how), how, shares)
    tensors |= {name: given[name] for name in tensors if name in given}
    placement.drop(v for v in placement.tensors if not tensors[v.name].scale)
    products = [n for n in placement.nodes if n.op in PRODUCTS]
    known = weights or {}
    weights = {
        n: known.get(n) or stored_weights(n, options, given, how, placement.nodes[n])
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
    observations = {v.name: o for v, o in seen.items()}
    for n, integers in weights.items() if options.correct else ():
        shift = shifts[n] if n in shifts else bias_shift(n, from_integers(*integers), seen)
        if shift is not None:
            shift_bias(n, shift)
    insert(graph, placement, tensors, weights)
    round_halves(placement)
    return Quantized(graph, before, scheme, floats, observations)
