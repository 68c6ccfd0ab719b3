"""The report of a quantisation: as data, and as text."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import intaglio
from intaglio import targets
from intaglio.analysis import accuracy, agreement, summary
from intaglio.analysis.speed import compare_speeds
from intaglio.ir import Array, Graph
from intaglio.ops.registry import REGISTRY
from intaglio.quant.ranges.observe import Progress
from intaglio.quant.result import Quantized
from intaglio.quant.samples.streaming import samples_with_state, with_graph_state
from intaglio.targets import Target
from intaglio.text_table import shortened, terminal_width

COMPARED = 8  # samples on which the float and the quantised model are compared
WORST = 10  # layers that are shown
SHOWN = 6  # names per line
NOTES = 12  # in a terminal
BESIDE_NAME = 56  # columns of a terminal beside the name: op, and four figures
LONGEST = 60  # characters of a name in a terminal


def facts(made: Quantized, target: str | Target = "cpu") -> dict[str, Any]:
    """Layers by precision, sizes, and the speed-up that the target's costs predict."""
    sizes = [summary.of_graph(g)["parameter_bytes"] for g in (made.float_graph, made.bare_graph)]
    faster = _predicted(made, targets.find(target))
    return {
        **({} if faster is None else {"predicted": faster}),
        **_promoted(made),
        "layers": dict(Counter(made.scheme.layers.values()).most_common()),
        "floats": made.floats,
        "notes": made.notes,
        "curve": [p.to_dict() for p in made.curve],
        "parameter_bytes": sizes,
        "warnings": accuracy.outliers(made.observations),
    }


def _predicted(made: Quantized, chip: Target) -> float | None:
    """The predicted speed-up of the products over floats; None if a cost is unknown."""
    costs = {p.name: p.cost for p in chip.precisions}
    reals = [p.cost for p in chip.precisions if p.is_float]
    if not reals or not {*made.scheme.layers.values()} <= {*costs}:
        return None
    before = after = 0.0
    for n in made.float_graph.nodes():
        macs = REGISTRY[n.op].macs(n)
        before += macs * reals[0]
        after += macs * costs.get(made.scheme.layers.get(n.outputs[0].name, ""), reals[0])
    return before / after if after else None


def _promoted(made: Quantized) -> dict[str, Any]:
    """The layers that a wider type keeps accurate, and how much faster the model is without."""
    kept = next((p for p in made.curve if p.kept and p.layers), None)
    if kept is None:
        return {}
    types = sorted({made.scheme.layers[n] for n in kept.layers if n in made.scheme.layers})
    return {"promoted": {"layers": len(kept.layers), "types": types, "time": kept.time}}


def promoted_words(facts: Mapping[str, Any]) -> str:
    """The trade-off of `--accuracy` in one sentence."""
    some, goal = facts["promoted"], facts.get("goal")
    floats = all(t.startswith(("f", "bf")) for t in some["types"])
    one = some["layers"] == 1
    return (
        f"{some['layers']} layer{'' if one else 's'} stay{'s' if one else ''} in "
        f"{'floats' if floats else ' and '.join(some['types'])} to keep the outputs"
        f"{'' if goal is None else f' within cosine {goal:g} of float'}; "
        f"`--accuracy none`: all int8, about {some['time']:.1f} times as fast (predicted)"
    )


def check(made: Quantized, target: str, progress: Progress) -> dict[str, Any]:
    """Accuracy and speed, compared with the float model."""
    found: dict[str, Any] = {}
    state, samples = made.bare_graph.state, made.dataset
    if samples is not None:
        some: Sequence[Mapping[str, Array]] = samples.take(COMPARED)
        if state:
            some = samples_with_state(with_graph_state(made.float_graph, state), some)
        compared = accuracy.compare(
            with_graph_state(made.float_graph, {}),
            with_graph_state(made.bare_graph, {}),
            some,
            observations=made.observations,
            progress=progress,
        )
        found["accuracy"] = compared.to_dict() | {"samples": len(some)}
    if target == "cpu":
        progress("measuring the speed", 0, None)
        inputs = samples[0] if samples else agreement.usable_inputs(made.float_graph)[0]
        inputs = {name: a for name, a in inputs.items() if name not in state}
        found |= _speed([with_graph_state(made.float_graph, state), made.bare_graph], inputs)
    return found


