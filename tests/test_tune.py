"""Auto-tuning, with a fake timer, so that no test depends on real time."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops, targets
from intaglio.compiler import trace
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.tune import Tuning
from intaglio.tune.clock import race
from intaglio.tune.layer import layer

DIRECT, TWO, FOUR, SIX = "direct", "Winograd 2x2", "Winograd 4x4", "Winograd 6x6"


def weights(*shape: int) -> Value:
    rng = np.random.default_rng(shape[0])
    return constant(rng.uniform(-0.2, 0.2, shape).astype(np.float32))


def conv(x: Value, channels: int, origin: str, groups: int = 1) -> Value:
    w = weights(channels, x.shape[1] // groups, 3, 3)
    return ops.conv(
        x,
        w,
        weights(channels),
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
        origin=origin,
    )


def network(size: int = 12) -> Graph:
    """Three 3x3 convolutions, of which the first two have the same shapes."""
    x = Value(Type("f32", (1, 16, size, size)), "x")
    y = ops.relu(conv(x, 16, "first"))
    y = ops.relu(conv(y, 16, "second"))
    return Graph([x], [conv(y, 32, "third")], ["y"], "network")


class Timer:
    """Returns the given time for each implementation, or 100 microseconds."""

    def __init__(self, **times: float):
        self.times, self.calls = times, 0
        self.threads: set[int] = set()

    def __call__(self, implementations, threads, cold, seconds):
        self.calls += 1
        self.threads.add(threads)
        return {n: self.times.get(n.replace(" ", "_"), 100.0) for n in implementations}


def tuning(folder: Path, timer=race, **more) -> Tuning:
    return Tuning(cache=folder, timer=timer, **more)


def choices(traced) -> dict[str, str]:
    return {d.origin: d.choice for d in traced.decisions}


@pytest.mark.parametrize("fastest", [DIRECT, TWO, FOUR, SIX])
def test_the_fastest_implementation_is_chosen_and_computes_the_same(fastest, tmp_path):
    timer = Timer(**{fastest.replace(" ", "_"): 10.0})
    traced = trace(network(), tune=tuning(tmp_path, timer))
    assert choices(traced) == dict.fromkeys(("first", "second", "third"), fastest)
    steps = {s.origin: s for s in traced.plan.steps if s.op.startswith("cpu.")}
    for step in steps.values():
        assert step.op == ("cpu.conv" if fastest == DIRECT else "cpu.winograd")
        assert fastest == DIRECT or f"{step.attrs['tile']}x" in fastest
    x = np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)
    want = intaglio.interpret(network(), {"x": x})["y"]
    with intaglio.open(traced.package) as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)


def test_equal_layers_are_measured_once(tmp_path):
    timer = Timer()
    traced = trace(network(), tune=tuning(tmp_path, timer, threads=2))
    assert timer.calls == 2
    assert timer.threads == {2}
    assert str(traced.tuned).startswith(
        "2 of 2 layers with several implementations are measured (0 from"
    )


def test_the_estimated_choice_stays_if_it_is_hardly_slower(tmp_path):
    guess = choices(trace(network()))["first"]
    other = DIRECT if guess != DIRECT else TWO
    near = {guess.replace(" ", "_"): 50.0, other.replace(" ", "_"): 49.0}
    assert choices(trace(network(), tune=tuning(tmp_path, Timer(**near))))["first"] == guess


def test_large_weights_must_save_time(tmp_path):
    """If all implementations are equally fast, the one with the smallest weights is chosen."""
    x = Value(Type("f32", (1, 256, 24, 24)), "x")
    graph = Graph([x], [conv(x, 256, "large")], ["y"])
    assert choices(trace(graph))["large"] != DIRECT
    assert choices(trace(graph, tune=tuning(tmp_path, Timer())))["large"] == DIRECT


def test_without_tuning_nothing_is_timed_or_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("INTAGLIO_CACHE", str(tmp_path / "cache"))
    traced = trace(network())
    assert not (tmp_path / "cache").exists()
    assert traced.tuned is None
    assert {d.origin for d in traced.decisions} == {"first", "second", "third"}
    assert all(not d.microseconds and d.choice == d.estimate for d in traced.decisions)
    assert traced.package.bytes == intaglio.compile(network()).bytes


def test_the_same_cache_gives_the_same_bytes_and_times_nothing(tmp_path):
    timer = Timer(Winograd_2x2=7.0)
    first = intaglio.compile(network(), tune=tuning(tmp_path, timer))
    calls = timer.calls
    assert intaglio.compile(network(), tune=tuning(tmp_path, timer)).bytes == first.bytes
    assert timer.calls == calls


def test_other_threads_and_instruction_sets_are_measured_separately(tmp_path):
    timer = Timer()
    for calls, threads, isa in ((2, 1, "scalar"), (4, 2, "scalar"), (6, 1, "avx2")):
        if not targets.find("cpu", isa).isa & ~targets.find("cpu").isa:
            intaglio.compile(network(), isa=isa, tune=tuning(tmp_path, timer, threads=threads))
            assert timer.calls == calls


def test_interrupted_measuring_compiles_with_what_is_known_and_goes_on_later(tmp_path):
    class Interrupted(Timer):
        def __call__(self, *args):
            if self.calls:
                raise KeyboardInterrupt
            return super().__call__(*args)

    traced = trace(network(), tune=tuning(tmp_path, Interrupted(Winograd_2x2=7.0)))
    assert traced.tuned.measured == 1
    assert traced.tuned.stopped == "interrupted"
    assert "estimates decide the rest" in str(traced.tuned)
    assert sum(not d.microseconds for d in traced.decisions) in (1, 2)
    timer = Timer(Winograd_2x2=7.0)
    again = trace(network(), tune=tuning(tmp_path, timer))
    assert timer.calls == 1
    assert again.tuned.known == 1
    assert set(choices(again).values()) == {TWO}


def test_time_is_bounded_and_spent_on_the_most_work_first(tmp_path):
    class Slow(Timer):
        def __call__(self, *args):
            time.sleep(0.6)
            return super().__call__(*args)

    traced = trace(network(), tune=tuning(tmp_path, Slow(), seconds=0.5))
    assert traced.tuned.measured == 1
    assert traced.tuned.stopped == "stopped after 0.5 s"
    known = [d.origin for d in traced.decisions if d.microseconds]
    assert known == ["first", "second"]  # measured as one layer, with twice the work of the third


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"machine": {}, "layers": {"a": 1}}',
        '{"machine": {}, "layers": {"k": {"layer": "", "ways": '
        '{"direct": {"microseconds": -1, "weights": 0}}}}}',
    ],
)
def test_a_damaged_cache_is_reported_once_and_measured_again(text, tmp_path):
    intaglio.compile(network(), tune=tuning(tmp_path, Timer()))
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    said: list[str] = []
    timer = Timer()
    intaglio.compile(network(), tune=tuning(tmp_path, timer, warn=said.append))
    assert len(said) == 1
    assert f"{file} is damaged" in said[0]
    assert timer.calls == 2
    assert len(json.loads(file.read_text())["layers"]) == 2


def test_entries_of_another_process_are_kept(tmp_path):
    class Meanwhile(Timer):
        def __call__(self, *args):
            if not self.calls:
                intaglio.compile(network(size=20), tune=tuning(tmp_path, Timer()))
            return super().__call__(*args)

    intaglio.compile(network(), tune=tuning(tmp_path, Meanwhile()))
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())["layers"]) == 4


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        traced = trace(network(), tune=tuning(blocked / "cache", Timer(Winograd_2x2=7.0)))
    assert set(choices(traced).values()) == {TWO}
    words = [str(w.message) for w in said]
    assert any("cannot be cached" in w for w in words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": 0.0}, "tuning takes 0.0 seconds; it needs more than 0"),
        ({"seconds": float("nan")}, "tuning takes nan seconds"),
        ({"threads": 0}, "tuning uses 0 threads; it needs at least 1"),
    ],
)
def test_bad_options_are_refused(options, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        intaglio.compile(network(), tune=tuning(tmp_path, **options))


def test_another_instruction_set_cannot_be_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("intaglio.native.machine", lambda: 1)
    with pytest.raises(BadInput, match="on this CPU, which lacks avx512"):
        intaglio.compile(network(), isa="avx512", tune=tuning(tmp_path))


def test_replacement_rules_are_tuned_too(tmp_path):
    x = Value(Type("f32", (1, 16, 10, 10)), "x")
    y = ops.max_pool(
        conv(x, 16, "grouped", groups=4),
        kernel=(5, 5),
        stride=(1, 1),
        pad=(2, 2, 2, 2),
        dilation=(1, 1),
        origin="pool",
    )
    graph = Graph([x], [y], ["y"])
    joined = trace(graph, tune=tuning(tmp_path / "a", Timer(join_groups=9.0)))
    assert choices(joined)["grouped"] in ("join_groups", DIRECT, TWO, FOUR, SIX)
    asked = {d.rule: d.choice for d in joined.decisions}
    assert asked["join_groups"] == "join_groups"
    assert "conv_as_winograd" in asked
    unchanged = trace(graph, tune=tuning(tmp_path / "b", Timer(unchanged=9.0)))
    assert {d.rule: d.choice for d in unchanged.decisions} == {
        "join_groups": "unchanged",
        "separate_max_pool": "unchanged",
    }
    assert [s.op for s in unchanged.plan.steps].count("cpu.pool") == 1
    values = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    want = intaglio.interpret(graph, {"x": values})["y"]
    for traced in (joined, unchanged):
        with intaglio.open(traced.package) as session:
            np.testing.assert_allclose(session.run({"x": values})["y"], want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("fastest", [DIRECT, FOUR])
def test_int8_convolutions_are_tuned_too(fastest, tmp_path):
    x = Value(Type("f32", (1, 32, 16, 16)), "x")
    of = np.float32(0.02), np.int8(3)
    rng = np.random.default_rng(1)
    w = constant(rng.integers(-90, 90, (32, 32, 3, 3)).astype(np.int8))
    bytes_ = ops.dequantize_linear(ops.quantize_linear(x, *of, dtype="i8"), *of)
    y = ops.conv(
        bytes_,
        ops.dequantize_linear(w, np.float32(0.01), None),
        None,
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
    )
    y = ops.dequantize_linear(
        ops.quantize_linear(y, np.float32(0.5), np.int8(0), dtype="i8"), np.float32(0.5), np.int8(0)
    )
    graph, feeds = Graph([x], [y], ["y"]), {"x": rng.standard_normal(x.shape, np.float32)}
    timer = Timer(**{fastest.replace(" ", "_"): 10.0})
    package = intaglio.compile(graph, tune=tuning(tmp_path, timer))
    assert timer.calls == 1
    assert ("cpu.qwinograd" in {s.op for s in package.plan.steps}) == (fastest == FOUR)
    with intaglio.open(package.bytes) as session:
        got = session.run(feeds)["y"]
    want = intaglio.interpret(intaglio.optimize(graph, level=3), feeds)["y"]
    np.testing.assert_array_equal(got, want)


def test_a_layer_includes_its_epilogue():
    x = Value(Type("f32", (1, 16, 12, 12)), "x")
    y = conv(x, 16, "conv")
    Graph([x], [ops.relu(ops.add(y, x))], ["y"])
    small = layer(y.producer)
    assert [n.op for n in small.nodes()] == ["transpose", "conv", "add", "relu", "transpose"]
    assert [v.shape for v in small.inputs] == [(1, 12, 12, 16)]
    narrow = layer(y.producer, "bf16")
    assert {v.dtype for v in (*narrow.inputs, *narrow.outputs)} == {"bf16"}


def test_the_text_of_a_layer_depends_on_shapes_and_attributes():
    def of(channels: int, value: float) -> str:
        x = Value(Type("f32", (1, 16, 12, 12)), "x")
        y = conv(x, channels, "conv")
        Graph([x], [ops.clip(y, lo=0.0, hi=value)], ["y"])
        return str(layer(y.producer))

    assert of(16, 6.0) == of(16, 6.0)
    assert len({of(16, 6.0), of(32, 6.0), of(16, 1.0)}) == 3


def raced(monkeypatch, **runs) -> dict[str, float]:
    """The times that the timer reports if runs take these times, repeated."""

    class Runner:
        def __init__(self, package, threads):
            self.times = itertools.cycle(runs[package])

        def run(self) -> float:
            return next(self.times)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

    monkeypatch.setattr("intaglio.tune.clock._Runner", Runner)
    return race({name: name for name in runs}, 1, 8, 10.0)


def test_a_lucky_run_does_not_win(monkeypatch):
    found = raced(monkeypatch, lucky=[80.0, *[100.0] * 12], steady=[95.0])
    assert found == {"lucky": 100.0, "steady": 95.0}


def test_a_busy_machine_does_not_decide(monkeypatch):
    found = raced(monkeypatch, disturbed=[*[500.0] * 5, 50.0, *[500.0] * 4], slow=[100.0])
    assert found["disturbed"] == pytest.approx(65.0)  # 1.3 times the fastest
    assert found["slow"] == 100.0


def test_the_real_timer_measures_every_implementation(tmp_path):
    traced = trace(network(), tune=tuning(tmp_path, seconds=5.0, threads=2))
    assert traced.decisions
    for d in traced.decisions:
        assert set(d.microseconds) == {DIRECT, TWO, FOUR, SIX}
        assert all(0 < t < 1e6 for t in d.microseconds.values())
