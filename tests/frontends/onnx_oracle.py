"""`agree(op, arrays, ...)` compares one ONNX node with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret

TYPES = {helper.tensor_dtype_to_np_dtype(code): code for code in (1, 2, 3, 6, 7, 9)}


def agree(
    op: str,
    arrays: list[Any],
    outputs: int = 1,
    *,
    domain: str = "com.microsoft",
    constant: tuple[int, ...] = (),
    tolerance: float = 1e-4,
    step: int = 0,
    types: tuple[int, ...] = (),
    version: int = 17,
    **attrs: Any,
) -> None:
    """Compare one node with onnxruntime; `step` is the largest difference of integer results."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    results = [f"y{i}" if i < 2 or i + 1 == outputs else "" for i in range(outputs)]
    results = [
        r if outputs != 4 or r != "y1" else "" for r in results
    ]  # statistics outputs are not supported
    wanted = [r for r in results if r]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    pairs = [(name, a) for name, a in zip(names, arrays, strict=True) if a is not None]
    fixed = [
        onnx.numpy_helper.from_array(a, name) for i, (name, a) in enumerate(pairs) if i in constant
    ]
    free = [(name, a) for i, (name, a) in enumerate(pairs) if i not in constant]
    types = types or (TYPES[arrays[0].dtype],) * len(wanted)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TYPES[a.dtype], a.shape) for name, a in free],
        [helper.make_tensor_value_info(r, t, None) for r, t in zip(wanted, types, strict=True)],
        fixed,
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(wanted, dict(free))
    got = interpret(load_onnx(model), dict(free))
    for name, want in zip(wanted, expected, strict=True):
        have = got[name]
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)
        else:
            assert np.abs(have.astype(int) - want.astype(int)).max(initial=0) <= step
