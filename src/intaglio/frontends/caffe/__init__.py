"""Caffe importer: prototxt and caffemodel, read without Caffe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from intaglio.errors import BadFile, BadInput, Unsupported, did_you_mean, option
from intaglio.files import read_regular
from intaglio.frontends.caffe import detection_output as detection_output
from intaglio.frontends.caffe import rare_layers as rare_layers
from intaglio.frontends.caffe import recurrent as recurrent
from intaglio.frontends.caffe import shape as shape
from intaglio.frontends.caffe.file import Layer, Message, layers_of, parse_text, read_weights
from intaglio.frontends.caffe.layers import LAYERS
from intaglio.frontends.options import NO_OPTIONS, ImportOptions
from intaglio.frontends.two_files import find_both_files
from intaglio.ir import Graph, Type, Value
from intaglio.symint import bound, lowest

TRAINING_LAYERS = ("Accuracy", "Silence", "DetectionEvaluate")  # layers of training
TRAINING_SUFFIXES = ("Data", "Loss")
MAX_TEXT = 64 << 20  # bytes of a prototxt; published ones have less than one million
MAX_ELEMENTS = 1 << 31  # of a result


def load_caffe(model: str | Path, options: ImportOptions = NO_OPTIONS) -> Graph:
    """The graph of a prototxt and its caffemodel; `model` is the path of either.

    Outputs are the tops that no layer reads.
    """
    weights = Path(options.weights) if options.weights else None
    net, numbers = find_both_files(Path(model), weights, ".prototxt", ".caffemodel", "caffe")
    try:
        text = read_regular(net, MAX_TEXT).decode("utf-8", "replace")
    except OSError as e:
        raise BadFile(f"cannot read '{net}': {(e.strerror or str(e)).lower()}") from None
    described = parse_text(text, f"'{net}'")
    layers = [
        one
        for one in layers_of(described)
        if one.type not in TRAINING_LAYERS and not one.type.endswith(TRAINING_SUFFIXES)
    ]
    blobs = read_weights(numbers)
    given = _inputs(described, layers, options)
    known = dict(given)
    layers = _behind_inputs(layers, given)
    tops, writers = {t for one in layers for t in one.tops}, dict[str, str]()
    for one in layers:
        one.blobs = blobs.get(one.name, [])
        for top, v in zip(one.tops, _build(one, known), strict=True):
            v.name = v.name or (one.name if top in given else top)
            before = known.get(top)
            if before is not None and before is not v and before.name == v.name == top:
                before.name = "" if writers[top] in tops else writers[top]  # written in place
            known[top], writers[top] = v, one.name
    read = {b for one in layers for b in one.bottoms}
    last = dict.fromkeys(t for one in layers for t in one.tops)
    ends = [t for t in last if t not in read or _last_is_in_place(layers, t)]
    wanted = list(options.outputs or ends)
    for name in wanted:
        if name not in known:
            raise BadInput(f"caffe: no layer has the top '{name}'; outputs are {', '.join(ends)}")
    if not wanted:
        raise BadFile(f"caffe: '{net}' has no layers")
    name = str(described.one("name", net.stem))
    return Graph(list(given.values()), [known[t] for t in wanted], wanted, name)


def _behind_inputs(layers: list[Layer], given: Mapping[str, Value]) -> list[Layer]:
    """The layers that compute something from the inputs.

    A layer in place on an input of the net is one of them. An input that the user chose among the
    results of layers replaces the last value of this blob, so that layers in place are cut too.
    """
    inner = [one for one in layers if one.type != "Input"]
    result = {t for one in inner for t in one.tops if t in given and t not in one.bottoms}

    def is_cut(one: Layer) -> bool:
        return bool(one.tops) and all(
            t in result or (t in given and t not in one.bottoms) for t in one.tops
        )

    return [one for one in inner if not is_cut(one)]


def _last_is_in_place(layers: list[Layer], top: str) -> bool:
    """Whether the last layer that reads `top` writes it in place."""
    readers = [one for one in layers if top in one.bottoms]
    return bool(readers) and top in readers[-1].tops


def _build(one: Layer, known: dict[str, Value]) -> list[Value]:
    if one.type not in LAYERS:
        raise Unsupported(
            f"caffe: {one} is not supported{did_you_mean(one.type, LAYERS, likeness=0.8)}; cut the "
            f"net before it with {option('outputs')}"
        )
    for b in one.bottoms:
        if b not in known:
            raise BadFile(f"caffe: {one} reads '{b}', which no earlier layer computes")
    try:
        result = LAYERS[one.type](one, *(known[b] for b in one.bottoms))
    except BadInput as e:
        raise e if str(e).startswith("caffe") else BadFile(f"caffe: {one}: {e}") from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as e:
        words = " ".join(str(e).split())[:120]
        raise BadFile(
            f"caffe: {one} is invalid with {len(one.bottoms)} operands ({words})"
        ) from None
    results = result if isinstance(result, list) else [result]
    if len(results) != len(one.tops):
        raise BadFile(f"caffe: {one} has {len(one.tops)} tops; {len(results)} are needed")
    for v in results:
        if v.type.size > MAX_ELEMENTS:
            raise BadFile(f"caffe: {one} has a result {v.type}, which is too large")
        if v.producer is not None and not v.producer.origin:
            v.producer.origin = one.name
    return results


def _inputs(net: Message, layers: list[Layer], options: ImportOptions) -> dict[str, Value]:
    """The inputs: `input` fields of the net, Input layers, or the user's choice."""
    found: dict[str, tuple[int, ...]] = {}
    names, dims = net.words("input"), net.wholes("input_dim")
    shaped = [m.wholes("dim") for m in net.get("input_shape", []) if isinstance(m, Message)]
    for i, name in enumerate(names):
        found[name] = tuple(shaped[i] if i < len(shaped) else dims[4 * i : 4 * i + 4])
    for one in layers:
        if one.type == "Input":
            inner = [
                m.wholes("dim")
                for m in one.settings.inner("input_param").get("shape", [])
                if isinstance(m, Message)
            ]
            for i, top in enumerate(one.tops):
                found[top] = tuple(inner[min(i, len(inner) - 1)]) if inner else ()
    if options.inputs:
        found = {name: found.get(name, ()) for name in options.inputs}
    for name in options.shapes:
        if name not in found:
            raise BadInput(f"caffe: no input is called '{name}'; inputs are {', '.join(found)}")
    results = {}
    for name, usual in found.items():
        dims_ = tuple(options.shapes.get(name, usual))
        if (
            not dims_
            or len(dims_) > 8
            or not 1 <= min(map(lowest, dims_)) <= max(map(bound, dims_)) <= 1 << 16
        ):
            raise BadInput(
                f"caffe: input '{name}' has shape {dims_}; "
                f"give {option('shapes', {name: (1, 3, 224, 224)})}"
            )
        results[name] = Value(Type("f32", dims_), name)
    if not results:
        raise BadFile(
            "caffe: the net has no inputs; use the deploy prototxt instead of the training one"
        )
    return results
