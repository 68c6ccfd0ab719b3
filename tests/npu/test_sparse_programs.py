"""Weights that fit a sparse pattern of the chip are stored compressed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.op_networks import Maker, graph
from tests.npu.test_random_programs import native, picture

import intaglio
from intaglio.ir import Graph
from intaglio.npu.compile import build
from intaglio.npu.sparse_weights import BY_NAME, best_mask, blocks, compress
from intaglio.targets import chip as chips


def thinned(net: Graph, form: str) -> Graph:
    """Set all weights to zero but those of the greatest mask of a form."""
    for node in net.nodes():
        w = node.inputs[1].data if node.op == "npu.conv" and node.inputs[1] else None
        if w is not None and w.shape[0] % 32 == w.shape[1] % 32 == 0:
            node.inputs[1].data = w * best_mask(np.abs(w.astype(np.int16)), BY_NAME[form])
    return net


@pytest.mark.parametrize(("form", "share"), [("2:4 in", 0.66), ("2:4 out", 0.66), ("16:4", 0.35)])
def test_sparse_weights(form: str, share: float):
    m = Maker()
    x = m.image(1, 32, 8, 8)
    net = thinned(graph(x, m.conv(m.conv(x, 64, 3), 64, 3)), form)
    sparse, dense = build(net, chips.load("rk3576")), build(net, chips.load("rk3588"))
    assert {i.fields["sparse"] for i in dense.program.instructions if i.op == "conv"} == {0}
    assert len(sparse.weights) < share * len(dense.weights)
    picked = picture(net, 0)
    want = intaglio.interpret(net, {"x": picked})["y0"]
    for made in (sparse, dense):
        assert np.array_equal(native(net, made, picked)[0], want)


def test_the_vendors_blocks_are_accepted():
    """Per tap, two rows and two columns of every block of 4 outputs and 4 inputs, made by rule."""
    rng = np.random.default_rng(0)
    atom = np.zeros((1, 32, 32), np.int8)
    for i in range(0, 32, 4):
        for j in range(0, 32, 4):
            rows, columns = (np.sort(rng.choice(4, 2, replace=False)) for _ in range(2))
            atom[0][np.ix_(i + rows, j + columns)] = rng.integers(1, 127, (2, 2))
    assert compress(atom, 3).shape == (1, 32 * 32 * 5 // 16)
    along_inputs = np.count_nonzero(atom.reshape(-1, 16), axis=1)
    assert along_inputs.min() < 4 < along_inputs.max()  # it is not four of sixteen inputs
    atom[0, 0] = 1
    assert compress(atom, 3) is None


def test_the_best_rectangle_of_each_block():
    scores = np.random.default_rng(1).random((8, 8, 3, 3))
    keep = best_mask(scores, BY_NAME["16:4"])
    assert keep.mean() == 0.25
    cut, mask = (blocks(np.moveaxis(a, (2, 3), (0, 1)))[0, 0, 0, 0] for a in (scores, keep))
    pairs = [(a, b) for a in range(4) for b in range(a)]
    best = max(cut[np.ix_(r, c)].sum() for r in pairs for c in pairs)
    assert (cut * mask).sum() == pytest.approx(best)
