"""lstm, gru and rnn kernels against their numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError
from intaglio.ops.recurrent import ACTIVATIONS

RNG = np.random.default_rng(10)
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


def floats(*shape: int, dtype: str = "f32") -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32).astype(dtypes.numpy_of(dtype))


def layer(
    op: str,
    steps: int = 5,
    batch: int = 3,
    inputs: int = 4,
    hidden: int = 6,
    directions: int = 1,
    dtype: str = "f32",
) -> list[np.ndarray]:
    """x, w, r, b, sequence_lens, initial_h and for lstm also initial_c, p."""
    d, rows = directions, GATES[op] * hidden
    arrays = [
        floats(steps, batch, inputs, dtype=dtype),
        floats(d, rows, inputs, dtype=dtype),
        floats(d, rows, hidden, dtype=dtype) * dtypes.numpy_of(dtype).type(0.3),
        floats(d, 2 * rows, dtype=dtype),
        RNG.integers(0, steps + 1, batch).astype(np.int32),
        floats(d, batch, hidden, dtype=dtype),
    ]
    if op == "lstm":
        arrays += [floats(d, batch, hidden, dtype=dtype), floats(d, 3 * hidden, dtype=dtype)]
    return arrays


def options(op: str, directions: int = 1, **more: Any) -> dict[str, Any]:
    names = FUNCTIONS[op] * directions
    none = (0.0,) * len(names)
    direction = {1: "forward", 2: "bidirectional"}[directions]
    return {
        "direction": direction,
        "activations": names,
        "activation_alpha": none,
        "activation_beta": none,
        "hidden_size": 6,
        **more,
    }


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_directions_types_and_optional_inputs(op: str, direction: str, dtype: str) -> None:
    directions = 2 if direction == "bidirectional" else 1
    arrays = layer(op, directions=directions, dtype=dtype)
    attrs = options(op, directions, direction=direction)
    tolerance = {"f32": 2e-5, "f64": 1e-12, "f16": 5e-3, "bf16": 4e-2}[dtype]
    for absent in ((), (3,), (4,), (5,), (6, 7), (3, 4, 5, 6, 7), (3, 4, 5)):
        given = [None if i in absent else a for i, a in enumerate(arrays)]
        check(op, *given, tolerance=tolerance, **attrs)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "hidden"),
    [
        (1, 1, 1, 1),
        (7, 1, 33, 17),
        (40, 1, 5, 64),
        (3, 20, 9, 5),
        (4, 7, 16, 32),
        (2, 17, 3, 3),
        (0, 2, 3, 4),
        (3, 0, 3, 4),
        (3, 2, 0, 4),
        (18, 33, 2, 2),
    ],
)
def test_shapes(op: str, steps: int, batch: int, inputs: int, hidden: int) -> None:
    for directions in (1, 2):
        arrays = layer(op, steps, batch, inputs, hidden, directions)
        attrs = options(op, directions, hidden_size=hidden)
        check(op, *arrays, tolerance=1e-4, **attrs)
        arrays[4] = None  # type: ignore[call-overload]
        check(op, *arrays, tolerance=1e-4, **attrs)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(op: str, name: str) -> None:
    alpha = {
        "Affine": 0.3,
        "LeakyRelu": 0.1,
        "ThresholdedRelu": 0.4,
        "ScaledTanh": 0.7,
        "Elu": 1.2,
        "HardSigmoid": 0.2,
    }.get(name, 0.0)
    beta = {"Affine": 0.1, "ScaledTanh": 0.6, "HardSigmoid": 0.5}.get(name, 0.0)
    n = len(FUNCTIONS[op])
    attrs = options(
        op, activations=(name,) * n, activation_alpha=(alpha,) * n, activation_beta=(beta,) * n
    )
    for dtype in ("f32", "f64"):
        arrays = layer(op, steps=3, dtype=dtype)
        check(op, *arrays, tolerance=1e-4 if dtype == "f32" else 1e-11, **attrs)
        check(op, *arrays, tolerance=1e-4 if dtype == "f32" else 1e-11, **{**attrs, "clip": 0.5})


def test_variants() -> None:
    for dtype in ("f32", "f64"):
        for clip in (0.0, 0.7):
            coupled = options("lstm", 2, input_forget=True, clip=clip)
            check("lstm", *layer("lstm", directions=2, dtype=dtype), tolerance=1e-4, **coupled)
            linear = options("gru", 2, linear_before_reset=True, clip=clip)
            arrays = layer("gru", directions=2, dtype=dtype)
            check("gru", *arrays, tolerance=1e-4, **linear)
            check("gru", *arrays[:3], None, *arrays[4:], tolerance=1e-4, **linear)


def refuse(op: str, arrays: list[Any], attrs: dict[str, Any]) -> None:
    kernel = native.find_kernel(op, "f32", 0)
    assert kernel is not None
    more = {"lstm": {"input_forget": False}, "gru": {"linear_before_reset": False}, "rnn": {}}[op]
    with pytest.raises(RunError):
        native.run_kernel(
            kernel, arrays, {"clip": 0.0, "layout": 0, **more, **attrs}, 3 if op == "lstm" else 2
        )


@pytest.mark.parametrize("op", GATES)
def test_invalid_calls_are_refused(op: str) -> None:
    arrays = layer(op)
    for i, bad in [
        (0, floats(5, 3)),
        (0, floats(5, 3, 5)),
        (0, np.zeros((5, 3, 4), np.int32)),
        (1, floats(1, 5, 4)),
        (2, floats(1, 6, 5)),
        (3, floats(1, 6)),
        (5, floats(2, 3, 6)),
        (4, np.zeros(2, np.int32)),
        (4, np.zeros(3, np.float32)),
        (4, np.array([1, 6, 0], np.int32)),
        (4, np.array([1, -1, 0], np.int32)),
    ]:
        refuse(op, [*arrays[:i], bad, *arrays[i + 1 :]], options(op))
    for changed in (
        {"hidden_size": 5},
        {"hidden_size": 0},
        {"hidden_size": 2**62},
        {"direction": "bidirectional"},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"layout": 1},
        {"activations": ()},
        {"activation_alpha": (0.0,) * 5},
    ):
        refuse(op, arrays, options(op, **changed))
