"""`auto` keeps the best strategy; `until` meets a metric with the fewest layers in floats."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from tests.quant.search.test_method_search import network, samples

from intaglio.errors import BadInput
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.prepare import prepare
from intaglio.quant.search.mixed_precision import Point
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.strategies import auto, until


def test_the_best_strategy_is_kept_and_all_are_listed():
    graph, data = network(False), samples(8)
    steps = (
        ("minmax", {"method": "minmax"}),
        ("default again", {"bias_correction": True}),
        ("worse", {"bias_correction": False, "rounding": "nearest"}),
    )
    found = auto(graph, data, options=Options(method="moving"), strategies=steps)
    assert [t.name for t in found.tried] == ["default", "minmax", "worse"]
    best = max(t.figure for t in found.tried)
    assert [t.figure for t in found.tried if t.kept][-1] == best
    reference = Reference.of(graph, data)
    assert min(m.cosine for m in reference.compare(found.best.graph)) == pytest.approx(best)
    assert found.to_dict()["tried"][0]["strategy"] == "default"


def test_the_users_metric_decides():
    graph, data = network(False), samples(4)
    figures = iter([0.5, 0.9, 0.7])
    steps = (("minmax", {"method": "minmax"}), ("kl", {"method": "kl"}))
    found = auto(graph, data, metric=lambda g: next(figures), strategies=steps)
    assert [(t.name, t.kept) for t in found.tried] == [
        ("default", True),
        ("minmax", True),
        ("kl", False),
    ]
    assert found.options.method == "minmax"


def test_more_layers_in_floats_are_not_better():
    steps = (("strict", {"accuracy": 0.9999999}),)
    found = auto(network(True), samples(8), strategies=steps)
    default, strict = found.tried
    assert strict.figure > default.figure
    assert strict.time > 1.1 * default.time
    assert not strict.kept
    assert found.options.accuracy == Options().accuracy


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_time_does_not_count_undone_promotions(monkeypatch, activations):
    """The time of layers that were promoted and then demoted is that of int8."""

    def with_a_detour(*args, **how):
        made = calibrate(*args, **how)
        made.curve.append(Point(tuple(made.scheme.layers), 1.0, 1.0, True, 7.0))
        return made

    monkeypatch.setattr("intaglio.quant.search.strategies.calibrate", with_a_detour)
    options = Options(activations=activations, accuracy=None)
    graph = network(True)
    found = auto(graph, samples(4), options=options, strategies=())
    assert found.tried[0].time == 1
    first = next(n.outputs[0].name for n in prepare(graph).nodes() if n.op == "conv")
    half = auto(graph, samples(4), options=replace(options, layers={first: "f32"}), strategies=())
    assert half.tried[0].time != 1


def test_strategies_without_effect_are_not_tried():
    """A chain of convolutions has no norm that could be smoothed."""
    steps = (("smooth", {"smooth": True}), ("equalize", {"equalize": True}))
    found = auto(network(False), samples(4), strategies=steps)
    assert [t.name for t in found.tried] == ["default", "equalize"]


def test_layers_are_widened_until_a_metric_is_met():
    graph, data = network(True), samples(8)
    reference = Reference.of(graph, data)

    def metric(g):
        return min(m.cosine for m in reference.compare(g))

    found = until(graph, data, metric, 0.997)
    assert metric(found.best.graph) >= 0.997
    assert [t.kept for t in found.tried][-1]
    with pytest.raises(BadInput, match=r"reaches .*, 2 was asked for"):
        until(graph, data, lambda g: float(np.float32(1)), 2.0)
    with pytest.raises(BadInput, match="the metric gives None; return a number"):
        until(graph, data, lambda g: None, 0.5)


def test_a_metric_of_nan_is_the_worst():
    graph, data = network(False), samples(4)
    steps = (("minmax", {"method": "minmax"}),)
    figures = iter([0.5, float("nan")])
    found = auto(graph, data, metric=lambda g: next(figures), strategies=steps, accuracy=None)
    assert [t.kept for t in found.tried] == [True, False]
    assert found.options.accuracy is None
    with pytest.raises(BadInput, match="the metric gives nan"):
        auto(graph, data, metric=lambda g: float("nan"), strategies=steps, accuracy=None)


def test_a_file_is_loaded_with_its_options(tmp_path):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])
    w = onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [w])
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    data = [np.ones((1, 8), np.float32), np.full((1, 8), -2, np.float32)]
    own = {"dims": {"n": 1}, "accuracy": None, "method": "minmax"}
    assert auto(path, data, strategies=(), **own).best.scheme.layers == {"y": "int8"}
    assert until(path, data, lambda g: 1.0, 0.5, dims={"n": 1}).tried[0].kept
