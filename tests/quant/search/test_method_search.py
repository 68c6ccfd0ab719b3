"""Searches: the best ranges are chosen, and what ruins the outputs is found and promoted."""

import json
from dataclasses import replace

import numpy as np
import pytest

from intaglio import interpret, quantize
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu, sigmoid, swish
from intaglio.ops.conv import conv
from intaglio.ops.registry import REGISTRY
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.place import place
from intaglio.quant.prepare import prepare
from intaglio.quant.ranges.affine import affine
from intaglio.quant.samples.subset import evenly_spaced
from intaglio.quant.search.method_search import Cache, Search
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.policy import POLICY
from intaglio.quant.search.trial import EXACT, ROUND, Trial

RNG = np.random.default_rng(11)
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def network(uneven):
    """Convolutions, of which the second, depthwise, evens out channels of unlike size."""
    x = Value(Type("f32", (1, 3, 16, 16)), "x")
    w = numbers(16, 3, 3, 3)
    scale = np.where(np.arange(16) % 4, 1.0, 2000.0 if uneven else 1.0).astype(np.float32)
    a = swish(conv(x, constant(w * scale.reshape(-1, 1, 1, 1)), groups=1, **ATTRS))
    d = numbers(16, 1, 3, 3) / scale.reshape(-1, 1, 1, 1)
    b = relu(conv(a, constant(d), constant(numbers(16)), groups=16, **ATTRS))
    c = conv(b, constant(numbers(8, 16, 3, 3)), constant(numbers(8)), groups=1, **ATTRS)
    for name, v in {"a": a, "b": b, "c": c}.items():
        v.name = name
    return Graph([x], [c])


def samples(n=12):
    return [{"x": numbers(1, 3, 16, 16)} for _ in range(n)]


def cosine(made, data):
    return min(m.cosine for m in Reference.of(made.float_graph, data).compare(made.graph))


def test_a_model_that_is_accurate_in_int8_stays_int8():
    graph, data = network(False), samples()
    made = calibrate(graph, data)
    assert set(made.scheme.layers.values()) == {"int8"}
    assert cosine(made, data) > 0.99
    assert not made.notes


def test_layers_that_int8_ruins_are_promoted_and_reported():
    graph, data = network(True), samples()
    plain = calibrate(graph, data, options=Options(method="minmax", accuracy=None))
    assert cosine(plain, data) < 0.9
    made = calibrate(graph, data)
    assert cosine(made, data) > 0.985
    wide = {name for name, precision in made.scheme.layers.items() if precision == "f32"}
    assert wide
    assert made.scheme.layers["c"] == "int8"
    assert any("'a' is too coarse in int8" in note for note in made.notes)
    again = calibrate(graph, data)
    assert again.scheme.layers == made.scheme.layers


def test_weights_of_promoted_layers_are_not_rounded_in_trials():
    """Where rounded weights alone cost too much, some layers in floats do, and not all of them."""
    graph, data = network(False), samples()
    four = Options(method="minmax", rounding="squant", weights="int4", accuracy=None)
    assert cosine(calibrate(graph, data, options=four), data) < 0.992
    made = calibrate(graph, data, options=replace(four, accuracy=0.995))
    assert cosine(made, data) > 0.994
    assert {*made.scheme.layers.values()} == {"int8", "f32"}, "all or nothing"
    assert [p.cosine > 0.995 for p in made.curve if p.kept] == [True]
    most = calibrate(graph, data, options=replace(four, accuracy=0.9999))
    assert cosine(most, data) > 0.9999
    assert not any("was asked for" in note for note in most.notes)


def test_results_of_other_options_are_not_reused(tmp_path):
    graph, data, file = network(False), samples(), str(tmp_path / "tried.json")
    calibrate(graph, data, options=Options(resume=file))
    for change in ({"weights": "int4"}, {"bias_correction": False}, {"per": "tensor"}):
        own = Options(**change, rounding="squant", accuracy=0.98)
        plain = calibrate(graph, data, options=own)
        again = calibrate(graph, data, options=replace(own, resume=file))
        assert [p.cosine for p in again.curve] == [p.cosine for p in plain.curve]
        assert again.scheme == plain.scheme


def test_trials_predict_the_error_of_the_integer_model():
    """A trial predicts the outputs of the integer model to a small part of their error."""
    graph, data = prepare(network(False)), samples(6)
    made = calibrate(
        graph,
        data,
        options=Options(method="minmax", accuracy=None, bias_correction=False, rounding="nearest"),
    )
    from intaglio.quant.weights.integers import from_integers
    from intaglio.quant.weights.storage import stored_weights

    options = Options(rounding="nearest")
    placement = place(graph, {})
    reference = Reference.of(graph, data)

    def stored(node):
        return from_integers(*stored_weights(node, options)), None

    with Trial(graph, placement, stored, reference) as trial:
        tensors = {n: made.scheme.tensors[n] for n in trial.names}
        tried = trial.run(tensors)[0].error
        nothing = trial.run({})[0].error
    built = reference.compare(made.graph)[0].error
    assert tried == pytest.approx(built, rel=0.05)
    assert 0 < nothing < tried
    assert {v.name for v in graph.values()} >= set(tensors)


