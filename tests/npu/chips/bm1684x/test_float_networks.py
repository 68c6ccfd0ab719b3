"""Layers and networks of f16, bf16 and f32: interpreter, simulator, goldens and closeness."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.bm1684x import float_networks, transformers

import intaglio
from intaglio import ops, targets
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Graph, Type, Value
from intaglio.npu.chips.bm1684x import bmodel, commands, simulate
from intaglio.npu.chips.bm1684x.compile import compile_bmodel, compile_layers
from intaglio.npu.chips.bm1684x.function_steps import FUNCTIONS, evaluate, steps_of
from intaglio.npu.chips.bm1684x.variants import BM1684X
from intaglio.ops.registry import REGISTRY

CHIP = targets.find("bm1684x").chip
GOLDEN = Path(__file__).with_name("golden_floats.json")
SEEDS = range(3 * len(float_networks.KINDS))
LEAST_COSINE = {"f16": 0.9999, "bf16": 0.998, "f32": 0.9999999}


def run_both(made, rng) -> tuple[dict, dict, dict]:
    feeds = transformers.feeds_of(made.lowered, rng)
    return (
        feeds,
        intaglio.interpret(made.graph, feeds),
        simulate.Machine(bmodel.read(made.data)).run(feeds),
    )


def digest(made) -> str:
    return hashlib.sha256(b"".join(commands.encode(made.commands))).hexdigest()[:16]


@pytest.mark.parametrize("seed", SEEDS)
def test_layers_are_those_that_the_vendors_chip_model_ran(seed):
    made = compile_layers(float_networks.layer(seed, BM1684X), CHIP)
    _, expected, found = run_both(made, np.random.default_rng(seed))
    assert np.array_equal(found["y"], expected["y"])
    assert digest(made) == json.loads(GOLDEN.read_text())[str(seed)]


@pytest.mark.parametrize("dtype", float_networks.TYPES)
def test_a_network_is_one_file_close_to_floats(dtype):
    graph = float_networks.small_cnn()
    made = compile_bmodel(graph, CHIP, dtype=dtype)
    assert not made.lowered.before
    assert {n.op for n, _ in made.lowered.after} <= {"reshape"}
    assert {p.dtype for p in (*made.lowered.inputs, *made.lowered.outputs)} == {"f32"}
    products = [n for n in made.graph.nodes() if n.op == "npu.float_conv"]
    assert {n.outputs[0].dtype for n in products} == {dtype}
    feeds, expected, found = run_both(made, np.random.default_rng(0))
    exact = intaglio.interpret(graph, feeds)
    for name, y in expected.items():
        assert np.array_equal(found[name], y)
        a, b = y.reshape(-1).astype(np.float64), exact[name].reshape(-1).astype(np.float64)
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > LEAST_COSINE[dtype]


@pytest.mark.parametrize("seed", range(8))
def test_upsampling_is_in_the_file(seed):
    graph, dtype = float_networks.upsampling(seed), float_networks.TYPES[seed % 3]
    made = compile_bmodel(graph, CHIP, dtype=dtype)
    assert not made.lowered.before
    assert not made.lowered.after
    feeds, expected, found = run_both(made, np.random.default_rng(seed))
    assert np.array_equal(found["y"], expected["y"])
    exact = intaglio.interpret(graph, feeds)["y"].reshape(-1).astype(np.float64)
    y = expected["y"].reshape(-1).astype(np.float64)
    assert y @ exact / np.linalg.norm(y) / np.linalg.norm(exact) > LEAST_COSINE[dtype]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_are_close_to_their_ops(name):
    x = np.linspace(-12, 12, 4801, dtype=np.float32)
    x = np.abs(x) + np.float32(0.01) if name in ("sqrt", "reciprocal") else x
    exact = REGISTRY[name].body(x.astype(np.float64))
    found = evaluate(steps_of(name, {}), x)
    assert np.all(np.abs(found - exact) <= 1e-6 * np.maximum(np.abs(exact), 1))


def test_what_the_chip_cannot_do_is_named():
    x = Value(Type("f32", (1, 4, 8, 8)), "x")
    net = float_networks.FloatNetwork(0)
    y = net.conv(ops.cumsum(net.conv(x, 4), axis=2), 4)
    with pytest.raises(Unsupported, match="cumsum"):
        compile_bmodel(Graph([x], [y], output_names=["y"]), CHIP, dtype="f16")
    with pytest.raises(BadInput, match="dtype is f64; f16, bf16, f32 are possible"):
        compile_bmodel(float_networks.small_cnn(), CHIP, dtype="f64")
