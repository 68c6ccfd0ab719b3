"""From a model file to a package for the chip: float16, or integers from samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.compat.joined_plans import compiled
from intaglio.compat.log import Log
from intaglio.compat.rknn import op_target
from intaglio.compat.rknn.config import METHODS, Config
from intaglio.compat.rknn.dataset import Samples, read_list
from intaglio.compat.rknn.inputs import PICTURE_CHANNELS, InputInfo, inputs_of, write_inputs
from intaglio.compat.rknn.platforms import chip_of
from intaglio.compat.rknn.source import Source
from intaglio.compat.rknn.weight_bits import as_float, in_eight_bits, in_four_bits
from intaglio.compat.rknn.yuv import formats, take_planes
from intaglio.errors import BadInput, IntaglioError
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph, Value
from intaglio.package import Package
from intaglio.quant import Quantized, Scheme, calibrate
from intaglio.quant.ranges.affine import affine

NOTHING = "there is nothing to quantise"  # begins the error for a model without products
NO_BATCH = -1  # what older versions of RKNN-Toolkit2 have as default of rknn_batch_size
INTEGER_LEVEL = 3  # the level at which quantised graphs compute in integers


@dataclass
class Built:
    """A compiled model, and the graphs that other reports of it need."""

    package: Package
    infos: list[InputInfo]
    graphs: list[Graph] = field(default_factory=list)  # one for each set of shapes
    quantized: Quantized | None = None  # at the largest shapes
    compile: dict[str, Any] = field(default_factory=dict)  # keywords
    samples: Samples | None = None  # normalised, of the dataset
    pictures: list[InputInfo] = field(default_factory=list)  # inputs of samples: before YUV
    rounded: Graph | None = None  # a float model with weights of 4 bits, for its analysis

    def with_cores(self, cores: int) -> Package:
        """The package for this number of NPU cores; the graphs are compiled again."""
        if self.compile.get("cores", 1) != cores:
            self.compile["cores"] = cores
            self.package = compiled(self.graphs, self.compile)
        return self.package


@dataclass(frozen=True)
class Loaded:
    """A model file and its graph, at the largest of the dynamic shapes."""

    source: Source
    graph: Graph

    @classmethod
    def of(cls, source: Source, config: Config) -> Loaded:
        graph = source.load()
        if config.largest is not None:
            source = source.at(config.largest, _names(graph))
            graph = source.load()
        infos = inputs_of(graph, config, source.channels_last)  # refuses mean and std that misfit
        formats(config, infos)
        return cls(source, graph)

    def infos(self, config: Config) -> list[InputInfo]:
        return inputs_of(self.graph, config, self.source.channels_last)

    def others(self, config: Config) -> list[Loaded]:
        """The model at all other dynamic shapes."""
        sets = [s for s in config.dynamic_input or () if s != config.largest]
        sources = [self.source.at(s, _names(self.graph)) for s in sets]
        return [Loaded(one, one.load()) for one in sources]


def _names(graph: Graph) -> list[str]:
    """The names of the inputs, in the model's order."""
    return [v.name for v in graph.inputs if v.name not in graph.state]


def checked_batch(given: Any) -> int | None:
    """The value of rknn_batch_size; None is no batch."""
    if given is None or given == NO_BATCH:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"rknn_batch_size is {given!r}; give a number from 1 on")
    return given


def compile_keywords(config: Config, batch: int | None, level: int, log: Log) -> dict[str, Any]:
    found: dict[str, Any] = {"target": config.target_platform, "level": level}
    if float_type(config) is not None:
        found["precision"] = "f16"
    if batch is not None:
        found["batch"] = batch
    if config.mini_rknn:
        found["strip"] = True
    if log.verbose:
        found["progress"] = log.detail
    return found


def float_type(config: Config) -> str | None:
    """The type of float layers: f16, or None if the chip has only integers."""
    return "f16" if "f16" in chip_of(config.target_platform).types else None


def build_float(
    model: Loaded,
    config: Config,
    batch: int | None,
    log: Log,
    change: Callable[[Graph], Graph] | None = None,
) -> Built:
    """The model with its preprocessing, in float16; `change` gives the graph that is built.

    With quantize_weight, weights are on a grid of 256 steps.
    """
    change = change or (in_eight_bits if config.quantize_weight else Graph.copy)
    if float_type(config) is None:
        log.warning(
            f"build: {config.target_platform} computes integers only; float layers run on its CPU; "
            "use do_quantization=True"
        )
    if op_target.scheme(config):
        log.warning("build: op_target is for quantised models; the cost model places float layers")
    graphs: list[Graph] = []
    infos: list[InputInfo] = []  # of the largest shapes
    for one in (model, *model.others(config)):
        graph = change(one.graph)
        _embed(graph, [i for i in one.infos(config) if i.normalizes])
        taken = take_planes(graph, one.infos(config), config)
        write_inputs(graph, taken, config)
        graphs.append(graph)
        infos = infos or taken
    keywords = compile_keywords(config, batch, config.optimization_level, log)
    pictures = model.infos(config)
    return Built(compiled(graphs, keywords), infos, graphs, None, keywords, None, pictures)


def _build_four_bits(
    model: Loaded, config: Config, samples: Samples, batch: int | None, log: Log
) -> Built:
    """The model in float16 with weights of 4 bits."""

    first = in_four_bits(model.graph, config, samples, log.warning)

    def rounded(graph: Graph) -> Graph:
        if graph is model.graph:
            return first.copy()
        return in_four_bits(graph, config, samples, log.warning)

    built = build_float(model, as_float(config), batch, log, rounded)
    built.rounded = first
    return built


