"""Lossless pruning: removed channels, the reasons why others stay, and equal results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.passes.prunable_nets import Net

import intaglio
from intaglio import ops
from intaglio.compiler import trace_optimize
from intaglio.errors import BadInput
from intaglio.interpret import interpret
from intaglio.ir import Type, Value, constant
from intaglio.ops.complexity import complexity
from intaglio.passes.prune import prune_channels


def relu(x):
    return ops.relu(x)


def pool(x, op=ops.max_pool, **attrs):
    return op(x, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1), **attrs)


def part(x, start, stop, step=1):
    return ops.slice_(x, start=(0, start, 0, 0), stop=(1, stop, 99, 99), step=(1, step, 1, 1))


# ---- chains --------------------------------------------------------------------------------------
def test_zero_filters_leave_both_layers():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8, [1, 4, 5])), 3))
    assert made.channels() == [5, 3]
    assert made.saved.channels == (11, 8)
    assert made.saved.before.parameters - made.saved.after.parameters == 3 * (4 * 9 + 1) + 3 * 3 * 9
    assert made.saved.before.macs - made.saved.after.macs == 36 * (3 * 4 * 9 + 3 * 3 * 9)
    assert made.fired == {"conv_8", "conv_3"}


def test_unread_filters_are_removed():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8)), 3, unread=[0, 7]))
    assert made.channels() == [6, 3]


def test_removal_frees_more_channels():
    """conv_5 has zero filters; what only they read is not missed either."""
    net = Net()
    w = net.whole(5, 6, 1, 1)
    w[:, 2] = 0
    w[3, 2] = 0
    w[3] = 0
    w[[0, 1, 2, 4], 5] = 0
    middle = ops.conv(
        relu(net.conv(net.x, 6)), constant(w), stride=(1, 1), pad=(0,) * 4, dilation=(1, 1)
    )
    assert net.prune(net.conv(relu(middle), 2)).channels() == [4, 4, 2]


def test_bias_that_relu_zeroes():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8, [2, 3], bias=-1)), 3))
    assert made.channels() == [6, 3]


def test_constant_folds_into_the_next_bias():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8, [2, 3], bias=[3, 5])), 3, k=2, pad=0))
    assert made.channels() == [6, 3]


def test_constant_stays_before_padding():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8, [2, 3], bias=[3, -1])), 3, k=3))
    assert made.channels() == [7, 3]
    assert made.refusals == ["kept 1 dead channel: they are not 0, and conv 'conv_3' has padding"]


@pytest.mark.parametrize("op", ["conv", "up"])
def test_one_constant_represents_all_before_padding(op):
    net = Net()
    x = relu(net.conv(net.x, 8, [2, 3, 5, 6], bias=[4, 8, 2, -1]))
    made = net.prune(getattr(net, op)(x, 3))
    assert made.channels()[0] == 5
    x = relu(net.conv(net.x, 8, [2, 3, 5, 6], bias=[4, 8, 2, -1]))
    made = net.prune(net.conv(x, 3), net.conv(x, 2, unread=[3]), net.conv(ops.neg(x), 2, k=1))
    assert made.channels() == [5, 3, 2, 2]


def test_constants_propagate():
    net = Net()
    x = relu(net.conv(net.x, 4, [1, 2], bias=[3, 5]))
    w = net.whole(5, 4, 1, 1)
    w[2, [0, 3]] = 0
    x = ops.conv(x, constant(w), stride=(1, 1), pad=(0,) * 4, dilation=(1, 1))
    assert net.prune(net.conv(ops.abs(x), 2, k=1)).channels() == [2, 4, 2]


def test_an_op_reads_at_least_one_channel():
    net = Net()
    bias = ops.reduce_max(ops.concat(net.x, net.x, axis=1), axes=(0, 2, 3), keepdims=False)
    x, w = relu(net.conv(net.x, 3, [0, 1, 2])), net.whole(8, 3, 1, 1)
    y = ops.conv(x, constant(w), bias, stride=(1, 1), pad=(0,) * 4, dilation=(1, 1))
    made = net.prune(y)
    assert made.channels() == [8]


@pytest.mark.parametrize(
    "between",
    [
        lambda x: ops.depth_to_space(x, blocksize=2),
        lambda x: ops.pad(x, before=(0, 1, 1, 1), after=(0, 0, 1, 1), value=1.0),
        lambda x: ops.pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1), value=2.0),
        lambda x: ops.concat(x, constant(np.ones((1, 8, 1, 6), np.float32)), axis=2),
        lambda x: ops.relu(
            ops.max_pool(x, kernel=(1, 1), stride=(1, 1), pad=(1,) * 4, dilation=(1, 1))
        ),
        lambda x: pool(ops.pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), ops.avg_pool),
        lambda x: ops.add(x, constant(np.arange(36, dtype=np.float32).reshape(6, 6))),
        lambda x: ops.mul(x, ops.reduce_max(net_input(x), axes=(1,))),
    ],
)
def test_ops_that_end_constness(between):
    net = Net()
    net.prune(net.conv(between(relu(net.conv(net.x, 8, [0, 2, 4, 6], bias=[2, 3, 4, 5]))), 2, k=1))


def net_input(x: Value) -> Value:
    while x.producer is not None:
        x = x.producer.inputs[0]
    return x


def test_outputs_keep_their_channels():
    net = Net()
    made = net.prune(net.conv(net.x, 8, [1, 2]))
    assert made.saved is None
    assert made.refusals == ["kept 2 dead channels: they are part of output 'y0'"]
    hidden = relu(net.conv(net.x, 8, [1]))
    assert net.prune(net.conv(hidden, 3), hidden).channels() == [8, 3]


def test_a_layer_of_zeros_is_a_constant():
    net = Net()
    dead = net.conv(relu(net.conv(net.x, 4, range(4), bias=-1)), 4, bias=2)
    made = net.prune(ops.add(net.x, dead))
    assert made.ops() == ["add"]
    assert made.saved.after.macs == 0


def test_no_dead_channels_no_report():
    net = Net()
    made = net.prune(net.conv(relu(net.conv(net.x, 8)), 3))
    assert made.saved is None
    assert not made.refusals
    assert not made.fired


# ---- branches ------------------------------------------------------------------------------------
def test_residual_needs_both_sides_dead():
    net = Net()
    a = relu(net.conv(net.x, 8, [1, 2, 3]))
    b = net.conv(relu(net.conv(a, 6, [0])), 8, [2, 3, 4])
    made = net.prune(net.conv(relu(ops.add(a, b)), 3))
    assert made.channels() == [6, 5, 6, 3]
    assert (
        made.refusals
        == ["kept 1 dead channel: add combines them with channels that are not constant"] * 2
    )


def test_a_long_chain_of_residuals_stays_aligned():
    net = Net()
    x = relu(net.conv(net.x, 6, [0, 5], k=1))
    for zero in ([0, 5, 2], [5, 0], [0, 1, 5]):
        x = ops.add(x, ops.clip(net.conv(x, 6, zero, k=1), lo=-1.0, hi=1.0))
    assert net.prune(net.conv(x, 2, k=1)).channels() == [4, 4, 4, 4, 2]


def test_sum_with_an_input_keeps_channels():
    net = Net()
    made = net.prune(net.conv(ops.add(net.conv(net.x, 4, [1]), net.x), 3))
    assert made.saved is None
    assert made.refusals == ["kept 1 dead channel: add combines them with 'x'"]


@pytest.mark.parametrize(("stop", "left"), [(13, [3, 3, 3]), (9, [3, 1, 3]), (8, [3, 3])])
def test_concat_and_parts_of_it(stop, left):
    net = Net()
    one, other = net.conv(net.x, 4, [0]), relu(net.conv(net.x, 5, [1, 4], bias=-2))
    made = net.prune(net.conv(part(ops.concat(one, net.x, other, axis=1), 0, stop), 3))
    assert made.channels() == left


@pytest.mark.parametrize(("cut", "left"), [((1, 6, 1), 4), ((1, 6, 2), 2), ((6, 0, -1), 5)])
def test_channels_outside_a_slice_are_removed(cut, left):
    net = Net()
    made = net.prune(net.conv(part(net.conv(net.x, 8, [3]), *cut), 2))
    assert made.channels() == [left, 2]


def test_a_slice_by_steps_that_become_uneven_is_a_gather():
    net = Net()
    x = net.conv(net.x, 9, [2])
    made = net.prune(net.conv(part(x, 0, 9, 2), 2), net.conv(part(x, 1, 2), 2))
    assert "gather" in made.ops()


def test_shuffle_stays_a_shuffle_if_possible():
    net = Net()
    made = net.prune(net.conv(ops.channel_shuffle(net.conv(net.x, 8, [1, 5]), groups=2), 2))
    assert made.channels() == [6, 2]
    assert "channel_shuffle" in made.ops()


def test_a_split_and_a_gate():
    net = Net()
    x = net.conv(net.x, 8, [1, 6])
    made = net.prune(net.conv(ops.mul(part(x, 0, 4), ops.clip(part(x, 4, 8), lo=-1.0)), 2))
    assert made.channels() == [4, 2]  # a zero on either side of a product: both go


def test_squeeze_and_excitation():
    net = Net()
    x = relu(net.conv(net.x, 8, [2, 3]))
    small = relu(net.conv(ops.reduce_max(x, axes=(2, 3)), 4, [1], k=1))
    gate = ops.clip(net.conv(small, 8, k=1), lo=0.0, hi=4.0)
    made = net.prune(net.conv(ops.mul(x, gate), 3))
    assert made.channels() == [6, 3, 6, 3]


# ---- groups --------------------------------------------------------------------------------------
def test_depthwise_follows():
    net = Net()
    x = relu(net.conv(net.x, 8, [0, 7], k=1))
    x = relu(net.conv(x, 8, [3], groups=8, bias=-1))
    made = net.prune(net.conv(x, 3, k=1))
    assert made.channels() == [5, 5, 3]
    assert [n.attrs["groups"] for n in made.graph.nodes() if n.op == "conv"] == [1, 5, 1]


def test_groups_go_as_a_whole_or_evenly():
    net = Net()
    x = relu(net.conv(net.x, 8, [0, 1, 2, 5, 7], k=1))  # groups of two: whole, one, one, one
    x = relu(net.conv(x, 12, [0, 1, 2, 4, 7, 8, 9], groups=4, bias=-1))
    made = net.prune(net.conv(x, 2))
    assert made.channels() == [3, 6, 2]
    assert [n.attrs["groups"] for n in made.graph.nodes() if n.op == "conv"] == [1, 3, 1]
    assert (
        "kept 1 dead channel: every group of conv 'conv_12' must lose the same number"
        in made.refusals
    )


def test_transposed_convolution():
    net = Net()
    x = relu(net.up(relu(net.conv(net.x, 6, [1])), 6, [0, 5]))
    made = net.prune(net.conv(x, 2))
    assert made.channels("conv_transpose") == [4]
    assert made.channels() == [5, 2]


# ---- ops that channels pass through --------------------------------------------------------------
BETWEEN = {
    "max_pool": pool,
    "avg_pool": lambda x: pool(x, ops.avg_pool),
    "transposes": lambda x: ops.transpose(
        relu(ops.transpose(x, perm=(0, 2, 3, 1))), perm=(0, 3, 1, 2)
    ),
    "pad": lambda x: ops.pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1)),
    "pad channels": lambda x: ops.pad(x, before=(0, 1, 0, 0), after=(0, 2, 0, 0)),
    "resize": lambda x: ops.resize(x, axes=(2, 3), shape=(12, 12), scales=(2.0, 2.0)),
    "batch_norm": lambda x: ops.batch_norm(
        x,
        *(constant(np.float32([2, 3, -2, 1, 1, 2, 1, 1]) * k) for k in (1, 0, 0)),
        constant(np.ones(8, np.float32)),
        epsilon=0.0,
    ),
    "scale": lambda x: ops.mul(x, constant(np.arange(1, 9, dtype=np.float32).reshape(8, 1, 1))),
    "prelu": lambda x: ops.prelu(x, constant(np.full((8, 1, 1), 2, np.float32))),
    "split and join": lambda x: ops.reshape(ops.reshape(x, shape=(1, 8, -1)), shape=(1, 8, 6, 6)),
    "gather": lambda x: ops.gather(x, constant([7, 6, 5, 4, 3, 2, 1, 0]), axis=1),
    "channel_shuffle": lambda x: ops.channel_shuffle(x, groups=2),
    "space_to_depth": lambda x: ops.space_to_depth(x, blocksize=2),
    "softmax over width": lambda x: ops.mul(x, ops.round(ops.softmax(x, axis=3))),
    "expand": lambda x: ops.expand(ops.reduce_max(x, axes=(2, 3)), shape=(1, 8, 6, 6)),
    "reduce without keepdims": lambda x: ops.reshape(
        ops.reduce_max(x, axes=(2, 3), keepdims=False), shape=(1, 8, 1, 1)
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_channels_pass_through(name):
    net = Net()
    made = net.prune(net.conv(BETWEEN[name](relu(net.conv(net.x, 8, [0, 3, 6]))), 2))
    assert made.channels() == [5, 2]


def test_flatten_before_a_matmul():
    net = Net()
    x = ops.reshape(pool(relu(net.conv(net.x, 8, [1, 2]))), shape=(1, -1))
    made = net.prune(net.linear(relu(net.linear(x, 10, [0, 9])), 3))
    assert made.channels() == [6]
    assert made.channels("matmul") == [8, 3]
    assert [n.inputs[0].shape for n in made.graph.nodes() if n.op == "matmul"] == [(1, 54), (1, 8)]


def test_gemm_addend():
    net = Net(2, 5)
    w, v = net.whole(8, 5), net.whole(8, 3)
    w[[2, 3]] = 0
    c = net.whole(8)
    c[[2, 3]] = 4, -4
    x = relu(ops.gemm(net.x, constant(w), constant(c), trans_b=True))
    made = net.prune(ops.gemm(x, constant(v), constant(net.whole(1, 3)), alpha=2.0))
    assert made.channels("gemm") == [6, 3]


def test_pixel_shuffle_needs_all_of_a_block():
    net = Net()
    for mode, zero in (("DCR", [1, 3, 5, 7, 0]), ("CRD", [4, 5, 6, 7, 0])):
        x = ops.depth_to_space(net.conv(net.x, 8, zero), blocksize=2, mode=mode)
        assert net.prune(net.conv(relu(x), 2)).channels() == [4, 2]


@pytest.mark.parametrize(
    "mixes",
    [
        lambda x: ops.lrn(x, size=3),
        lambda x: ops.softmax(x, axis=1),
        lambda x: ops.reduce_mean(x, axes=(1,)),
        lambda x: ops.layer_norm(x, axis=1),
        lambda x: ops.reshape(x, shape=(1, 4, 12, 6)),
    ],
)
def test_ops_that_mix_channels_keep_them(mixes):
    net = Net()
    made = net.prune(net.conv(mixes(relu(net.conv(net.x, 8, [0, 3]))), 2), exact=False)
    assert made.saved is None
    assert len(made.refusals) == 1


def test_sum_over_channels_drops_zeros():
    net = Net()
    made = net.prune(ops.reduce_sum(net.conv(net.x, 8, [0, 3]), axes=(1, 2)))
    assert made.channels() == [6]
    made = net.prune(ops.reduce_sum(net.conv(net.x, 8, range(8)), axes=(1, 2)))
    assert made.ops() == ["expand", "reduce_sum"]


def test_control_flow_keeps_captures():
    net = Net()
    x = relu(net.conv(net.x, 4, [1]))
    inner = [Value(x.type, f"i{i}") for i in range(2)]
    branches = [
        intaglio.Graph([v], [f(v)], ["y"]) for v, f in zip(inner, (ops.abs, ops.neg), strict=True)
    ]
    go = ops.greater(ops.reduce_max(net.x, axes=(0, 1, 2, 3), keepdims=False), constant(0.0))
    y = ops.if_(go, x, then_graph=branches[0], else_graph=branches[1])
    made = net.prune(net.conv(y, 2))
    assert made.channels() == [4, 2]
    assert made.refusals == ["kept 1 dead channel: if needs all channels"]


# ---- the pipeline --------------------------------------------------------------------------------
def test_pipeline_reports_savings_and_can_disable():
    net = Net()
    graph = net.graph(net.conv(relu(net.conv(net.x, 8, [1, 4, 5, 6])), 3))
    made = trace_optimize(graph)
    small, saved = made.graph, made.pruned
    assert saved is not None
    assert saved.channels == (11, 7)
    assert saved.after == complexity(small)
    assert str(saved).startswith("4 of 11 channels, weights -256 (-")
    assert (
        complexity(intaglio.optimize(graph, disable=["prune_channels"])).macs == saved.before.macs
    )
    assert complexity(intaglio.optimize(graph, level=1)).macs == saved.before.macs
    with pytest.raises(BadInput, match="did you mean prune_channels"):
        intaglio.optimize(graph, disable=["prune_channel"])


def test_a_pruned_net_compiles_to_the_same():
    net = Net()
    x = relu(net.conv(net.x, 8, [1, 4, 5]))
    graph = net.graph(net.conv(ops.add(x, net.conv(x, 8, [1, 4], groups=2)), 3))
    feeds = {"x": net.rng.integers(-2, 3, net.x.shape).astype(np.float32)}
    with intaglio.open(intaglio.compile(graph)) as session:
        np.testing.assert_array_equal(session.run(feeds)["y0"], interpret(graph, feeds)["y0"])


def test_the_example_of_the_documentation(capsys):
    text = (Path(__file__).parents[2] / "docs" / "compiler.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*switched off[^`]*)```", text)
    exec(code, {})
    (said,) = re.findall(r"# (\d+ of \d+ channels.*)", code)
    assert capsys.readouterr().out.strip() == said


def test_no_saving_reported_for_folded_products():
    net = Net()
    made = net.prune(ops.add(ops.mul(net.conv(net.x, 4), constant(np.float32(0))), net.x))
    assert made.ops() == ["add"]
    assert made.removed == 4
    made = net.prune(ops.mul(ops.add(net.x, constant(1.0)), constant(np.float32(0))))
    assert made.saved is None


def test_shared_weights_stay_shared():
    net = Net()
    how = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
    w, v = net.whole(6, 4, 1, 1), constant(net.whole(2, 6, 1, 1))
    w[[0, 4]] = 0
    w = constant(w)
    heads = [ops.conv(relu(ops.conv(x, w, **how)), v, **how) for x in (net.x, ops.neg(net.x))]
    made = net.prune(*heads)
    assert made.channels() == [4, 2, 4, 2]
    assert made.saved.after.parameters == 4 * 4 + 2 * 4


def test_half_floats():
    net = Net()
    x = ops.cast(net.x, dtype="f16")
    w = net.whole(8, 4, 1, 1).astype(np.float16)
    w[[0, 1]] = 0
    how = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
    y = ops.relu(ops.conv(x, constant(w), **how))
    y = ops.conv(y, constant(net.whole(2, 8, 1, 1).astype(np.float16)), **how)
    assert net.prune(ops.cast(y, dtype="f32")).channels() == [6, 2]


def test_shapes_known_at_run_time_only_are_left_alone():
    x = Value(Type("f32", (5,)), "x")
    places = ops.cast(ops.nonzero(x), dtype="f32")
    w = np.ones((5, 4), np.float32)
    w[:, 1] = 0
    graph = intaglio.Graph(
        [x], [ops.matmul(ops.transpose(places, perm=(1, 0)), constant(w[:1]))], ["y"]
    )
    assert prune_channels(graph, lambda *_: None) is None
