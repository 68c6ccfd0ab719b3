"""How much a channel matters: one score per class of coupled channels.

Scores of each layer are divided by their mean, so that layers can be compared. A class has the mean
of the scores of all layers that make it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.compress.pruning.groups import Coupling, Group, label
from intaglio.compress.pruning.masks import rows_of
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Value

CRITERIA = ("l1", "l2", "bn", "fpgm", "taylor", "movement", "random")
WITH_GRADIENTS = ("taylor", "movement")
MOST_ROWS = 2048  # channels between which fpgm measures distances at once


def scores(
    coupling: Coupling,
    criterion: str = "l2",
    gradients: Mapping[Value, Array] | None = None,
    seed: int = 0,
) -> dict[int, Array]:
    """The score of every class, by the index of its group."""
    if criterion not in CRITERIA:
        raise BadInput(f"criterion is {criterion!r}; known are {', '.join(CRITERIA)}")
    if criterion in WITH_GRADIENTS and gradients is None:
        raise BadInput(f"criterion '{criterion}' needs gradients: give labelled data")
    rng = np.random.default_rng(seed)
    found = {}
    for i, g in enumerate(coupling.groups):
        if g.kept:
            continue
        if criterion == "random":
            found[i] = rng.random(len(g))
        else:
            found[i] = _of_group(g, criterion, gradients or {})
    return found


def _of_group(g: Group, criterion: str, gradients: Mapping[Value, Array]) -> Array:
    total, layers = np.zeros(len(g)), g.layers
    if criterion == "bn":  # layers without a batch norm have no say if another one has
        layers = [n for n in layers if _norm(n) is not None] or layers
    for node in layers:
        rows = _of_layer(node, criterion, gradients)
        mean = np.abs(rows).mean()
        rows = rows / mean if mean else rows
        total += [rows[c[node.outputs[0]]].mean() for c in g.classes]
    return total / max(len(layers), 1)


def _of_layer(node: Node, criterion: str, gradients: Mapping[Value, Array]) -> Array:
    """One score for each output channel of a product."""
    w = node.inputs[1]
    assert w is not None
    assert w.data is not None
    data = rows_of(node, np.asarray(w.data, np.float32))
    rows = data.reshape(len(data), -1)
    match criterion:
        case "l1":
            return np.asarray(np.abs(rows).sum(1))
        case "l2":
            return np.asarray(np.sqrt(np.square(rows).sum(1)))
        case "bn":
            return _norm_factors(node)
        case "fpgm":
            return _distances(rows)
    if w not in gradients:
        raise BadInput(f"layer '{label(node)}' has no gradient; train its weights too")
    by = rows_of(node, np.asarray(gradients[w], np.float32)).reshape(len(data), -1)
    product = (rows * by).sum(1)
    return np.asarray(np.abs(product) if criterion == "taylor" else -product)


def _norm(node: Node) -> Array | None:
    """The factors of the batch norm behind a layer; None: there is none."""
    for reader in node.outputs[0].uses:
        v = reader.inputs[1] if len(reader.inputs) > 1 else None
        if reader.op in ("batch_norm", "mul") and v is not None and v.data is not None:
            found = np.abs(v.data.reshape(-1))
            if len(found) == node.outputs[0].shape[1]:
                return np.asarray(found, np.float32)
    return None


def _norm_factors(node: Node) -> Array:
    found = _norm(node)
    if found is not None:
        return found
    raise BadInput(
        f"layer '{label(node)}' has no batch norm behind it; criterion 'bn' needs one there; "
        "take l1, l2 or taylor"
    )


def _distances(rows: Array) -> Array:
    """The sum of distances to all other rows: rows near their geometric median go first."""
    square = np.square(rows).sum(1)
    total = np.zeros(len(rows))
    for i in range(0, len(rows), MOST_ROWS):
        part = rows[i : i + MOST_ROWS]
        far = square[i : i + MOST_ROWS, None] + square - 2 * part @ rows.T
        total[i : i + MOST_ROWS] = np.sqrt(np.maximum(far, 0)).sum(1)
    return total
