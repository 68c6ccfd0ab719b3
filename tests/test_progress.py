"""Progress: what stages report, and the line that shows it, with a fake clock and terminal."""

from __future__ import annotations

import io
import re
import threading
import time

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import intaglio
from intaglio import progress
from intaglio.cli import cli, progress_line
from intaglio.cli.progress_line import Line
from intaglio.progress import Stage
from intaglio.quant import STEPS, Options, calibrate
from intaglio.quant import auto as search_strategies
from intaglio.tune import Tuning


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def shown(line: Line) -> str:
    """The line without its spinner."""
    return line.text()[2:]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def line(clock):
    with progress.to(made := Line(clock=clock)):
        yield made


# ---- the line ----
def test_a_stage_has_a_spinner_and_a_clock(line, clock):
    progress.report("reading the model")
    assert line.text() == ""  # a fast command shows nothing
    clock.now += 1
    frames = set()
    for _ in range(20):
        clock.now += 0.2
        frames.add(line.text()[0])
    assert len(frames) == 10
    assert shown(line) == "0:05  reading the model"
    clock.now += 70
    assert shown(line) == "1:15  reading the model"


def test_the_clock_starts_with_each_stage(line, clock):
    progress.report("reading the model")
    clock.now += 5
    progress.report("compiling")
    clock.now += 2
    assert shown(line) == "0:02  compiling"


def test_counts_and_the_time_left(line, clock):
    clock.now += 1
    progress.report("comparing", 0, 10)
    assert shown(line) == "0:00  comparing 1 of 10"
    clock.now += 4
    progress.report("comparing", 2, 10)
    assert shown(line) == "0:04  comparing 3 of 10, about 0:16 left"
    clock.now += 6
    assert shown(line) == "0:10  comparing 3 of 10, about 0:10 left"
    clock.now += 60  # slower than before: no time is better than a wrong one
    assert shown(line) == "1:10  comparing 3 of 10"


def test_the_bound_of_a_search_is_called_one(line, clock):
    progress.report("trying methods", 0, 24, at_most=True)
    clock.now += 6
    progress.report("trying methods", 3, 24, at_most=True)
    assert shown(line) == "0:06  trying methods 4 of at most 24, at most 0:42 left"


def test_a_finished_count_gives_way_to_the_clock(line, clock):
    progress.report("calibrating", 12, 12)
    clock.now += 120
    assert shown(line) == "2:00  calibrating"


def test_a_total_is_never_exceeded(line, clock):
    clock.now += 1
    progress.report("calibrating", 12, 12)
    progress.report("trying settings", 67)  # has no total: the one before must not stay
    assert shown(line) == "0:00  trying settings 67"
    progress.report("trying settings", 67, 12)  # a mistake of the stage
    assert shown(line) == "0:00  trying settings 67"


def test_parts_of_a_stage_keep_its_clock_and_time_left(line, clock):
    with progress.inside("predicting for chip", 0, 4):
        clock.now += 10
    with progress.inside("predicting for chip", 1, 4):
        progress.report("tiling layers", 0, 50)
        clock.now += 1
        progress.report("tiling layers", 25, 50)
        outer = "0:11  predicting for chip 2 of 4, about 0:29 left"
        assert shown(line) == f"{outer}: tiling layers 26 of 50"
    progress.report("writing")
    assert shown(line) == "0:00  writing"


def test_a_stage_that_starts_again_is_measured_anew(line, clock):
    progress.report("tiling layers", 0, 10)
    clock.now += 10
    progress.report("tiling layers", 9, 10)
    progress.report("tiling layers", 0, 10)
    clock.now += 1
    progress.report("tiling layers", 1, 10)
    assert shown(line) == "0:01  tiling layers 2 of 10, about 0:09 left"


def test_a_narrow_terminal_drops_stages_that_count_nothing(line, clock):
    clock.now += 1
    with progress.inside("chip", 1, 3), progress.inside("compiling for a chip"):
        progress.report("tiling layers", 4, 50)
        assert shown(line) == "0:00  chip 2 of 3: compiling for a chip: tiling layers 5 of 50"
        narrow = line.text(width=45)[2:]
    assert narrow == "0:00  chip 2 of 3: tiling layers 5 of 50"


def test_no_listener_and_other_threads_are_silent(line):
    thread = threading.Thread(target=progress.report, args=("in the background",))
    thread.start()
    thread.join()
    assert not line.stages
    with progress.silent():
        progress.report("a part that its caller reports")
    assert not line.stages


# ---- the terminal ----
def terminal(width: int = 80, is_terminal: bool = True) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=is_terminal, width=width, legacy_windows=False
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_line_lives_on_a_terminal_and_is_removed(monkeypatch):
    monkeypatch.setattr(progress_line, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "FRAMES_PER_SECOND", 50)
    console = terminal(40)
    with progress_line.shown(console):
        progress.report("a stage with a very long name that no terminal has room for", 3, 12)
        time.sleep(0.2)
    text = written(console)
    lines = re.split(r"\r|\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", text))
    assert len({line[:1] for line in lines if "a stage" in line}) > 1, "the spinner stands still"
    assert max(map(len, lines)) <= 40
    assert text.endswith(("\x1b[2K", "\x1b[?25h"))  # erased, and the cursor is back