def test_choosing_ranges_beats_the_worst_method():
    graph, data = network(False), samples()
    data[0]["x"] *= 40  # one sample that is far out
    figures = {
        m: cosine(calibrate(graph, data, options=Options(method=m, accuracy=None)), data[1:])
        for m in ("auto", "minmax", "moving", "percentile", "mse")
    }
    assert figures["auto"] > min(figures.values())


def test_no_other_method_is_tried_if_the_first_suffices():
    graph, data = network(False), samples()
    said = []
    calibrate(graph, data, progress=lambda what, n, of: said.append((what, n)))
    assert sum(what.startswith("trying") for what, n in said) == 2  # the ranges, the result


def test_a_stopped_search_resumes(tmp_path):
    class Counting:
        def __init__(self):
            self.count = 0

        def errors(self, schemes, fine=0.0, only=None):
            self.count += 1
            return {"y": float(len(schemes))}

    trial, path = Counting(), tmp_path / "search.json"
    first = Cache(path, "model")
    assert first.errors(trial, {}) == {"y": 0.0}
    assert Cache(path, "model").errors(trial, {}) == {"y": 0.0}
    assert trial.count == 1
    Cache(path, "another model").errors(trial, {})
    assert trial.count == 2
    Cache(path, "model").errors(trial, {})
    assert trial.count == 2, "the other model's search replaced this one's"
    assert len(json.loads(path.read_text())["searches"]) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "my settings"}', '{"searches": 3}'])
def test_a_file_of_another_kind_is_not_overwritten(tmp_path, text):
    path = tmp_path / "package.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="holds no search"):
        Cache(path, "model")
    assert path.read_text() == text
    with pytest.raises(BadInput, match="is no regular file"):
        Cache("/dev/null", "model")


def test_quantize_resumes(tmp_path):
    graph, data = network(False), samples(4)
    options = Options(resume=str(tmp_path / "search.json"))
    first = calibrate(graph, data, options=options)
    trials = json.loads((tmp_path / "search.json").read_text())["searches"]
    assert any(trials.values())
    again = calibrate(graph, data, options=options)
    assert json.loads((tmp_path / "search.json").read_text())["searches"] == trials
    assert again.scheme.tensors == first.scheme.tensors


def test_samples_are_spread_evenly():
    assert evenly_spaced(list(range(100)), 3) == [0, 50, 99]
    assert evenly_spaced([1, 2], 8) == [1, 2]


def test_accuracy_is_a_cosine():
    with pytest.raises(BadInput, match="accuracy is 99"):
        Options(accuracy=99)


def test_a_trial_rounds_a_tensor_by_one_node():
    x = np.linspace(-3, 3, 101, dtype=np.float32)
    step, low, high = np.float32(0.03), np.float32(-28), np.float32(90)
    made = REGISTRY["cpu.chain"].body(x, step, low, high, **ROUND)
    np.testing.assert_array_equal(made, np.clip(np.rint(x / step), low, high) * step)
    made = REGISTRY["cpu.chain"].body(x, *EXACT, **ROUND)
    np.testing.assert_array_equal(made, x)


class Costs:
    """Stands for a trial: every tensor costs what its method says, whatever the others have."""

    names = tuple(f"t{i}" for i in range(12))

    def __init__(self, costs):
        self.costs = costs

    def errors(self, methods, fine=0.0, only=None):
        return {"y": sum(self.costs(n, m) for n, m in methods.items())}

    def hardest(self, methods, count):
        return list(range(count))


def chosen_methods(allowed=0.0):
    """The tensors that get `mse`, which suits the first of six blocks and no other tensor."""

    def cost(name, method):
        return {"minmax": 2e-3, "mse": 1e-3 if name in ("t0", "t1") else 9e-3}.get(method, 1.0)

    search = Search(None, None, Costs(cost), make=lambda methods: methods)
    found = {n for n, m in search.choose_methods(allowed).items() if m == "mse"}
    return found, search.count


def test_a_block_of_tensors_gets_another_method_if_that_helps():
    assert chosen_methods() == ({"t0", "t1"}, 4 + 1 + 6 * 3 + 1)  # one gain is confirmed


