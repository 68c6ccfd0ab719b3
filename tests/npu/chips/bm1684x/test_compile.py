"""From quantised graphs to bmodels: golden command streams, memory, and words of refusals.

The golden streams are those that tests/vendors/test_sophgo.py ran on the vendor's simulator.

    python -m tests.npu.chips.bm1684x.test_compile    writes golden.json again
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.bm1684x import networks
from tests.npu.chips.k210.quantized_cnn import Cnn, joined_outputs, random_cnn

import intaglio
from intaglio import ops, targets
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.bm1684x import bmodel, commands
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.bm1684x.layout import BmLayout
from intaglio.npu.chips.bm1684x.variants import BM1684X

GOLDEN = Path(__file__).with_name("golden.json")
NETS = {f"layer{s}": (networks.random_layer, s) for s in range(24)}
NETS |= {f"net{s}": (networks.random_network, s) for s in (2, 3, 4, 5)}
NETS |= {f"cnn{s}": (random_cnn, s) for s in range(4)}
NETS |= {f"relu{s}": (networks.relu_cnn, s) for s in range(4)}


def compiled(graph: Graph):
    return compile_bmodel(graph, targets.find("bm1684x").chip)


def digest(name: str) -> dict[str, str | int]:
    make, seed = NETS[name]
    try:
        made = compiled(make(seed))
    except Unsupported as e:
        return {"refused": str(e)}
    tiu, dma = commands.encode(made.commands)
    (stage,) = made.model.nets[0].stages
    parts = {"tiu": tiu, "dma": dma, "coefficients": stage.coefficients}
    return {k: hashlib.sha256(v).hexdigest()[:16] for k, v in parts.items()}


@pytest.mark.parametrize("name", NETS)
def test_streams_are_those_that_the_simulator_ran(name):
    assert digest(name) == json.loads(GOLDEN.read_text())[name]


def test_the_file_reads_back():
    made = compiled(joined_outputs())
    again = bmodel.read(made.data)
    (stage,) = again.nets[0].stages
    (group,) = stage.subnets[0].groups
    found = commands.decode(group.tiu, group.dma)
    assert len(found) == len(made.commands) + 2
    assert {t.name for t in stage.outputs} == set(made.graph.output_names)
    assert made.about["inputs"][0]["shape"] == [1, 3, 12, 20]


def test_compiling_twice_gives_the_same_bytes():
    assert compiled(random_cnn(1)).data == compiled(random_cnn(1)).data


@pytest.mark.parametrize("seed", range(12))
def test_unsigned_maps_keep_every_bit(seed, monkeypatch):
    unsigned = compiled(networks.relu_cnn(seed))
    monkeypatch.setattr("intaglio.npu.chips.bm1684x.compile.as_unsigned", lambda graph: graph)
    signed = compiled(networks.relu_cnn(seed))
    (port,) = signed.lowered.inputs
    feeds = {port.name: np.random.default_rng(seed).integers(-128, 128, port.shape, np.int8)}
    expected = intaglio.interpret(signed.graph, feeds)
    for name, found in intaglio.interpret(unsigned.graph, feeds).items():
        assert np.array_equal(found, expected[name])
    assert len(unsigned.commands) <= len(signed.commands)


def test_commands_that_share_bytes_are_ordered():
    """Scratch memory never overlaps what a layer reads or writes."""
    made = compiled(networks.random_network(4))
    layouts = made.program.memory_plan.layouts
    assert any(one.scratch for one in layouts)
    layout = BmLayout(BM1684X)
    for one in layouts:
        for k, block in one.scratch.items():
            layer = made.program.net.layers[k]
            rows = max(high - low for b in one.bands for low, high in [b.made.get(k, (0, 0))])
            assert block.size >= layout.scratch(layer, rows)


def test_ops_outside_the_file_are_named():
    net = Cnn(0, (1, 3, 8, 8))
    y = net.conv(net.input, 4)
    real = ops.dequantize_linear(y, *net.of(y))
    made = compiled(net.graph(ops.softmax(real, axis=1)))
    assert [n.op for n, _ in made.lowered.after] == ["softmax"] or made.lowered.after
    assert all(why for _, why in made.lowered.after)


def test_a_cpu_op_between_products_is_refused():
    net = Cnn(0, (1, 3, 8, 8))
    y = net.conv(net.input, 4)
    summed = ops.dequantize_linear(y, *net.of(y))
    summed = ops.quantize_linear(ops.cumsum(summed, axis=3), *net.of(y), dtype="i8")
    net.quant[summed] = net.of(y)
    with pytest.raises(Unsupported, match=r"1 products read results of ops .*\(cumsum\)"):
        compiled(net.graph(net.conv(summed, 4)))


def test_a_graph_without_layers_is_refused():
    x = Value(Type("f32", (1, 4)), "x")
    with pytest.raises(Unsupported, match="no layer runs on the TPU"):
        compiled(Graph([x], [ops.softmax(x, axis=1)], ["y"]))


def test_the_input_names_and_scales_are_those_of_the_model():
    x = Value(Type("f32", (1, 3, 8, 8)), "picture")
    scale, zero = constant(np.float32(0.5)), constant(np.int8(-3))
    q = ops.quantize_linear(x, scale, zero, dtype="i8")
    net = Cnn(0, (1, 3, 8, 8))
    net.quant[q] = scale, zero
    made = compiled(Graph([x], [net.conv(q, 4)], ["y"]))
    (port,) = made.lowered.inputs
    assert (port.name, port.scale, port.zero, port.dtype) == ("picture", 0.5, -3, "i8")


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: digest(name) for name in NETS}, indent=1) + "\n")
