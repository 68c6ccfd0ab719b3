"""From an imported model to a package: floats, or integers from samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes, ops
from intaglio.compat.joined_plans import compiled
from intaglio.compat.nncase.preparation import TO_NCHW, TO_NHWC, Preparation
from intaglio.compat.nncase.quantization import Quantization
from intaglio.compat.nncase.refusals import LOG
from intaglio.compat.nncase.samples import Sample
from intaglio.compat.nncase.settings import Settings
from intaglio.compat.nncase.sizes import Sizes
from intaglio.compat.nncase.source import Source
from intaglio.errors import BadInput, IntaglioError
from intaglio.ir import Graph, Type, constant
from intaglio.package import Package
from intaglio.quant import Quantized, Scheme

NOTHING = "there is nothing to quantise"  # begins the error for a model without products


@dataclass
class Built:
    """A compiled model, and the graphs that reports of it need."""

    package: Package
    graphs: list[Graph]  # one for each bucket
    quantized: Quantized | None = None
    samples: list[Sample] = field(default_factory=list)  # as the float model takes them


@dataclass
class Build:
    """A model, its settings and its quantisation."""

    source: Source
    settings: Settings
    quantization: Quantization | None

    def run(self) -> Built:
        """Compile the model."""
        if self.quantization is None:
            return self._in_floats()
        try:
            return self._in_integers(self.quantization)
        except IntaglioError as e:
            if not str(e).startswith(NOTHING):
                raise
            LOG.warning(f"use_ptq: {e}; the model is compiled in floats")
            return self._in_floats()

    # ---- graphs --------------------------------------------------------------------------------
    def preparation(self) -> Preparation | None:
        """The preprocessing; None if there is none."""
        s = self.settings
        if s.preprocess is None:
            return None
        layout = s.model_layout if s.model_layout in ("NHWC", "NCHW") else self.source.layout
        return Preparation(s.preprocess, layout, self.quantization is not None)

    def sizes(self) -> Sizes:
        """The extents of open dimensions."""
        names = list(self.source.declared)
        if not names:
            return Sizes({}, {}, 1)
        return Sizes.of(self.source, self.settings, self._shapes(names))

    def _shapes(self, names: list[str]) -> dict[str, Any]:
        """Shapes of inputs that the preprocessing or the samples show."""
        if (prepared := self.preparation()) is not None and (s := prepared.settings).shape:
            shape = s.shape
            if len(shape) == 4:
                nchw = shape if s.layout != "NHWC" else tuple(shape[k] for k in TO_NCHW)
                last = prepared.model_layout == "NHWC"
                shape = tuple(nchw[k] for k in TO_NHWC) if last else nchw
            return {n: shape for n in names if len(self.source.declared[n]) == len(shape)}
        if self.quantization is None:
            return {}
        try:
            return dict(self.quantization.samples.shapes(names))
        except (IntaglioError, ValueError):
            return {}  # `read` says what is wrong

    def float_graph(self, sizes: dict[str, Any] | None = None) -> Graph:
        """The float model with its preprocessing."""
        graph = self.source.load(self.sizes().largest if sizes is None else sizes)
        if (prepared := self.preparation()) is not None:
            prepared.embed(graph)
        return graph

    # ---- floats --------------------------------------------------------------------------------
    def _in_floats(self) -> Built:
        """A float model; with ranges it runs on the CPU, which takes any size in them."""
        sizes = self.sizes()
        if not sizes.ranges:
            graph = self.float_graph(sizes.fixed)
            return Built(self._compiled([graph]), [graph])
        if self.settings.preprocess is not None:
            raise BadInput("preprocess needs fixed shapes; leave out shape_bucket_enable")
        graph = self.source.load(sizes.open)
        return Built(intaglio.compile(graph, target="cpu"), [graph])

    # ---- integers ------------------------------------------------------------------------------
    def _in_integers(self, quantization: Quantization) -> Built:
        sizes = self.sizes()
        bare, prepared = self.source.load(sizes.largest), self.preparation()
        if prepared is not None and self.settings.target == "k210" and prepared.by_channel:
            prepared = prepared.as_layer(bare)
        samples = _prepared_samples(quantization, bare, prepared)
        result = quantization.run(bare, samples, self.settings)
        graphs = [self._finished(result, prepared)]
        for at in sizes.buckets()[:-1] if sizes.ranges else ():
            graphs.append(self._at(at, quantization, result.scheme))
        return Built(self._compiled(graphs), graphs, result, samples)

    def _finished(self, result: Quantized, prepared: Preparation | None) -> Graph:
        """The quantised graph with its preprocessing and the type of its outputs."""
        result.bare_graph = result.graph.copy()
        graph = result.graph
        if self.settings.output_type != "float32":
            _quantize_outputs(graph, self.settings, result.scheme)
        if prepared is not None:
            prepared.embed(graph)
        return graph

    def _at(self, sizes: dict[str, int], quantization: Quantization, scheme: Scheme) -> Graph:
        """The graph of a smaller bucket, with the scales that the largest gave."""
        bare = self.source.load(sizes)
        zeros = [{v.name: np.zeros(v.shape, dtypes.numpy_of(v.dtype)) for v in bare.inputs}]
        result = quantization.at_scheme(bare, zeros, self.settings, scheme)
        return self._finished(result, self.preparation())

    def _compiled(self, graphs: list[Graph]) -> Package:
        keywords: dict[str, Any] = {"target": self.settings.target}
        if self.settings.dump_ir:
            keywords["dump_dir"] = self.settings.dump_dir / "ir"
        return compiled(graphs, keywords, pads=True)


def _prepared_samples(
    quantization: Quantization, bare: Graph, prepared: Preparation | None
) -> list[Sample]:
    """The samples as the float model takes them."""
    types = inputs_of(bare)
    if prepared is None:
        return quantization.samples.read(types)
    chains = {n: prepared.graph_of(n, t) for n, t in types.items() if prepared.applies(t)}
    new = {n: chains[n].inputs[0].type if n in chains else t for n, t in types.items()}
    found = quantization.samples.read(new)
    for sample in found:
        for name, graph in chains.items():
            sample[name] = intaglio.interpret(graph, {name: sample[name]})["prepared"]
    return found


def _quantize_outputs(graph: Graph, settings: Settings, scheme: Scheme) -> None:
    """Let outputs be bytes: `output_type` of nncase 1.x."""
    dtype = {"uint8": "u8", "int8": "i8"}[settings.output_type]
    first, last = dtypes.limits(dtype)
    for i, v in enumerate(graph.outputs):
        if v.dtype != "f32":
            continue
        known = scheme.tensors.get(graph.output_names[i])
        given = settings.output_range or ((known.lo, known.hi) if known else ())
        if len(given) != 2 or given[0] >= given[1]:
            raise BadInput(
                f"output_type is {settings.output_type}, but the range of output "
                f"'{graph.output_names[i]}' is unknown; give output_range = [smallest, largest]"
            )
        low, high = min(given[0], 0.0), max(given[1], 0.0)
        scale = (high - low) / (last - first)
        zero = int(np.clip(round(first - low / scale), first, last))
        stored = ops.quantize_linear(
            v, constant(np.float32(scale)), constant(zero, dtype=dtype), dtype=dtype
        )
        graph.set_input(graph.result, i, stored)


def inputs_of(graph: Graph) -> dict[str, Type]:
    """The inputs that a user gives."""
    return {v.name: v.type for v in graph.inputs if v.name not in graph.state}
