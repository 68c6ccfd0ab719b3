"""`check(op, *arrays, **attrs)`: the numpy body against every kernel of that op."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.ir import constant
from intaglio.ops.registry import REGISTRY, evaluate_node

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}


def check(op: str, *arrays: Any, tolerance: float | None = None, **attrs: Any) -> list[np.ndarray]:
    """Run `op` in numpy and every kernel of it, whole and split; compare; return numpy's."""
    ins = [None if a is None else np.asarray(a) for a in arrays]
    node = REGISTRY[op].node(*[None if a is None else constant(a) for a in ins], **attrs)
    want = evaluate_node(node, ins)
    first = next(a for a in ins if a is not None)
    dtype = constant(first).dtype
    fitting = [
        k
        for k in native.kernels()
        if k.op.name == op and k.types in (dtype, "any") and not k.needs & ~native.machine()
    ]
    assert fitting, f"no kernel for {op} on {dtype}"
    for kernel in fitting:
        for parts in (1, 2, 3):
            got = native.run_kernel(kernel, ins, node.attrs, len(want), parts)
            for g, w in zip(got, want, strict=True):
                what = f"{op} {kernel.types} {kernel.isa} in {parts} parts"
                assert g.dtype == w.dtype and g.shape == w.shape, (
                    f"{what}: {g.dtype}{g.shape}, numpy {w.dtype}{w.shape}"
                )
                compare(g, w, what, tolerance)
    return list(want)


def compare(got: np.ndarray, want: np.ndarray, what: str, tolerance: float | None = None) -> None:
    if want.dtype.name in TOLERANCE:
        tol = TOLERANCE[want.dtype.name] if tolerance is None else tolerance
        g, w = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol, err_msg=what)
    else:
        if dtypes.is_float(
            dtypes.name_of(want.dtype)
        ):  # numpy knows that a NaN of its own equals itself
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want, err_msg=what)
