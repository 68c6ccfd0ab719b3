"""ncnn importer: layers as text (.param) and weights (.bin)."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported, did_you_mean
from intaglio.frontends.ncnn import products as products
from intaglio.frontends.ncnn.file import MAGIC as MAGIC
from intaglio.frontends.ncnn.file import Layer, Weights, read_param
from intaglio.frontends.ncnn.layers import LAYERS
from intaglio.ir import Graph, Type, Value, constant

MAX_ELEMENTS = 1 << 31  # of a tensor


def read_ncnn(param: bytes, weights: bytes, outputs: Sequence[str] = ()) -> Graph:
    """The graph of the contents of both files, with a batch of one.

    `outputs` names the tensors that become outputs; by default those that no layer reads.
    """
    layers, data = read_param(param), Weights(weights)
    made: dict[str, Value] = {}
    inputs: list[Value] = []
    for of in layers:
        if of.kind == "Input":
            inputs.append(_input(of))
            made[of.outputs[0]] = inputs[-1]
            continue
        results = _imported(of, made, data)
        for name, value in zip(of.outputs, results, strict=True):
            if value.type.size > MAX_ELEMENTS:
                raise BadFile(f"ncnn: {of} has a result {value.type}, which is too large")
            value.name = value.name or name
            if value.producer is not None and not value.producer.origin:
                value.producer.origin = of.name
            made[name] = value
    if not inputs:
        raise BadFile("ncnn: the .param file has no Input")
    if data.at < len(weights):
        raise BadFile(
            f"ncnn: {len(weights) - data.at} bytes of the .bin file are left over; it belongs to "
            "another .param"
        )
    read = {name for of in layers for name in of.inputs}
    wanted = list(outputs) or [n for of in layers for n in of.outputs if n not in read]
    for name in wanted:
        if name not in made:
            raise BadInput(f"ncnn: no tensor is called '{name}'{did_you_mean(name, made)}")
    return Graph(inputs, [made[n] for n in wanted], wanted)


def _input(of: Layer) -> Value:
    sizes = [of.whole(k, 0) for k in (2, 11, 1, 0)]  # channels, depth, height, width
    shape = [d for d in sizes if d]
    if not shape or len(of.outputs) != 1 or min(shape) < 0:
        raise BadInput(
            f"ncnn: {of} has no shape; write it into the .param: 0=WIDTH 1=HEIGHT 2=CHANNELS"
        )
    value = Value(Type("f32", (1, *shape)), of.outputs[0])
    if value.type.size > MAX_ELEMENTS:
        raise BadFile(f"ncnn: {of} is {value.type}, which is too large")
    return value


def _imported(of: Layer, made: dict[str, Value], data: Weights) -> list[Value]:
    """The results of a layer."""
    if of.kind == "MemoryData":
        shape = [d for d in (of.whole(k, 0) for k in (2, 11, 1, 0)) if d]
        size = 1
        for d in shape:
            size *= max(d, 0)
        return [constant(data.plain(size, of).reshape(1, *shape))]
    if of.kind not in LAYERS:
        known = ", ".join(sorted((*LAYERS, "Input", "MemoryData")))
        raise Unsupported(
            f"ncnn: {of} is not supported; supported are {known}"
            f"{did_you_mean(of.kind, LAYERS, likeness=0.8)}"
        )
    if missing := [n for n in of.inputs if n not in made]:
        raise BadFile(f"ncnn: {of} reads '{missing[0]}', which no layer before it makes")
    if not of.inputs or not of.outputs:
        raise BadFile(f"ncnn: {of} has {len(of.inputs)} inputs and {len(of.outputs)} outputs")
    try:
        found = LAYERS[of.kind](of, [made[n] for n in of.inputs], data)
    except IntaglioError as e:
        raise e if str(e).startswith("ncnn") else BadFile(f"ncnn: {of}: {e}") from None
    results = found if isinstance(found, list) else [found]
    if len(results) != len(of.outputs):
        raise BadFile(f"ncnn: {of} has {len(of.outputs)} outputs, {len(results)} were expected")
    return results