@pytest.mark.parametrize("params", [{"as_json": True}, {"quiet": True}])
def test_json_and_quiet_are_silent(params):
    console = terminal()
    context = click.Context(cli)
    context.params = params
    with context.scope(), progress_line.shown(console):
        progress.report("a stage")
        time.sleep(0.05)
    assert written(console) == ""


def test_a_file_gets_no_line():
    console = terminal(is_terminal=False)
    with progress_line.shown(console):
        progress.report("a stage")
    assert written(console) == ""


# ---- the stages of the library ----
def recorded(work) -> list[tuple[Stage, ...]]:
    """Everything that `work` reports."""
    told: list[tuple[Stage, ...]] = []
    with progress.to(told.append):
        work()
    return told


def words(told) -> list[str]:
    return list(dict.fromkeys(s.words for stages in told for s in stages))


def network() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float32), name)
        for name, shape in (("w1", (16, 3, 3, 3)), ("w2", (16, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "c1", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "r1"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "c2", pads=[1] * 4),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 32, 32])
        for n, c in (("x", 3), ("y", 16))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def graph():
    return intaglio.load(network())


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(12)]


def check_totals(told) -> None:
    wrong = [s for stages in told for s in stages if s.total is not None and s.done > s.total]
    assert not wrong


def test_every_step_of_quantisation_reports(graph, samples):
    told = recorded(lambda: calibrate(graph, samples, options=Options(accuracy=0.99999)))
    check_totals(told)
    expected = [s.name for s in STEPS if s.when(Options())]
    assert [w for w in words(told) if w in expected] == expected
    assert any(s.words == "trying range methods" for stages in told for s in stages)
    after = [stages[0].words for stages in told]
    last = max(i for i, stages in enumerate(told) if stages[-1].words.startswith("calibrating"))
    assert "search settings" in after[last:], "the bar of calibration would stand still"


def test_a_callers_function_gets_words_and_counts(graph, samples):
    told = []
    calibrate(graph, samples, method="minmax", accuracy=None, progress=lambda *t: told.append(t))
    assert ("calibrating", 12, 12) in told
    assert ("observe ranges", 0, None) in told
    assert all(total is None or done <= total for _, done, total in told)


def test_strategies_are_counted(graph, samples):
    strategies = (("minmax", {"method": "minmax"}), ("kl", {"method": "kl"}))
    told = recorded(
        lambda: search_strategies(
            graph, samples, options=Options(accuracy=None), strategies=strategies
        )
    )
    check_totals(told)
    outer = [stages[0] for stages in told if stages[0].words == "trying strategy"]
    assert {s.done for s in outer} == {0, 1, 2}
    assert {s.total for s in outer} == {3}


def test_compiling_for_a_chip_counts_layers(graph, samples):
    quantized = intaglio.quantize(graph, samples, target="rk3588", accuracy=None)
    told = recorded(lambda: intaglio.compile(quantized, target="rk3588"))
    check_totals(told)
    assert {"compiling for rk3588", "tiling layers", "writing instructions"} <= set(words(told))
    names = []
    intaglio.compile(quantized, target="rk3588", progress=names.append)
    assert names[0] == "reading the model"
    assert any(n.startswith("tiling layers 0 of ") for n in names)


def test_tuning_counts_layers(graph, tmp_path):
    timer = lambda packages, *rest: dict.fromkeys(packages, 1.0)  # noqa: E731
    how = Tuning(60.0, cache=tmp_path, timer=timer)
    told = recorded(lambda: intaglio.compile(graph, tune=how))
    check_totals(told)
    timed = [stages for stages in told if any(s.words == "timing layers" for s in stages)]
    assert timed
    assert all(s.total for stages in timed for s in stages if s.words == "timing layers")


def test_chips_are_counted(tmp_path, monkeypatch):
    onnx.save(network(), tmp_path / "net.onnx")
    told: list[tuple[Stage, ...]] = []

    def shown(console=None):
        return progress.to(told.append)

    monkeypatch.setattr(progress_line, "shown", shown)
    args = ["perf", str(tmp_path / "net.onnx"), "--chips", "rk3588,k230"]
    cli.main(args, prog_name="intaglio", standalone_mode=False)
    check_totals(told)
    chips = [stages[0] for stages in told if stages[0].words == "predicting for chip"]
    assert {(s.done, s.total) for s in chips} == {(0, 2), (1, 2)}
    inner = {s.words for stages in told for s in stages[1:]}
    assert "quantising for rk3588 from random samples" in inner
    assert "tiling layers" in inner
