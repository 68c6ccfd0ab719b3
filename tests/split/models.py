"""A small quantised network with a residual block, for the tests of splitting."""

from __future__ import annotations

import functools

import numpy as np
from tests.frontends.onnx_text import model

import intaglio
from intaglio.ir import Graph
from intaglio.quant import Options

BODY = """{
  a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1)
  b = Relu(a)
  c = Conv<pads=[1,1,1,1]>(b, w2)
  d = Add(b, c)
  e = Conv<pads=[1,1,1,1], strides=[2,2]>(d, w3)
  f = Relu(e)
  p = GlobalAveragePool(f)
  g = Flatten(p)
  y = Gemm(g, w4)
}"""


@functools.cache
def float_model() -> Graph:
    """Two convolutions around a residual block, and a classifier of five classes."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (16, 8, 3, 3), "w4": (16, 5)}
    constants = ", ".join(
        f"float[{','.join(map(str, s))}] {n} = {{"
        f"{','.join(f'{v:.4f}' for v in rng.normal(0, 0.3, s).ravel())}}}"
        for n, s in shapes.items()
    )
    graph = f"(float[1,3,32,32] x) => (float[1,5] y) <{constants}> {BODY}"
    return intaglio.load(model(graph))


@functools.cache
def int8_model(target: str = "cpu") -> Graph:
    """The same in int8."""
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 3, 32, 32)).astype(np.float32)} for _ in range(4)]
    how = Options(method="minmax", accuracy=None, rounding="nearest", bias_correction=False)
    return intaglio.quantize(
        float_model(), samples, target=target, options=how, warn=lambda _: None
    )
