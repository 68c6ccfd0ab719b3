"""TFLite models with state, against LiteRT over 50 calls."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.tflite_build import G, Op, T, model, models, op
from tests.frontends.tflite_oracle import agrees, litert, ours

from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.tflite import load_tflite

RNG = np.random.default_rng(3)
STEPS = 50


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def bytes_(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def streaming(start: np.ndarray | None) -> bytes:
    """y = x + v, v becomes v / 2 + x; `start` is set by CALL_ONCE."""
    half = np.float32([0.5])
    main = G(
        [T((1, 4)), T(resource=True), T((1, 4)), T((1, 4)), T(data=half), T((1, 4)), T((1, 4))],
        [
            *(
                [op("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)]
                if start is not None
                else []
            ),
            op("VAR_HANDLE", [], [1], "VarHandleOptions", Container="", SharedName="v"),
            op("READ_VARIABLE", [1], [2], "ReadVariableOptions"),
            op("ADD", [0, 2], [3], "AddOptions"),
            op("MUL", [2, 4], [5], "MulOptions"),
            op("ADD", [5, 0], [6], "AddOptions"),
            op("ASSIGN_VARIABLE", [1, 6], [], "AssignVariableOptions"),
        ],
        [0],
        [3],
    )
    setup = G(
        [T(resource=True), T(data=start if start is not None else floats(1, 4))],
        [
            op("VAR_HANDLE", [], [0], "VarHandleOptions", Container="", SharedName="v"),
            op("ASSIGN_VARIABLE", [0, 1], [], "AssignVariableOptions"),
        ],
        [],
        [],
    )
    return models([main, setup] if start is not None else [main])


def test_variables_begin_as_they_are_set_up():
    calls = [[floats(1, 4)] for _ in range(STEPS)]
    agrees(streaming(floats(1, 4)), *calls)


def test_variables_that_nothing_sets_up_begin_as_zeros():
    calls = [[floats(1, 4)] for _ in range(3)]
    got, v = ours(streaming(None), *calls), np.zeros((1, 4), np.float32)
    for (x,), (y,) in zip(calls, got, strict=True):
        np.testing.assert_allclose(y, x + v, rtol=1e-6)
        v = v / 2 + x


def test_variables_that_are_only_read_are_constants():
    start = floats(1, 4)
    main = G(
        [T((1, 4)), T(resource=True), T((1, 4)), T((1, 4))],
        [
            op("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1),
            op("VAR_HANDLE", [], [1], "VarHandleOptions", Container="", SharedName="w"),
            op("READ_VARIABLE", [1], [2], "ReadVariableOptions"),
            op("ADD", [0, 2], [3], "AddOptions"),
        ],
        [0],
        [3],
    )
    setup = G(
        [T(resource=True), T(data=start)],
        [
            op("VAR_HANDLE", [], [0], "VarHandleOptions", Container="", SharedName="w"),
            op("ASSIGN_VARIABLE", [0, 1], [], "AssignVariableOptions"),
        ],
        [],
        [],
    )
    data = models([main, setup])
    assert not load_tflite(data).state
    agrees(data, [floats(1, 4)], [floats(1, 4)])


# ---- LSTM ----------------------------------------------------------------------------------------
BATCH, TIME, INPUTS, HIDDEN = 2, 5, 3, 4


def lstm(
    *,
    name: str = "UNIDIRECTIONAL_SEQUENCE_LSTM",
    coupled: bool = False,
    peepholes: bool = False,
    projected: bool = False,
    normed: bool = False,
    clip: float = 0.0,
    early: bool = False,
    hybrid: bool = False,
) -> bytes:
    out = 3 if projected else HIDDEN
    tensors: list[T] = []

    def add(t: T) -> int:
        tensors.append(t)
        return len(tensors) - 1

    def weight(*shape: int) -> int:
        if hybrid:
            return add(T(data=bytes_(*shape), scale=0.6 / 127))
        return add(T(data=floats(*shape, scale=0.6)))

    single = name == "LSTM"
    shape = (BATCH, INPUTS) if single else (TIME, BATCH, INPUTS) if early else (BATCH, TIME, INPUTS)
    gates = range(1 if coupled else 0, 4)
    ins = [add(T(shape))]
    ins += [weight(HIDDEN, INPUTS) if k in gates else -1 for k in range(4)]
    ins += [weight(HIDDEN, out) if k in gates else -1 for k in range(4)]
    ins += [
        add(T(data=floats(HIDDEN))) if peepholes and (k or not coupled) else -1 for k in range(3)
    ]
    ins += [add(T(data=floats(HIDDEN))) if k in gates else -1 for k in range(4)]
    ins += [weight(out, HIDDEN) if projected else -1, add(T(data=floats(out))) if projected else -1]
    ins += [add(T((BATCH, out), variable=True)), add(T((BATCH, HIDDEN), variable=True))]
    if normed:
        ins += [add(T(data=1 + floats(HIDDEN, scale=0.1))) if k in gates else -1 for k in range(4)]
    elif not single:
        ins += [-1] * 4
    y = add(T((*shape[:-1], out)))
    table = "LSTMOptions" if single else "UnidirectionalSequenceLSTMOptions"
    more = {} if single else {"TimeMajor": early}
    layer = op(name, ins, [y], table, FusedActivationFunction=4, CellClip=clip, **more)
    return model(tensors, [layer], [ins[0]], [y])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"early": True},
        {"clip": 0.5},
        {"coupled": True},
        {"peepholes": True},
        {"coupled": True, "peepholes": True},
        {"projected": True},
        {"normed": True},
        {"projected": True, "normed": True, "coupled": True, "peepholes": True, "clip": 1.0},
        {"name": "LSTM"},
        {"name": "LSTM", "projected": True},
    ],
    ids=str,
)
def test_lstm(how):
    shape = (BATCH, INPUTS) if "name" in how else (BATCH, TIME, INPUTS)
    shape = (TIME, BATCH, INPUTS) if how.get("early") else shape
    agrees(lstm(**how), *[[floats(*shape)] for _ in range(STEPS)])


def test_weights_of_bytes_with_inputs_of_floats():
    """LiteRT rounds inputs and states to 8 bits as well; we do not."""
    agrees(lstm(hybrid=True), *[[floats(BATCH, TIME, INPUTS)] for _ in range(4)], tolerance=0.03)


def integer_lstm(
    *,
    coupled: bool = False,
    peepholes: bool = False,
    projected: bool = False,
    normed: bool = False,
    clip: float = 10.0,
    weight: float = 0.6 / 127,
    cell: float = 2.0**-12,
    hidden: float = 1 / 128,
    step: float = 1 / 128,
    scaled: bool = True,
) -> bytes:
    """i8 inputs, weights and outputs with zero points, i16 cells; batch 2."""
    tensors: list[T] = []
    out = 3 if projected else HIDDEN

    def add(t: T) -> int:
        tensors.append(t)
        return len(tensors) - 1

    def words(most: int, scale: float) -> int:
        return add(T(data=RNG.integers(-most, most, HIDDEN).astype(np.int16), scale=scale))

    def bias(extent: int, scale: float) -> int:
        return add(T(data=RNG.integers(-9000, 9000, extent).astype(np.int32), scale=scale))

    gates = range(1, 4) if coupled else range(4)
    gap = [-1] if coupled else []
    x = add(T((BATCH, TIME, INPUTS), np.int8, scale=step, zero=3))
    ins = [x]
    ins += gap + [add(T(data=bytes_(HIDDEN, INPUTS), scale=weight)) for _ in gates]
    ins += gap + [add(T(data=bytes_(HIDDEN, out), scale=weight)) for _ in gates]
    ins += gap + [words(30000, 2.0**-14) for _ in range(3 - len(gap))] if peepholes else [-1] * 3
    ins += gap + [bias(HIDDEN, step * weight) for _ in gates]
    if projected:
        ins += [add(T(data=bytes_(out, HIDDEN), scale=weight)), bias(out, hidden * weight)]
    else:
        ins += [-1, -1]
    ins += [
        add(T((BATCH, out), np.int8, scale=hidden, zero=-21, variable=True)),
        add(T((BATCH, HIDDEN), np.int16, scale=cell, variable=True)),
    ]
    ins += gap + [words(3000, 2.0**-12) for _ in gates] if normed else [-1] * 4
    y = add(T((BATCH, TIME, out), np.int8, scale=hidden, zero=-21))
    inside = [add(T((0,), np.int16, scale=2.0**-12 if scaled else None)) for _ in range(4)]
    inside.append(add(T((0,), np.int8, scale=hidden, zero=-21)))
    layer = Op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ins,
        [y],
        "UnidirectionalSequenceLSTMOptions",
        {"FusedActivationFunction": 4, "CellClip": clip},
        b"",
        inside,
    )
    return model(tensors, [layer], [x], [y])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"coupled": True, "clip": 0.0},
        {"peepholes": True, "clip": 0.7003},
        {"projected": True},
        {"coupled": True, "peepholes": True},
        {"coupled": True, "projected": True},
        {"weight": 0.5, "cell": 2.0**-15},  # gates saturate
        {"weight": 3.0, "hidden": 0.002, "clip": 0.0},  # gates and results saturate
        {"weight": 2.0**-7, "step": 2.0**-6, "cell": 2.0**-11},  # many ties
    ],
    ids=str,
)
def test_lstm_of_integers_is_equal_to_the_bit(how):
    """From the first call on, which starts at the zero point; also at the ends of the range.

    Peepholes with a projection are left out: LiteRT takes too few of them.
    """
    data = integer_lstm(**how)
    calls = [[bytes_(BATCH, TIME, INPUTS)] for _ in range(8)]
    calls += [[np.full((BATCH, TIME, INPUTS), v, np.int8)] for v in (-128, 127)]
    calls += [[np.where(x > 0, 127, -128).astype(np.int8)] for (x,) in calls[:4]]
    got = ours(data, *calls)
    for reference in (True, False):
        for (a,), (b,) in zip(got, litert(data, *calls, reference=reference), strict=True):
            np.testing.assert_array_equal(a, b)


def test_layer_norm_in_an_lstm_of_integers():
    agrees(integer_lstm(normed=True), *[[bytes_(BATCH, TIME, INPUTS)] for _ in range(10)])


def test_two_directions():
    tensors: list[T] = [T((TIME, BATCH, INPUTS))]

    def add(t: T) -> int:
        tensors.append(t)
        return len(tensors) - 1

    def side() -> list[int]:
        ins = [add(T(data=floats(HIDDEN, INPUTS, scale=0.6))) for _ in range(4)]
        ins += [add(T(data=floats(HIDDEN, HIDDEN, scale=0.6))) for _ in range(4)]
        return [*ins, -1, -1, -1, *(add(T(data=floats(HIDDEN))) for _ in range(4)), -1, -1]

    ins = [0, *side(), *side()]
    ins += [add(T((BATCH, HIDDEN), variable=True)) for _ in range(4)]
    ins += [-1] * 9
    y = add(T((TIME, BATCH, 2 * HIDDEN)))
    layer = op(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        ins,
        [y],
        "BidirectionalSequenceLSTMOptions",
        FusedActivationFunction=4,
        MergeOutputs=True,
        TimeMajor=True,
    )
    data = model(tensors, [layer], [0], [y])
    agrees(data, *[[floats(TIME, BATCH, INPUTS)] for _ in range(5)])


@pytest.mark.parametrize("sequence", [True, False])
def test_rnn(sequence):
    shape = (BATCH, TIME, INPUTS) if sequence else (BATCH, INPUTS)
    tensors = [
        T(shape),
        T(data=floats(HIDDEN, INPUTS)),
        T(data=floats(HIDDEN, HIDDEN, scale=0.4)),
        T(data=floats(HIDDEN)),
        T((BATCH, HIDDEN), variable=True),
        T((*shape[:-1], HIDDEN)),
    ]
    name = "UNIDIRECTIONAL_SEQUENCE_RNN" if sequence else "RNN"
    table = "SequenceRNNOptions" if sequence else "RNNOptions"
    data = model(
        tensors, [op(name, [0, 1, 2, 3, 4], [5], table, FusedActivationFunction=1)], [0], [5]
    )
    agrees(data, *[[floats(*shape, scale=0.3)] for _ in range(STEPS)])


def test_an_integer_lstm_needs_the_scales_of_its_gates():
    """Found by mutated files: a missing scale was an assertion."""
    with pytest.raises(BadInput, match="is not quantised; all tensors of an integer LSTM must be"):
        load_tflite(integer_lstm(normed=True, scaled=False))


@pytest.mark.parametrize("which", [18, 19])  # the output, the cell
def test_a_state_of_an_unknown_element_type_is_refused(which):
    """Found by mutated files: the type's number was looked up as if it were known."""
    tensors = [
        T((BATCH, TIME, INPUTS)),
        *(T(data=floats(HIDDEN, INPUTS)) for _ in range(4)),
        *(T(data=floats(HIDDEN, HIDDEN)) for _ in range(4)),
        T((BATCH, HIDDEN), variable=True),
        T((BATCH, TIME, HIDDEN)),
        T((BATCH, HIDDEN), resource=True),
        T(data=floats(HIDDEN)),
    ]
    states = [11 if i == which else 9 for i in (18, 19)]
    ins = [*range(9), -1, -1, -1, *[12] * 4, -1, -1, *states]
    layer = op("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, [10], "UnidirectionalSequenceLSTMOptions")
    with pytest.raises(BadInput, match=f"operand {which} is of resource; .* needs numbers"):
        load_tflite(model(tensors, [layer], [0], [10]))


# ---- SVDF ----------------------------------------------------------------------------------------
UNITS, RANK, MEMORY = 4, 2, 6


def test_svdf():
    filters = UNITS * RANK
    tensors = [
        T((BATCH, INPUTS)),
        T(data=floats(filters, INPUTS)),
        T(data=floats(filters, MEMORY)),
        T(data=floats(UNITS)),
        T((BATCH, MEMORY * filters), variable=True),
        T((BATCH, UNITS)),
    ]
    data = model(
        tensors,
        [op("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", Rank=RANK, FusedActivationFunction=1)],
        [0],
        [5],
    )
    agrees(data, *[[floats(BATCH, INPUTS)] for _ in range(STEPS)])


def test_svdf_of_integers():
    filters = UNITS * RANK
    time = RNG.integers(-2000, 2000, (filters, MEMORY)).astype(np.int16)
    bias = RNG.integers(-500000, 500000, UNITS).astype(np.int32)
    tensors = [
        T((BATCH, INPUTS), np.int8, scale=1 / 128, zero=4),
        T(data=bytes_(filters, INPUTS), scale=1 / 127),
        T(data=time, scale=1 / 4096),
        T(data=bias, scale=1 / 4096 / 2048),
        T((BATCH, MEMORY * filters), np.int16, scale=1 / 2048, variable=True),
        T((BATCH, UNITS), np.int8, scale=1 / 64, zero=-128),
    ]
    data = model(
        tensors,
        [op("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", Rank=RANK, FusedActivationFunction=1)],
        [0],
        [5],
    )
    agrees(data, *[[bytes_(BATCH, INPUTS)] for _ in range(STEPS)])


# ---- control flow, signatures --------------------------------------------------------------------
def test_while():
    """Doubles until the sum is large; the trip count is known only at run time."""
    two, most = np.float32([2.0]), np.float32([100.0])
    main = G(
        [T((4,)), T((4,))],
        [op("WHILE", [0], [1], "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)],
        [0],
        [1],
    )
    test = G(
        [T((4,)), T(data=np.int32([0])), T((1,)), T(data=most), T((1,), np.bool_)],
        [op("SUM", [0, 1], [2], "ReducerOptions", KeepDims=True), op("LESS", [2, 3], [4])],
        [0],
        [4],
    )
    body = G([T((4,)), T(data=two), T((4,))], [op("MUL", [0, 1], [2], "MulOptions")], [0], [2])
    data = models([main, test, body])
    agrees(data, *[[np.abs(floats(4)) + 0.01] for _ in range(3)])


@pytest.mark.parametrize("known", [False, True])
def test_if(known):
    cond = T(data=np.array([True])) if known else T((1,), np.bool_)
    main = G(
        [cond, T((4,)), T((4,))],
        [op("IF", [0, 1], [2], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)],
        [1] if known else [0, 1],
        [2],
    )
    yes = G([T((4,)), T((4,))], [op("EXP", [0], [1])], [0], [1])
    no = G([T((4,)), T((4,))], [op("NEG", [0], [1])], [0], [1])
    data = models([main, yes, no])
    x = floats(4)
    if known:
        agrees(data, [x])
    else:
        agrees(data, [np.array([True]), x], [np.array([False]), x])


def test_signatures_choose_the_graph_and_the_names():
    first = G([T((4,)), T((4,))], [op("EXP", [0], [1])], [0], [1])
    second = G([T((4,)), T((4,))], [op("NEG", [0], [1])], [0], [1])
    data = models(
        [first, second], {"grow": (0, {"x": 0}, {"y": 1}), "turn": (1, {"a": 0}, {"b": 1})}
    )
    x = floats(4)
    graph = load_tflite(data, ImportOptions(signature="turn"))
    assert ([v.name for v in graph.inputs], graph.output_names) == (["a"], ["b"])
    np.testing.assert_array_equal(ours(data, [x], signature="turn")[0][0], -x)
    assert load_tflite(data).metadata["signatures"] == "grow, turn"
    with pytest.raises(Exception, match="no signature is called 'other'; the file has grow, turn"):
        load_tflite(data, ImportOptions(signature="other"))


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ((0, {"x": 0}, {"y": 7}), "names tensor 7 of 2"),
        ((0, {"x": 4294967295}, {"y": 1}), "names tensor 4294967295 of 2"),
        ((3, {"x": 0}, {"y": 1}), "names graph 3 of 1"),
    ],
)
def test_a_signature_beyond_the_graph_is_ignored(damaged, words):
    """LiteRT runs such a file by its inputs and outputs; only the signature cannot be used."""
    first = G([T((4,)), T((4,))], [op("EXP", [0], [1])], [0], [1])
    data = models([first], {"bad": damaged})
    agrees(data, [floats(4)])
    with pytest.raises(BadInput, match=words):
        load_tflite(data, ImportOptions(signature="bad"))


def test_a_graph_that_calls_itself_is_refused():
    main = G([T((4,)), T((4,))], [op("CALL", [0], [1], "CallOptions", Subgraph=0)], [0], [1])
    with pytest.raises(Unsupported, match="deep"):
        load_tflite(models([main]))