def _embed(graph: Graph, infos: Sequence[InputInfo]) -> None:
    """Make mean and std of these inputs part of a graph that takes floats."""
    pictures = [i for i in infos if is_picture(i)]
    if pictures:
        mean = {i.name: list(i.mean or (0.0,)) for i in pictures}
        std = {i.name: list(i.std or (1.0,)) for i in pictures}
        preprocess(graph, mean=mean, std=std, layout=pictures[0].layout)
    for info in infos:
        if not is_picture(info):
            _normalise(graph, info)


def _normalise(graph: Graph, info: InputInfo) -> None:
    """Subtract mean and divide by std in front of an input with any number of channels."""
    index = next(i for i, v in enumerate(graph.inputs) if v.name == info.name)
    old = graph.inputs[index]
    given = Value(old.type, info.name)
    mean, std = info.per_channel()
    made: Value = ops.div(ops.sub(given, mean), std)
    made.name = old.name = f"{info.name}_prepared"
    graph.replace(old, made)
    graph.inputs[index] = given


def is_picture(info: InputInfo) -> bool:
    """Whether the core takes this input as pictures."""
    return len(info.shape) == 4 and info.channels in PICTURE_CHANNELS


def build_quantized(
    model: Loaded, config: Config, dataset: Any, batch: int | None, auto: bool, log: Log
) -> Built:
    """The model in integers, calibrated with the samples of a dataset."""
    infos = model.infos(config)
    samples = Samples(read_list(dataset, len(infos)), infos, config)
    if config.four_bits:
        return _build_four_bits(model, config, samples, batch, log)
    accuracy = config.auto_hybrid_cos_thresh if auto else None
    try:
        result = quantize(
            model.graph,
            samples,
            infos,
            config,
            log.warning,
            accuracy=accuracy,
            scheme=op_target.scheme(config),
        )
    except IntaglioError as e:
        if not str(e).startswith(NOTHING):
            raise
        log.warning(f"build: {e}; the model is built in floats")
        return build_float(model, config, batch, log)
    if config.dynamic_input is not None:  # all plans have the same scales
        scheme = per_tensor(result.scheme, result.float_graph)
        if scheme.tensors != result.scheme.tensors:
            result = quantize(model.graph, samples, infos, config, log.warning, scheme=scheme)
    graphs, of = [result.graph], finish(result, infos, config)
    for other in model.others(config):
        graphs.append(_at_other_shapes(other, config, result.scheme))
    if config.optimization_level != INTEGER_LEVEL:
        log.warning(
            f"build: optimization_level={config.optimization_level} is for float models; a "
            "quantised model computes in integers at level 3 only; 3 is used"
        )
    keywords = compile_keywords(config, batch, INTEGER_LEVEL, log)
    return Built(compiled(graphs, keywords), of, graphs, result, keywords, samples, infos)


def quantize(
    graph: Graph,
    samples: Any,
    infos: Sequence[InputInfo],
    config: Config,
    warn: Callable[[str], None],
    *,
    accuracy: float | None = None,
    scheme: Scheme | None = None,
) -> Quantized:
    """Calibrate a graph with normalised samples."""
    activations, weights = config.types
    layouts = {i.layout for i in infos if len(i.shape) == 4}
    return calibrate(
        graph,
        (dict(sample) for sample in samples),
        method=METHODS[config.quantized_algorithm],
        rounding="data" if config.quantized_algorithm == "gdq" else "auto",
        accuracy=accuracy,
        target=config.target_platform,
        activations=activations,
        weights=weights,
        per="tensor" if config.quantized_method == "layer" else "channel",
        floats=float_type(config),
        bias_correction=config.dynamic_input is None,  # else plans would differ in weights
        limit=len(samples),
        scheme=scheme,
        layout=layouts.pop() if len(layouts) == 1 else "auto",
        warn=warn,
    )


def finish(result: Quantized, infos: Sequence[InputInfo], config: Config) -> list[InputInfo]:
    """Embed mean and std, and keep the inputs in the graph's metadata.

    They stay in floats: a table of bytes for each channel takes the NPU longer than its CPU takes
    for the arithmetic, and inputs need not be whole numbers.
    """
    result.bare_graph = result.graph.copy()
    _embed(result.graph, [i for i in infos if i.normalizes])
    taken = take_planes(result.graph, infos, config)
    write_inputs(result.graph, taken, config)
    return taken


def activations_of(graph: Graph) -> set[str]:
    """The names of tensors that are computed or given, not constant."""
    return {v.name for v in graph.values() if v.data is None}


def per_tensor(scheme: Scheme, graph: Graph) -> Scheme:
    """The scheme with one scale for each activation; weights keep theirs.

    Inputs of depthwise layers may have a scale for each channel, which no scheme can ask for.
    """
    computed, tensors = activations_of(graph), dict(scheme.tensors)
    for name, t in scheme.tensors.items():
        if t.axis is not None and name in computed:
            first, last = dtypes.limits(t.dtype)
            pairs = list(zip(t.scale, t.zero, strict=True))
            low = min(s * (first - z) for s, z in pairs)
            high = max(s * (last - z) for s, z in pairs)
            tensors[name] = affine(low, high, t.dtype, not any(t.zero))
    return replace(scheme, tensors=tensors)


def _at_other_shapes(model: Loaded, config: Config, scheme: Scheme) -> Graph:
    """The graph at other shapes with the scales that the largest shapes gave."""
    infos = model.infos(config)
    zeros = [{i.name: np.zeros(i.shape, dtypes.numpy_of(i.dtype)) for i in infos}]
    result = quantize(model.graph, zeros, infos, config, lambda words: None, scheme=scheme)
    finish(result, infos, config)
    return result.graph
