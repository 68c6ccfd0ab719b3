"""Weights that fit a sparse pattern of the chip are stored compressed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.op_networks import Maker, graph
from tests.npu.test_random_programs import native, picture

import intaglio
from intaglio.ir import Graph
from intaglio.npu.compile import build
from intaglio.targets import chip as chips


def thinned(net: Graph, many: int, of: int, outputs: bool) -> Graph:
    """Set all but `many` of every `of` weights to zero, along inputs or outputs."""
    for node in net.nodes():
        w = node.inputs[1].data if node.op == "npu.conv" and node.inputs[1] else None
        if w is not None and w.shape[0] % 32 == w.shape[1] % 32 == 0:
            lines = np.moveaxis(w, 0 if outputs else 1, -1)
            lines = lines.reshape(*lines.shape[:-1], -1, of)
            lines[..., many:] = 0
            back = lines.reshape(*lines.shape[:-2], -1)
            node.inputs[1].data = np.ascontiguousarray(np.moveaxis(back, -1, 0 if outputs else 1))
    return net


@pytest.mark.parametrize(
    ("many", "of", "outputs", "share"),
    [(2, 4, False, 0.66), (2, 4, True, 0.66), (4, 16, False, 0.41)],
)
def test_sparse_weights(many: int, of: int, outputs: bool, share: float):
    m = Maker()
    x = m.image(1, 32, 8, 8)
    net = thinned(graph(x, m.conv(m.conv(x, 64, 3), 64, 3)), many, of, outputs)
    sparse, dense = build(net, chips.load("rk3576")), build(net, chips.load("rk3588"))
    assert {i.fields["sparse"] for i in dense.program.instructions if i.op == "conv"} == {0}
    assert len(sparse.weights) < share * len(dense.weights)
    picked = picture(net, 0)
    want = intaglio.interpret(net, {"x": picked})["y0"]
    for made in (sparse, dense):
        assert np.array_equal(native(net, made, picked)[0], want)
