"""TFLite loops that write a list, as the converter makes them of Keras RNNs, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.tflite_build import G, Op, T, model, models, op
from tests.frontends.tflite_oracle import agrees, ours

R = np.random.default_rng(8)
I = np.int32  # noqa: E741  # the usual element type of indices
TIME, BATCH, HIDDEN = 6, 2, 3


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def body(sliced: bool) -> G:
    """i + 1, list with item i = h, h = tanh(x[i] + h · w), x."""
    row, rows = (BATCH, HIDDEN), (TIME, BATCH, HIDDEN)
    tensors = [T((), I), T(rows), T(row), T(rows)]  # 0 to 3: the carried values
    steps: list[Op] = []

    def add(t: T) -> int:
        tensors.append(t)
        return len(tensors) - 1

    def step(name: str, inputs: list[int], t: T, table: str = "", **options: object) -> int:
        steps.append(op(name, inputs, [add(t)], table, **options))
        return len(tensors) - 1

    next_ = step("ADD", [0, add(T(data=I(1)))], T((), I), "AddOptions")
    x = step("GATHER", [3, 0], T(row), "GatherOptions", Axis=0)
    w = add(T(data=floats(HIDDEN, HIDDEN)))
    z = step("FULLY_CONNECTED", [2, w, -1], T(row), "FullyConnectedOptions")
    h = step("TANH", [step("ADD", [x, z], T(row), "AddOptions")], T(row))
    item = step("EXPAND_DIMS", [h, add(T(data=I(0)))], T((1, *row)), "ExpandDimsOptions")
    first = add(T(data=I([1])))
    zeros, rest = add(T(data=I([0, 0]))), add(T(data=I([-1, -1])))

    def place(index: int, more: int) -> int:
        one = step("RESHAPE", [index, first], T((1,), I), "ReshapeOptions")
        return step("CONCATENATION", [one, more], T((3,), I), "ConcatenationOptions", Axis=0)

    if sliced:
        origin, to_end = add(T(data=I([0, 0, 0]))), add(T(data=I([-1, -1, -1])))
        before = step("SLICE", [1, origin, place(0, rest)], T((-1, *row)), "SliceOptions")
        after = step("SLICE", [1, place(next_, zeros), to_end], T((-1, *row)), "SliceOptions")
        parts = [before, item, after]
        list_ = step("CONCATENATION", parts, T(rows), "ConcatenationOptions", Axis=0)
    else:
        list_ = step("DYNAMIC_UPDATE_SLICE", [1, item, place(0, zeros)], T(rows))
    return G(tensors, steps, [0, 1, 2, 3], [next_, list_, h, 3])


@pytest.mark.parametrize("sliced", [True, False])
def test_a_loop_that_writes_a_list(sliced):
    """Older converters write an item with SLICE and CONCATENATION, newer ones in one op."""
    rows = (TIME, BATCH, HIDDEN)
    main = G(
        [
            T(rows),
            T(data=I(0)),
            T(data=I(rows)),
            T(data=np.float32(0)),
            T(rows),
            T((BATCH, HIDDEN)),
            *(T((), I), T(rows), T((BATCH, HIDDEN)), T(rows)),
        ],
        [
            op("FILL", [2, 3], [4], "FillOptions"),
            Op(
                "WHILE",
                [1, 4, 5, 0],
                [6, 7, 8, 9],
                "WhileOptions",
                {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2},
            ),
        ],
        [0, 5],
        [7, 8],
    )
    test = G(
        [T((), I), T(rows), T((BATCH, HIDDEN)), T(rows), T(data=I(TIME)), T((), np.bool_)],
        [op("LESS", [0, 4], [5])],
        [0, 1, 2, 3],
        [5],
    )
    data = models([main, test, body(sliced)])
    agrees(data, *[[floats(*rows), floats(BATCH, HIDDEN)] for _ in range(2)])


@pytest.mark.parametrize("prefix", ["Flex", ""])
def test_lists_that_stay_tensorflow_ops(prefix):
    """LiteRT has no kernels for them without TensorFlow, so that numpy computes the loop."""
    row, rows = (BATCH, HIDDEN), (TIME, BATCH, HIDDEN)
    lists = f"{prefix}TensorList"
    w = floats(HIDDEN, HIDDEN)
    main = G(
        [
            *(T(rows), T(data=I(0)), T(data=I(row)), T(data=I(TIME)), T((), variant=True)),
            *(T(row), T((), variant=True)),
            *(T((), I), T((), variant=True), T(row), T((), variant=True), T(rows)),
        ],
        [
            Op(f"{lists}Reserve", [2, 3], [4]),
            Op(f"{lists}FromTensor", [0, 2], [6]),
            op(
                "WHILE",
                [1, 4, 5, 6],
                [7, 8, 9, 10],
                "WhileOptions",
                CondSubgraphIndex=1,
                BodySubgraphIndex=2,
            ),
            Op(f"{lists}Stack", [8, 2], [11]),
        ],
        [0, 5],
        [11, 9],
    )
    test = G(
        [
            *(T((), I), T((), variant=True), T(row), T((), variant=True)),
            *(T(data=I(TIME)), T((), np.bool_)),
        ],
        [op("LESS", [0, 4], [5])],
        [0, 1, 2, 3],
        [5],
    )
    body_ = G(
        [
            *(T((), I), T((), variant=True), T(row), T((), variant=True)),
            *(T(data=I(1)), T((), I), T(data=I(row)), T(row), T(data=w), T(row), T(row), T(row)),
            T((), variant=True),
        ],
        [
            op("ADD", [0, 4], [5], "AddOptions"),
            Op(f"{lists}GetItem", [3, 0, 6], [7]),
            op("FULLY_CONNECTED", [2, 8, -1], [9], "FullyConnectedOptions"),
            op("ADD", [7, 9], [10], "AddOptions"),
            op("TANH", [10], [11]),
            Op(f"{lists}SetItem", [1, 0, 11], [12]),
        ],
        [0, 1, 2, 3],
        [5, 12, 11, 3],
    )
    x, h = floats(*rows), floats(*row)
    (got,) = ours(models([main, test, body_]), [x, h])
    want = []
    for step in x:
        h = np.tanh(step + h @ w.T)
        want.append(h)
    np.testing.assert_allclose(got[0], want, atol=1e-5)
    np.testing.assert_allclose(got[1], h, atol=1e-5)


def test_a_window_at_an_index_known_at_run_time():
    tensors = [T((8, 5)), T((2,), I), T(data=I([3, 2])), T((3, 2))]
    data = model(tensors, [op("SLICE", [0, 1, 2], [3], "SliceOptions")], [0, 1], [3])
    x = floats(8, 5)
    agrees(data, [x, I([0, 0])], [x, I([5, 3])], [x, I([2, 1])])


def test_the_first_rows_of_a_tensor():
    tensors = [T((8, 5)), T(data=I([0, 1])), T((2,), I), T((-1, -1))]
    data = model(tensors, [op("SLICE", [0, 1, 2], [3], "SliceOptions")], [0, 2], [3])
    x = floats(8, 5)
    agrees(data, [x, I([3, 4])], [x, I([8, 2])])


def test_topk_with_k_at_run_time():
    tensors = [T((2, 8)), T((), I), T((2, -1)), T((2, -1), I)]
    data = model(tensors, [op("TOPK_V2", [0, 1], [2, 3], "TopKV2Options")], [0, 1], [2, 3])
    x = floats(2, 8)
    agrees(data, [x, I(3)], [x, I(8)])


def test_a_range_with_a_limit():
    tensors = [T((), I), T(data=I(6)), T((), I), T(data=I(0)), T(data=I(1)), T((-1,), I)]
    steps = [
        op("MINIMUM", [0, 1], [2], "MaximumMinimumOptions"),
        op("RANGE", [3, 2, 4], [5], "RangeOptions"),
    ]
    agrees(model(tensors, steps, [0], [5]), [I(4)], [I(9)])
