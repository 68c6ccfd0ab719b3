"""Hybrid quantisation in two steps, with files between them that the user edits.

Step 1 writes MODEL.model (the float model, as ONNX), MODEL.data (config, scales and samples) and
MODEL.quantization.cfg. Step 2 reads them.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.array_files import read_npz
from intaglio.compat.fused_layers import fused_layers
from intaglio.compat.joined_plans import compiled
from intaglio.compat.rknn import accuracy, quantization_cfg
from intaglio.compat.rknn.build import (
    Built,
    Loaded,
    activations_of,
    checked_batch,
    finish,
    quantize,
)
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.dataset import Sample, Samples, read_list
from intaglio.compat.rknn.inputs import InputInfo, input_from_json, refuse_other_inputs
from intaglio.compat.rknn.weight_bits import refuse_hybrid
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import write_atomically
from intaglio.ir import Graph, Node
from intaglio.quant import Quantized, Scheme, TensorScheme

MAX_SAMPLES = 32  # that MODEL.data keeps
Warn = Callable[[str], None]
Layers = dict[str, tuple[str, float | None]]  # by tensor: type and cosine


def step1(
    model: Loaded,
    config: Config,
    dataset: Any,
    proposal: int,
    custom: Any,
    folder: Path,
    warn: Warn,
    batch: int | None = None,
) -> list[Path]:
    """Quantise and write the three files; `proposal` samples propose layers for float16."""
    if config.dynamic_input is not None:
        raise BadInput("hybrid quantisation takes fixed shapes; leave dynamic_input out of config")
    refuse_hybrid(config)
    infos = model.infos(config)
    samples = Samples(read_list(dataset, len(infos)), infos, config)
    result = quantize(model.graph, samples, infos, config, warn)
    layers: Layers = {}
    if proposal:
        layers |= _proposed(model, config, result, samples, proposal, warn)
    for start, end in custom or ():
        between = _on_paths(result.float_graph, model.graph, str(start), str(end))
        layers |= dict.fromkeys(between, ("float16", None))
    paths = [folder / f"{model.source.name}{end}" for end in (".model", ".data")]
    cfg = folder / f"{model.source.name}.quantization.cfg"
    intaglio.save_onnx(result.float_graph, paths[0])
    _write_data(paths[1], config, infos, result.scheme, samples, batch)
    quantization_cfg.write(result.scheme, layers, cfg)
    return [*paths, cfg]


def _proposed(
    model: Loaded, config: Config, int8: Quantized, samples: Samples, count: int, warn: Warn
) -> Layers:
    """Layers that the search for the wanted cosine takes out of int8, with their cosine in int8."""
    part = Samples(samples.lines[:count], samples.infos, config)
    wanted = config.auto_hybrid_cos_thresh
    found = quantize(model.graph, part, samples.infos, config, warn, accuracy=wanted)
    rows, _ = accuracy.compare(int8, next(iter(part)))
    cosines = {r.name: r.entire[0] for r in rows}
    return {
        name: ("float16", cosines.get(name))
        for name, precision in found.scheme.layers.items()
        if precision in ("f16", "f32") and int8.scheme.layers.get(name) == "int8"
    }


def _on_paths(optimised: Graph, loaded: Graph, start: str, end: str) -> list[str]:
    """Layers of the optimised graph on all paths from one tensor of the model to another.

    The optimiser removes tensors, such as those of reshapes and concatenations. The paths are then
    those of the graph as loaded, and the layers are those that are left of it.
    """
    kept, known = ({v.name for v in g.values() if v.name} for g in (optimised, loaded))
    if start in kept and end in kept:
        return _between(optimised, start, end)
    for name in (start, end):
        if name not in known:
            raise BadInput(
                f"custom_hybrid: no tensor is called '{name}'"
                f"{did_you_mean(name, known) or '; accuracy_analysis lists the tensors'}"
            )
    left = [name for name in _between(loaded, start, end) if name in kept]
    if not left:
        raise BadInput(
            f"custom_hybrid: the optimiser merged all layers from '{start}' to '{end}' with "
            "others; accuracy_analysis lists the layers; choose a longer path"
        )
    return left


def _between(graph: Graph, start: str, end: str) -> list[str]:
    """The first outputs of the nodes on all paths from one tensor to another, with `end`'s."""
    values = {v.name: v for v in graph.values() if v.name and v.data is None}
    after: set[Node] = set()
    first = values[start].producer
    for node in graph.nodes():
        reads = any(x is values[start] or (x and x.producer in after) for x in node.inputs)
        if node is first or reads:
            after.add(node)
    before, todo = set(), [values[end].producer]
    while todo:
        found = todo.pop()
        if found is not None and found not in before:
            before.add(found)
            todo += [x.producer for x in found.inputs if x is not None]
    both = [n.outputs[0].name for n in graph.nodes() if n in after and n in before]
    if not both:
        raise BadInput(f"custom_hybrid: no path leads from '{start}' to '{end}'; swap them")
    return both


