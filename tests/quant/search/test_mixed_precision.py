"""The guard: what costs the outputs most for its work is promoted, and needless ones are not."""

from dataclasses import replace

import numpy as np
import pytest

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.formats import USUAL
from intaglio.quant.placement.output_heads import serve_only
from intaglio.quant.placement.place import place
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.placement.shared_rounding import shared_roundings
from intaglio.quant.ranges import headroom
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.mixed_precision import MOST_TIME, PER_NUMBER, STRICT, Guard
from intaglio.quant.search.output_error import Columns, Reference
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

    def alone(self, schemes):
        self.runs += 1
        return dict.fromkeys(self.parts, sum(self.costs[n] for n in schemes))


def guard(costs, cosine=0.995, parts=None, scores=(), layers=5, near=(), **how_close):
    graph = chain(layers)
    trial = Costs(costs, parts or {"y": 0.0}, scores)
    chip = cpu.target("avx512bf16" if near else "avx512vnni")
    how = replace(USUAL, near=near)
    search = Search(graph, place(graph, {}, chip), trial, lambda methods: {}, how=how)
    schemes = {n: TensorScheme("i8", (1.0,), (0,)) for n in costs}
    return Guard(search, schemes, {}, cosine, **how_close), trial


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
    costs = {"t0": 1e-5, "t1": 7e-3, "t2": 1e-5, "t3": 1e-5, "t4": 1e-5}
    parts = {"boxes": 0.0, "scores": 0.0}
    assert not guard(costs, parts=parts)[0].meet().layers
    made = guard(costs, parts=parts, scores=["scores"])[0].meet()
    assert set(made.layers) == {"t2"}
    assert 1 - made.cosine < 0.005 / STRICT
    assert not guard(costs | {"t1": 4e-3}, parts=parts, scores=["scores"])[0].meet().layers


def test_scores_are_not_held_closer_than_the_weights_are():
    costs = dict.fromkeys(["t0", "t1", "t2", "t3", "t4"], 5e-4)
    held, _ = guard(costs, parts={"boxes": 0.0, "scores": 6e-3}, scores=["scores"])
    assert not held.meet().layers  # 6e-3 of 8.5e-3 would stay


def test_scores_take_the_fastest_floats_that_there_are():
    """Plain convolutions are faster in bf16 where the target has it, those by Winograd in f32."""
    costs = {"t0": 1e-5, "t1": 7e-3, "t2": 1e-5, "t3": 1e-5, "t4": 1e-5}
    for near, level in (((), "f32"), (("bf16",), "bf16")):
        held, _ = guard(
            costs, parts={"boxes": 0.0, "scores": 0.0}, scores=["scores"], near=near, closer=True
        )
        assert held.meet().layers == {"t2": level}
    assert Guard.level_of(held, "t2") == "bf16"
    w = constant(np.zeros((4, 4, 3, 3), np.float32))
    held.products["t2"] = ops.conv(Value(Type("f32", (1, 4, 8, 8)), "x"), w, **ATTRS).producer
    assert held.level_of("t2") == "f32"
    made = guard(costs, parts={"boxes": 0.0}, near=("bf16",))[0]
    assert made.level_of("t2") == "f32"  # no scores


def test_scores_may_take_so_much_time_and_no_more():
    costs = dict.fromkeys(["t0", "t1", "t2", "t3", "t4"], 1.5e-3)
    for closer, most in enumerate(MOST_TIME):
        parts = {"boxes": 0.0, "scores": 0.0}
        held, _ = guard(costs, parts=parts, scores=["scores"], closer=bool(closer))
        made = held.meet()
        assert 1 < held.time(made.layers) <= most
        assert held.time(dict.fromkeys(held.work, "f32")) > most


