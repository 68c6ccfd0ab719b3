"""The guard: what costs the outputs most for its work is promoted, and needless ones are not."""

import numpy as np
import pytest

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant import room
from intaglio.quant.compare import Reference
from intaglio.quant.observe import Observation
from intaglio.quant.place import place
from intaglio.quant.promote import STRICT, Guard
from intaglio.quant.quantize import Options, calibrate
from intaglio.quant.scheme import TensorScheme
from intaglio.quant.search import Search

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

    def __init__(self, costs, parts, scores=()):
        self.costs, self.parts, self.runs = costs, parts, 0
        self.reference = self
        self._scores = set(scores)

    def names(self):
        return list(self.parts)

    def scores(self):
        return self._scores

    def errors(self, schemes, fine=0.0):
        self.runs += 1
        return {p: base + sum(self.costs[n] for n in schemes) for p, base in self.parts.items()}


def guard(costs, cosine=0.995, parts=None, scores=(), layers=5):
    graph = chain(layers)
    trial = Costs(costs, parts or {"y": 0.0}, scores)
    search = Search(graph, place(graph, {}), trial, lambda methods: {})
    schemes = {n: TensorScheme("i8", (1.0,), (0,)) for n in costs}
    return Guard(search, schemes, {}, cosine), trial


def test_only_what_costs_is_promoted():
    made = guard({"t0": 1e-4, "t1": 0.03, "t2": 1e-4, "t3": 0.004, "t4": 1e-4})[0].meet()
    assert made.layers == {"t2": "f32"}  # the one that reads t1
    assert "'t1' is too coarse in int8" in made.notes[0]
    assert made.cosine == pytest.approx(1 - 0.0043 / 2)
    assert made.curve[0].layers == ()
    assert made.curve[0].cosine == pytest.approx(1 - 0.0343 / 2)


def test_nothing_is_promoted_where_nothing_need_be():
    held, trial = guard({"t0": 1e-3, "t1": 2e-3})
    assert not held.meet().layers
    assert trial.runs == 1


def test_needless_promotions_are_taken_back():
    """Errors that were inferred are not always what promoting takes off."""
    held, trial = guard({"t0": 0.02, "t1": 0.02, "t2": 0.02, "t3": 0.02, "t4": 0.0})
    trial.errors = lambda schemes, fine=0.0: {
        "y": 0.05 if "t1" in schemes else 0.001 * len(schemes)
    }
    made = held.meet()
    assert made.layers == {"t2": "f32"}


def test_scores_are_held_closer_than_other_numbers():
    costs = {"t0": 1e-4, "t1": 7e-3, "t2": 1e-4, "t3": 1e-4, "t4": 1e-4}
    parts = {"boxes": 0.0, "scores": 0.0}
    assert not guard(costs, parts=parts)[0].meet().layers
    made = guard(costs, parts=parts, scores=["scores"])[0].meet()
    assert made.layers == {"t2": "f32"}
    assert 1 - made.cosine < 0.005 / STRICT
    assert not guard(costs | {"t1": 4e-3}, parts=parts, scores=["scores"])[0].meet().layers


def test_scores_are_not_held_closer_than_the_weights_are():
    costs = dict.fromkeys(["t0", "t1", "t2", "t3", "t4"], 5e-4)
    held, _ = guard(costs, parts={"boxes": 0.0, "scores": 6e-3}, scores=["scores"])
    assert not held.meet().layers  # 6e-3 of 8.5e-3 would stay


def test_few_trials_find_one_tensor_among_many():
    costs = {f"t{i}": 1e-6 for i in range(64)} | {"t37": 0.05}
    held, trial = guard(costs, layers=64)
    assert held.meet().layers == {"t38": "f32"}
    assert trial.runs < 20


def test_scores_are_parts_within_0_and_1_beside_others():
    boxes, scores = np.full((1, 4, 9), 50.0, np.float32), np.full((1, 3, 9), 0.5, np.float32)
    one = Reference.by([{}], [{"y": np.concatenate([boxes, scores], 1)}])
    assert one.names() == ["y[:,0-3]", "y[:,4-6]"]
    assert one.scores() == {"y[:,4-6]"}
    assert Reference.by([{}], [{"b": boxes, "s": scores}]).scores() == {"s"}
    assert not Reference.by([{}], [{"s": scores}]).scores()  # a classifier's, a map's


# ---- room ----------------------------------------------------------------------------------------
def seen(*largest):
    return Observation("x", low=0.0, high=max(largest), samples=len(largest), largest=[*largest])


def test_room_is_for_tensors_whose_range_depends_on_the_samples():
    v, u = (Value(Type("f32", (2,)), n) for n in "vu")
    observed = {v: seen(1, 2, 3, 8), u: seen(6, 6, 6, 6)}
    ranges = {v: (-1.0, 8.0), u: (0.0, 6.0)}
    assert room.without(ranges, observed, 3) == {v: (-1.0, 3.0), u: (0.0, 6.0)}
    assert room.without(ranges, observed, 0) == ranges
    assert room.with_room(ranges, observed, 1.5) == {v: (-1.5, 12.0), u: (0.0, 6.0)}
    assert room.with_room(ranges, observed, 1.0) == ranges


def test_room_is_what_errs_least_on_samples_left_out():
    class Known:
        def held_out(self, schemes):
            assert len(schemes) == 12
            return {"y": schemes[0]}

    def chosen(errors, samples=12):
        return room.choose(Known(), samples, lambda r, fold: errors[r])

    assert chosen({1.0: 0.5, 1.15: 0.2, 1.3: 0.4}) == 1.15
    assert chosen({1.0: 0.5, 1.15: 0.49, 1.3: 0.48}) == 1.0  # not clearly less
    assert chosen({}, samples=4) == chosen({}, samples=100) == 1.0  # too few to tell; enough


def test_room_is_a_factor():
    with pytest.raises(BadInput, match=r"room is 0\.5"):
        Options(room=0.5)


def test_weights_are_rounded_by_data_where_they_stand_in_the_way():
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
        options = Options(rounding=rounding, weights="int4", accuracy=0.9999,
                          layers={"t1": "int8"})  # fmt: skip
        made = calibrate(graph, data, options=options).graph
        stored[rounding] = [v.data.tobytes() for v in made.values() if v.dtype == "i4"]
    assert stored["auto"] == stored["data"]
    assert stored["auto"] != stored["squant"]
