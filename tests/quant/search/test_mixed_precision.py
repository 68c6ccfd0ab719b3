"""Mixed precision promotes the layers that cost the outputs most for their time, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.place import place
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.placement.shared_rounding import shared_roundings
from intaglio.quant.ranges import headroom
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.mixed_precision import MixedPrecision
from intaglio.quant.search.policy import POLICY
from intaglio.targets import cpu

RNG = np.random.default_rng(5)
ATTRS = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


def chain(layers=5):
    """Pointwise convolutions one after the other; tensors between them are called t0, t1, ..."""
    x = Value(Type("f32", (1, 4, 8, 8)), "t0")
    y = x
    for i in range(layers):
        y = ops.conv(y, constant(RNG.standard_normal((4, 4, 1, 1)).astype(np.float32)), **ATTRS)
        y.name = f"t{i + 1}"
    return Graph([x], [y])


class Costs:
    """A trial whose errors are known: those of the tensors add up, in every part of the outputs."""

    def __init__(self, costs, parts):
        self.costs, self.parts, self.runs = costs, parts, 0

    def errors(self, schemes, fine=0.0, only=None):
        self.runs += 1
        return {p: base + sum(self.costs[n] for n in schemes) for p, base in self.parts.items()}

    def hardest(self, schemes, count):
        return list(range(count))


def mixed(costs, cosine=0.995, parts=None, layers=5, **policy):
    graph = chain(layers)
    trial = Costs(costs, parts or {"y": 0.0})
    chip = cpu.target("avx512vnni")
    placed = place(graph, {}, chip)
    search = Search(graph, placed, trial, lambda methods: {}, policy=replace(POLICY, **policy))
    schemes = {n: TensorScheme("i8", (1.0,), (0,)) for n in costs}
    return MixedPrecision(search, schemes, {}, cosine), trial


def test_only_layers_with_a_large_error_are_promoted():
    made = mixed({"t0": 1e-4, "t1": 0.03, "t2": 1e-4, "t3": 0.004, "t4": 1e-4})[0].meet()
    assert made.layers == {"t2": "f32"}  # the one that reads t1
    assert "'t1' is too coarse in int8" in made.notes[0]
    assert made.cosine == pytest.approx(1 - 0.0043 / 2)
    assert made.curve[0].layers == ()
    assert made.curve[0].cosine == pytest.approx(1 - 0.0343 / 2)


def test_nothing_is_promoted_if_the_error_is_small():
    held, trial = mixed({"t0": 1e-3, "t1": 2e-3})
    assert not held.meet().layers
    assert trial.runs == 1


def test_needless_promotions_are_taken_back():
    """Errors that were inferred are not always what promoting takes off."""
    held, trial = mixed({"t0": 0.02, "t1": 0.02, "t2": 0.02, "t3": 0.02, "t4": 0.0})
    trial.errors = lambda schemes, fine=0.0, only=None: {
        "y": 0.05 if "t1" in schemes else 0.001 * len(schemes)
    }
    made = held.meet()
    assert made.layers == {"t2": "f32"}


def test_the_worst_part_of_the_outputs_decides():
    costs = {"t0": 1e-5, "t1": 7e-3, "t2": 1e-5, "t3": 1e-5, "t4": 1e-5}
    assert not mixed(costs, parts={"boxes": 0.0, "scores": 0.0})[0].meet().layers
    made = mixed(costs, parts={"boxes": 0.0, "scores": 4e-3})[0].meet()
    assert set(made.layers) == {"t2"}


def test_the_time_of_a_layer_includes_its_output():
    """A convolution with few channels multiplies little, but is not free."""
    held = mixed({"t1": 0.03})[0].promotions
    assert held.work["t2"] == POLICY.macs_per_output * 4 * 8 * 8 > held.macs["t2"]


def test_a_slice_of_a_tensor_shares_its_rounding():
    x = Value(Type("f32", (1, 4, 8, 8)), "x")

    def conv(v, name):
        w = constant(RNG.standard_normal((4, v.shape[1], 1, 1)).astype(np.float32))
        made = ops.conv(v, w, **ATTRS)
        made.name = name
        return made

    before = conv(x, "before")
    act = ops.swish(before)
    half = ops.slice_(act, start=(0, 0, 0, 0), stop=(1, 2, 8, 8), step=(1, 1, 1, 1))
    act.name, half.name = "act", "half"
    graph = Graph([x], [conv(half, "y"), conv(act, "z")])
    placement = place(graph, {})
    once = shared_roundings(placement, {v.name for v in placement.tensors})
    assert once == {"x": {"x"}, "act": {"before", "act", "half"}}
    assert once.before == {"before"}
    assert shared_roundings(placement, {"half"}) == {"half": {"half"}}
    costs = {"x": 1e-5, "before": 1e-4, "act": 0.02, "half": 0.0}
    trial = Costs(costs, {"out": 0.0})
    schemes = {n: TensorScheme("i8", (1.0,), (0,)) for n in costs}
    held = MixedPrecision(Search(graph, placement, trial, lambda methods: {}), schemes, {}, 0.995)
    assert {"y", "z"} <= set(held.meet().layers)  # half would be rounded in the place of act


def test_few_trials_find_one_tensor_among_many():
    costs = {f"t{i}": 1e-6 for i in range(64)} | {"t37": 0.05}
    held, trial = mixed(costs, layers=64)
    assert held.meet().layers == {"t38": "f32"}
    assert trial.runs < 20


@pytest.mark.parametrize(("passes", "most"), [(1, 64), (3, 4)])
def test_what_is_left_is_searched_again_if_promotions_were_too_few(passes, most):
    """Trials for the two large errors leave none to find the two small ones, which matter too."""
    small, large = {"t40": 0.012, "t50": 0.011}, {"t10": 5.0, "t20": 3.0}
    costs = {f"t{i}": 1e-6 for i in range(64)} | small | large
    held, _ = mixed(costs, layers=64, trial_budget=18, passes=passes)
    layers = held.meet().layers
    assert {"t11", "t21"} <= set(layers)
    assert 3 <= len(layers) <= most
    assert (len(layers) > 4) == (passes == 1)


# ---- headroom ------------------------------------------------------------------------------------
def seen(*largest):
    return Observation("x", low=0.0, high=max(largest), samples=len(largest), largest=[*largest])


def test_headroom_is_for_ranges_that_vary_between_samples():
    v, u = (Value(Type("f32", (2,)), n) for n in "vu")
    observed = {v: seen(1, 2, 3, 8), u: seen(6, 6, 6, 6)}
    ranges = {v: (-1.0, 8.0), u: (0.0, 6.0)}
    assert headroom.with_headroom(ranges, observed, 1.5) == {v: (-1.5, 12.0), u: (0.0, 6.0)}
    assert headroom.with_headroom(ranges, observed, 1.0) == ranges


def test_headroom_below_one_is_refused():
    with pytest.raises(BadInput, match=r"headroom is 0\.5"):
        Options(headroom=0.5)


def test_weights_are_rounded_by_data_if_they_limit_the_accuracy():
    rng = np.random.default_rng(0)
    x = Value(Type("f32", (1, 16, 8, 8)), "x")
    w = constant(rng.standard_normal((16, 16, 1, 1)).astype(np.float32))
    y = ops.conv(x, w, **ATTRS)
    y.name = "t1"
    graph = Graph([x], [y])
    mix = rng.standard_normal((16, 16)).astype(np.float32)  # channels that depend on each other
    noise = rng.standard_normal((8, 1, 16, 8, 8)).astype(np.float32)
    data = [{"x": np.einsum("ij,njhw->nihw", mix, n)} for n in noise]
    stored = {}
    for rounding in ("auto", "squant", "data"):
        options = Options(rounding=rounding, weights="int4", accuracy=0.9999, layers={"t1": "int8"})
        made = calibrate(graph, data, options=options).graph
        stored[rounding] = [v.data.tobytes() for v in made.values() if v.dtype == "i4"]
    assert stored["auto"] == stored["data"]
    assert stored["auto"] != stored["squant"]
