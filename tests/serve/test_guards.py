"""What takes a version back, and what is chance."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import BadInput
from intaglio.serve.agreement import agree
from intaglio.serve.guards import Limits, Observed, Side, above, difference, enough, judged
from intaglio.serve.haproxy_socket import HaproxySocket
from intaglio.serve.statistics import LATENCY_BUCKETS, Histogram, quantile


def side(requests: int, errors: int = 0, ms: float = 2.0, spread: float = 0.1, seed: int = 0):
    latency = Histogram(LATENCY_BUCKETS)
    for value in np.random.default_rng(seed).lognormal(np.log(ms * 1e-3), spread, requests):
        latency.add(value)
    return Side(requests, errors, latency.counts)


def seen(stable: Side, canary: Side, same: int = 0, different: int = 0) -> Observed:
    return Observed(stable, canary, same, different, LATENCY_BUCKETS)


def test_equal_versions_are_never_taken_back():
    """100 rollouts of the same version; chance alone speaks against none of the guards."""
    rng = np.random.default_rng(1)
    for seed in range(100):
        stable, canary = side(5000, ms=2, seed=seed), side(500, ms=2, seed=1000 + seed)
        stable.errors, canary.errors = rng.binomial(5000, 0.02), rng.binomial(500, 0.02)
        different = rng.binomial(400, 0.01)
        assert judged(seen(stable, canary, 400 - different, different), Limits()) is None


@pytest.mark.parametrize(
    ("canary", "same", "different", "words"),
    [
        (side(200, ms=4), 0, 0, "p99: the canary's is"),
        (side(200, errors=20), 0, 0, "errors: 10.0%"),
        (side(0, errors=30), 0, 0, "errors: 100.0%"),
        (side(200), 100, 20, "agreement: 83.3% of 120"),
        (Side(50, 0, [], ["canary1"]), 0, 0, "canary1 is down"),
    ],
)
def test_what_takes_a_version_back(canary, same, different, words):
    assert words in judged(seen(side(2000), canary, same, different), Limits())


def test_a_guard_that_is_not_asked_for_says_nothing():
    slow = seen(side(2000), side(200, ms=9, errors=50), 1, 99)
    assert judged(slow, Limits(guards=("agreement",))).startswith("agreement")
    assert judged(slow, Limits(guards=("p99",))).startswith("p99")


def test_a_verdict_needs_requests():
    assert not enough(seen(side(9), side(99), 200), Limits())
    assert not enough(seen(side(9), side(100), 99), Limits())
    assert enough(seen(side(9), side(100), 90, 10), Limits())
    assert enough(seen(side(9), side(100)), Limits(guards=("errors",)))
    assert judged(seen(side(9), side(5, errors=5)), Limits()) is None


def test_requests_that_the_canary_did_not_answer_are_no_evidence_for_it():
    """HAProxy repeats them on other servers: it counts sessions, retries and redispatches."""
    stats = (
        "# pxname,svname,stot,econ,eresp,hrsp_4xx,hrsp_5xx,wretr,wredis,status,weight,addr\n"
        "model.m,stable1,900,0,0,3,0,0,0,UP,100,127.0.0.1:1\n"
        "model.m,canary1,56,0,1,0,0,1,55,DOWN,12,127.0.0.1:2\n"
        "model.m,BACKEND,956,0,1,3,0,1,55,UP,112,\n"
    )
    socket = HaproxySocket("none")
    socket.command = lambda line: stats
    stable, canary = socket.servers("model.m")
    assert (stable.errors, stable.is_up, canary.errors, canary.is_up) == (3, True, 57, False)
    now = seen(side(900, 3), Side(canary.requests, canary.errors, []))
    assert "errors: 100.0%" in judged(now, Limits())
    assert not enough(seen(side(900), Side(500, 0, [])), Limits(guards=("errors",)))
    assert not enough(seen(side(900), side(500, errors=450)), Limits(guards=("p99",)))


def test_quantiles_of_buckets():
    assert quantile((1, 2, 4), [0, 0, 0, 0], 0.5) is None
    assert quantile((1, 2, 4), [0, 10, 10, 0], 0.5) == 2
    assert quantile((1, 2, 4), [0, 10, 10, 0], 0.75) == 3
    assert above((1, 2, 4), [0, 10, 10, 3], 3) == 8
    values = np.random.default_rng(0).lognormal(-6, 0.7, 5000)
    counted = Histogram(LATENCY_BUCKETS)
    for v in values:
        counted.add(v)
    for share in (0.5, 0.9, 0.99):
        found = quantile(LATENCY_BUCKETS, counted.counts, share)
        assert abs(found / np.quantile(values, share) - 1) < 0.1


def test_counts_that_begin_anew():
    before = Side(100, 3, [5, 5])
    assert difference(Side(120, 3, [6, 7]), before) == Side(20, 0, [1, 2])
    assert difference(Side(7, 0, [1, 0]), before) == Side(7, 0, [1, 0])
    assert difference(Side(120, 3, [1]), Side()) == Side(120, 3, [1])


@pytest.mark.parametrize(
    "wrong", [{"guards": ("p98",)}, {"guards": ()}, {"max_slower": 0.5}, {"min_agreement": 101}]
)
def test_limits_are_checked(wrong):
    with pytest.raises(BadInput):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([[0.1, 0.9]], [[0.4, 0.6]], True),  # the same class
        ([[0.1, 0.9]], [[0.6, 0.4]], False),
        ([1.0, 2.0, 3.0], [1.01, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0], [1.5, 2.0, 3.0], False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ([1.0, float("nan")], [1.0, float("nan")], True),
        ([1.0, float("nan")], [1.0, 2.0], False),
        ([1.0], [[1.0]], False),
    ],
)
def test_agreement(a, b, expected):
    assert agree({"y": np.array(a)}, {"y": np.array(b)}) is expected
    assert not agree({"y": np.array(a)}, {"z": np.array(b)})
