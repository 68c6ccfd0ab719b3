"""cpu.chain, programs of elementwise ops: every instruction, broadcasting, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import native, ops
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu.chain import MAX_INPUTS, MAX_OPS, PAIRS, chain
from intaglio.targets.cpu.epilogue import FUSABLE

RNG = np.random.default_rng(11)
SHAPES = [  # of operands that broadcast to each other
    [(), ()],
    [(0, 3), (3,)],
    [(1,), (1, 1)],
    [(7,), ()],
    [(1000,), (1000,)],
    [(5000,), (1,)],
    [(3, 700), (3, 1), (700,)],
    [(40, 24), (24,), (40, 1)],
    [(2, 9, 9, 16), (2, 1, 1, 16), (16,)],
    [(2, 3, 5, 7), (2, 1, 5, 1), (3, 1, 7)],
    [(6, 1, 600), (1, 4, 1), (600,)],
    [(33, 1), (1, 33)],
    [(2, 2, 2, 2, 2, 2, 2, 3), (2, 1, 2, 1, 2, 1, 2, 1)],
    [(1, 2049), (3, 1)],
]


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes):
    """Each operand is read twice, and the first result is read again at the end."""
    n = len(shapes)
    ops = ["sigmoid", *["mul", "add"] * n, "sub"]
    args = [0, 0]
    for k in range(n):
        so_far = n + 2 * k
        args += [so_far, k, so_far + 1, k]
    args += [n + 2 * n, n]
    check("cpu.chain", *(floats(*s) for s in shapes), ops=tuple(ops), args=tuple(args))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("other", [(600,), ()], ids=["moves", "stays"])
def test_every_binary_op(name, other):
    x, y = np.abs(floats(600)) + 0.25, np.abs(floats(*other)) + 0.25
    check("cpu.chain", x, y, ops=("abs", name), args=(0, 0, 2, 1))
    check("cpu.chain", x, y, ops=("abs", name), args=(1, 0, 2, 0))


@pytest.mark.parametrize("name", FUSABLE)
def test_every_activation(name):
    x = np.abs(floats(3, 200)) + 0.1
    params = (0.0, 0.0, 0.25, 0.75)
    check("cpu.chain", x, ops=("neg", "abs"), args=(0, 0, 1, 0))
    check("cpu.chain", x, ops=("abs", name), args=(0, 0, 1, 0), params=params)


@pytest.mark.parametrize("exponent", [-1.0, 1.0, 2.0, 3.0, 0.5])
def test_powers(exponent):
    x = np.abs(floats(777)) + 0.5
    check("cpu.chain", x, np.float32(exponent), ops=("pow", "neg"), args=(0, 1, 2, 0))


def test_most_instructions_and_operands():
    xs = [floats(700) for _ in range(MAX_INPUTS)]
    ops = ("add", "maximum") * (MAX_OPS // 2)
    args = [0, 1]
    for i in range(1, MAX_OPS):
        args += [MAX_INPUTS + i - 1, i % MAX_INPUTS]
    check("cpu.chain", *xs, ops=ops, args=tuple(args))


def test_a_result_smaller_than_the_block():
    check("cpu.chain", floats(3, 1), floats(1, 700), ops=("abs", "neg"), args=(0, 0, 2, 0))


def test_instructions_are_those_of_the_kernel():
    fields = {f.name: f for f in native.ops()["cpu.chain"].fields}
    assert fields["ops"].words == ("none", *PAIRS, *FUSABLE, "-")
    assert fields["ops"].count == MAX_OPS


GOOD = {"ops": ("add", "relu"), "args": (0, 1, 2, 0), "params": ()}
BAD = [
    ({"ops": (), "args": ()}, "ops"),
    ({"args": (0, 1, 2)}, "args"),
    ({"params": (1.0,)}, "params"),
    ({"args": (0, 2, 2, 0)}, "before it is computed"),
    ({"args": (0, 1, 3, 0)}, "before it is computed"),
    ({"args": (-1, 1, 2, 0)}, "before it is computed"),
    ({"ops": ("add", "softmax")}, "cannot be chained"),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_python_refuses(change, words):
    with pytest.raises(BadInput, match=words):
        chain(constant(floats(3)), constant(floats(3)), **{**GOOD, **change})


@pytest.mark.parametrize(
    ("arrays", "change", "words"),
    [
        ([], {}, "inputs"),
        ([floats(2)] * (MAX_INPUTS + 1), {}, "8 inputs"),
        ([None, floats(2)], {}, "inputs"),
        ([floats(2), np.zeros(2)], {}, "f32"),
        ([floats(2), floats(3)], {}, "broadcast"),
        ([floats(2), floats(2)], {"ops": ()}, "16 instructions"),
        ([floats(2), floats(2)], {"args": (0, 1)}, "two operands"),
        ([floats(2), floats(2)], {"params": (0.0,)}, "two operands"),
        ([floats(2), floats(2)], {"ops": ("add", "none")}, "unknown"),
        ([floats(2), floats(2)], {"args": (0, 1, 3, 0)}, "comes later"),
        ([floats(2), floats(2)], {"args": (0, 2**40, 2, 0)}, "comes later"),
        ([floats(2), floats(2)], {"args": (-(2**63), 0, 2, 0)}, "comes later"),
    ],
)
def test_the_kernel_refuses(arrays, change, words):
    kernel = native.find_kernel("cpu.chain", "f32", 0)
    assert kernel is not None
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, arrays, {**GOOD, **change})


def test_products_before_chains_of_several_operands_are_not_joined():
    x = Value(Type("f32", (1, 8, 32, 32)), "x")
    one = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    branches = [
        chain(
            ops.conv(x, constant(floats(8, 8, 1, 1)), None, **one),
            constant(floats(1)),
            ops=("mul",),
            args=(0, 1),
        )
        for _ in range(2)
    ]
    graph, feed = Graph([x], branches, ["a", "b"]), {"x": floats(1, 8, 32, 32)}
    with intaglio.open(intaglio.compile(graph)) as session:
        got = session.run(feed)
        for name, wanted in intaglio.interpret(graph, feed).items():
            np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-4)
