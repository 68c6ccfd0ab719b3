"""The CPU beside an NPU: every kind of work has its rate, and cores help where there is much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Node, Type, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.targets import chip, host
from intaglio.targets.chip import Host

CPU = Host(cores=4, clock=2000.0, products=4.0, arithmetic=1.0, functions=0.2, moves=0.5, bytes=1e9)


def value(*shape: int) -> Value:
    return Value(Type("f32", shape), "x")


def node(v: Value) -> Node:
    assert v.producer is not None
    return v.producer


def test_every_family_has_its_rate():
    x = value(100, 100)
    for y, family, rate in (
        (ops.softmax(x), "functions", 0.2),
        (ops.add(x, x), "arithmetic", 1.0),
        (ops.transpose(x, perm=(1, 0)), "moves", 0.5),
    ):
        assert host.family(node(y)) == family
        work = 10_000 / (rate * 2)  # nanoseconds at 2 GHz
        cores = min(4, max(1, work / host.MIN_WORK_PER_CORE))
        assert host.nanoseconds(node(y), CPU) == pytest.approx(host.STEP + work / cores)
    product = node(ops.matmul(x, value(100, 30)))
    assert host.family(product) == "products"
    work = 100 * 100 * 30 / 8
    assert host.nanoseconds(product, CPU) == pytest.approx(
        host.STEP + work / min(4, work / host.MIN_WORK_PER_CORE)
    )
    assert host.nanoseconds(node(ops.reshape(x, shape=(10_000,))), CPU) == 0.0


def test_names_of_the_families_are_ops():
    assert {*host.FUNCTIONS.split(), *host.MOVES.split(), *host.FREE} <= set(REGISTRY)


def test_a_gather_costs_the_rows_that_it_reads():
    table, rows = value(30_000, 384), constant(np.arange(20))
    few = host.nanoseconds(node(ops.gather(table, rows, axis=0)), CPU)
    assert few == host.nanoseconds(node(ops.gather(value(20, 384), rows, axis=0)), CPU)
    assert few < 20_000


def test_memory_bounds_what_is_little_work():
    x = value(1000, 1000)
    slow = replace(CPU, bytes=0.5, cores=1)
    took = host.nanoseconds(node(ops.add(x, x)), slow)
    assert took == pytest.approx(host.STEP + 3 * 4e6)  # two reads and a write at a byte a ns


def test_small_work_wakes_no_cores_and_large_work_all():
    small, large = (node(ops.softmax(value(n, 100))) for n in (10, 100_000))
    one = replace(CPU, cores=1)
    assert host.nanoseconds(small, CPU) == host.nanoseconds(small, one)
    ratio = host.nanoseconds(large, one) / host.nanoseconds(large, CPU)
    assert ratio == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize("name", chip.names())
def test_rates_of_chips_are_in_order(name: str):
    """Products are what vector units are made for; exponentials take many instructions."""
    h = chip.load(name).host
    assert h.products >= h.arithmetic > h.functions
    assert h.moves > h.functions


def test_what_the_cpu_does_is_in_the_prediction():
    random = np.random.default_rng(0)
    x = Value(Type("f32", (1, 8, 16, 16)), "x")
    w = random.normal(size=(32, 8, 3, 3)).astype(np.float32)
    y = ops.conv(x, w, None, stride=(1, 1), pad=(1, 1, 1, 1), dilation=(1, 1), groups=1)
    graph = Graph([x], [ops.softmax(ops.relu(y), axis=1)], ["y"])
    samples = [{"x": random.normal(size=x.shape).astype(np.float32)} for _ in range(2)]
    made = intaglio.quantize(graph, samples, target="rv1106", accuracy=None)
    found = intaglio.compile(made, target="rv1106").performance()
    rows = [r for r in found.layers if r.unit == "CPU"]
    softmax = next(r for r in rows if "softmax" in r.op)
    assert all(r.bound == "CPU" and r.microseconds > 0 for r in rows)
    least = 32 * 16 * 16 / chip.load("rv1106").host.per_ns("functions") / 1e3
    assert softmax.microseconds == pytest.approx(least + host.STEP / 1e3, rel=0.01)
    assert found.cpu_milliseconds == pytest.approx(sum(r.microseconds for r in rows) / 1e3)
    assert "CPU" in str(found)
