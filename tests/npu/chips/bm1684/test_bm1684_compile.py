"""From quantised graphs to bmodels of the BM1684: golden streams, simulation, refusals.

The golden streams are those that tests/vendors/test_sophgo_bm1684.py ran on the vendor's simulator.

    python -m tests.npu.chips.bm1684.test_bm1684_compile    writes golden.json again
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.npu.chips.bm1684 import networks
from tests.npu.chips.bm1684x.networks import random_layer

import intaglio
from intaglio import dtypes, ops, targets
from intaglio.cli import cli
from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.bm1684.arithmetic import of_scales, rounded, shifted
from intaglio.npu.chips.bm1684.compile import compile_bmodel
from intaglio.npu.chips.bm1684.simulate import Machine, machine_of
from intaglio.npu.chips.bm1684x import bmodel, commands

GOLDEN = Path(__file__).with_name("golden.json")
NETS = {f"layer{s}": (networks.layer, s) for s in range(20)}
NETS |= {f"net{s}": (networks.network, s) for s in range(10)}
NETS |= {f"gate{s}": (networks.gates, s) for s in range(6)}
NETS |= {f"table{s}": (networks.tables, s) for s in range(6)}


def compiled(graph: Graph):
    return compile_bmodel(graph, targets.find("bm1684").chip)


def digest(name: str) -> dict[str, str]:
    make, seed = NETS[name]
    made = compiled(make(seed))
    tiu, dma = commands.encode(made.commands, "bm1684")
    parts = {"tiu": tiu, "dma": dma, "coefficients": made.model.nets[0].stages[0].coefficients}
    return {k: hashlib.sha256(v).hexdigest()[:16] for k, v in parts.items()}


def feeds_of(made, seed: int = 0) -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(seed), {}
    for p in made.lowered.inputs:
        low, high = dtypes.limits(p.dtype)
        found[p.name] = rng.integers(low, high + 1, p.shape).astype(dtypes.numpy_of(p.dtype))
    return found


@pytest.mark.parametrize("name", NETS)
def test_streams_are_those_that_the_vendors_simulator_ran(name):
    assert digest(name) == json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", NETS)
def test_our_simulator_computes_what_the_interpreter_does(name):
    make, seed = NETS[name]
    made = compiled(make(seed))
    feeds = feeds_of(made)
    found = Machine(bmodel.read(made.data)).run(feeds)
    for key, expected in intaglio.interpret(made.graph, feeds).items():
        assert found[key].dtype == expected.dtype
        assert np.array_equal(found[key], expected)


def test_rounding():
    x = np.array([-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6])
    assert rounded(x, 2).tolist() == [-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert rounded(x, 0).tolist() == x.tolist()
    sums = np.array([[[[300]], [[1 << 20]], [[-300]]]])
    assert shifted(sums, np.array([1, 1, 1]), "u8", 0, 255).ravel().tolist() == [150, 255, 0]
    # different shifts go by way of 16 bits, which saturate
    assert shifted(sums, np.array([2, 9, 3]), "i8", -128, 127).ravel().tolist() == [75, 127, -37]


def test_scales_go_into_weights():
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (6, 3, 3, 3)).astype(np.int8)
    w[5] = 0
    scale = (2.0 ** rng.uniform(-9, -6, 6)).astype(np.float32)
    made = of_scales(w, scale, np.array([0, 500, -500, 30000, 3000, 40]))
    real, kept = (
        w * scale.reshape(-1, 1, 1, 1),
        made.weights * 2.0 ** -made.shifts.reshape(-1, 1, 1, 1),
    )
    largest = np.abs(real[:4]).max((1, 2, 3))
    assert (np.abs(real - kept)[:4].max((1, 2, 3)) < largest / 120).all()
    assert np.abs(made.bias).max() <= 32767
    assert made.shifts.max() - made.shifts.min() <= 7
    exact = of_scales(w[:5], np.full(5, 2.0**-9, np.float32), np.arange(5))
    assert np.array_equal(exact.weights, w[:5])
    assert exact.shifts.tolist() == [9] * 5


def test_the_file_reads_back():
    made = compiled(networks.network(3))
    again = bmodel.read(made.data)
    (group,) = again.nets[0].stages[0].subnets[0].groups
    assert (again.chip, len(group.tiu) // 128) == ("BM1684", group.tiu_count)
    assert len(commands.decode(group.tiu, group.dma, "bm1684")) == len(made.commands)
    assert compiled(networks.network(3)).data == made.data


def test_zero_points_are_refused():
    with pytest.raises(Unsupported, match=r"has the zero point .*quantise for target=.bm1684"):
        compiled(random_layer(2))


def test_floats_are_refused():
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    w = constant(np.ones((4, 3, 3, 3), np.float32))
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    with pytest.raises(Unsupported, match="quantise it first"):
        compiled(Graph([x], [ops.conv(x, w, None, **window)], ["y"]))


def test_quantize_gives_the_formats_of_the_chip(tmp_path):
    """Maps from 0 on have the lowest zero point, others none; the file runs as our command says."""
    rng = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 16, 16)), "x")
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    w = constant(rng.standard_normal((20, 3, 3, 3)).astype(np.float32))
    y = ops.relu(ops.conv(x, w, constant(rng.standard_normal(20).astype(np.float32)), **window))
    v = constant(rng.standard_normal((20, 20, 3, 3)).astype(np.float32) / 20)
    z = ops.add(y, ops.conv(y, v, None, **window))
    graph = Graph([x], [z], ["z"])
    samples = [{"x": rng.standard_normal(x.shape).astype(np.float32)} for _ in range(4)]
    made = compiled(intaglio.quantize(graph, samples, target="bm1684", accuracy=None))
    assert {n.op for n in made.graph.nodes()} == {"bm1684.conv", "bm1684.add"}
    kinds = {n.outputs[0].dtype for n in made.graph.nodes()}
    assert kinds == {"i8", "u8"}
    (port,), (end,) = made.lowered.inputs, made.lowered.outputs
    given = np.clip(np.rint(samples[0]["x"] / port.scale) + port.zero, -128, 127)
    (found,) = intaglio.interpret(made.graph, {port.name: given.astype(np.int8)}).values()
    (real,) = intaglio.interpret(graph, samples[0]).values()
    got = (found.astype(np.float32) - end.zero) * end.scale
    assert np.corrcoef(got.ravel(), real.ravel())[0, 1] > 0.999
    made.save(tmp_path / "m.bmodel")
    np.save(tmp_path / "x.npy", given.astype(np.int8))
    out = tmp_path / "out.npz"
    command = ["run", tmp_path / "m.bmodel", tmp_path / "x.npy", "-o", out]
    done = CliRunner().invoke(cli, [str(w) for w in command])
    assert done.exit_code == 0, done.output
    (written,) = np.load(out).values()
    assert np.array_equal(written, found)


def test_damaged_files_end_in_a_line():
    made = compiled(networks.network(1))
    (stage,) = made.model.nets[0].stages
    (group,) = stage.subnets[0].groups
    feeds, rng = feeds_of(made), np.random.default_rng(3)
    lines: list[str] = []
    for _ in range(60):
        changed = bytearray(group.tiu)
        for _ in range(3):
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        stage.subnets[0].groups[0] = bmodel.Group(bytes(changed), group.dma, 0, 0)
        try:
            machine_of(made.model).run(feeds)
        except (BadFile, Unsupported) as e:
            lines.append(str(e))
    assert len(lines) > 10
    assert not any("\n" in line for line in lines)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: digest(name) for name in NETS}, indent=1) + "\n")
