"""Sparse weights: zeros that a chip skips, or the smallest weights of all.

sparse = sparsify(graph, "2:4 in")       # or "2:4 out", "16:4", or a share such as 0.8
twin = Twin(sparse); twin.hold_zeros()   # zeros stay zeros while it is trained
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import targets
from intaglio.compress.float_graph import float_graph
from intaglio.compress.pruning.groups import label
from intaglio.compress.pruning.permute import permute_channels
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, constant
from intaglio.npu.sparse_weights import BY_NAME, best_mask

PRODUCTS = ("conv", "matmul", "gemm")


@dataclass
class Sparse:
    """A graph with zeros among its weights, and how many of its layers have the pattern."""

    graph: Graph
    layers: dict[str, float]  # share of weights that stay, by layer
    dense: dict[str, str] = field(default_factory=dict)  # why other layers have no zeros

    def __str__(self) -> str:
        kept = np.mean(list(self.layers.values())) if self.layers else 1.0
        return f"{len(self.layers)} sparse layers keep {100 * kept:.0f} % of their weights"


def sparsify(
    model: Graph, pattern: str | float, target: str | None = None, permute: bool = False,
    fold: bool = True,
) -> Sparse:  # fmt: skip
    """Set the smallest weights to 0, by a pattern of a chip or by share of each layer.

    `permute` moves channels first, so that a pattern keeps larger weights. `target` is the chip
    that is to read the pattern: layers that it could not store sparse stay dense, and a pattern
    that it does not read is refused. Batch norms are folded, unless `fold` is False.
    """
    atoms = check(pattern, target, permute)
    found = Sparse(float_graph(model, fold), {})
    if permute and isinstance(pattern, str):
        permute_channels(found.graph, BY_NAME[pattern])
    for n in found.graph.nodes():
        w = n.inputs[1] if n.op in PRODUCTS else None
        if w is None or w.data is None or w.type.rank < 2:
            continue
        turned = n.op == "matmul" or (n.op == "gemm" and not n.attrs["trans_b"])
        data = np.asarray(w.data).T if turned else np.asarray(w.data)
        if why := _why_dense(n, data, pattern, atoms):
            found.dense[label(n)] = why
            continue
        keep = _mask(np.abs(data.astype(np.float32)), pattern)
        kept = data * keep
        found.layers[label(n)] = float(keep.mean())
        Graph.set_input(n, 1, constant(np.ascontiguousarray(kept.T if turned else kept), w.name))
    return found


def check(pattern: Any = None, target: str | None = None, permute: bool = False) -> tuple[int, int]:
    """The outputs and inputs of the target's unit; BadInput unless it reads this pattern."""
    if not isinstance(permute, bool) or (permute and not isinstance(pattern, str)):
        raise BadInput(
            f"permute is {permute!r} with {pattern!r}; permute=True is for patterns, such as 2:4 in"
        )
    if isinstance(pattern, str):
        if pattern not in BY_NAME:
            raise BadInput(f"pattern is '{pattern}'; known are {', '.join(BY_NAME)}, or a share")
        return (1, 1) if target is None else _atoms(pattern, target)
    if not isinstance(pattern, int | float) or not 0 < pattern < 1:
        raise BadInput(f"pattern is {pattern!r}; give a share of zeros between 0 and 1")
    return 1, 1


def _atoms(pattern: str, target: str) -> tuple[int, int]:
    """The outputs and inputs of a chip's unit, which whole layers must be multiples of."""
    chip = targets.find(target).chip
    if chip is None or pattern not in chip.sparse:
        reads = f"it reads {', '.join(chip.sparse)}" if chip and chip.sparse else "it reads none"
        raise BadInput(f"{target} does not read {pattern} sparse weights; {reads}")
    unit = chip.units["conv"]
    return unit.out_atom.get("i8", 1), unit.in_atom.get("i8", 1)


def _why_dense(n: Node, data: Array, pattern: str | float, atoms: tuple[int, int]) -> str:
    if not isinstance(pattern, str):
        return ""
    if n.attrs.get("groups", 1) != 1:
        return "its convolution has groups"
    form = BY_NAME[pattern]
    side = max(4, atoms[0]), max(4, atoms[1])
    if form.name == "2:4 in":
        side = (atoms[0], side[1])
    if form.outputs:
        side = (side[0], atoms[1])
    if data.shape[0] % side[0] or data.shape[1] % side[1]:
        return (
            f"{data.shape[0]} outputs and {data.shape[1]} inputs are no multiples of {side[0]} "
            f"and {side[1]}"
        )
    return ""


def _mask(scores: Array, pattern: str | float) -> Array:
    if isinstance(pattern, str):
        return best_mask(scores, BY_NAME[pattern])
    flat = scores.reshape(-1)
    gone = np.argsort(flat, kind="stable")[: int(pattern * len(flat))]
    keep = np.ones(len(flat), bool)
    keep[gone] = False
    return keep.reshape(scores.shape)
