"""The share of onnx's own tests that pass; `python -m tests.onnx_conformance` lists them."""

from __future__ import annotations

import os
import time

import pytest
from tests import onnx_conformance
from tests.onnx_conformance import (
    ENGINES,
    REMAINING,
    cases,
    conformance,
    missing,
    needs_values,
    out_of_scope,
    run_all,
    run_case,
)


@pytest.mark.parametrize(
    ("engine", "share"),
    [pytest.param("interpreter", 0.98, marks=pytest.mark.slow), ("native", 0.95)],
)
def test_share_of_node_tests_that_pass(engine: str, share: float) -> None:
    if why := missing(engine):
        pytest.skip(why)
    report = conformance(engine)
    failed = [f"{r.name}: {r.why}" for r in report.results if not r.passed]
    assert report.rate >= share, "\n".join([str(report), *failed[:50]])


def test_tests_that_need_values_run_in_a_session_without_them() -> None:
    """A session finds out which inputs decide shapes, and compiles for their values."""
    chosen = [i for i, c in enumerate(cases()) if out_of_scope(c) is None and needs_values(c)]
    assert len(chosen) >= 290
    failed = {r.name: r.why for r in run_all("session", chosen) if not r.passed}
    unknown = [f"{name}: {why}" for name, why in failed.items() if name not in REMAINING]
    assert len(unknown) <= 2, "\n".join(unknown)  # data is random: fp16 may be off by a bit


def test_few_tests_are_out_of_scope() -> None:
    left_out = [c.name for c in cases() if out_of_scope(c)]
    assert len(cases()) >= 1884
    assert len(left_out) <= 101


def test_a_wrong_result_fails() -> None:
    """The comparison itself: an engine that is wrong by a little, or of another type, must fail."""
    case = next(c for c in cases() if c.name == "test_add")
    assert run_case(case, "interpreter").passed
    right = ENGINES["interpreter"]
    for wrong in (lambda a: a * 1.01, lambda a: a.astype("float64"), lambda a: a[:1]):

        def engine(c, feeds, wrong=wrong):
            outputs, *notes = right(c, feeds)
            return [wrong(a) for a in outputs], *notes

        ENGINES["wrong"] = engine
        try:
            assert not run_case(case, "wrong").passed
        finally:
            del ENGINES["wrong"]


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (lambda case, feeds: os.kill(os.getpid(), 9), "crashed the process"),
        (lambda case, feeds: time.sleep(60), "took more than 1 s"),
    ],
)
def test_a_crash_or_a_hang_costs_one_test(monkeypatch, engine, why: str) -> None:
    right = ENGINES["interpreter"]
    names = ["test_add", "test_relu", "test_exp"]

    def one_bad(case, feeds):
        return (engine if case.name == "test_relu" else right)(case, feeds)

    monkeypatch.setitem(ENGINES, "bad", one_bad)
    monkeypatch.setattr(onnx_conformance, "SECONDS", 1.0)
    indices = [i for i, c in enumerate(cases()) if c.name in names]
    results = {r.name: r for r in onnx_conformance.run_all("bad", indices)}
    assert {name: r.passed for name, r in results.items()} == {
        "test_add": True,
        "test_relu": False,
        "test_exp": True,
    }
    assert results["test_relu"].why.startswith(why)
