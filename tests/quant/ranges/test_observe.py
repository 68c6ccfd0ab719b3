"""Observed statistics, and the ranges of every method."""

import numpy as np
import pytest

from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import add, div, log
from intaglio.quant.ranges.observe import Observation, measure, observe

RNG = np.random.default_rng(7)


def observed(*arrays, axis=None):
    o = Observation("x")
    for a in arrays:
        assert o.add(np.asarray(a, np.float32), axis)
    return o


def conv_graph():
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    w = constant(RNG.standard_normal((4, 3, 3, 3)).astype(np.float32))
    y = conv(x, w, stride=(1, 1), pad=(1, 1, 1, 1), dilation=(1, 1), groups=1)
    z = relu(y)
    y.name, z.name = "y", "z"
    y.producer.origin = "Conv_0"
    return Graph([x], [z]), x, y, z


def samples(n=5):
    return [{"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32) * (i + 1)} for i in range(n)]


def test_statistics_are_those_of_numpy():
    graph, x, y, z = conv_graph()
    data = samples()
    made = observe(graph, [z, x, y], data, channels={y: 1})
    from intaglio import interpret

    runs = []
    for s in data:
        keep = {}
        interpret(graph, s, keep)
        runs.append(keep["y"])
    every = np.stack(runs)
    o = made[y]
    assert o.samples == 5
    assert o.low == pytest.approx(every.min(), rel=1e-5)
    assert o.high == pytest.approx(every.max(), rel=1e-5)
    assert o.counts.sum() + o.zeros == every.size
    by_channel = every[:, 0].transpose(1, 0, 2, 3).reshape(4, -1)
    assert o.channels.axis == 1
    np.testing.assert_allclose(o.channels.low, by_channel.min(1), rtol=1e-4)
    np.testing.assert_allclose(o.channels.largest, np.abs(by_channel).max(1), rtol=1e-4)
    np.testing.assert_allclose(o.channels.mean, by_channel.mean(1), atol=1e-4)
    assert made[x].low == min(s["x"].min() for s in data)
    assert made[z].low == 0
    assert made[z].zeros == (every <= 0).sum()
    assert not any(n.op == "result" and n is not graph.result for v in (x, y, z) for n in v.uses)


@pytest.mark.parametrize("shape", [(1, 5, 5, 3), (2, 9, 11, 37), (1, 16, 21, 64), (700,), (3, 1)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_one_sample_is_measured_exactly(shape, axis):
    x = RNG.standard_normal(shape).astype(np.float32) * 3
    x[x < -2] = 0
    axis = axis if axis is None else axis % x.ndim
    found = measure(x, 64, axis)
    assert found.finite
    assert (found.spread.low, found.spread.high) == (x.min(), x.max())
    assert found.spread.zeros == (x == 0).sum()
    end = 2.0**found.spread.exponent
    assert end / 2 <= np.abs(x).max() < end
    bins = np.floor(x.astype(np.float64) / end * 64).astype(int) + 64
    np.testing.assert_array_equal(found.counts, np.bincount(bins.ravel(), minlength=128))
    if axis is not None:
        rest = tuple(i for i in range(x.ndim) if i != axis)
        np.testing.assert_array_equal(found.channels.low, x.min(rest))
        np.testing.assert_array_equal(found.channels.high, x.max(rest))
        np.testing.assert_allclose(found.channels.sum, x.sum(rest, dtype=np.float64), atol=1e-9)
    for wrong in (np.nan, np.inf, -np.inf):
        x.flat[x.size // 2] = wrong
        assert not measure(x, 64, axis).finite


def test_a_pass_keeps_the_outputs_of_requested_samples():
    graph, x, y, _ = conv_graph()
    data = samples()
    for limit in (1, 1 << 20):  # in several passes, and in one
        kept = {1: {}, 4: {}}
        observe(graph, [x, y], data, outputs=kept, limit=limit)
        from intaglio import interpret

        for i, made in kept.items():
            (wanted,) = interpret(graph, data[i]).values()
            assert made["z"].shape == (1, 4, 8, 8)
            np.testing.assert_allclose(made["z"], wanted, rtol=1e-4, atol=1e-4)


def test_several_passes_observe_the_same_as_one():
    graph, x, y, z = conv_graph()
    data = samples()
    one = observe(graph, [x, y, z], data)
    words = []
    more = observe(graph, [x, y, z], iter(data), limit=1, progress=lambda *said: words.append(said))
    for v in (x, y, z):
        assert (one[v].low, one[v].high, one[v].moving) == (
            more[v].low,
            more[v].high,
            more[v].moving,
        )
        assert np.array_equal(one[v].counts, more[v].counts)
    assert words[-1] == ("calibrating, part 3 of 3", 5, 5)


@pytest.mark.parametrize("order", [1, -1])
def test_histograms_grow_by_merging(order):
    parts = [RNG.standard_normal(1000).astype(np.float32) * s for s in (0.01, 1, 300)][::order]
    o = observed(*parts)
    every = np.concatenate(parts)
    edges = np.linspace(-(2.0**o.exponent), 2.0**o.exponent, len(o.counts) + 1)
    assert np.array_equal(np.histogram(every, edges)[0], o.counts)
    assert np.abs(every).max() < 2.0**o.exponent <= 2 * np.abs(every).max()


def test_values_at_powers_of_two_and_signed_zeros():
    o = observed([-4.0, 4.0, -0.0, 0.0, 2.0, -1e-30])
    assert (o.zeros, o.exponent, o.low, o.high) == (2, 3, -4.0, 4.0)
    assert o.counts.sum() == 4
    half = len(o.counts) // 2
    assert o.counts[half - 1] == 1
    assert o.counts[half] == 0


def test_moving_average_follows_the_samples():
    o = observed([0.0, 1.0], [-1.0, 2.0])
    assert o.range("moving") == pytest.approx((-0.1, 1.1))


def test_every_method_includes_zero_and_reports_constants():
    for method in ("minmax", "moving", "percentile", "kl", "mse"):
        for symmetric in (False, True):
            lo, hi = observed(np.full(100, 3.0)).range(method, "i8", symmetric)
            assert lo <= 0 <= hi
            assert hi == pytest.approx(3.0, rel=0.01)
            assert observed(np.zeros(10)).range(method, "i8", symmetric) == (0.0, 0.0)
            lo, hi = observed(-np.abs(RNG.standard_normal(1000))).range(method, "u8", symmetric)
            assert lo < 0 <= hi
            assert symmetric == (hi > 0)
    assert "always 0" in observed(np.zeros(10)).notes()[0]
    assert "always 3" in observed(np.full(10, 3.0)).notes()[0]
    assert "f16" in observed([0.0, 1e5]).notes()[0]
    assert observed(RNG.standard_normal(10)).notes() == []
    assert "empty" in observed(np.zeros(0)).notes()[0]


def quantisation_error(x, lo, hi, levels=256):
    step = (hi - lo) / (levels - 1)
    zero = np.rint(-lo / step)
    q = np.clip(np.rint(x / step) + zero, 0, levels - 1)
    return ((q - zero) * step - x) ** 2


@pytest.mark.parametrize("symmetric", [False, True])
def test_mse_equals_a_search_over_the_data(symmetric):
    x = RNG.standard_t(3, 20_000).astype(np.float32) + (0 if symmetric else 1)
    shares = np.linspace(0.05, 1, 40)
    if symmetric:
        most = np.abs(x).max()
        ends = [(-most * a, most * a) for a in shares]
    else:
        ends = [(x.min() * a, x.max() * b) for a in shares for b in shares]
    for dtype, levels in (("i8", 256), ("i4", 16)):
        best = min(quantisation_error(x, lo, hi, levels).mean() for lo, hi in ends)
        found = observed(x).range("mse", dtype, symmetric)
        assert quantisation_error(x, *found, levels).mean() < 1.1 * best
    whole = observed(x).range("minmax", "i4", symmetric)
    assert best < 0.5 * quantisation_error(x, *whole, levels).mean()


def test_kl_and_percentile_clip_outliers_only():
    plain = RNG.uniform(-1, 1, 100_000).astype(np.float32)
    outlier = np.concatenate([plain, [10.0]])
    for method in ("kl", "percentile"):
        assert observed(plain).range(method)[1] == pytest.approx(1, abs=0.03)
        assert observed(outlier).range(method)[1] < 2
    assert observed(outlier).range("percentile:100")[1] == 10
    assert observed(plain).range("percentile:90")[1] == pytest.approx(0.8, abs=0.01)
    assert observed(outlier).range("mse", "i16")[1] == 10  # so many steps that nothing need go


def test_wide_integers_are_not_clipped():
    o = observed(RNG.standard_normal(1000))
    assert o.range("kl", "i16") == o.range("minmax", "i16")


@pytest.mark.parametrize("method", ["best", "kl:3", "percentile:abc", "percentile:20"])
def test_unknown_methods_are_refused(method):
    with pytest.raises(
        BadInput, match=r"method is '(best|kl:3)'; known are|a percentage between 50 and"
    ):
        observed([1.0]).range(method)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_reported_with_their_layer(value):
    x = Value(Type("f32", (4,)), "x")
    y = log(x)
    z = add(div(x, y), constant(1.0))
    y.name, z.name, y.producer.origin = "y", "z", "Log_7"
    graph = Graph([x], [z])
    bad = np.array([1, 2, 3, 4], np.float32) if value is np.nan else np.ones(4, np.float32)
    fine = {"x": np.full(4, 2.0, np.float32)}
    if value is np.nan:
        bad = -bad
        with pytest.raises(BadInput, match=r"'y' \(output of log 'Log_7'\).*sample 2"):
            observe(graph, [z, y], [fine, {"x": bad}])
    else:
        with pytest.raises(BadInput, match=r"'z' \(output of add.*sample 1"):
            observe(graph, [y, z], [{"x": bad}])
    with pytest.raises(BadInput, match="input 'x' holds NaN"):
        observe(graph, [x], [{"x": np.full(4, value, np.float32)}])


def test_bad_requests_are_refused():
    graph, x, y, _ = conv_graph()
    with pytest.raises(BadInput, match="no samples"):
        observe(graph, [y], [])
    with pytest.raises(BadInput, match="no samples"):
        observe(graph, [x], [])
    with pytest.raises(BadInput, match="has shape"):
        observe(graph, [y], [{"x": np.zeros((1, 3, 4, 4), np.float32)}])
    with pytest.raises(BadInput, match="has no input 'x'"):
        observe(graph, [x], [{"image": np.zeros((1, 3, 8, 8), np.float32)}])
    with pytest.raises(BadInput, match="not part of the graph"):
        observe(graph, [Value(Type("f32", (1,)), "other")], samples())
    with pytest.raises(BadInput, match="power of two"):
        observe(graph, [y], samples(), bins=1000)
