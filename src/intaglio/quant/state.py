"""The state of one calibration: the model being quantised, and the results of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.options import Options
from intaglio.quant.placement import depthwise_scales
from intaglio.quant.placement.formats import Formats
from intaglio.quant.placement.place import PRODUCTS, DepthwiseInput, Placement, place
from intaglio.quant.placement.scheme import Scheme, TensorScheme
from intaglio.quant.ranges import headroom
from intaglio.quant.ranges.assign import assign
from intaglio.quant.ranges.observe import Observation, Progress, StopCriterion, observe
from intaglio.quant.result import Quantized
from intaglio.quant.samples.dataset import Samples
from intaglio.quant.search.mixed_precision import Found
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial
from intaglio.quant.weights.bias_correction import channel_axis
from intaglio.quant.weights.integers import Integers
from intaglio.targets import Target

Ranges = dict[Value, tuple[float, float]]


@dataclass
class Calibration:
    """One calibration in progress. Each step of the pipeline reads and fills some fields."""

    # the user's input
    model: str | Path | Graph
    data: Any
    options: Options
    target: Target
    formats: Formats  # types and kinds of scales by precision
    scheme: Scheme | None = None
    load: Mapping[str, Any] = field(default_factory=dict)  # for intaglio.load
    progress: Progress | None = None
    warn: Callable[[str], None] = lambda words: None

    # results of the steps
    graph: Graph = field(init=False)
    graph_state: Mapping[str, Array | None] = field(default_factory=dict)  # of a streaming model
    # precisions of layers, and schemes of tensors, that the user, the file or a step fixed
    fixed_layers: dict[str, str] = field(default_factory=dict)
    fixed_tensors: Mapping[str, TensorScheme] = field(default_factory=dict)
    dataset: Samples = field(init=False)  # all samples, for the inputs that a user gives
    samples: Samples = field(init=False)  # for all inputs, in the order of observation
    sample_count: int = 0  # all samples, observed or not
    placement: Placement = field(init=False)
    recurrent: list[str] = field(default_factory=list)  # layers that may become dynamic int8
    observations: dict[Value, Observation] = field(default_factory=dict)  # in graph order
    weights: dict[Node, Integers] = field(default_factory=dict)
    bias_shifts: dict[Node, Array | None] = field(default_factory=dict)  # corrections by product
    reference: Reference = field(init=False)  # float outputs for some of the samples
    found: Found = field(init=False)  # settings that the search chose
    notes: list[str] = field(default_factory=list)  # messages for the user
    result: Quantized = field(init=False)

    # work in the background, while samples run
    background: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    observing: Event = field(default_factory=Event)  # set once the observed model is compiled
    storing: Future[dict[Node, Integers]] = field(init=False)
    trial: PrecompiledTrial | None = None

    def __enter__(self) -> Calibration:
        return self

    def __exit__(self, *exc: object) -> None:
        self.observing.set()  # lets a waiting job of the background end
        self.background.shutdown(cancel_futures=True)

    def place(self, promoted: Mapping[str, str] = {}) -> None:
        """Decide which layers compute in integers; `promoted` layers get another precision."""
        layers = {**self.fixed_layers, **promoted}
        self.placement = place(self.graph, layers, self.target, self.formats.precision)
        self.placement.depthwise_inputs = self._with_channel_scales()

    def _with_channel_scales(self) -> dict[Value, DepthwiseInput]:
        """Inputs of depthwise convolutions, which have a scale for each channel at no cost."""
        if self.formats.per != "channel":
            return {}
        return depthwise_scales.find(self.graph, self.placement)

    def observe(
        self,
        outputs: MutableMapping[int, dict[str, Array]] | None = None,
        enough: StopCriterion | None = None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        """Observe the tensors that are rounded and were not observed yet."""
        tensors = self._rounded()
        missing = [v for v in tensors if v not in self.observations]
        if not missing:
            return
        axes = self._channel_axes()
        new = observe(
            self.graph,
            missing,
            self.samples,
            progress=self.progress,
            channels={v: axis for v, axis in axes.items() if v in missing},
            outputs=outputs,
            enough=enough,
            started=started,
        )
        known = {**self.observations, **new}
        kept = set(tensors)
        self.observations = {v: known[v] for v in self.graph.values() if v in kept}

    def _rounded(self) -> Iterable[Value]:
        """The tensors that are rounded: to integers, or to f16 or bf16 around a layer in it."""
        halves = [v for n in self.placement.half_layers for v in (n.inputs[0], n.outputs[0])]
        return dict.fromkeys([*self.placement.tensors, *(v for v in halves if v is not None)])

    def _channel_axes(self) -> dict[Value, int]:
        """The axis of channels of every product's input: bias correction needs their means."""
        products = [n for n in self.placement.nodes if n.op in PRODUCTS]
        read = self.placement.quantized
        return {n.inputs[0]: channel_axis(n) for n in products if read(n.inputs[0])}  # type: ignore[misc]

    def ranges(
        self, options: Options | None = None, of: Mapping[Value, Observation] | None = None
    ) -> Ranges:
        """The range of each quantised tensor, by `options` or else the calibration's own; or the
        ranges of other observations than those of the placement's tensors."""
        by, formats = options or self.options, self.formats
        seen = {v: self.observations[v] for v in self.placement.tensors} if of is None else of
        usual = "minmax" if by.method == "auto" else by.method
        dtype = formats.tensors[formats.precision]
        found = {}
        for v, o in seen.items():
            symmetric = formats.is_symmetric(formats.precision, o.low)
            found[v] = o.range(by.methods.get(v.name, usual), dtype, symmetric)
        every = self.observations if of is None else of
        return headroom.with_headroom(found, every, by.headroom or 1.0)

    def schemes(self, ranges: Mapping[Value, tuple[float, float]]) -> dict[str, TensorScheme]:
        """Type, scale and zero point of tensors with these ranges, unless the user fixed them."""
        shares = depthwise_scales.shares(self.placement, self.observations)
        made = assign(self.placement, ranges, self.formats, shares)
        return {name: self.fixed_tensors.get(name, t) for name, t in made.items()}
