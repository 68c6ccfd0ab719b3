"""3-D convolutions and pools as 2-D ones on the NPU: the same bits, or a reason why not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.npu.quantized_networks import Net, codes

import intaglio
from intaglio import ops, passes
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.targets import chip as chips
from intaglio.verify import verify


def eager(name, precision="f32"):
    """A chip whose CPU is so slow that every product is faster on the NPU."""
    chip = chips.load(name)
    return npu_target(replace(chip, host=replace(chip.host, products=1e-6)), "scalar", precision)


RK3588 = eager("rk3588")


def net(*shape, seed=5):
    x = Value(Type("i8", shape), "x")
    return Net(np.random.default_rng(seed), [x]), x


def conv(n, x, many, kernel=(3, 3, 3), groups=1, residual=None, **window):
    usual = {"stride": (1, 1, 1), "pad": (1,) * 6, "dilation": (1, 1, 1)}
    added = n.of(residual) if residual is not None else (None,) * 3
    bias = constant(n.rng.integers(-500, 500, many).astype(np.int32))
    return ops.qlinear_conv(
        *n.of(x),
        *n.weights(many, x.shape[1] // groups, kernel),
        *n.result("i8"),
        bias,
        *added,
        **{**usual, **window},
        groups=groups,
    )


def partitioned(y, target, simulated=True):
    """The ops of the CPU, and the number of programs; checks the interpreter and the simulator."""
    x = next(v for v in Graph([], [y]).values() if v.producer is None and v.data is None)
    graph = Graph([x], [y], ["y"])
    feed = {"x": codes(np.random.default_rng(3), x.dtype, *x.shape)}
    want = intaglio.interpret(graph, feed)["y"]
    made = graph.copy()
    passes.run(made, passes.offload(target))
    verify(made)
    np.testing.assert_array_equal(intaglio.interpret(made, feed)["y"], want)
    if simulated:
        with intaglio.open(intaglio.compile(graph, target=target)) as session:
            np.testing.assert_array_equal(session.run(feed)["y"], want)
    left = [n.op for n in made.nodes()]
    return {op for op in left if op != "npu.program"}, left.count("npu.program")


MOVES = {"reshape", "transpose"}  # of the network's input, and of its result


def residual_block(n, x):
    """Two convolutions with a table between them and a residual, as in a video network."""
    first = conv(n, x, 8, stride=(2, 1, 1))
    deep = ops.lookup(conv(n, first, 8), constant(codes(n.rng, "i8", 256)))
    return ops.clip(conv(n, deep, 8, residual=first), lo=-20.0, hi=90.0)


BUILDERS = {  # each makes a volume
    "a block": residual_block,
    "a dilated window": lambda n, x: conv(n, x, 5, dilation=(2, 2, 1), pad=(2, 2, 1) * 2),
    "a depthwise one": lambda n, x: conv(n, x, 4, groups=4, stride=(1, 2, 1)),
    "a dilated depthwise one": lambda n, x: conv(
        n, x, 4, groups=4, dilation=(1, 2, 1), pad=(1, 2, 1) * 2
    ),
    "separate axes": lambda n, x: conv(
        n, conv(n, x, 6, (1, 3, 3), pad=(0, 1, 1) * 2), 7, (3, 1, 1), pad=(1, 0, 0) * 2
    ),
    "groups of a slice": lambda n, x: conv(n, x, 8, (1, 3, 3), groups=2, pad=(0, 1, 1) * 2),
    "a largest number": lambda n, x: ops.max_pool(
        conv(n, x, 8), kernel=(3, 2, 2), stride=(2, 2, 2), pad=(1, 0, 0) * 2, dilation=(1, 1, 1)
    ),
    "a sum of volumes": lambda n, x: ops.qlinear_add(
        *n.of(conv(n, x, 4)), *n.of(x), *n.result("i8")
    ),
    "joined channels": lambda n, x: conv(n, ops.concat(conv(n, x, 4), x, axis=1), 4),
}


SIMULATED = ("a depthwise one", "a largest number")  # from the bytes of a package


@pytest.mark.parametrize("what", BUILDERS)
def test_volumes_are_one_program(what):
    n, x = net(1, 4, 4, 5, 5)
    left, programs = partitioned(BUILDERS[what](n, x), RK3588, what in SIMULATED)
    assert (left - MOVES, programs) == (set(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["rk3566", "k230", "bm1684x"])
@pytest.mark.parametrize("what", BUILDERS)
def test_volumes_on_other_chips(what, chip):
    n, x = net(1, 4, 5, 6, 6)
    partitioned(BUILDERS[what](n, x), eager(chip))


def test_a_mean_of_a_volume_is_one_of_a_map():
    n, x = net(1, 4, 5, 6, 6)
    y = ops.qlinear_mean(*n.of(conv(n, x, 8)), *n.result("i8"), axes=(2, 3, 4), keepdims=True)
    graph = Graph([x], [y], ["y"])
    passes.run(graph, passes.offload(RK3588)[:-1])
    assert "npu.pool" in [node.op for node in graph.nodes()]
    partitioned(y, RK3588, simulated=False)


def test_equal_weights_of_slices_are_stored_once():
    n, x = net(1, 48, 8, 3, 3)
    y = conv(n, x, 48)
    package = intaglio.compile(Graph([x], [y], ["y"]), target=RK3588)
    once = 48 * 48 * 27  # those of the first and the last slice lack the taps of the padding
    assert once < package.memory().modules[0].weights < 3 * once


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda n, x: conv(n, x, 8, groups=2), "units sum slices of one group"),
        (lambda n, x: conv(n, x, 4, (3, 3, 3), stride=(1, 9, 9)), "stride is 9"),
    ],
)
def test_refusals_say_why(build, words):
    n, x = net(1, 4, 5, 20, 20)
    assert words in RK3588.why_not(build(n, x).producer)
    n, x = net(1, 4, 70, 3, 3)
    assert "70 slices; at most 64" in RK3588.why_not(conv(n, x, 4).producer)


def test_volumes_in_f16():
    rng = np.random.default_rng(2)
    x = Value(Type("f32", (1, 4, 4, 6, 6)), "x")

    def layer(v, many):
        w = constant((rng.standard_normal((many, v.shape[1], 3, 3, 3)) / 10).astype(np.float32))
        b = constant(rng.standard_normal(many).astype(np.float32))
        window = {"stride": (1, 1, 1), "pad": (1,) * 6, "dilation": (1, 1, 1)}
        return ops.relu(ops.conv(v, w, b, **window))

    y = ops.max_pool(
        layer(layer(x, 8), 8), kernel=(2, 2, 2), stride=(2, 2, 2), pad=(0,) * 6, dilation=(1, 1, 1)
    )
    graph, target = Graph([x], [y], ["y"]), eager("rk3588", "f16")
    feed = {"x": rng.standard_normal(x.shape).astype(np.float32)}
    want = intaglio.interpret(graph, feed)["y"]
    made = graph.copy()
    report = passes.run(made, [*passes.neutral(target.cost), *passes.offload(target)])
    got = intaglio.interpret(made, feed)["y"]
    np.testing.assert_allclose(got, want, atol=0.02)
    with intaglio.open(intaglio.compile(graph, target=target)) as session:
        np.testing.assert_array_equal(session.run(feed)["y"], got)
    assert report.found["partition"].npu_share == 1.0


def test_weights_of_many_channels_fit_in_smaller_blocks():
    """32 outputs of 1536 inputs and nine taps do not fit into a core of rk3588; 16 do."""
    x = Value(Type("i8", (1, 512, 3, 4, 4)), "x")
    n = Net(np.random.default_rng(1), [x])
    deep = conv(n, x, 32)
    assert partitioned(deep, RK3588) == ({"reshape", "transpose"}, 1)
    wide = Value(Type("i8", (1, 2048, 3, 4, 4)), "x")
    words = RK3588.why_not(conv(Net(n.rng, [wide]), wide, 32).producer)
    assert "the weights of 16 channels need" in words