# ---- MODEL.data ----------------------------------------------------------------------------------
def _write_data(
    path: Path,
    config: Config,
    infos: Sequence[InputInfo],
    scheme: Scheme,
    samples: Samples,
    batch: int | None,
) -> None:
    about = {
        "config": {f.name: getattr(config, f.name) for f in fields(config)},
        "batch": batch,
        "inputs": [asdict(i) for i in infos],
        "tensors": {n: asdict(t) for n, t in scheme.tensors.items()},
    }
    arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    for k, sample in enumerate(itertools.islice(samples, MAX_SAMPLES)):
        for i, info in enumerate(infos):
            arrays[f"s{k}.{i}"] = sample[info.name]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def _read_data(path: Path) -> tuple[Config, list[InputInfo], Scheme, list[Sample], int | None]:
    arrays = read_npz(path)
    try:
        about = json.loads(bytes(np.asarray(arrays["about"], np.uint8)))
        config = Config(**about["config"])
        infos = [input_from_json(one) for one in about["inputs"]]
        scheme = Scheme({n: _tensor(t) for n, t in about["tensors"].items()})
        batch = checked_batch(about.get("batch"))
    except (KeyError, TypeError, ValueError, BadInput) as e:
        raise BadFile(f"'{path}' is damaged ({e}); run hybrid_quantization_step1 again") from None
    samples: list[Sample] = []
    while f"s{len(samples)}.0" in arrays and len(samples) < MAX_SAMPLES:
        k = len(samples)
        samples.append({info.name: arrays[f"s{k}.{i}"] for i, info in enumerate(infos)})
    if not samples:
        raise BadFile(f"'{path}' has no samples; run hybrid_quantization_step1 again")
    return config, infos, scheme, samples, batch


def _tensor(one: Mapping[str, Any]) -> TensorScheme:
    return TensorScheme(**{**one, "scale": tuple(one["scale"]), "zero": tuple(one["zero"])})


def step2(model_input: Path, data_input: Path, cfg: Path, log: Any) -> tuple[Built, Config, Loaded]:
    """Build from the files of step 1 and the edited .quantization.cfg."""
    from intaglio.compat.rknn.build import INTEGER_LEVEL, compile_keywords
    from intaglio.compat.rknn.source import Source

    for path in (model_input, data_input, cfg):
        if not path.is_file():
            raise BadFile(f"there is no file '{path}'; hybrid_quantization_step1 writes it")
    config, infos, before, samples, batch = _read_data(data_input)
    scheme = quantization_cfg.read(cfg, before)
    graph = intaglio.load(model_input)
    try:
        refuse_other_inputs(infos, {v.name: v.type for v in graph.inputs})
    except ValueError as e:
        raise BadFile(f"'{data_input}' is not of '{model_input}': {e}; run step 1 again") from None
    computed = activations_of(graph)
    for name, t in before.tensors.items():
        # scales per channel, of inputs of depthwise layers, follow from the samples again
        if t.axis is not None and name in computed and scheme.tensors.get(name) == t:
            del scheme.tensors[name]
    scheme.wanted(graph, _refuse)
    scheme.layers |= fused_layers(graph, scheme.layers)
    result = quantize(graph, samples, infos, config, log.warning, scheme=scheme)
    of = finish(result, infos, config)
    keywords = compile_keywords(config, batch, INTEGER_LEVEL, log)
    last = any(i.channels_last for i in infos)
    loaded = Loaded(Source(model_input, channels_last=last), graph)
    made = compiled([result.graph], keywords)
    built = Built(made, of, [result.graph], result, keywords, None, infos)
    return built, config, loaded


def _refuse(words: str) -> None:
    """A name in the file that the model lacks is an error: it would be without effect."""
    raise BadInput(words)
