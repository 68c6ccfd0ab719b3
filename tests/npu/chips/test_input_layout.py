"""Inputs of N x H x W x C with a table before the transpose, as files of TFLite have."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.chips.cv18xx.quantized_layers import Layers

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.cv18xx.compile import compile_cvimodel
from intaglio.npu.chips.input_layout import transpose_inputs_first
from intaglio.npu.chips.k210.compile import compile_kmodel


def network() -> tuple[Graph, Value]:
    x = Value(Type("u8", (1, 12, 16, 3)), "picture")
    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)
    turned = ops.transpose(ops.lookup(x, constant(table)), perm=(0, 3, 1, 2))
    net = Layers(0, (1, 3, 12, 16), "i8")
    net.of(turned)
    return Graph([x], [net.conv(turned, 8)], ["y"]), x


@pytest.mark.parametrize("compiled", [lambda g: compile_cvimodel(g, "cv181x"), compile_kmodel])
def test_the_table_is_in_the_file_and_the_transpose_before_it(compiled):
    made = compiled(network()[0])
    assert [n.op for n in made.lowered.before if hasattr(n, "op")] in (["transpose"], [])
    assert made.lowered.inputs[0].shape == (1, 3, 12, 16)
    assert not [n.op for n, _ in made.lowered.after]


def test_results_stay_the_same():
    graph, x = network()
    feeds = {x.name: np.random.default_rng(1).integers(0, 256, x.shape).astype(np.uint8)}
    before = intaglio.interpret(graph, feeds)["y"]
    transpose_inputs_first(graph)
    assert next(iter(graph.nodes())).op == "transpose"
    np.testing.assert_array_equal(intaglio.interpret(graph, feeds)["y"], before)
