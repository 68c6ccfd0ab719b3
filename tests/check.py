"""`check(op, *arrays, **attrs)`: the numpy body against every kernel of the op, and a package."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from tests import emulated

import intaglio
import intaglio.targets.cpu  # registers the cpu.* ops
from intaglio import dtypes, native
from intaglio.ir import Graph, Value, constant
from intaglio.ops.registry import REGISTRY, evaluate_node

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}
F16_SUMS = 1e-2  # of the size of results: sums of up to 64 products, each rounded to 11 bits


def check(op: str, *arrays: Any, tolerance: float | None = None, **attrs: Any) -> list[np.ndarray]:
    """Run `op` in numpy, in each of its kernels, whole and split, and as a compiled package.

    All must agree; returns the result of numpy.
    """
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
                compare(g, w, what, tolerance)
    _check_package(op, ins, attrs, want, tolerance)
    return list(want)


def _check_package(
    op: str, ins: list[Any], attrs: dict[str, Any], want: Any, tolerance: Any
) -> None:
    """Compile a graph of this one node, write it, open the bytes, run."""
    inputs = [None if a is None else constant(a) for a in ins]
    values = [None if v is None else Value(v.type, f"in{i}") for i, v in enumerate(inputs)]
    outputs = REGISTRY[op].node(*values, **attrs).outputs
    names = [f"out{i}" for i in range(len(outputs))]
    graph = Graph([v for v in values if v is not None], outputs, names, op)
    for name in filter(None, os.environ.get("INTAGLIO_EMULATE", "").split(",")):
        _check_emulated(name, graph, [a for a in ins if a is not None], want, tolerance)
    with intaglio.open(intaglio.compile(graph, level=0).bytes, threads=2) as session:
        made = session.run({v.name: a for v, a in zip(values, ins, strict=True) if v is not None})
    for (name, g), w in zip(made.items(), want, strict=True):
        compare(g, w, f"{op} {name} compiled", tolerance)


def _check_emulated(
    machine: str, graph: Graph, feeds: list[np.ndarray], want: Any, tolerance: float | None
) -> None:
    """Run the graph on a machine that is emulated (tests/emulated.py)."""
    package = intaglio.compile(graph, level=0, isa=emulated.MACHINES[machine].isa).bytes
    got = emulated.run(machine, package, feeds, len(want))
    sums_f16 = emulated.MACHINES[machine].sums_f16 and feeds[0].dtype == np.float16
    for g, w in zip(got, want, strict=True):
        w = np.asarray(w)
        made, what = np.frombuffer(g, w.dtype).reshape(w.shape), f"{graph.name} {machine}"
        if sums_f16:  # errors grow with sums, not with single results
            size = max(1.0, float(np.linalg.norm(w.astype(np.float64)) / max(1, w.size) ** 0.5))
            compare(made / np.float64(size), w / np.float64(size), what, F16_SUMS)
        else:
            compare(made, w, what, tolerance)


def compare(got: np.ndarray, want: np.ndarray, what: str, tolerance: float | None = None) -> None:
    """Equal in type and shape, and in value: exactly, or for floats within a tolerance."""
    same = (got.dtype, got.shape) == (want.dtype, want.shape)
    assert same, f"{what}: {got.dtype}{got.shape}, numpy {want.dtype}{want.shape}"
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
