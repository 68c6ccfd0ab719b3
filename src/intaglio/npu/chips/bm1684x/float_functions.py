"""npu.function: a function of one number, computed in f32 by steps of the tensor unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.chips.bm1684x.float_ops import FLOATS, bounded
from intaglio.npu.chips.bm1684x.function_steps import (
    FUNCTIONS,
    SERIES,
    Step,
    evaluate,
    registers,
    steps_of,
)
from intaglio.npu.chips.bm1684x.rounding import lanes_of
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.ops.registry import op


def _type(x: Value, *, name: str, given: tuple[tuple[str, Any], ...]) -> Type:
    if x.dtype not in FLOATS or x.type.rank != 4 or x.type.dynamic:
        raise BadInput(f"{x.type} is no feature map of floats")
    if name not in FUNCTIONS:
        raise BadInput(f"the function is {name}; {', '.join(FUNCTIONS)} are known")
    return x.type


@op(_type, name="npu.function")
def function(x: Array, *, name: str, given: tuple[tuple[str, Any], ...] = ()) -> Array:
    """A function of each number, in f32, rounded once to x's type; `given` are its attributes."""
    return bounded(evaluate(steps_of(name, dict(given)), x), x.dtype)


def layer_steps(given: dict[str, Any]) -> tuple[Step, ...]:
    """The steps of a layer's function."""
    return steps_of(given["name"], dict(given["given"]))


def series_of(steps: Sequence[Step]) -> list[str]:
    """The names of the series that a function needs, in the order of its table."""
    return list(dict.fromkeys(str(s.b) for s in steps if s.kind == "series"))


def table(given: dict[str, Any], chip: Variant) -> bytes:
    """The coefficients of a function's series, for every lane."""
    rows = [SERIES[n].tobytes() for n in series_of(layer_steps(given))]
    row = b"".join(r.ljust(chip.aligned(len(r)), b"\0") for r in rows)
    return lanes_of(row, chip) if row else b""


def places(given: dict[str, Any]) -> int:
    """How many results lie in scratch memory at once, with the operand."""
    return 1 + max(registers(layer_steps(given)))
