"""Compares Intaglio with LiteRT: one file, several calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.tflite import load_tflite


def litert(data: bytes, *calls: list[np.ndarray], reference: bool = True) -> list[list[np.ndarray]]:
    """LiteRT's outputs of every call; skips if LiteRT is not installed."""
    lib = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is missing")
    kind = lib.OpResolverType.BUILTIN_REF if reference else lib.OpResolverType.AUTO
    it = lib.Interpreter(model_content=data, experimental_op_resolver_type=kind)
    it.allocate_tensors()
    made = []
    for arrays in calls:
        for d, a in zip(it.get_input_details(), arrays, strict=True):
            it.set_tensor(d["index"], a)
        it.invoke()
        made.append([it.get_tensor(d["index"]) for d in it.get_output_details()])
    return made


def ours(data: bytes, *calls: list[np.ndarray], **load: Any) -> list[list[np.ndarray]]:
    """Our outputs of every call; interpreter and compiled model must agree."""
    graph = load_tflite(data, ImportOptions(**load))
    names = [v.name for v in graph.inputs if v.name not in graph.state]
    made, state = [], {}
    with intaglio.open(intaglio.compile(graph), threads=1) as session:
        assert list(session.inputs) == names
        for arrays in calls:
            feeds = dict(zip(names, arrays, strict=True))
            want = intaglio.interpret(graph, {**feeds, **state})
            state = {n: want[n] for n in graph.state}
            got = session.run(feeds)
            for n, a in got.items():
                assert (a.shape, a.dtype) == (want[n].shape, want[n].dtype)
                whole = a.dtype.kind in "iu"
                np.testing.assert_allclose(
                    a.astype(float), want[n].astype(float), rtol=1e-4, atol=1 if whole else 1e-4
                )
            made.append(list(got.values()))
    return made


def agrees(
    data: bytes, *calls: list[np.ndarray], tolerance: float = 1e-5, reference: bool = True
) -> list[list[np.ndarray]]:
    """Our outputs, which must equal LiteRT's within one step or `tolerance` of the range."""
    want, got = litert(data, *calls, reference=reference), ours(data, *calls)
    for ours_, theirs in zip(got, want, strict=True):
        assert len(ours_) == len(theirs)
        for a, b in zip(ours_, theirs, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.kind == "f":
                most = max(float(np.abs(b).max(initial=0)), 1e-6)
                np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * most)
            elif a.dtype.kind == "b":
                np.testing.assert_array_equal(a, b)
            else:
                assert np.abs(a.astype(int) - b.astype(int)).max(initial=0) <= 1
    return got
