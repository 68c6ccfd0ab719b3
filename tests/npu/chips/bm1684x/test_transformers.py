"""f32 layers, products of two activations and whole transformers: simulator and interpreter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.bm1684x import transformers

import intaglio
from intaglio import ops, targets
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.bm1684x import bmodel, commands, float_ops, simulate
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.bm1684x.views import as_map

CHIP = targets.find("bm1684x").chip
GOLDEN = Path(__file__).with_name("golden_transformers.json")
SEEDS = range(2 * len(transformers.KINDS))


def equal_in_simulator(made, feeds) -> bool:
    expected = intaglio.interpret(made.graph, feeds)
    found = simulate.Machine(bmodel.read(made.data)).run(feeds)
    return all(np.array_equal(found[k], y) for k, y in expected.items())


def digest(seed: int) -> dict[str, str]:
    made = transformers.compiled_layer(seed, CHIP)
    return {
        engine: hashlib.sha256(data).hexdigest()[:16]
        for engine, data in zip(("tiu", "dma"), commands.encode(made.commands), strict=True)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_layers_are_those_that_the_vendors_chip_model_ran(seed):
    made = transformers.compiled_layer(seed, CHIP)
    assert equal_in_simulator(made, transformers.feeds_of(made.lowered, np.random.default_rng(0)))
    assert digest(seed) == json.loads(GOLDEN.read_text())[str(seed)]


@pytest.mark.parametrize("make", [transformers.vision, transformers.text])
def test_a_transformer_is_one_file(make):
    graph = make()
    made = compile_bmodel(transformers.quantized(graph), CHIP)
    assert {n.op for n, _ in made.lowered.after} <= {"reshape"}
    left = {n.op for n in made.lowered.before}
    assert not left & {"layer_norm", "attention", "softmax", "matmul", "transpose"}
    feeds = transformers.feeds_of(made.lowered, np.random.default_rng(0))
    assert equal_in_simulator(made, feeds)


@pytest.mark.parametrize("seed", range(3))
def test_int8_attention_stays_on_the_chip(seed):
    made = compile_bmodel(transformers.int8_attention(seed), CHIP)
    found = [n.op for n in made.graph.nodes()]
    assert found.count("npu.matmul") == 2
    assert found.count("npu.softmax") == 1
    assert equal_in_simulator(
        made, transformers.feeds_of(made.lowered, np.random.default_rng(seed))
    )


def test_long_sequences_are_computed_in_parts_of_the_queries(monkeypatch):
    most = "intaglio.npu.chips.bm1684x.float_conversions.MOST_SCORES"
    graph = transformers.quantized(transformers.text())
    whole = compile_bmodel(graph, CHIP)
    monkeypatch.setattr(most, 20 * 7)
    parts = compile_bmodel(graph, CHIP)
    images = [n.outputs[0].shape[0] for n in parts.graph.nodes() if n.op == "npu.softmax"]
    assert images == [2 * 4] * 2
    feeds = transformers.feeds_of(whole.lowered, np.random.default_rng(0))
    assert equal_in_simulator(parts, feeds)
    results = [list(intaglio.interpret(m.graph, feeds).values()) for m in (whole, parts)]
    assert np.array_equal(results[0][0], results[1][0])


def test_the_file_of_a_vision_transformer_follows_the_float_model():
    graph = transformers.vision()
    made = compile_bmodel(transformers.quantized(graph, 8), CHIP)
    (port,) = made.lowered.inputs
    assert port.name == "picture"
    for sample in transformers.samples(graph, 3, seed=9):
        codes = np.clip(np.rint(sample["picture"] / port.scale) + port.zero, -128, 127)
        (found,) = intaglio.interpret(made.graph, {port.name: codes.astype(np.int8)}).values()
        (expected,) = intaglio.interpret(graph, sample).values()
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99


def test_functions_are_as_accurate_as_f32():
    rng = np.random.default_rng(0)
    t = np.float32(rng.uniform(-86, 0, 10000))
    assert np.abs(float_ops.exponential(t) / np.exp(t.astype(np.float64)) - 1).max() < 3e-7
    x = np.float32(rng.standard_normal((2, 70, 5, 1)) * 4 + 1)
    one, zero = np.ones(70, np.float32), np.zeros(70, np.float32)
    y = float_ops.layer_norm.body(x, one, zero, epsilon=1e-5)
    expected = ops.layer_norm.body(x.transpose(0, 2, 3, 1), one, zero, epsilon=1e-5)
    assert np.abs(y - expected.transpose(0, 3, 1, 2)).max() < 1e-5
    y = float_ops.softmax.body(x, scale=0.5)
    assert np.abs(y - ops.softmax.body(x * np.float32(0.5), axis=2)).max() < 1e-6


@pytest.mark.parametrize("seed", range(30))
def test_reshapes_and_transposes_become_permutations(seed):
    """Any chain of them gives the elements that the CPU would give."""
    rng = np.random.default_rng(seed)
    x = Value(Type("f32", (2, 6, 4, 5)), "x")
    v = other = float_ops.arithmetic(x, x, kind="max")
    shapes = [(12, 20), (3, 80), (2, 3, 2, 4, 5), (240,), (16, 15), (5, 48), (2, 2, 6, 10)]
    for _ in range(int(rng.integers(1, 5))):
        shape = shapes[int(rng.integers(len(shapes)))]
        v = ops.transpose(ops.reshape(v, shape=shape), perm=tuple(rng.permutation(len(shape))))
    made = as_map(v, v.shape, tuple(range(v.type.rank)), (1, 4, 60, 1))
    feeds = {"x": rng.standard_normal(x.shape).astype(np.float32)}
    (found,) = intaglio.interpret(Graph([x], [made], ["y"]), feeds).values()
    (expected,) = intaglio.interpret(Graph([x], [v], ["y"]), feeds).values()
    assert np.array_equal(found.ravel(), expected.ravel())
    assert all(n.op.startswith("npu.") for n in Graph([x], [made], ["y"]).nodes())
    assert other is not made


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("mask", transformers.MASKS)
def test_attention_with_masks_of_each_query_and_shared_heads(mask, shared, parts, monkeypatch):
    """Causal masks, computed ones, and heads that share keys and values."""
    if parts > 1:
        most = "intaglio.npu.chips.bm1684x.float_conversions.MOST_SCORES"
        monkeypatch.setattr(most, 48 // parts)
    graph = transformers.masked_attention(mask, shared)
    made = compile_bmodel(graph, CHIP, dtype="f32")
    assert not made.lowered.before
    feeds = transformers.masked_feeds(graph, np.random.default_rng(0))
    ports = {p.name: feeds[p.name].reshape(p.shape) for p in made.lowered.inputs}
    assert equal_in_simulator(made, ports)
    (found,) = intaglio.interpret(made.graph, ports).values()
    (expected,) = intaglio.interpret(graph, feeds).values()
    assert np.abs(found.ravel() - expected.ravel()).max() < 1e-5


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_a_table_of_floats_is_a_sum_of_tables_of_bytes(dtype):
    graph = transformers.table_of_floats(dtype)
    made = compile_bmodel(graph, CHIP, dtype="f32")
    assert {n.op for n, _ in made.lowered.after} <= {"reshape"}
    feeds = transformers.feeds_of(made.lowered, np.random.default_rng(0))
    assert equal_in_simulator(made, feeds)
    (found,) = intaglio.interpret(made.graph, feeds).values()
    (expected,) = intaglio.interpret(graph, {"x": feeds[made.lowered.inputs[0].name]}).values()
    assert np.abs(np.sort(found.ravel()) - np.sort(expected.ravel())).max() < 1e-6


def test_a_causal_transformer_is_one_file():
    net = transformers.Transformer(0, 8, 16, 2)
    x = Value(Type("f32", (1, 8, 16)), "x")
    later = constant(np.triu(np.full((1, 1, 8, 8), -1e4, np.float32), 1))
    y = net.linear(net.attention(net.norm(x), later), 16)
    rng = np.random.default_rng(0)
    some = [{"x": rng.standard_normal(x.shape).astype(np.float32)} for _ in range(4)]
    made = compile_bmodel(intaglio.quantize(Graph([x], [y], ["y"]), some, target="bm1684x"), CHIP)
    assert {n.op for n, _ in made.lowered.after} <= {"reshape"}
    assert equal_in_simulator(made, transformers.feeds_of(made.lowered, rng))


@pytest.mark.parametrize("hidden", [0, 3])
def test_a_constant_mask_of_the_last_token(hidden):
    """A model that returns one token keeps one row of its causal mask."""
    q, k, v = (Value(Type("f32", (1, 2, n, 4)), name) for name, n in (("q", 1), ("k", 5), ("v", 5)))
    mask = constant(np.arange(5)[None] >= hidden)
    graph = Graph([q, k, v], [ops.attention(q, k, v, mask, scale=0.5, softcap=0.0)], ["y"])
    made = compile_bmodel(graph, CHIP, dtype="f32")
    feeds = transformers.masked_feeds(graph, np.random.default_rng(0))
    ports = {p.name: feeds[p.name].reshape(p.shape) for p in made.lowered.inputs}
    assert equal_in_simulator(made, ports)
    (found,) = intaglio.interpret(made.graph, ports).values()
    (expected,) = intaglio.interpret(graph, feeds).values()
    assert np.abs(found.ravel() - expected.ravel()).max() < 1e-5


def test_a_mask_that_does_not_fit_is_refused_by_name():
    q, k, v = (Value(Type("f32", (2, 2, 4, 4)), name) for name in "qkv")
    mask = Value(Type("f32", (1, 1, 4, 4)), "mask")
    y = ops.attention(q, k, v, mask, scale=1.0, softcap=0.0)
    with pytest.raises(Unsupported, match=r"attention\): its mask is .* of each sample"):
        compile_bmodel(Graph([q, k, v, mask], [y], ["y"]), CHIP, dtype="f32")


if __name__ == "__main__":
    found = {str(seed): digest(seed) for seed in SEEDS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