def _speed(graphs: Sequence[Graph], sample: dict[str, Array]) -> dict[str, Any]:
    """The fastest run of each on one thread in milliseconds, or why it is not known."""
    sessions = [intaglio.open(intaglio.compile(g), threads=1) for g in graphs]
    speeds = compare_speeds([functools.partial(s.run, sample) for s in sessions])
    if speeds.why_unknown:
        return {"speed_unknown": speeds.why_unknown}
    return {"milliseconds": list(speeds.milliseconds)}


def text(facts: Mapping[str, Any], every_layer: bool = False) -> str:
    """The facts as text, with the layers of largest error or with all."""
    counts = ", ".join(f"{n} {precision}" for precision, n in facts["layers"].items())
    lines = [f"{'layers':11} {counts}"]
    for why in dict.fromkeys(facts["floats"].values()):
        names = [f"'{name}'" for name, w in facts["floats"].items() if w == why]
        shown = ", ".join(names[:SHOWN]) + (
            f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)
        )
        lines.append(f"{'in floats':11} {shown}: {why}")
    notes = facts["notes"]
    lines += [f"{'note':11} {words}" for words in notes[:NOTES]]
    if len(notes) > NOTES:
        lines.append(f"{'note':11} {len(notes) - NOTES} more are in the report")
    if "promoted" in facts:
        lines.append(f"{'accuracy':11} {promoted_words(facts)}")
    if len(facts["curve"]) > 1:
        lines.append(
            f"{'trade-off':11} layers in wider types, their share of the work, time of the "
            "products relative to all in int8, worst cosine"
        )
        for p in facts["curve"]:
            figures = f"{len(p['layers']):6} {p['share']:8.1%} {p['time']:6.2f} {p['cosine']:.5f}"
            lines.append(f"{'':11} {figures}{' kept' if p['kept'] else ''}")
    if "accuracy" in facts:
        lines += ["", *_table(facts["accuracy"], every_layer), ""]
    else:
        lines += [f"{'note':11} {words}" for words in facts["warnings"]]
    before, after = facts["parameter_bytes"]
    lines.append(f"{'parameters':11} {before / 1e6:.2f} MB -> {after / 1e6:.2f} MB")
    if "milliseconds" in facts:
        before, after = facts["milliseconds"]
        lines.append(
            f"{'speed':11} {before:.3f} ms -> {after:.3f} ms on one thread of this CPU, "
            f"{before / after:.2f} times as fast"
        )
    if "speed_unknown" in facts:
        lines.append(
            f"{'speed':11} not measured: {facts['speed_unknown']}; `intaglio bench` times both "
            "models when the machine is idle"
        )
    if "predicted" in facts:
        lines.append(
            f"{'predicted':11} products {facts['predicted']:.2f} times as fast as in "
            "floats, by the target's costs"
        )
    return "\n".join(lines)


def _short(name: str) -> str:
    """A name cut to LONGEST characters, or to the terminal's: TFLite joins names of layers."""
    width = terminal_width()
    return shortened(name, max(min(LONGEST, width - BESIDE_NAME), 12) if width else LONGEST)


def _table(found: Mapping[str, Any], every: bool) -> list[str]:
    """Each layer in the whole model, and alone on the float model's inputs."""
    layers = shown = found["layers"]
    if not every:
        alone = [m for m in layers if "single_error" in m]
        worst = sorted(alone, key=lambda m: -m["single_error"])[:WORST]
        shown = [m for m in layers if m in worst]
    rows = [
        (
            _short(m["name"]),
            m["op"],
            m["cosine"],
            m["error"],
            m.get("single_cosine"),
            m.get("single_error"),
        )
        for m in shown
    ]
    rows += [
        (_short(m["output"]), "output", m["cosine"], m["error"], None, None)
        for m in found["outputs"]
    ]
    name, op = (max(len(r[i]) for r in rows) for i in (0, 1))
    few = f"the {len(shown)} of {len(layers)} layers with the largest error" if shown else "outputs"
    what = "every layer" if every else few
    lines = [
        f"compared with the float model on {found['samples']} samples, {what}; "
        "alone: with the float model's inputs",
        f"{'tensor':{name}}  {'':{op}}  {'cosine':>8} {'error':>8}  {'alone':>8} {'error':>8}",
    ]
    for title, kind, *figures in rows:
        a, b, c, d = ("" if f is None else f"{f:.5f}" for f in figures)
        lines.append(f"{title:{name}}  {kind:{op}}  {a:>8} {b:>8}  {c:>8} {d:>8}".rstrip())
    return lines + [f"{'note':11} {words}" for words in found["warnings"]]
