"""Control flow and dynamic shapes: compiled models against the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends import test_onnx_control as control
from tests.frontends.onnx_text import model

import intaglio
from intaglio.frontends.onnx import load_onnx

R = np.random.default_rng(12)
EARLY = """k = Add(h, h) e = Relu(k) t = ReduceSum<keepdims=0>(k)
    c = Constant<value_float=9.0>() more = Less(t, c)"""
GROWS = {
    "SCANS": "",
    "OUT": "float[n] y",
    "RESULTS": "y",
    "BODY": "more = Identity(go) k = Concat<axis=0>(h, x)",
}
AT_RUN_TIME = {"HEAD": "int64 M,", "CONSTANTS": "", "OUT": "float[2] y, float[6,2] s"}
DETECT = """(float[1,20,4] b, float[1,3,20] s) => (float[n,4] y, int64[2] z) {
    m = Constant<value_ints=[5]>()
    i = Constant<value_floats=[0.5]>()
    c = Constant<value_floats=[0.3]>()
    k = NonMaxSuppression(b, s, m, i, c)
    zero = Constant<value_ints=[0]>()
    one = Constant<value_ints=[1]>()
    two = Constant<value_ints=[2]>()
    column = Gather<axis=1>(k, two)
    box = Squeeze(column, one)
    boxes = Squeeze(b, zero)
    y = Gather<axis=0>(boxes, box)
    z = Shape(y)
}"""
COUNT = """(float[3,4] x) => (float[n,2] y) {
    at = NonZero(x)
    rows = Transpose(at)
    s = Shape(rows)
    fill = ConstantOfShape(s)
    one = Cast<to=1>(rows)
    y = Add(one, fill)
}"""


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "loop": (control.loop(), {"x": f(2)}),
    "ends early": (control.loop(BODY=EARLY), {"x": np.ones(2, np.float32)}),
    "never starts": (control.loop(**AT_RUN_TIME), {"M": np.array(0), "x": f(2)}),
    "counted at run time": (control.loop(**AT_RUN_TIME), {"M": np.array(3), "x": f(2)}),
    "grows": (control.loop(**GROWS), {"x": f(2)}),
    "scan": (
        control.SCAN.replace(" ATTRS", ", scan_input_axes=[0, 1], scan_input_directions=[1, 0]"),
        {"s": f(2), "x": f(4, 2), "z": f(3, 4)},
    ),
    "reshape": (
        "(float[2,6] x, int64[2] s) => (float[3,4] y) { y = Reshape(x, s) }",
        {"x": f(2, 6), "s": np.array([3, -1])},
    ),
    "detect": (
        DETECT,
        {"b": R.uniform(0, 9, (1, 20, 4)).astype(np.float32), "s": abs(f(1, 3, 20))},
    ),
    "nothing found": (DETECT, {"b": abs(f(1, 20, 4)), "s": np.zeros((1, 3, 20), np.float32)}),
    "count": (COUNT, {"x": np.eye(3, 4, dtype=np.float32)}),
}
for word, flag in (("then", True), ("else", False)):
    for shapes, other in (("one shape", "Add(x, x)"), ("two shapes", "Concat<axis=0>(x, x)")):
        text = control.IF.replace("ELSE", f"q = {other}")
        CASES[f"{word}, {shapes}"] = (text, {"c": np.array(flag), "x": f(2, 3)})


@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, tmp_path: Path) -> None:
    text, inputs = CASES[case]
    want = intaglio.interpret(load_onnx(model(text)), inputs)
    path = tmp_path / "case.itg"
    intaglio.compile(load_onnx(model(text))).save(path)
    with intaglio.open(path) as session:
        got = session.run(inputs)
    for name, array in want.items():
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)
