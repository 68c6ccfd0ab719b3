"""Pruning of a trained network: filters that are switched off save their share of the work."""

from __future__ import annotations

import numpy as np
import pytest
from tests.shared_models import SHARED

import intaglio
from intaglio.compiler import trace_optimize
from intaglio.ir import Graph, Node, Value
from intaglio.ops.complexity import macs

MODEL = SHARED / "models" / "onnx" / "mobilenet_v2_fp32.onnx"
SHARE = 0.3


def convolutions(graph: Graph) -> list[tuple[Node, Node, Node]]:
    """What feeds each depthwise convolution, itself, and what reads it."""
    found = []
    for node in graph.nodes():
        if node.op == "conv" and node.attrs["groups"] == node.outputs[0].shape[1]:
            before, after = node.inputs[0].producer, next(iter(node.outputs[0].uses))
            while before.op != "conv":
                before = before.inputs[0].producer
            while after.op != "conv":
                after = next(iter(after.outputs[0].uses))
            found.append((before, node, after))
    return found


def switch_off(conv: Node, channels: np.ndarray) -> None:
    for i in (1, 2):
        v: Value = conv.inputs[i]
        v.data = v.data.copy()
        v.data[channels] = 0


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.exists(), reason=f"needs {MODEL.name} in ../shared/models/onnx")
def test_mobilenet_v2_loses_a_third_of_its_hidden_channels():
    graph = intaglio.optimize(intaglio.load(MODEL))  # batch norms are in the weights
    saved = lost = 0
    for before, depthwise, after in convolutions(graph):
        norms = np.abs(depthwise.inputs[1].data).sum((1, 2, 3))
        least = np.argsort(norms)[: int(SHARE * len(norms))]
        switch_off(before, least)
        switch_off(depthwise, least)
        lost += 2 * len(least)
        work = sum(map(macs, (before, depthwise, after)))
        saved += work * len(least) // len(norms)
    assert lost > 4000
    optimized = trace_optimize(graph)
    small, made = optimized.graph, optimized.pruned
    assert made.channels[0] - made.channels[1] == lost
    assert made.before.macs - made.after.macs == saved
    assert 0.27 < saved / made.before.macs < 0.3
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    (name, want), *_ = intaglio.interpret(graph, feeds).items()
    with intaglio.open(intaglio.compile(small)) as session:
        got = session.run(feeds)[name]
    assert np.abs(got - want).max() <= 1e-4 * np.ptp(want)
