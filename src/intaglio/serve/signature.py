"""The inputs and outputs of a served model, and which batches it was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Type
from intaglio.serve.tensors import TensorSpec
from intaglio.session import Session
from intaglio.symint import SymInt, bound, lowest

INDEPENDENT = 1e-3  # of an output's range: rows of a batch may differ that much from single runs


@dataclass
class Signature:
    """What a model takes and gives."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    plans: dict[int, int | None]  # batch size -> number of its plan; None: one plan for all sizes
    stateful: bool

    @property
    def max_batch(self) -> int:
        """Rows of the largest batch; 0 if requests are not joined."""
        return max(self.plans, default=0)

    @classmethod
    def of(cls, session: Session) -> Signature:
        """The signature of an open session. Runs a range of batches to see that rows do not mix."""
        native = session._native
        plans = [dict(p) for p in native.plan_inputs]
        low = {n: tuple(lowest(d) for d in t.shape) for n, t in plans[0].items()}
        high = {n: tuple(bound(d) for d in t.shape) for n, t in plans[-1].items()}
        for p in plans:
            for n, t in p.items():
                high[n] = tuple(map(max, high[n], (bound(d) for d in t.shape)))
                low[n] = tuple(map(min, low[n], (lowest(d) for d in t.shape)))
        inputs = {
            n: TensorSpec.of(n, t.dtype, _open(low[n], high[n]), high[n])
            for n, t in plans[0].items()
        }
        batches = {} if session.stateful else _batches(session, plans)
        small, large = session.output_shapes(_smallest(plans)), session.output_shapes(high)
        outputs = {}
        for n, t in session.outputs.items():
            shape = list(_open(small[n], large[n]))
            for axis in t.dynamic:
                shape[axis] = -1
            outputs[n] = TensorSpec.of(n, t.dtype, shape)
        return cls(inputs, outputs, batches, session.stateful)


def _open(low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a if a == b else -1 for a, b in zip(low, high, strict=True))


def _smallest(plans: list[dict[str, Type]]) -> dict[str, tuple[int, ...]]:
    return {n: tuple(lowest(d) for d in t.shape) for n, t in plans[0].items()}


def _batches(session: Session, plans: list[dict[str, Type]]) -> dict[int, int | None]:
    """The batch sizes of a model whose plans differ in the first axis of all inputs only."""
    if not all(t.rank for p in plans for t in p.values()):
        return {}
    firsts = [{t.shape[0] for t in p.values()} for p in plans]
    if any(len(first) != 1 for first in firsts):
        return {}
    extents = [first.pop() for first in firsts]
    if len(plans) == 1:
        return _range(session, plans[0], extents[0])
    inner = [{n: (t.dtype, t.shape[1:]) for n, t in p.items()} for p in plans]
    if any(i != inner[0] for i in inner) or not all(isinstance(e, int) for e in extents):
        return {}
    links = session.meta.get("padding")  # the compiler tried that rows do not mix
    if not isinstance(links, dict) or any(
        set(links.get(name, {})) != {"0"} for name in session.outputs
    ):
        return {}
    return {e: i for i, e in enumerate(extents)}


def _range(session: Session, plan: dict[str, Type], extent: Any) -> dict[int, int | None]:
    if not isinstance(extent, SymInt) or any(
        isinstance(d, SymInt) for t in plan.values() for d in t.shape[1:]
    ):
        return {}
    low, high = lowest(extent), bound(extent)
    sizes = range(max(low, 1), high + 1)
    return dict.fromkeys(sizes) if high > 1 and low <= 1 and _rows_apart(session, plan) else {}


def _rows_apart(session: Session, plan: Mapping[str, Type]) -> bool:
    """Whether two rows in one run give what they give alone."""
    both = random_inputs({n: (t.dtype, (2, *t.shape[1:])) for n, t in plan.items()})
    joined = session.run(both)
    for row in range(2):
        alone = session.run({n: a[row : row + 1] for n, a in both.items()})
        for name, a in alone.items():
            b = joined[name][row : row + 1]
            if a.shape != b.shape or not _near(a, b):
                return False
    return True


def _near(a: Array, b: Array) -> bool:
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = np.abs(x[np.isfinite(x)]).max(initial=0.0)
    return bool(np.allclose(x, y, rtol=0, atol=INDEPENDENT * max(scale, 1e-6), equal_nan=True))


def random_inputs(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Array]:
    """Inputs for trial runs: random floats, and ones for integers, which may be indices."""
    rng = np.random.default_rng(0)
    return {
        n: rng.standard_normal(shape, np.float32).astype(dtypes.numpy_of(dtype))
        if dtypes.is_float(dtype)
        else np.ones(shape, dtypes.numpy_of(dtype))
        for n, (dtype, shape) in types.items()
    }
