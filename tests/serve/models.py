"""Small models for the tests of serving."""

from __future__ import annotations

import functools

import numpy as np
from tests.frontends.onnx_text import model

import intaglio


@functools.cache
def rows_model(batches: tuple[int, ...] = (1, 2, 4), factor: int = 2) -> intaglio.Package:
    """y = factor x + 1 for rows of 3 floats, with a plan for each batch."""
    constants = f"<float[1] k = {{{factor}}}, float[1] one = {{1}}>"
    body = "{ a = Mul(x, k)  y = Add(a, one) }"
    proto = model(f"(float[N,3] x) => (float[N,3] y) {constants} {body}")
    return intaglio.compile(proto, batch=list(batches))


def rows(*values: float) -> np.ndarray:
    """A batch with each value three times."""
    return np.repeat(np.array(values, np.float32)[:, None], 3, axis=1)
