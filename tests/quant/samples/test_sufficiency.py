"""Early stopping: calibration ends once the ranges are settled, with a message."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu
from intaglio.ops.conv import conv
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.place import place
from intaglio.quant.prepare import prepare
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.samples.sufficiency import BLOCK, EARLY, FIRST, SHARE, Sufficiency, spread
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial, Trial
from intaglio.quant.weights.storage import bias_shifts, store_all

ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def network():
    rng = np.random.default_rng(2)

    def weights(*shape):
        return constant(rng.standard_normal(shape).astype(np.float32))

    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    y = relu(conv(x, weights(8, 3, 3, 3), weights(8), **ATTRS))
    return Graph([x], [conv(y, weights(4, 8, 3, 3), None, **ATTRS)], ["y"])


def samples(count, growth=0.0):
    """Random images; with growth, each is larger than all before it in the order of `spread`."""
    rng = np.random.default_rng(3)
    made = rng.standard_normal((count, 1, 3, 8, 8)).astype(np.float32)
    made[np.array(spread(count))] *= np.linspace(1, 1 + growth, count, dtype=np.float32).reshape(
        -1, 1, 1, 1, 1
    )
    return [{"x": x} for x in made]


@pytest.mark.parametrize("count", [1, 2, 64, 100, 101])
def test_every_prefix_is_spread_evenly(count):
    order = spread(count)
    assert sorted(order) == list(range(count))
    for n in (8, 24):
        if count > n:
            gaps = np.diff([0, *sorted(order[:n]), count - 1])
            assert gaps.max() <= 4 * count / n


def test_a_block_beyond_the_ranges_is_not_enough():
    rng = np.random.default_rng(4)
    seen = [Observation("a"), Observation("b")]
    judge = Sufficiency()
    sizes = judge.sizes()
    assert [next(sizes) for _ in range(3)] == [FIRST, BLOCK, BLOCK]

    def block(scale):
        for o in seen:
            o.add(np.clip(rng.standard_normal(5000), -3, 3) * scale)
        return judge.reached(seen)

    assert not block(1.0)  # there is nothing to judge by yet
    assert not block(2.0)
    assert judge.share > 10
    assert block(1.0)
    assert judge.share < 0.01


def test_the_first_ranges_are_judged_strictly():
    """After few samples a smaller growth of the ranges is required to stop than later."""
    values = np.linspace(-1, 1, 5001)
    for growth, early in ((1.005, True), (1.01, False)):
        seen, judge = [Observation("a")], Sufficiency()
        judge.sizes()
        found = []
        for n in range(3):
            seen[0].add(values * growth**n)
            found.append(judge.reached(seen))
        assert found == [False, early, True]
        assert (judge.share <= EARLY) == early
        assert judge.share <= SHARE


def test_settled_ranges_end_calibration():
    said = []
    made = calibrate(network(), samples(100), warn=said.append)
    assert FIRST + BLOCK <= made.samples < 100
    assert said == [said[0]]
    assert f"{made.samples} of 100 samples were used" in said[0]
    assert "set limit=100 to use all" in said[0]
    whole = calibrate(network(), samples(100), limit=100, warn=said.append)
    assert (whole.samples, len(said)) == (100, 1)
    few, all_of_them = (max(t.scale[0] for t in m.scheme.tensors.values()) for m in (made, whole))
    assert few == pytest.approx(all_of_them, rel=0.15)


def test_growing_ranges_use_all_samples():
    said = []
    assert calibrate(network(), samples(80, 30.0), warn=said.append).samples == 80
    assert not said


def test_few_samples_are_all_used():
    said = []
    assert calibrate(network(), samples(40), warn=said.append).samples == 40
    assert not said


def test_a_precompiled_trial_equals_others():
    graph, data = prepare(network()), samples(6)
    placement, options = place(graph, {}), Options()
    seen = calibrate(graph, data, options=Options(accuracy=None, method="minmax"))
    known = {v: seen.observations[v.name] for v in placement.tensors}
    weights = store_all(placement, options, {})
    shifts = bias_shifts(weights, known)
    assert all(s is not None and np.any(s) for s in shifts.values())
    now = Event()
    now.set()
    with ThreadPoolExecutor(1) as pool:
        ahead = PrecompiledTrial.of(graph, placement, lambda: weights, now, pool)
    assert ahead is not None
    ahead.correct(placement, shifts)
    reference = Reference.of(graph, data)
    schemes = {v.name: seen.scheme.tensors[v.name] for v in placement.tensors}
    from intaglio.quant.weights.integers import from_integers

    def stored(node):
        return from_integers(*weights[node]), shifts[node]

    with (
        Trial(graph, placement, stored, reference) as plain,
        Trial(graph, placement, stored, reference, ahead) as early,
    ):
        for tried in ({}, schemes):
            assert early.errors(tried) == pytest.approx(plain.errors(tried), rel=1e-4)
        assert plain.errors({})["y"] > 0


def test_few_samples_suffice_for_an_error_far_below_the_bound():
    graph, data = prepare(network()), samples(24)
    placement = place(graph, {})
    weights = store_all(placement, Options(), {})
    from intaglio.quant.weights.integers import from_integers

    reference = Reference.of(graph, data)
    ran = []
    with Trial(graph, placement, lambda n: (from_integers(*weights[n]), None), reference) as trial:
        in_order = trial.sessions.in_order
        trial.sessions.in_order = lambda work, items: in_order(
            lambda s, x: ran.append(1) or work(s, x), items
        )
        few = trial.run({}, fine=1.0)[0].error
        assert len(ran) == 8
        every = trial.run({}, fine=1e-12)[0].error
        assert len(ran) == 24  # the first eight are known
    assert few == pytest.approx(every, rel=0.3)
