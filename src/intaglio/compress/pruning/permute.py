"""Move channels so that a pattern of zeros costs less: the model computes the same.

Channels of a group may change places if all layers that make and read them follow. Four channels
that stand together compete for the places that a pattern keeps, so large weights are spread. The
search exchanges channels between two fours in the best of all ways, as long as that helps.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np

from intaglio.compress.pruning.groups import Group, find_coupling
from intaglio.compress.pruning.masks import rows_of
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.sparse_weights import SIDE, Form, best_mask
from intaglio.passes.prune.analysis import Analysis
from intaglio.passes.prune.channel_flow import Elementwise, Flow
from intaglio.passes.prune.channel_mixing import CONVOLUTIONS, Product, Sum
from intaglio.passes.prune.channelwise import Channelwise
from intaglio.passes.prune.data_movement import Moved

FOLLOW = (Product, Elementwise, Channelwise, Moved, Sum)  # flows that permuted channels may pass
MOST_VALUES = 300_000_000  # weights that the search of a group looks at
SWEEPS = 4
# both halves of all ways to split eight channels into two fours
_HALVES = [(0, *rest) for rest in itertools.combinations(range(1, 2 * SIDE), SIDE - 1)]
SPLITS = np.array([[h, [i for i in range(2 * SIDE) if i not in h]] for h in _HALVES])


def permute_channels(graph: Graph, form: Form, seed: int = 0) -> int:
    """Permute channels in place; the number of those that have another place."""
    coupling, moved = find_coupling(graph), 0
    rng = np.random.default_rng(seed)
    for group in coupling.prunable():
        for tensors, places in _movable(group):
            flows = Analysis(graph).flows  # of the weights as they are now
            if not all(_follow(v, flows) for v in tensors):
                continue
            scored = _scored(tensors, places, flows, form)
            if not scored:
                continue
            order = _search(scored, form, rng)
            if (order == np.arange(len(order))).all():
                continue
            moved += int((order != np.arange(len(order))).sum())
            for v, at in zip(tensors, places, strict=True):
                whole = np.arange(v.shape[coupling.axes[v]])
                whole[at] = at[order]
                _apply(v, whole, coupling.axes[v], flows)
    return moved


def _movable(group: Group) -> list[tuple[list[Value], list[Array]]]:
    """Classes with one channel in each of the same tensors: the tensors, and the channels' places.

    Without the last few of a number that is no multiple of four.
    """
    alike: dict[tuple[Value, ...], list[int]] = defaultdict(list)
    for i, channels in enumerate(group.classes):
        if all(len(at) == 1 for at in channels.values()):
            alike[tuple(channels)].append(i)
    found = []
    for tensors, classes in alike.items():
        places = [np.array([int(group.classes[i][v][0]) for i in classes]) for v in tensors]
        order = np.argsort(places[0])[: len(classes) // SIDE * SIDE]
        if len(order) >= 2 * SIDE:
            found.append((list(tensors), [p[order] for p in places]))
    return found


def _follow(v: Value, flows: dict[Node, Flow]) -> bool:
    """Whether all nodes around a tensor can follow a permutation of its channels."""
    around = [*v.uses, *([v.producer] if v.producer is not None else [])]
    return all(isinstance(flows.get(n), FOLLOW) for n in around)


def _scored(
    tensors: list[Value], places: list[Array], flows: dict[Node, Flow], form: Form
) -> list[tuple[Array, int]]:
    """Weights whose fours change, [outputs, inputs, taps], and the axis of these channels."""
    found = []
    for v, at in zip(tensors, places, strict=True):
        fours = np.sort(at.reshape(-1, SIDE), 1)
        if (fours[:, :1] % SIDE).any() or (np.diff(fours, axis=1) != 1).any():
            continue  # they do not stand in whole fours here
        makers = [v.producer] if form.outputs or form.block else []
        readers = [] if form.outputs else [n for n in dict.fromkeys(v.uses) if n.inputs[0] is v]
        for n, axis in [*((m, 0) for m in makers), *((r, 1) for r in readers)]:
            flow = None if n is None else flows[n]
            if not isinstance(flow, Product) or len(flow.weights) > 1:
                continue
            size = np.abs(flow.weights[0].astype(np.float32))
            sides = size.shape[:2] if form.block else size.shape[axis : axis + 1]
            if not any(side % SIDE for side in sides):
                found.append((np.ascontiguousarray(size.take(at, axis)), axis))
    return found


def _quality(scored: list[tuple[Array, int]], fours: Array, form: Form) -> Array:
    """How much of the weights a pattern keeps, of each four channels."""
    total = np.zeros(len(fours))
    for size, axis in scored:
        part = size.take(fours.reshape(-1), axis)
        kept = np.moveaxis(part * best_mask(part, form), axis, 0)
        total += kept.reshape(len(fours), -1).sum(1, dtype=np.float64)
    return total


def _search(scored: list[tuple[Array, int]], form: Form, rng: np.random.Generator) -> Array:
    """The order of the channels that was found best."""
    count = scored[0][0].shape[scored[0][1]]
    fours = np.arange(count).reshape(-1, SIDE)
    now = _quality(scored, fours, form)
    pairs = list(itertools.combinations(range(len(fours)), 2))
    cost = sum(size.size // count * SPLITS.size for size, _ in scored)
    left = MOST_VALUES // max(cost, 1)
    for _ in range(SWEEPS):
        better = False
        for k in rng.permutation(len(pairs))[:left]:
            a, b = pairs[int(k)]
            eight = np.concatenate([fours[a], fours[b]])
            found = _quality(scored, eight[SPLITS.reshape(-1, SIDE)], form).reshape(-1, 2)
            best = int(found.sum(1).argmax())
            if found[best].sum() > (now[a] + now[b]) * (1 + 1e-6):
                fours[a], fours[b] = eight[SPLITS[best]]
                now[a], now[b] = found[best]
                better = True
        left -= len(pairs)
        if not better or left <= 0:
            break
    return fours.reshape(-1)


# ---- moving ------------------------------------------------------------------------------------
def _apply(v: Value, order: Array, axis: int, flows: dict[Node, Flow]) -> None:
    """Channel i of a tensor becomes the one that was order[i]: in its producer and its readers."""
    n = v.producer
    assert n is not None
    flow = flows[n]
    if isinstance(flow, Product):
        _rows(n, order)
    elif isinstance(flow, Channelwise):
        for i in flow.how.params:
            _take(n, i, 0, order)
    elif isinstance(flow, Elementwise):
        for i, w in enumerate(n.inputs):
            own = axis - flow.shifts[i]
            if w is not None and w.data is not None and own >= 0 and w.shape[own] == len(order):
                _take(n, i, own, order)
    for reader in dict.fromkeys(v.uses):
        flow = flows[reader]
        if isinstance(flow, Product) and reader.inputs[0] is v and len(flow.weights) == 1:
            _columns(reader, order)


def _rows(n: Node, order: Array) -> None:
    """Permute the outputs of a product (of one group, or depthwise), and its bias."""
    w = n.inputs[1]
    assert w is not None
    assert w.data is not None
    data = np.array(w.data)
    rows_of(n, data)[:] = rows_of(n, w.data)[order]
    Graph.set_input(n, 1, constant(data, w.name))
    place = CONVOLUTIONS.get(n.op, 2)
    bias = n.inputs[place] if len(n.inputs) > place else None
    if bias is not None and bias.type.rank and bias.shape[-1] == len(order):
        _take(n, place, bias.type.rank - 1, order)


def _columns(n: Node, order: Array) -> None:
    """Permute the inputs of a product of one group."""
    if n.op in CONVOLUTIONS:
        _take(n, 1, 0 if n.op == "conv_transpose" else 1, order)
    else:
        _take(n, 1, 1 if n.attrs.get("trans_b") else 0, order)


def _take(n: Node, i: int, axis: int, order: Array) -> None:
    v = n.inputs[i]
    if v is not None and v.data is not None:
        moved = np.ascontiguousarray(np.asarray(v.data).take(order, axis))
        Graph.set_input(n, i, constant(moved, v.name))
