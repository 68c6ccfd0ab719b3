"""Structured pruning: the pruned graph computes what the masked one computes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compress.small_nets import NETS, build

import intaglio
from intaglio import catalogue, ops
from intaglio.catalogue.builder import Builder
from intaglio.compress import prune, sensitivity, sparsify
from intaglio.compress.pruning import predicted, pruned_steps, usual_rounding
from intaglio.compress.pruning.groups import find_coupling, label
from intaglio.compress.pruning.masks import zero_channels
from intaglio.compress.pruning.permute import permute_channels
from intaglio.compress.sparsity import PRODUCTS
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.sparse_weights import BY_NAME
from intaglio.quant.prepare import prepare


def equal(a: Graph, b: Graph) -> bool:
    rng = np.random.default_rng(3)
    feeds = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in a.inputs}
    one, two = intaglio.interpret(a, feeds), intaglio.interpret(b, feeds)
    return all(
        np.allclose(one[k], two[k], rtol=1e-4, atol=1e-4 * np.abs(one[k]).max()) for k in one
    )


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("spread", ["uniform", "global"])
def test_half_the_work_without_settings(name: str, spread: str):
    result = prune(build(name), macs=0.5, round_to=4, spread=spread)
    assert result.after.macs <= 0.51 * result.before.macs
    assert result.after.parameters < result.before.parameters
    assert equal(result.masked, result.graph)
    assert any(after < before for before, after in result.layers.values())


@pytest.mark.parametrize("criterion", ["l1", "l2", "fpgm", "random"])
def test_criteria(criterion: str):
    result = prune(build("residual"), parameters=0.6, criterion=criterion, round_to=8)
    assert result.after.parameters <= 0.62 * result.before.parameters
    assert equal(result.masked, result.graph)


def test_the_lowest_norms_go():
    graph = build("plain")
    first = next(n for n in graph.nodes() if n.op == "conv")
    small = [1, 5, 6, 9, 11, 12, 13, 15]
    first.inputs[1].data[small] *= 1e-3
    result = prune(graph, macs=0.6, only=["conv1"], round_to=8)
    w = next(n for n in result.masked.nodes() if n.op == "conv").inputs[1].data
    assert np.flatnonzero(~w.any((1, 2, 3))).tolist() == small
    assert result.layers["conv1"] == (16, 8)


def test_channels_of_a_sum_go_together():
    coupling = find_coupling(prepare(build("residual")))
    groups = [{label(n) for n in g.layers} for g in coupling.prunable()]
    assert {"conv1", "conv3"} in groups
    assert {"conv2"} in groups
    kept = [g.kept for g in coupling.groups if g.kept and g.layers]
    assert kept == ["they are part of output 'logits'"]


def test_the_lossless_pass_removes_what_batch_norm_zeroes():
    graph = build("residual")
    for n in graph.nodes():
        if n.op in ("mul", "add"):
            for v in n.inputs:
                if v.data is not None and v.shape[0] == 24:
                    v.data = v.data.copy()
                    v.data[::2] = 0
    small = intaglio.optimize(graph, level=2)
    convs = [n.inputs[1].shape for n in small.nodes() if n.op == "conv"]
    assert (12, 16, 3, 3) in convs
    assert equal(graph, small)


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_channels_that_a_batch_norm_zeroes_go_in_one_pass(bias: float):
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Value:
        return constant(rng.standard_normal(shape).astype(np.float32))

    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    scale, shift = some(16), some(16)
    scale.data[::2], shift.data[::2] = 0, bias
    spread = constant(np.ones(16, np.float32))
    x = Value(Type("f32", (1, 3, 8, 8)), "input")
    y = ops.batch_norm(ops.conv(x, some(16, 3, 3, 3), **window), scale, shift, some(16), spread)
    y = ops.swish(y)
    # without padding, since constants other than 0 differ from its zeros
    y = ops.conv(y, some(4, 16, 3, 3), **{**window, "pad": (0, 0, 0, 0)})
    graph = Graph([x], [y], ["y"])
    small = intaglio.optimize(graph, level=2)
    convs = [n.inputs[1].shape for n in small.nodes() if n.op == "conv"]
    assert convs == [(8, 3, 3, 3), (4, 8, 3, 3)]
    assert equal(graph, small)


def test_iterative_pruning_trains_between_steps():
    seen: list[int] = []

    def train(graph: Graph) -> Graph:
        seen.append(sum(n.inputs[1].shape[0] for n in graph.nodes() if n.op == "conv"))
        return graph

    result = pruned_steps(build("residual"), train, 3, "cubic", macs=0.4, round_to=2)
    assert len(seen) == 3
    assert seen == sorted(seen, reverse=True)
    assert result.after.macs <= 0.42 * result.before.macs


def test_sensitivity_names_layers():
    graph = build("residual")
    found = sensitivity(
        graph,
        lambda g: float(sum((v.data == 0).sum() for v in g.values() if v.data is not None)),
        (0.25, 0.75),
    )
    assert set(found) == {"conv1", "conv2", "conv4"}
    assert all(of[0.25] < of[0.75] for of in found.values())


def test_a_goal_in_milliseconds():
    graph = build("plain")
    goal = 0.95 * predicted(prepare(graph), "rk3588")
    result = prune(graph, ms=goal, target="rk3588", round_to=8)
    assert result.milliseconds[1] <= goal < result.milliseconds[0]
    assert equal(result.masked, result.graph)


def test_channels_are_rounded_to_what_the_target_makes_at_once():
    b = Builder("random")
    x = b.input(8)
    graph = b.graph(x, b.classifier(b.conv(b.conv(x, 160, 3), 24, 3), 10), "wide")
    step = usual_rounding("rk3588")
    assert step > usual_rounding("cpu") == 16
    found = prune(graph, macs=0.5, target="rk3588").layers
    assert found["conv1"][1] % step == 0
    assert found["conv1"][1] < 160
    assert found["conv2"][1] <= 24  # fewer than the unit makes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "0 goals are given"),
        ({"macs": 0.5, "ms": 1.0}, "2 goals are given"),
        ({"macs": 1.5}, "macs is 1.5; give a number above 0"),
        ({"macs": 0.5, "criterion": "l3"}, "criterion is 'l3'"),
        ({"macs": 0.5, "criterion": "taylor"}, "needs gradients"),
        ({"macs": 0.5, "criterion": "bn"}, "has no batch norm behind it"),
        ({"macs": 0.5, "only": ["conv9"]}, "no layer is called 'conv9'; the model has conv1"),
        ({"macs": 0.5, "only": ["linear5"]}, "cannot be pruned: they are part of output"),
        ({"macs": 0.01}, "cannot be met"),
        ({"ms": 1.0}, "is a prediction for a chip"),
        ({"macs": 0.5, "spread": "even"}, "spread is 'even'"),
    ],
)
def test_mistakes_are_one_line(options: dict, words: str):
    with pytest.raises((BadInput, Unsupported)) as e:
        prune(build("residual"), **options)
    assert words in str(e.value)
    assert "\n" not in str(e.value)


def test_zeroed_classes_are_removed_wherever_they_lie():
    rng = np.random.default_rng(5)
    for name in NETS:
        graph = prepare(build(name))
        coupling = find_coupling(graph)
        chosen = [
            (g, int(c)) for g in coupling.prunable() for c in rng.permutation(len(g))[: len(g) // 4]
        ]
        zero_channels(coupling.axes, chosen)
        small = intaglio.optimize(graph, level=2)
        assert find_coupling(small).layers[0].weights < coupling.layers[0].weights, name
        assert equal(graph, small), name


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("residual", "2:4 in"), ("mobile", "2:4 out"), ("shuffled", "16:4"), ("split", "16:4")],
)
def test_permuted_channels_compute_the_same_and_keep_larger_weights(name: str, pattern: str):
    graph = build(name)
    moved = prepare(graph)
    assert permute_channels(moved, BY_NAME[pattern]) > 0
    assert equal(graph, moved)

    def kept(permute: bool) -> float:
        found = sparsify(graph, pattern, permute=permute)
        weights = [n.inputs[1].data for n in found.graph.nodes() if n.op in PRODUCTS]
        return float(sum(np.abs(w).sum(dtype=np.float64) for w in weights))

    assert kept(True) > kept(False)


def attending(fused: bool) -> Graph:
    """Attention of four heads, its queries, keys and values from one product or from three."""
    rng = np.random.default_rng(4)
    batch, tokens, heads, width = 1, 6, 4, 8
    size = heads * width

    def linear(v: Value, outs: int) -> Value:
        w = rng.standard_normal((v.shape[-1], outs)).astype(np.float32) / 4
        return ops.add(ops.matmul(v, constant(w)), constant(rng.random(outs, np.float32)))

    x = Value(Type("f32", (batch, tokens, size)), "x")
    if fused:
        y = ops.reshape(linear(x, 3 * size), shape=(batch, tokens, 3, heads, width))
        y = ops.transpose(y, perm=(2, 0, 3, 1, 4))
        parts = [ops.gather(y, constant(np.int64(i)), axis=0) for i in range(3)]
    else:
        parts = [
            ops.transpose(
                ops.reshape(linear(x, size), shape=(batch, tokens, heads, width)), perm=(0, 2, 1, 3)
            )
            for _ in range(3)
        ]
    y = ops.attention(*parts, scale=width**-0.5)
    y = ops.reshape(ops.transpose(y, perm=(0, 2, 1, 3)), shape=(batch, tokens, size))
    return Graph([x], [linear(ops.relu(linear(y, 2 * size)), 4)], ["y"])


@pytest.mark.parametrize("fused", [False, True])
def test_heads_of_attention_are_pruned(fused: bool):
    graph = attending(fused)
    found = prune(graph, macs=0.5)
    assert found.after.macs <= 0.5 * found.before.macs
    assert equal(found.masked, found.graph)
    (node,) = (n for n in found.graph.nodes() if n.op == "attention")
    assert {v.shape[1] for v in node.inputs if v is not None} < {1, 2, 3}
    assert equal(graph, prepare(graph))
    coupling = find_coupling(prepare(attending(False)))
    heads = next(g for g in coupling.prunable() if len(g.layers) == 3)
    assert len(heads) == 4


NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "googlenet",
    "efficientnet_b0", "efficientnet_lite0", "ghostnet", "squeezenet1_1", "shufflenet_v1_g3",
    "shufflenet_v2_x1_0", "densenet121", "peleenet", "mobilevit_xxs", "resnext50_32x4d",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_catalogue_at_half_the_work(name: str):
    result = prune(catalogue.build(name, "random", 64), macs=0.5)
    assert result.after.macs <= 0.505 * result.before.macs
    assert equal(result.masked, result.graph)
