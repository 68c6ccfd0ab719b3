"""Rows of windows as channels, and weights that are loaded early: fewer cycles, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.chips.bm1684x import networks

import intaglio
from intaglio import targets
from intaglio.ir import Type, Value, constant
from intaglio.npu.chips.bm1684x import bmodel, simulate, steps
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.bm1684x.layout import BmLayout
from intaglio.npu.ops.relayout import boxes, spread_rows


@pytest.mark.parametrize(
    ("height", "kernel", "stride", "pad", "rows"),
    [(9, 7, 2, 3, 5), (8, 3, 1, 1, 8), (5, 5, 3, 0, 1), (3, 7, 2, 6, 4), (2, 9, 4, 8, 3)],
)
def test_boxes_of_spread_rows_move_what_the_op_means(height, kernel, stride, pad, rows):
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 3, height, 4)).astype(np.int8)
    edge = np.full((1, 1, 1, 4), 7, np.int8)
    made = spread_rows(
        Value(Type("i8", x.shape), "x"),
        constant(edge),
        kernel=kernel,
        stride=stride,
        pad=pad,
        rows=rows,
    )
    meaning = np.full(made.shape, 7, np.int8)
    padded = np.full((2, 3, height + 2 * pad + kernel + rows * stride, 4), 7, np.int8)
    padded[:, :, pad : pad + height] = x
    for c, k, i in np.ndindex(3, kernel, rows):
        meaning[:, c * kernel + k, i] = padded[:, c, i * stride + k]
    found = np.zeros(meaning.size, np.int8)
    for box in boxes(made.producer):
        source = (x, edge)[box.operand].reshape(-1)
        for at in np.ndindex(*box.sizes):
            to = box.target + np.dot(at, box.target_strides)
            found[to] = source[box.source + np.dot(at, box.source_strides)]
    np.testing.assert_array_equal(found.reshape(meaning.shape), meaning)
    attrs = {"kernel": kernel, "stride": stride, "pad": pad, "rows": rows}
    np.testing.assert_array_equal(np.asarray(_body(x, edge, attrs)), meaning)


def _body(x, edge, attrs):
    value = Value(Type("i8", x.shape), "x")
    y = spread_rows(value, constant(edge), **attrs)
    graph = intaglio.ir.Graph([value], [y], ["y"])
    return intaglio.interpret(graph, {"x": x})["y"]


def test_a_resnet_is_faster_with_both(monkeypatch):
    graph, chip = networks.resnet(18, 64, 10), targets.find("bm1684x").chip
    made = compile_bmodel(graph, chip)
    assert next(iter(made.graph.nodes())).op == "npu.spread_rows"
    (port,) = made.lowered.inputs
    x = np.random.default_rng(1).integers(-128, 128, port.shape).astype(np.int8)
    machine = simulate.Machine(bmodel.read(made.data))
    (found,) = machine.run({machine.stage.inputs[0].name: x}).values()
    (want,) = intaglio.interpret(made.graph, {port.name: x}).values()
    np.testing.assert_array_equal(found, want.reshape(found.shape))
    monkeypatch.setattr(BmLayout, "loads_ahead", 1)
    late = compile_bmodel(graph, chip)
    monkeypatch.setattr("intaglio.npu.chips.bm1684x.spread.WORTH", 1e9)
    narrow = compile_bmodel(graph, chip)
    assert "npu.spread_rows" not in {n.op for n in narrow.graph.nodes()}
    times = [steps.of_file(bmodel.read(m.data)).microseconds for m in (made, late, narrow)]
    assert times == sorted(times)
    assert times[0] < 0.95 * times[2]
