"""A model on its way to integers: what was asked for, and what is known of it so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.options import Options
from intaglio.quant.placement import depthwise_scales
from intaglio.quant.placement.formats import Formats
from intaglio.quant.placement.place import PRODUCTS, Between, Placement, place
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges import headroom
from intaglio.quant.ranges.assign import assign
from intaglio.quant.ranges.observe import Observation, Progress, StopCriterion, observe
from intaglio.quant.weights.bias_correction import channel_axis
from intaglio.quant.weights.integers import Integers
from intaglio.targets import Target


@dataclass
class Draft:
    """What the steps of quantising hand on to each other."""

    graph: Graph
    chip: Target
    options: Options
    how: Formats
    wanted: dict[str, str]  # precision of layers that a user, or what was found first, asks for
    given: Mapping[str, TensorScheme]  # of tensors, which nothing that is found overrules
    progress: Progress | None = None
    samples: Sequence[Mapping[str, Array]] = ()  # that are looked at,
    count: int = 0  # and that were given
    placement: Placement = field(init=False)
    seen: dict[Value, Observation] = field(default_factory=dict)
    weights: dict[Node, Integers] = field(default_factory=dict)
    shifts: dict[Node, Array | None] = field(default_factory=dict)  # what corrects biases

    def __post_init__(self) -> None:
        self.place()

    @property
    def many(self) -> bool:
        """Do the samples show nearly all there is?"""
        return self.count > headroom.MANY

    def place(self, layers: Mapping[str, str] = {}) -> None:
        """Decide what is rounded where, with these layers in another precision."""
        precision = self.how.precision
        self.placement = place(self.graph, {**self.wanted, **layers}, self.chip, precision)
        self.find_between()

    def find_between(self) -> None:
        """Give tensors scales by channel: where many samples tell what those hold, or a scheme."""
        found: Mapping[Value, Between] = {}
        if self.how.per == "channel":
            found = depthwise_scales.find(self.graph, self.placement)
        told = {name for name, t in self.given.items() if len(t.scale) > 1}
        self.placement.between = {
            v: around for v, around in found.items() if self.many or v.name in told
        }

    def look(
        self,
        outputs: MutableMapping[int, dict[str, Array]] | None = None,
        enough: StopCriterion | None = None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        """See what the tensors hold that are rounded, unless all of it was seen already."""
        halves = [v for n in self.placement.halves for v in (n.inputs[0], n.outputs[0])]
        tensors = dict.fromkeys([*self.placement.tensors, *(v for v in halves if v is not None)])
        if not self.seen or not all(v in self.seen for v in tensors):
            self.seen = observe(
                self.graph,
                list(tensors),
                self.samples,
                progress=self.progress,
                channels=self._means(),
                outputs=outputs,
                enough=enough,
                started=started,
            )

    def _means(self) -> dict[Value, int]:
        """Tensors of which the mean of every channel is of use, and the axis of those."""
        products = [n for n in self.placement.nodes if n.op in PRODUCTS]
        read = self.placement.quantized
        return {n.inputs[0]: channel_axis(n) for n in products if read(n.inputs[0])}  # type: ignore[misc]

    def ranges(self, options: Options | None = None) -> dict[Value, tuple[float, float]]:
        """The range that each quantised tensor is to hold, by these options or its own."""
        by, how = options or self.options, self.how
        usual = "minmax" if by.method == "auto" else by.method
        methods = {v: by.methods.get(v.name, usual) for v in self.placement.tensors}
        dtype, symmetric = how.tensors[how.precision], how.precision in how.symmetric
        found = {v: self.seen[v].range(m, dtype, symmetric) for v, m in methods.items()}
        return headroom.with_room(found, self.seen, by.room or 1.0, by.deep_room)

    def schemes(self, ranges: Mapping[Value, tuple[float, float]]) -> dict[str, TensorScheme]:
        """How tensors of these ranges are stored, unless it is given."""
        made = assign(
            self.placement, ranges, self.how, depthwise_scales.shares(self.placement, self.seen)
        )
        return {name: self.given.get(name, t) for name, t in made.items()}