def test_scores_are_held_closest_where_weights_leave_them_sharp():
    costs = dict.fromkeys(["t0", "t1", "t2", "t3", "t4"], 2e-3)
    for base, can in ((5e-4, True), (2e-3, False)):
        parts = {"boxes": 0.0, "scores": base}
        assert guard(costs, parts=parts, scores=["scores"])[0].can_be_closer() == can
        assert not guard(costs, parts=parts)[0].can_be_closer()  # no scores
    few = dict.fromkeys(costs, 1e-5)
    assert not guard(few, parts=parts, scores=["scores"])[0].can_be_closer()  # good as it is


def test_the_highest_scores_are_held_as_close_as_other_numbers():
    costs = {"t0": 1e-5, "t1": 0.03, "t2": 1e-5, "t3": 6e-3, "t4": 1e-5}
    parts = {"boxes": 0.0, "scores": 0.0}
    held, _ = guard(costs, parts=parts, scores=["scores"], near=("bf16",), highest=True)
    made = held.meet()
    assert made.layers == {"t2": "bf16"}  # and not what reads t3
    assert (
        not guard(costs | {"t1": 3e-3}, parts=parts, scores=["scores"], highest=True)[0]
        .meet()
        .layers
    )


def test_what_is_left_of_a_model_that_int8_ruins_is_brought_closer_while_time_lasts():
    costs = dict.fromkeys([f"t{i}" for i in range(20)], 4e-4) | {"t1": 0.5}
    how = {"parts": {"boxes": 0.0, "scores": 0.0}, "scores": ["scores"], "layers": 20}
    held, _ = guard(costs, **how, highest=True)
    ruined = held.meet()
    assert {"t2"} < set(ruined.layers)
    assert 1 < held.time(ruined.layers) <= MOST_TIME[0]
    less = guard(costs | {"t1": 0.05}, **how, highest=True)[0].meet()
    assert set(less.layers) == {"t2"}


def test_a_layer_takes_time_for_what_it_makes():
    """A depthwise convolution multiplies little, but is not free; in bf16 it is no faster."""
    held, _ = guard({"t1": 0.03}, near=("bf16",), highest=True)
    w = constant(np.zeros((4, 1, 3, 3), np.float32))
    x = Value(Type("f32", (1, 4, 10, 10)), "x")
    held.products["t2"] = ops.conv(x, w, **{**ATTRS, "groups": 4}).producer
    assert held.level_of("t2") == "f32"
    assert held.pace["t2"] == PER_NUMBER * 4 * 8 * 8 > held.work["t2"]


def branches():
    """y: four boxes from a convolution a, three scores from b, by a concatenation and slices."""
    x = Value(Type("f32", (1, 4, 8, 8)), "x")
    a, b = (
        ops.conv(x, constant(RNG.standard_normal((n, 4, 1, 1)).astype(np.float32)), **ATTRS)
        for n in (4, 3)
    )
    both = ops.reshape(ops.concat(a, b, axis=1), shape=(1, 7, 64))
    ends = {"step": (1, 1, 1)}
    boxes = ops.slice_(both, start=(0, 0, 0), stop=(1, 4, 64), **ends)
    mixed = ops.transpose(ops.reshape(boxes, shape=(1, 2, 2, 64)), perm=(0, 2, 1, 3))
    scores = ops.sigmoid(ops.slice_(both, start=(0, 4, 0), stop=(1, 7, 64), **ends))
    y = ops.concat(ops.reshape(mixed, shape=(1, 4, 64)), scores, axis=1)
    for name, v in {"a": a, "b": b, "both": both, "scores": scores, "y": y}.items():
        v.name = name
    return Graph([x], [y], ["y"])


def test_what_serves_nothing_but_scores_is_found_through_concatenations_and_slices():
    parts = {"y": [Columns(1, (0, 1, 2, 3)), Columns(1, (4, 5, 6))]}
    found = serve_only(branches(), parts, {"y[:,4-6]"})
    assert {"b", "scores"} <= found
    assert not {"a", "both", "x"} & found
    assert "a" in serve_only(branches(), parts, {"y[:,0-3]"})


