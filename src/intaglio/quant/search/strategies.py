"""Automatic search over whole quantisation strategies: try each in turn and keep the best."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio import targets
from intaglio.errors import BadInput
from intaglio.frontends import load
from intaglio.ir import Graph
from intaglio.open_graph import require_fixed
from intaglio.ops.registry import REGISTRY
from intaglio.progress import inside
from intaglio.quant.options import Options, split_keywords
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.formats import formats
from intaglio.quant.placement.place import PRODUCTS, layer
from intaglio.quant.prepare import prepare
from intaglio.quant.result import Quantized
from intaglio.quant.samples.dataset import samples as data_samples
from intaglio.quant.samples.streaming import samples_with_state, user_inputs, with_graph_state
from intaglio.quant.samples.subset import evenly_spaced
from intaglio.quant.search.output_error import Reference
from intaglio.quant.weights import scale_migration
from intaglio.quant.weights.equalization import equalizable
from intaglio.quant.weights.smoothing import NORMS
from intaglio.targets import Target

if TYPE_CHECKING:
    from rich.table import Table

Metric = Callable[[Graph], float]  # the larger, the better
COMPARED = 32  # samples on which strategies are compared
MOST_TIME = 1.1  # predicted time relative to the default: a slower strategy is not kept
# Tried in this order; a strategy that helps is kept while the next is tried.
STRATEGIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("smooth", {"smooth": True}),
    ("equalize", {"equalize": True}),
    ("rounding by data", {"rounding": "data"}),
    ("no bias correction", {"bias_correction": False}),
    ("minmax", {"method": "minmax"}),
    ("kl", {"method": "kl"}),
)
LADDER = (0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)  # cosines that `until` requires in turn


@dataclass(frozen=True)
class Tried:
    """The result of one strategy."""

    name: str
    figure: float  # worst cosine of an output part, or the user's metric
    kept: bool
    layers: int  # layers in floats
    time: float = 1.0  # predicted time of the products; 1: all in the usual precision

    def to_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.name,
            "figure": self.figure,
            "kept": self.kept,
            "floats": self.layers,
            "time": self.time,
        }


@dataclass
class Automatic:
    """The best result, and every strategy that was tried."""

    best: Quantized
    options: Options
    tried: list[Tried] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"tried": [t.to_dict() for t in self.tried]}

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title="strategies")
        for title in ("strategy", "figure", "layers in floats", "time", ""):
            table.add_column(title, justify="left" if title in ("strategy", "") else "right")
        for t in self.tried:
            table.add_row(
                t.name, f"{t.figure:.5f}", str(t.layers), f"{t.time:.2f}", "kept" if t.kept else ""
            )
        return table


def auto(
    model: str | Path | Graph,
    data: Any,
    *,
    options: Options | None = None,
    metric: Metric | None = None,
    strategies: Sequence[tuple[str, dict[str, Any]]] = STRATEGIES,
    **how: Any,
) -> Automatic:
    """Quantise with several strategies and keep the best.

    The best has the highest `metric` of the quantised graph or, without one, the highest cosine of
    the worst output part on at most 32 samples. A strategy that is predicted to take more than a
    tenth longer than the default is not kept. Keywords are those of `calibrate`; the first
    strategy is `options`.
    """
    options, how = split_keywords(options, how)
    graph = _graph(model, options, how)
    chip = targets.find(options.target)
    given = data_samples(data, user_inputs(graph), **options.reading())
    judge = metric or _cosine(graph, given)

    def attempt(o: Options) -> tuple[Quantized, float]:
        result = calibrate(graph, given, options=o, **how)
        return result, _figure(judge, result.graph if metric else result.bare_graph)

    steps = 1 + len(strategies)
    with inside("trying strategy", 0, steps):
        best, figure = attempt(options)
    if figure == -math.inf:
        raise BadInput(
            "the metric gives nan for the default strategy; return a number, the larger the better"
        )
    first = Tried("default", figure, True, _floats(best), _time(best, chip, options))
    found = Automatic(best, options, [first])
    idle = _idle(best.float_graph)
    for i, (name, change) in enumerate(strategies, 1):
        if all(getattr(found.options, k) == v or k in idle for k, v in change.items()):
            continue  # it would change nothing
        other = replace(found.options, **change)
        with inside("trying strategy", i, steps):
            result, figure = attempt(other)
        better = figure > max(t.figure for t in found.tried if t.kept)
        time = _time(result, chip, other)
        kept = better and time <= MOST_TIME * first.time
        found.tried.append(Tried(name, figure, kept, _floats(result), time))
        if kept:
            found.best, found.options = result, other
    return found


def until(
    model: str | Path | Graph,
    data: Any,
    metric: Metric,
    at_least: float,
    *,
    options: Options | None = None,
    **how: Any,
) -> Automatic:
    """Quantise with the fewest layers in floats with which `metric` reaches `at_least`.

    BadInput, with the best value, if it is not reached.
    """
    options, how = split_keywords(options, how)
    graph = _graph(model, options, how)
    chip = targets.find(options.target)
    given = data_samples(data, user_inputs(graph), **options.reading())
    tried: list[Tried] = []
    for cosine in LADDER:
        own = replace(options, accuracy=cosine)
        result = calibrate(graph, given, options=own, **how)
        figure = _figure(metric, result.graph)
        kept = figure >= at_least
        time = _time(result, chip, own)
        tried.append(Tried(f"cosine {cosine:g}", figure, kept, _floats(result), time))
        if kept:
            return Automatic(result, own, tried)
    best = max(tried, key=lambda t: t.figure)
    raise BadInput(
        f"the metric reaches {best.figure:g} ({best.name}), {at_least:g} was asked for; give more "
        "samples, or ask for less"
    )


def _idle(graph: Graph) -> set[str]:
    """Options that change nothing in this optimised graph."""
    able = {"smooth": scale_migration.links(graph, NORMS), "equalize": equalizable(graph)}
    return {option for option, links in able.items() if not links}


def _figure(metric: Metric, graph: Graph) -> float:
    """The value of a metric; -inf for NaN."""
    figure = metric(graph)
    try:
        return -math.inf if math.isnan(float(figure)) else float(figure)
    except (TypeError, ValueError):
        raise BadInput(
            f"the metric gives {figure!r}; return a number, the larger the better"
        ) from None


def _floats(made: Quantized) -> int:
    return sum(p == "f32" for p in made.scheme.layers.values())


def _time(made: Quantized, chip: Target, options: Options) -> float:
    """The predicted time of the products, relative to all in the usual precision."""
    usual = formats(chip, options.activations).precision
    work: dict[str, float] = {}  # MACs by precision
    for n in made.float_graph.nodes():
        if n.op in PRODUCTS:
            own = made.scheme.layers.get(layer(n), "f32")
            work[own] = work.get(own, 0) + REGISTRY[n.op].macs(n)
    times = {p: chip.in_precision(p).cost for p in {usual, *work}}
    return sum(w * times[p] for p, w in work.items()) / (sum(work.values()) * times[usual] or 1)


def _graph(model: str | Path | Graph, options: Options, how: dict[str, Any]) -> Graph:
    """The model, loaded once; the keywords of `load` are removed from `how`."""
    if isinstance(model, Graph):
        return model
    known = inspect.getfullargspec(load).kwonlyargs
    own = {k: how.pop(k) for k in known if k in how}
    graph = prepare(model, options.target, **own)
    require_fixed(graph, "calibration")
    return graph


def _cosine(graph: Graph, given: Any) -> Metric:
    """A metric: the cosine of the worst output part."""
    some = evenly_spaced(given, COMPARED)
    if graph.state:
        some = samples_with_state(graph, some)
    reference = Reference.of(with_graph_state(graph, {}), some)
    return lambda g: min(m.cosine for m in reference.compare(with_graph_state(g, {})))
