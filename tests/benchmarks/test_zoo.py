"""Models of the zoo have the operations of their architectures, and export correctly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.zoo import MODELS, export, macs

import intaglio
from intaglio.ir import Graph, Type, Value
from intaglio.ops.conv import conv


def _needs_torch() -> None:
    pytest.importorskip("torch", reason="exporting needs torch: pip install 'intaglio[zoo]'")
    pytest.importorskip("onnxruntime", reason="the outputs are compared with onnxruntime's")


def test_inputs_are_seeded():
    model = MODELS["bert_mini"]
    first, again, other = model.feeds(3), model.feeds(3), model.feeds(4)
    assert list(first) == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not np.array_equal(first["input_ids"], other["input_ids"])
    assert first["attention_mask"].max() == 1


def test_taps_on_padding_do_not_count():
    x, w = Value(Type("f32", (1, 2, 6, 5)), "x"), Value(Type("f32", (3, 2, 3, 3)), "w")
    y = conv(x, w, stride=(2, 1), pad=(1, 2, 0, 1), dilation=(2, 1), groups=1)
    graph = Graph([x, w], [y], ["y"])
    ones = {v.name: np.ones(v.shape, np.float32) for v in (x, w)}
    counted = sum(a.sum() for a in intaglio.interpret(graph, ones).values())
    assert macs.count(graph) == counted  # with ones everywhere, a sum counts its products


@pytest.mark.slow
@pytest.mark.parametrize("exporter", export.OPSETS)
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "gru", "fastvit_t8", "lraspp_320"])
def test_exported_model_is_the_published_net(name: str, exporter: str, tmp_path: Path):
    _needs_torch()
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    made = export.export(name, exporter, folder=tmp_path)  # checks the file and its outputs
    assert made.path == export.path_of(name, exporter, folder=tmp_path)
    assert export.is_current(made.path)
    graph = intaglio.load(made.path)
    assert {v.name: v.type.shape for v in graph.inputs} == {
        i.name: i.shape for i in MODELS[name].inputs
    }
    assert round(macs.count(graph) / 1e6) == MODELS[name].mmac


@pytest.mark.slow
def test_same_seed_same_weights():
    _needs_torch()
    first, again, other = (MODELS["swin_like"].build(seed).state_dict() for seed in (0, 0, 1))
    assert all(first[k].equal(again[k]) for k in first)
    assert not any(first[k].equal(other[k]) for k in first if k.endswith("weight"))
