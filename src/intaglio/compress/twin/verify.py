"""Trained equals deployed: the twin and the interpreter, compared byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from intaglio import targets
from intaglio.compress.twin.module import Twin, as_array, from_array
from intaglio.compress.twin.on_chip import verify_on_chip
from intaglio.errors import RunError
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph
from intaglio.npu.chips.packaged import meaning


@torch.no_grad()
def outputs(
    twin: Twin, feeds: Mapping[str, Array], keep: dict[str, Array] | None = None
) -> dict[str, Array]:
    """The twin's outputs in the graph's own element types."""
    was = twin.training
    twin.eval()
    found: dict[str, torch.Tensor] = {}
    types = {v.name: v.dtype for v in twin.source.values()}
    given = [from_array(np.asarray(feeds[v.name])) for v in twin.source.inputs]
    made = twin.run(given, exact=True, keep=None if keep is None else found)
    twin.train(was)
    if keep is not None:
        keep.update({n: as_array(t, types[n]) for n, t in found.items() if n in types})
    names = zip(twin.source.output_names, twin.source.outputs, made, strict=True)
    return {name: as_array(t, v.dtype) for name, v, t in names}


def differences(twin: Twin, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> dict[str, int]:
    """Differing bytes of every output over all samples."""
    total = dict.fromkeys(graph.output_names, 0)
    if twin.on_chip is not None:
        graph = meaning(graph, targets.find(twin.on_chip.target))
    for feeds in samples:
        mine, theirs = outputs(twin, feeds), interpret(graph, feeds)
        for name in total:
            a, b = (np.ascontiguousarray(x[name]).view(np.uint8) for x in (mine, theirs))
            total[name] += int((a != b).sum()) if a.shape == b.shape else max(a.size, b.size)
    return total


def verify(twin: Twin, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> int:
    """Bytes compared; RunError if one differs, with the first tensor that does.

    A twin of a chip that rounds in its own way has the bytes of the chip's commands: those are
    compared with the interpreter of their arithmetic.
    """
    if twin.on_chip is not None:
        return verify_on_chip(graph, twin.on_chip.target, samples)
    count = 0
    for feeds in samples:
        mine: dict[str, Array] = {}
        theirs: dict[str, Array] = {}
        outputs(twin, feeds, mine)
        result = interpret(graph, feeds, theirs)
        made = {**theirs, **result}
        for name in made:
            if name in mine and mine[name].tobytes() != made[name].tobytes():
                wrong = int((mine[name] != made[name]).sum())
                raise RunError(
                    f"the twin differs from the interpreter in tensor '{name}': {wrong} of "
                    f"{made[name].size} elements; trained weights must equal deployed ones, so "
                    "nothing is written; report this model"
                )
        count += sum(a.nbytes for a in result.values())
    return count
