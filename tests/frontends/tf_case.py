"""`case(op, ...)`: a TensorFlow graph of one node, its operands and its expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.frontends.tf_build import Bytes, GraphDef, Kind

F32, I32, I64 = Kind("float32"), Kind("int32"), Kind("int64")


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@dataclass
class Const:
    """An operand that is a constant."""

    data: Any


@dataclass
class Case:
    """One node: arrays are inputs, a Const is stored in the file."""

    op: str
    operands: list[Any]
    want: Callable[..., Any] | None = None  # expected result; None: only compared with TensorFlow
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    tolerance: float = 2e-5


def case(
    op: str,
    *operands: Any,
    want: Callable[..., Any] | None = None,
    outputs: int = 1,
    tolerance: float = 2e-5,
    **attrs: Any,
) -> Case:
    return Case(op, list(operands), want, attrs, outputs, tolerance)


def build(c: Case, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    graph, feeds, names = GraphDef(), {}, []
    for i, v in enumerate(c.operands):
        if isinstance(v, Const):
            held = v.data if isinstance(v.data, Bytes) else np.asarray(v.data)
            names.append(graph.const(f"c{i}", held))
        else:
            names.append(graph.placeholder(f"x{i}", v.shape, v.dtype.name))
            feeds[names[-1]] = v
    first = c.operands[0].data if isinstance(c.operands[0], Const) else c.operands[0]
    attrs = {"T": Kind(np.asarray(first).dtype.name), **c.attrs}
    graph.add("y", c.op, " ".join(names), **{k: v for k, v in attrs.items() if v is not None})
    return graph.save(folder / "one.pb"), feeds