def test_a_gain_on_the_worst_samples_must_hold_on_all():
    def cost(name, method):
        return {"minmax": 2e-3}.get(method, 9e-3)

    class Lucky(Costs):
        def errors(self, methods, fine=0.0, only=None):
            lucky = only is not None and any(m == "mse" for m in methods.values())
            return {"y": 0.0} if lucky else super().errors(methods)

    search = Search(None, None, Lucky(cost), make=lambda methods: methods)
    assert set(search.choose_methods().values()) == {"minmax"}


def test_no_block_is_tried_once_the_outputs_are_accurate_enough():
    assert chosen_methods(allowed=25e-3) == (set(), 4)  # minmax costs 12 * 2e-3
    assert chosen_methods(allowed=23e-3) == ({"t0", "t1"}, 4 + 1 + 1 + 1)


def test_only_the_highest_scores_are_judged():
    """By their square roots, whose error is relative to POLICY.score_scale."""
    data = samples(2)
    graph = network(False)
    two = [sigmoid(graph.outputs[0]), graph.outputs[0]]
    graph = prepare(Graph(graph.inputs, two, ["scores", "boxes"]))
    reference = Reference.of(graph, data)
    assert list(reference.highest) == ["scores"]
    rounded = {"a": affine(0.0, 40.0, "i8")}
    with Trial(graph, place(graph, {}), lambda n: (n.inputs[1].data, None), reference) as trial:
        errors = trial.errors(rounded)
        given = trial._given(rounded)
        made = [trial.sessions.every[0].run({**x, **given})["scores"] for x in data]
    m, w = np.ravel(made), np.ravel([o["scores"] for o in reference.outputs])
    judged = w >= np.sort(w)[-POLICY.score_count]
    off = np.mean(np.square(np.sqrt(m) - np.sqrt(w))[judged]) / POLICY.score_scale**2
    assert errors["scores"] == pytest.approx(off, rel=1e-3)


# ---- effort --------------------------------------------------------------------------------------
def open_trial(graph, data):
    reference = Reference.of(graph, data)
    return Trial(graph, place(graph, {}), lambda n: (n.inputs[1].data, None), reference)


def test_no_sample_runs_twice_with_the_same_settings():
    graph, data = prepare(network(False)), samples(6)
    rounded = {"a": affine(0.0, 40.0, "i8")}
    with open_trial(graph, data) as trial:
        some = trial.errors(rounded, only=[1, 4])
        every = trial.errors(rounded)
        assert trial.runs == 2
        assert trial.errors(rounded) == every
        assert trial.errors(rounded, only=[1, 4]) == some != every
        assert trial.runs == 2
    with open_trial(graph, data) as trial:
        assert trial.errors(rounded) == pytest.approx(every)


def test_sensitivities_are_measured_on_the_samples_that_err_most():
    graph, data = prepare(network(False)), samples(8)
    for i in (2, 5):
        data[i]["x"] = 4 * data[i]["x"]  # far outside of the range below
    with open_trial(graph, data) as trial:
        assert trial.hardest({"x": affine(-3.0, 3.0, "i8")}, 2) == [2, 5]


def test_fast_keeps_what_the_user_set():
    fast = Options(fast=True).with_fast()
    assert (fast.limit, fast.rounding, fast.policy.trial_samples) == (32, "squant", 8)
    kept = Options(fast=True, limit=50, rounding="data").with_fast()
    assert (kept.limit, kept.rounding) == (50, "data")
    assert Options().with_fast() == Options()
    with pytest.raises(BadInput, match="fast= has no meaning in mode"):
        Options(mode="dynamic", fast=True)


@pytest.mark.parametrize("uneven", [False, True])
def test_the_number_of_samples_does_not_switch_the_result(uneven):
    """The same layers stay in floats with 12, 24, 64 and 100 samples."""
    graph, data = network(uneven), samples(100)
    made = [calibrate(graph, data[:n], warn=lambda words: None) for n in (12, 24, 64, 100)]
    assert len({tuple(m.scheme.layers.items()) for m in made}) == 1
    assert bool(made[0].floats) == uneven


def test_outputs_are_never_clipped(monkeypatch):
    """Where several scores are clipped to the largest byte, the best one is lost."""
    chosen: dict[str, str] = {}

    def choose(self, *limits):
        chosen.update(dict.fromkeys(self.trial.names, "moving"))
        return dict(chosen)

    monkeypatch.setattr(Search, "choose_methods", choose)
    graph = network(False)
    given = samples()
    given[0] = {"x": 10 * given[0]["x"]}  # its scores are far above the average of the others
    made = quantize(graph, given, target="k210")
    most = max(np.abs(interpret(graph, s)["c"]).max() for s in given)
    (out,) = made.outputs
    assert out.producer.op == "dequantize_linear"
    scale = float(out.producer.inputs[1].data.reshape(-1)[0])
    assert chosen["c"] == "moving"
    assert 255 * scale >= 0.9 * most