def test_what_is_moved_out_of_a_tensor_is_rounded_with_it():
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
    held = Guard(Search(graph, placement, trial, lambda methods: {}), schemes, {}, 0.995, True)
    assert {"y", "z"} <= set(held.meet().layers)  # half would be rounded in the place of act


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


def test_what_shares_leave_of_one_stands_by_itself():
    """Background is nearly 1 everywhere, and hides what becomes of faces."""
    faces = np.full((1, 50, 1), 0.02, np.float32)
    faces[0, 3] = 0.9
    boxes = np.full((1, 50, 4), 30.0, np.float32)
    made = Reference.by([{}], [{"s": np.concatenate([1 - faces, faces], 2), "b": boxes}])
    assert made.names() == ["s[:,:,0]", "s[:,:,1]", "b"]
    assert made.scores() == {"s[:,:,0]", "s[:,:,1]"}
    even = np.full((1, 50, 2), 0.5, np.float32)  # none of two is the rest
    assert Reference.by([{}], [{"s": even, "b": boxes}]).names() == ["s", "b"]
    alone = np.concatenate([1 - faces, faces / 2], 2)  # which do not add up
    assert Reference.by([{}], [{"s": alone, "b": boxes}]).names() == ["s", "b"]


# ---- room ----------------------------------------------------------------------------------------
def seen(*largest):
    return Observation("x", low=0.0, high=max(largest), samples=len(largest), largest=[*largest])


def test_room_is_for_tensors_whose_range_depends_on_the_samples():
    v, u = (Value(Type("f32", (2,)), n) for n in "vu")
    observed = {v: seen(1, 2, 3, 8), u: seen(6, 6, 6, 6)}
    ranges = {v: (-1.0, 8.0), u: (0.0, 6.0)}
    assert headroom.without(ranges, observed, 3) == {v: (-1.0, 3.0), u: (0.0, 6.0)}
    assert headroom.without(ranges, observed, 0) == ranges
    assert headroom.with_room(ranges, observed, 1.5) == {v: (-1.5, 12.0), u: (0.0, 6.0)}
    assert headroom.with_room(ranges, observed, 1.0) == ranges
    both = {v: (-1.0, 8.0), u: (0.0, 8.0)}
    spread = {v: observed[v], u: observed[v]}
    assert headroom.with_room(both, spread, 1.0, 2.0) == {v: (-1.0, 8.0), u: (0.0, 16.0)}
    assert headroom.with_room(both, spread, 1.5, 2.0) == {v: (-1.5, 12.0), u: (0.0, 24.0)}


def test_room_is_what_errs_least_on_samples_left_out():
    class Known:
        def held_out(self, schemes):
            assert len(schemes) == 12
            return {"y": schemes[0]}

    def chosen(errors, samples=12):
        return headroom.choose(Known(), samples, lambda r, fold: errors[r])

    assert chosen({1.0: 0.5, 1.15: 0.2, 1.3: 0.4}) == 1.15
    assert chosen({1.0: 0.5, 1.15: 0.49, 1.3: 0.48}) == 1.0  # not clearly less
    assert chosen({}, samples=4) == chosen({}, samples=100) == 1.0  # too few to tell; enough


def test_room_is_a_factor():
    with pytest.raises(BadInput, match=r"room is 0\.5"):
        Options(room=0.5)
    with pytest.raises(BadInput, match=r"deep_room is 0\.5"):
        Options(deep_room=0.5)


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
        options = Options(rounding=rounding, weights="int4", accuracy=0.9999, layers={"t1": "int8"})
        made = calibrate(graph, data, options=options).graph
        stored[rounding] = [v.data.tobytes() for v in made.values() if v.dtype == "i4"]
    assert stored["auto"] == stored["data"]
    assert stored["auto"] != stored["squant"]
