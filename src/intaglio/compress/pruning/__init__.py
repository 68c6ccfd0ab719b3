"""Structured pruning: remove whole channels until a goal is met.

    result = prune(graph, macs=0.5)                     # half the multiply-accumulates
    result = prune(graph, ms=8.0, target="rk3588")      # as fast as predicted for a chip

Channels that sums, gates, concatenations, shuffles or groups tie together go together. The result
computes what the model with zeroed channels computes, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

import intaglio
from intaglio import targets
from intaglio.compress.float_graph import float_graph
from intaglio.compress.pruning.choose import SEARCHES, Kept, estimate, lowest, plan, search
from intaglio.compress.pruning.criteria import CRITERIA, scores
from intaglio.compress.pruning.groups import Coupling, Group, find_coupling, label, refusals
from intaglio.compress.pruning.heads import split_projections
from intaglio.compress.pruning.masks import cut, zero_channels
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Graph, Value
from intaglio.ops.complexity import Complexity, complexity
from intaglio.targets.cpu.packing import PANEL

CHANNELS = 8  # of a chip whose unit makes fewer at once
MOST_COMPILES = 7  # predictions that a goal in milliseconds may take
__all__ = ["CRITERIA", "Pruned", "find_coupling", "prune", "pruned_steps", "sensitivity"]


@dataclass
class Pruned:
    """A pruned graph, the masked model that it equals, and what was removed."""

    graph: Graph
    masked: Graph = field(repr=False)  # the same weights with zeroed channels
    layers: dict[str, tuple[int, int]]  # channels before and after, by layer
    before: Complexity
    after: Complexity
    kept: tuple[str, ...] = ()  # why other layers keep all channels
    milliseconds: tuple[float, float] | None = None  # predicted before and after

    def to_dict(self) -> dict[str, object]:
        """Values before and after, by name."""
        found: dict[str, object] = {
            "macs": [self.before.macs, self.after.macs],
            "parameters": [self.before.parameters, self.after.parameters],
            "layers": {k: list(v) for k, v in self.layers.items()},
        }
        if self.milliseconds:
            found["milliseconds"] = list(self.milliseconds)
        return found

    def __str__(self) -> str:
        a, b = self.before, self.after
        return (
            f"MACs {a.macs:,} -> {b.macs:,} ({a.macs / max(b.macs, 1):.2f} x fewer), parameters "
            f"{a.parameters:,} -> {b.parameters:,}"
        )


def prune(
    model: Graph,
    *,
    macs: float | None = None,
    parameters: float | None = None,
    ms: float | None = None,
    target: str = "cpu",
    criterion: str = "l2",
    spread: str = "uniform",
    round_to: int | None = None,
    least: float = 0.1,
    gradients: Mapping[Value, Array] | None = None,
    only: Sequence[str] | None = None,
    leave: Sequence[str] = (),
    seed: int = 0,
    fold: bool = True,
) -> Pruned:
    """Remove channels until one goal is met.

    `macs` and `parameters` are the share that stays (0.5: half); `ms` is the time that `target`, a
    chip, is predicted to take. `spread` "uniform" removes the same share of every group, "global"
    the lowest scores of all. Kept channels are multiples of `round_to` (default: the channels that
    the target's unit makes at once, 8 on CPUs), unless there are fewer. `least` is the share of a
    group that always stays. `only` and `leave` name layers. Batch norms are folded, unless `fold`
    is False or the criterion needs them.
    """
    check(macs, parameters, ms, criterion, spread, round_to, least, only, leave)
    graph = float_graph(model, fold and criterion != "bn")
    split_projections(graph)
    if gradients is not None:
        gradients = _carried(model, graph, gradients)
    before = complexity(graph)
    coupling = find_coupling(graph)
    _choose_layers(coupling, only, leave)
    if not coupling.prunable():
        why = next(refusals(coupling), "it has no convolution or product with constant weights")
        raise Unsupported(f"no layer can be pruned: {why}; choose other layers or another model")
    ranks = scores(coupling, criterion, gradients, seed)
    step = usual_rounding(target) if round_to is None else round_to
    make = partial(_plan, coupling, ranks, spread, step, least)
    whole = estimate(coupling, {})
    milliseconds = None
    if ms is not None:
        first = predicted(graph, target)
        kept, reached = search(
            make, partial(_timed, coupling, ranks, graph, target), ms, MOST_COMPILES
        )
        milliseconds = first, reached
        goal: float = ms
        words = f"{reached:.3g} ms"
    else:
        which = 0 if macs is not None else 1
        goal = macs or parameters or 0.0
        kept, reached = search(
            make, lambda k: estimate(coupling, k)[which] / whole[which], goal, SEARCHES
        )
        words = f"{reached:.3f} of its {'MACs' if which == 0 else 'parameters'}"
    if reached > goal:
        raise BadInput(
            f"the goal {goal:g} cannot be met: with the fewest channels the model still takes "
            f"{words}; ask for less, or lower least={least:g} and round_to"
        )
    masked, small = _applied(graph, coupling, ranks, kept)
    layers = {
        label(n): (len(g), kept.get(i, len(g)))
        for i, g in enumerate(coupling.groups)
        for n in g.layers
    }
    return Pruned(
        small, masked, layers, before, complexity(small), tuple(refusals(coupling)), milliseconds
    )


def usual_rounding(target: str) -> int:
    """The channels that a target makes at once: other numbers are slower."""
    chip = targets.find(target).chip
    if chip is None:
        return PANEL
    unit = chip.units.get("conv")
    return CHANNELS if unit is None else max(CHANNELS, unit.out_atom.get("i8", CHANNELS))


def _plan(
    coupling: Coupling, ranks: Mapping[int, Array], spread: str, round_to: int, least: float,
    keep: float,
) -> Kept:  # fmt: skip
    return plan(coupling, ranks, keep, spread, round_to, least)


def check(
    macs: float | None = None, parameters: float | None = None, ms: float | None = None,
    criterion: str = "l2", spread: str = "uniform", round_to: int | None = None,
    least: float = 0.1, only: Sequence[str] | None = None, leave: Sequence[str] = (),
) -> None:  # fmt: skip
    """BadInput unless these options of `prune` are possible."""
    given = {"macs": macs, "parameters": parameters, "ms": ms}
    named = [k for k, v in given.items() if v is not None]
    if len(named) != 1:
        raise BadInput(
            f"{len(named)} goals are given; give one of macs=0.5, parameters=0.5 or ms=8.0"
        )
    value = given[named[0]]
    top = float("inf") if named[0] == "ms" else 1.0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < top:
        raise BadInput(f"{named[0]} is {value!r}; give a number above 0 and below {top:g}")
    if criterion not in CRITERIA:
        raise BadInput(f"criterion is {criterion!r}; known are {', '.join(CRITERIA)}")
    if spread not in ("uniform", "global"):
        raise BadInput(f"spread is {spread!r}; known are uniform, global")
    if round_to is not None and (not isinstance(round_to, int) or round_to < 1):
        raise BadInput(f"round_to is {round_to!r}; give a number of channels from 1 on")
    if not isinstance(least, int | float) or not 0 <= least <= 1:
        raise BadInput(f"least is {least!r}; give a share from 0 to 1")
    for what, names in (("only", only), ("leave", leave)):
        if isinstance(names, str) or not all(isinstance(n, str) for n in names or ()):
            raise BadInput(f"{what} is {names!r}; give a list of names of layers")


def _choose_layers(coupling: Coupling, only: Sequence[str] | None, leave: Sequence[str]) -> None:
    known = {label(n) for g in coupling.groups for n in g.layers}
    for name in (*(only or ()), *leave):
        if name not in known:
            some = ", ".join(sorted(known)[:6])
            raise BadInput(f"no layer is called '{name}'; the model has {some}")
    for g in coupling.groups:
        names = {label(n) for n in g.layers}
        if only is not None and names & set(only) and g.kept:
            raise BadInput(
                f"layer '{min(names & set(only))}' cannot be pruned: {g.kept}; leave it out"
            )
        if names & set(leave) or (only is not None and not names & set(only)):
            g.kept = g.kept or "it is left out by request"


def _carried(model: Graph, graph: Graph, gradients: Mapping[Value, Array]) -> dict[Value, Array]:
    """Gradients of a graph's constants as those of its optimised copy."""
    if any(v in gradients for v in graph.values()):
        return dict(gradients)
    by_data = {id(v.data): g for v, g in gradients.items()}
    return {v: by_data[id(v.data)] for v in graph.values() if id(v.data) in by_data}


def _applied(
    graph: Graph, coupling: Coupling, ranks: Mapping[int, Array], kept: Kept
) -> tuple[Graph, Graph]:
    """The masked and the pruned graph. `graph` itself becomes the masked one."""
    gone = [
        (coupling.groups[i], int(c))
        for i, n in kept.items()
        for c in lowest(ranks[i], len(coupling.groups[i]) - n)
    ]
    zero_channels(coupling.axes, gone)
    small = graph.copy()
    cut(small)
    return graph, small


def _timed(
    coupling: Coupling, ranks: Mapping[int, Array], graph: Graph, target: str, kept: Kept
) -> float:
    copy = graph.copy()
    same = find_coupling(copy)
    for g, original in zip(same.groups, coupling.groups, strict=True):
        g.kept = original.kept
    return predicted(_applied(copy, same, ranks, kept)[1], target)


def predicted(graph: Graph, target: str) -> float:
    """Milliseconds that a chip is predicted to take."""
    if target == "cpu":
        raise BadInput("ms= is a prediction for a chip; give target=, such as rk3588 or k230")
    return float(intaglio.compile(graph, target=target).performance().milliseconds)


def pruned_steps(
    model: Graph,
    train: Callable[[Graph], Graph],
    steps: int = 3,
    schedule: str = "linear",
    *,
    macs: float,
    **options: object,
) -> Pruned:
    """Prune in steps with training in between: iterative ("linear") or gradual ("cubic")."""
    if schedule not in ("linear", "cubic") or steps < 1:
        raise BadInput(f"schedule is {schedule!r} with {steps} steps; known are linear, cubic")
    result, now = None, 1.0
    for i in range(1, steps + 1):
        done = i / steps if schedule == "linear" else 1 - (1 - i / steps) ** 3
        goal = 1 - (1 - macs) * done
        part = prune(model, macs=min(goal / now, 0.999), **options)  # type: ignore[arg-type]
        now *= part.after.macs / part.before.macs
        model = train(part.graph)
        part.graph = model
        if result is not None:
            part.before = result.before
            part.layers = {k: (result.layers.get(k, v)[0], v[1]) for k, v in part.layers.items()}
        result = part
    assert result is not None
    return result


def sensitivity(
    model: Graph,
    evaluate: Callable[[Graph], float],
    ratios: Sequence[float] = (0.25, 0.5, 0.75),
    criterion: str = "l2",
) -> dict[str, dict[float, float]]:
    """What `evaluate` finds if one group alone loses each share of its channels, by first layer."""
    graph = float_graph(model, criterion != "bn")
    split_projections(graph)
    found: dict[str, dict[float, float]] = {}
    for i, g in enumerate(find_coupling(graph).groups):
        if g.kept:
            continue
        for ratio in ratios:
            copy = graph.copy()
            same = find_coupling(copy)
            order = lowest(scores(same, criterion)[i], int(ratio * len(g)))
            zero_channels(same.axes, [(same.groups[i], int(c)) for c in order])
            found.setdefault(g.name, {})[ratio] = evaluate(copy)
    return found


def masks_of(masked: Graph) -> dict[str, Array]:
    """Which channels of every layer are zero, by the layer's name."""
    found = {}
    for group in find_coupling(masked).groups:
        for n in group.layers:
            w = n.inputs[1]
            if w is not None and w.data is not None:
                found[label(n)] = np.asarray(~w.data.reshape(len(w.data), -1).any(1))
    return found


Groups = list[Group]
