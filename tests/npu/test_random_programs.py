"""Random networks on random chips: every program has the bits of its graph."""

from __future__ import annotations

import operator
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.npu.instruction_builder import KERNELS
from tests.npu.op_networks import Maker, anything, graph, small_chip
from tests.npu.quantized_networks import codes, networks

import intaglio
from intaglio import dtypes, passes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Type, Value
from intaglio.native import run_kernel
from intaglio.npu.compile import Compiled, build
from intaglio.npu.lowering.target import npu_target
from intaglio.npu.own.isa import QUEUES, Instruction, Program
from intaglio.npu.simulate import functional
from intaglio.npu.simulate.run import npu_run
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

KINDS = ("i8", "i16", "f16")
KIB = (4, 6, 10, 16, 24, 48, 128, 1024)


LIKE = {name: chips.load(name) for name in ("rk3588", "rk3566", "k230", "bm1684x")}
EAGER = {  # CPUs so slow that every product is faster on the NPU
    name: npu_target(replace(chip, host=replace(chip.host, products=1e-6)), "scalar")
    for name, chip in LIKE.items()
}


def any_chip(seed: int) -> Chip:
    draw = random.Random(seed)
    c2 = draw.choice((1, 8, 16, 32, 64))
    out = max(c2, draw.choice((8, 16, 32, 64)))
    made = small_chip(
        draw.choice(KIB) << 10,
        c2,
        draw.choice((8, 16, 32)),
        out,
        draw.choice((16, 64, 128)),
        draw.choice((0, 4096)),
    )
    return replace(made, packed=draw.random() < 0.5)


def picture(net: Graph, seed: int) -> np.ndarray:
    x, rng = net.inputs[0], np.random.default_rng(seed)
    if x.dtype == "f16":
        return rng.normal(0, 3, x.shape).astype(np.float16)
    low, high = dtypes.limits(x.dtype)
    return rng.integers(low, high + 1, x.shape).astype(dtypes.numpy_of(x.dtype))


def native(net: Graph, made: Compiled, x: np.ndarray) -> list[np.ndarray]:
    """The program as a package runs it: checked, then simulated in C."""
    feed = intaglio.ir.Value(net.inputs[0].type, "x")
    results = npu_run.node(made.program.encode(), made.weights, feed).outputs
    with intaglio.open(intaglio.compile(graph(feed, *results))) as session:
        return list(session.run({"x": x}).values())


def evaluate_natively(node: Node) -> list[np.ndarray]:
    arrays = [v.data for v in node.inputs if v is not None and v.data is not None]
    return run_kernel(KERNELS[-1], arrays, {}, len(node.outputs))


def fitting(
    seed: int, grouped: bool = True, cores: int = 1, kind: str = "i8"
) -> tuple[Graph, Compiled] | None:
    net = anything(seed, kind)
    try:
        return net, build(net, any_chip(seed), grouped, cores)
    except Unsupported as e:
        assert "are missing" in str(e)  # noqa: PT017
        return None


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 3), st.sampled_from(KINDS))
def test_the_simulator_equals_the_interpreter(seed: int, grouped: bool, cores: int, kind: str):
    found = fitting(seed, grouped, cores, kind)
    assume(found is not None)
    net, made = found
    x = picture(net, seed)
    want = intaglio.interpret(net, {"x": x}).values()
    for a, b in zip(want, native(net, made, x), strict=True):
        assert np.array_equal(a, b)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_memory_that_is_barely_enough(seed: int, kind: str):
    """With the bytes that the message names as missing it compiles, with one less it does not."""
    net, chip, made = anything(seed, kind), replace(any_chip(seed), sram=1024), None
    while made is None:
        try:
            made = build(net, chip)
        except Unsupported as e:
            found = re.search(r"' needs .* (\d+) are missing", str(e))
            assert found
            chip = replace(chip, sram=chip.sram + int(found[1]))
    x = picture(net, seed)
    for a, b in zip(intaglio.interpret(net, {"x": x}).values(), native(net, made, x), strict=True):
        assert np.array_equal(a, b)
    if chip.sram > 1024:
        with pytest.raises(Unsupported, match="are missing"):
            build(net, replace(chip, sram=chip.sram - 1))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(12), st.sampled_from(sorted(EAGER)))
def test_modules_of_quantised_networks(made: tuple[Graph, dict[str, np.ndarray]], name: str):
    graph, feeds = made
    split, target = graph.copy(), EAGER[name]
    passes.run(split, passes.offload(target))
    assert target.chip is not None
    modules = [n for n in split.nodes() if n.op == "npu.program"]
    assume(modules)
    for module in modules:
        given = [v for v in module.inputs if v is not None]
        wanted = [*given, *module.outputs]
        names = [f"v{i}" for i in range(len(wanted))]
        found = list(intaglio.interpret(Graph(split.inputs, wanted, names), feeds).values())
        body = build(module.attrs["body"], target.chip)
        node = npu_run.node(body.program.encode(), body.weights, *found[: len(given)])
        for a, b in zip(found[len(given) :], evaluate_natively(node), strict=True):
            assert np.array_equal(a, b)


def test_batches_of_different_sizes():
    m = Maker()
    x, small = m.image(4, 8, 6, 6), Value(Type("i8", (2, 8, 6, 6)), "small")
    outputs = [m.conv(small, 16), m.conv(x, 16)]
    net = Graph([x, small], outputs, ["a", "b"])
    chip = small_chip(1 << 20)
    made = build(net, chip)
    feeds = {v.name: codes(m.numbers, "i8", *v.shape) for v in net.inputs}
    node = npu_run.node(made.program.encode(), made.weights, *feeds.values())
    want = intaglio.interpret(net, feeds).values()
    for a, b in zip(want, evaluate_natively(node), strict=True):
        assert np.array_equal(a, b)


def shuffled(program: Program, seed: int) -> list[Instruction]:
    """A valid order of the instructions in which one queue runs as far ahead as possible."""
    draw = random.Random(seed)
    queues = [[i for i in program.instructions if i.queue == q] for q in QUEUES]
    done, order, eager = [0, 0, 0], [], draw.randrange(4)
    while len(order) < len(program.instructions):
        heads = {q: queues[q][done[q]] for q in range(3) if done[q] < len(queues[q])}
        ready = [q for q, i in heads.items() if all(map(operator.le, i.wait, done))]
        assert ready, "no queue can go on"
        q = eager if eager in ready else draw.choice(ready)
        order.append(queues[q][done[q]])
        done[q] += 1
    return order


@pytest.mark.parametrize("seed", range(12))
def test_any_order_that_the_waits_allow_gives_the_same_bits(seed: int):
    if (found := fitting(seed, kind=KINDS[seed % 3])) is None:
        pytest.skip("this net does not fit its chip")
    net, made = found
    x = picture(net, seed)
    want = intaglio.interpret(net, {"x": x}).values()
    for trial in range(3):
        program = Program.decode(made.program.encode())
        program.instructions = shuffled(program, 10 * seed + trial)
        got = functional.run(program, made.weights, [x])
        for a, b in zip(want, got, strict=True):
            assert np.array_equal(a, b)
