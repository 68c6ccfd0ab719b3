"""Round trips: imported models are exported, pass onnx.checker, and give the same results."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests import onnx_conformance, shared_models

import intaglio
from intaglio.frontends.onnx import load_onnx
from intaglio.ir import Array, Graph


def again(graph: Graph, **options: Any) -> Graph:
    """The graph, exported and imported again."""
    model = intaglio.to_onnx(graph, **options)
    onnx.checker.check_model(model, full_check=True)
    return load_onnx(model.SerializeToString())


def equal(got: dict[str, Array], want: dict[str, Array], rtol: float, atol: float) -> None:
    assert list(got) == list(want)
    for name, w in want.items():
        g = got[name]
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype.kind not in "fiub":  # numpy cannot compare the small types
            g, w = g.astype(np.float32), w.astype(np.float32)
        np.testing.assert_allclose(g, w, rtol, atol, err_msg=name)


def round_trip(case: Any) -> None:
    for inputs, _ in case.data_sets:
        names = [i.name for i in case.model.graph.input]
        arrays = [onnx_conformance._array(a) for a in inputs]
        graph, feeds = onnx_conformance._load(case, dict(zip(names, arrays, strict=True)))
        want = intaglio.interpret(graph, feeds)
        equal(intaglio.interpret(again(graph), feeds), want, case.rtol, case.atol)


@pytest.mark.parametrize("part", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_node_tests_of_the_standard(part: int):
    """Supported node tests of onnx, all operators in all forms: every fifth, or all."""
    failed: dict[str, str] = {}
    chosen = [c for c in onnx_conformance.cases() if onnx_conformance.out_of_scope(c) is None]
    chosen = chosen[::part]
    for case in chosen:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                round_trip(case)
        except Exception as e:
            failed[case.name] = " ".join(f"{type(e).__name__}: {e}".split())[:200]
    share = 1 - len(failed) / len(chosen)
    lines = "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert not failed, f"{share:.2%} of {len(chosen)} come back the same\n{lines}"


def onnxruntime_runs(model: Any, feeds: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # what the model spells out
    options.graph_optimization_level = level
    data = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", shared_models.MODELS)
def test_shared_model_in_onnxruntime(name: str):
    if why := shared_models.absent():
        pytest.skip(why)
    path, model = shared_models.paths()[name], shared_models.MODELS[name]
    feeds = model.feeds(0)
    want = onnxruntime_runs(str(path), feeds)
    graph = intaglio.load(path, dims=dict(model.dims))
    counts = []
    for level in range(4):
        optimized = intaglio.optimize(graph, level)
        written = intaglio.to_onnx(optimized)
        onnx.checker.check_model(written, full_check=True)
        counts.append(len(written.graph.node))
        got = onnxruntime_runs(written, feeds)
        # integer arithmetic in the place of the floats that a quantised model spells out differs
        quantized = any(n.op_type.startswith("QLinear") for n in written.graph.node)
        # onnxruntime's sigmoid is good to 1e-7, which is 2e-4 of a range that it leaves tiny
        assert shared_models._error(got, want) < (0.1 if quantized else 3e-4), f"level {level}"
        assert quantized or shared_models._same_argmax(got, want)
        assert list(intaglio.load(written).output_names) == list(graph.output_names)
    assert counts == sorted(counts, reverse=True)
    fused = intaglio.to_onnx(intaglio.optimize(graph), contrib=True)
    assert len(fused.graph.node) <= counts[-1]
    assert shared_models._error(onnxruntime_runs(fused, feeds), got) < 1e-2
