"""Partition into NPU programs: no CPU op inside a program, and as few programs as possible."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from tests.npu.quantized_networks import Net, codes, networks

import intaglio
from intaglio import ops, passes, targets
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.passes.partition import partition
from intaglio.passes.partition_report import Partition
from intaglio.targets import chip as chips
from intaglio.verify import verify

RK3588 = targets.find("rk3588", "scalar")
CHIP = chips.load("rk3588")
SLOW = replace(CHIP.host, products=1e-6)  # so slow that every product is faster on the NPU
EAGER = npu_target(replace(CHIP, name="eager", host=SLOW), "scalar")


def offloaded(graph, target=EAGER):
    """The partitioned graph, and the report."""
    made = graph.copy()
    report = passes.run(made, passes.offload(target)).found["partition"]
    verify(made)
    return made, report


def large(seed=1, channels=32, extent=16):
    """A network in which every convolution is faster on the NPU."""
    x = Value(Type("i8", (1, channels, extent, extent)), "x")
    return Net(np.random.default_rng(seed), [x]), x


def conv(n, x, many=32, kernel=(3, 3)):
    pad = (kernel[0] // 2,) * 4
    return ops.qlinear_conv(
        *n.of(x),
        *n.weights(many, x.shape[1], kernel),
        *n.result("i8"),
        stride=(1, 1),
        pad=pad,
        dilation=(1, 1),
        groups=1,
    )


def on_cpu(n, x):
    """An op on the CPU: dequantise, compute, quantise."""
    real = ops.softmax(ops.dequantize_linear(*n.of(x)), axis=1)
    return ops.quantize_linear(real, *n.result("i8"), dtype="i8")


def programs(graph):
    return [node for node in graph.nodes() if node.op == "npu.program"]


@settings(max_examples=60, deadline=None)
@given(networks(12))
def test_random_networks_in_programs(made):
    graph, inputs = made
    want = intaglio.interpret(graph, inputs)
    for target in (EAGER, RK3588):
        cut, report = offloaded(graph, target)
        got = intaglio.interpret(cut, inputs)
        assert all(np.array_equal(got[k], want[k]) for k in want)
        assert not any(n.op.startswith("npu.") for n in cut.nodes() if n.op != "npu.program")
        assert len(programs(cut)) == sum(m.kind == "npu" for m in report.modules)
        assert Partition.from_dict(report.to_dict()) == report
        again, _ = offloaded(graph, target)
        assert str(again) == str(cut), "the same graph is always cut alike"


def test_a_network_is_one_program():
    n, x = large()
    a = conv(n, x)
    y = ops.qlinear_add(*n.of(conv(n, a)), *n.of(a), *n.result("i8"))
    cut, report = offloaded(Graph([x], [y], ["y"]), RK3588)
    assert [node.op for node in cut.nodes()] == ["npu.program"]
    assert [v.name for v in programs(cut)[0].attrs["body"].inputs] == ["x"]
    assert report.npu_share == 1.0
    assert not report.on_cpu


def test_a_clip_after_max_pool_is_kept():
    n, x = large()
    y = ops.max_pool(conv(n, x), kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1))
    graph = Graph([x], [ops.clip(y, lo=-5.0, hi=60.0)], ["y"])
    (program,) = programs(offloaded(graph)[0])
    assert [node.op for node in program.attrs["body"].nodes()] == ["npu.conv", "npu.pool"]
    feed = {"x": codes(n.rng, "i8", *x.shape)}
    with intaglio.open(intaglio.compile(graph, target=EAGER)) as session:
        np.testing.assert_array_equal(session.run(feed)["y"], intaglio.interpret(graph, feed)["y"])


def test_a_program_never_depends_on_its_own_output():
    n, x = large()
    a = conv(n, x)
    y = ops.qlinear_add(*n.of(conv(n, on_cpu(n, a))), *n.of(a), *n.result("i8"))
    cut, report = offloaded(Graph([x], [y], ["y"]))
    assert [m.kind for m in report.modules] == ["npu", "cpu", "npu"]
    first, second = programs(cut)
    assert len(second.inputs) == 2
    assert first.outputs[0] in second.inputs


def test_an_op_moves_to_the_program_that_reads_it():
    n, x = large()
    early = conv(n, x)  # could run first, but is needed only after the CPU op
    late = conv(n, on_cpu(n, x))
    y = ops.qlinear_add(*n.of(early), *n.of(late), *n.result("i8"))
    cut, _ = offloaded(Graph([x], [y], ["y"]))
    assert len(programs(cut)) == 1


def test_branches_share_a_program():
    n, x = large()
    ends = [conv(n, x), conv(n, x)]
    cut, _ = offloaded(Graph([x], ends, ["a", "b"]))
    assert len(programs(cut)) == 1
    assert len(programs(cut)[0].outputs) == 2


def test_programs_that_are_slower_go_to_the_cpu():
    n, x = large(channels=4, extent=4)
    y = ops.lookup(conv(n, x, 4), constant(codes(n.rng, "i8", 256)))
    graph = Graph([x], [on_cpu(n, y)], ["y"])
    cut, report = offloaded(graph, RK3588)
    assert not programs(cut)
    row = next(r for r in report.on_cpu if r.op == "lookup")
    assert "longer on the NPU" in row.why
    assert "neighbours" in row.remedy
    assert len(programs(offloaded(graph, EAGER)[0])) == 1


def test_constant_operands_are_inputs_of_the_program():
    n, x = large()
    b = constant(codes(n.rng, "i8", 1, 32, 1, 1))
    y = conv(n, ops.qlinear_add(*n.of(x), *n.of(b), *n.result("i8")))
    cut, _ = offloaded(Graph([x], [y], ["y"]))
    (program,) = programs(cut)
    assert sum(v.data is not None for v in program.inputs) == 1
    assert len(program.attrs["body"].inputs) == 2


def test_the_report_has_reasons_and_remedies():
    n, x = large()
    y = on_cpu(n, conv(n, ops.resize(conv(n, x), axes=(2, 3), shape=(24, 24), scales=(1.5, 1.5))))
    _, report = offloaded(Graph([x], [y], ["y"]))
    rows = {r.op: r for r in report.on_cpu}
    assert "equally often" in rows["resize"].why
    assert "exponentials" in rows["softmax"].remedy
    assert rows["quantize_linear"].remedy.endswith("which makes this tensor in floats")
    assert rows["dequantize_linear"].remedy.endswith("which reads floats")
    assert not any("quantise" in r.remedy for r in report.on_cpu), "the model is quantised"
    assert abs(sum(r.share for r in report.on_cpu) - 1) < 1
    text = str(report)
    assert text.startswith("eager: 2 NPU programs with 2 of")
    assert "to run it on the NPU" in text


def test_only_a_float_model_is_advised_to_be_quantised():
    n, x = large()
    real = Value(Type("f32", (1, 32, 16, 16)), "x")
    for start, y in ((real, ops.relu(real)), (x, ops.relu(ops.dequantize_linear(*n.of(x))))):
        _, report = offloaded(Graph([start], [y], ["y"]))
        assert ("the model computes in floats" in str(report)) == (start is real)


def test_limits_have_a_remedy():
    n, x = large()
    y = ops.qlinear_conv(
        *n.of(x),
        *n.weights(8, 32, (3, 3)),
        *n.result("i8"),
        stride=(9, 9),
        pad=(0,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    _, report = offloaded(Graph([x], [y], ["y"]))
    assert (report.on_cpu[0].why, report.on_cpu[0].remedy) == (
        "stride is 9; conv does at most 7",
        "use stride of at most 7",
    )


def test_time_grows_with_the_graph_only():
    def seconds(layers):
        n, x = large()
        y = x
        for i in range(layers):
            y = ops.lookup(y, constant(codes(n.rng, "i8", 256))) if i % 4 else on_cpu(n, y)
        graph = Graph([x], [y], ["y"])
        passes.run(graph, passes.offload(EAGER)[:-1])
        start = time.perf_counter()
        partition(EAGER)(graph, lambda *_: None)
        return time.perf_counter() - start

    small, big = min(seconds(100) for _ in range(3)), min(seconds(800) for _ in range(3))
    assert big < 30 * small, f"{big:.3f} s for 8 times as much as took {small:.3f} s"
