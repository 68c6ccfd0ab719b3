"""TensorFlow ops, one graph each, against numpy, and against TensorFlow if it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends import tf_cases_image, tf_cases_other, tf_cases_tensor
from tests.frontends.tf_case import Case, Const, build

import intaglio

CASES = tf_cases_image.CASES | tf_cases_tensor.CASES | tf_cases_other.CASES


def ours(c: Case, folder: Path, native: bool = True) -> list[np.ndarray]:
    path, feeds = build(c, folder)
    names = [f"y:{i}" if i else "y" for i in range(c.outputs)]
    graph = intaglio.load(path, outputs=names)
    if not native:
        return list(intaglio.interpret(graph, feeds).values())
    with intaglio.open(intaglio.compile(graph)) as session:
        return [np.array(a) for a in session.run(feeds).values()]


def same(got: list[np.ndarray], want: Any, c: Case) -> None:
    for a, b in zip(got, want if isinstance(want, list) else [want], strict=True):
        assert a.shape == np.shape(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, atol=c.tolerance, rtol=1e-4)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.want is not None])
def test_ops(tmp_path: Path, name: str):
    c = CASES[name]
    operands = [np.asarray(v.data) if isinstance(v, Const) else v for v in c.operands]
    want = c.want(*operands)  # type: ignore[misc]
    same(ours(c, tmp_path), want, c)


@pytest.mark.parametrize("name", CASES)
def test_ops_beside_tensorflow(tmp_path: Path, name: str):
    """TensorFlow itself gives the expected result."""
    tf = pytest.importorskip("tensorflow")
    c = CASES[name]
    path, feeds = build(c, tmp_path)
    definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            names = [f"y:{i}" for i in range(c.outputs)]
            want = session.run(names, {f"{k}:0": v for k, v in feeds.items()})
    same(ours(c, tmp_path, native=False), want, c)
