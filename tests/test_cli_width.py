"""Every table of the command line fits a terminal of 80 columns; pipes get the full width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper
from tests.test_progress import network

import intaglio
from intaglio.cli import cli
from intaglio.text_table import aligned, shortened, terminal_width, wrapped

LONG = "model_7/very/long/names/as/TFLite/joins/them;model_7/batch_normalization/FusedBatchNormV3_"


def long_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with long names of layers and tensors."""
    new = {"a": f"{LONG}a", "b": f"{LONG}b", "y": f"{LONG}y"}
    for node in model.graph.node:
        node.name = LONG + node.name
        node.input[:] = [new.get(n, n) for n in node.input]
        node.output[:] = [new.get(n, n) for n in node.output]
    model.graph.output[0].name = new["y"]
    model.graph.node.append(helper.make_node("Softmax", [new["y"]], ["s"], LONG + "s", axis=1))
    model.graph.output[0].name = "s"
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("width")
    onnx.save(long_names(network()), folder / "net.onnx")
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(4)]
    np.savez(folder / "x.npz", x=np.stack([s["x"][0] for s in samples]))
    graph = intaglio.quantize(folder / "net.onnx", samples, target="rk3588", accuracy=None)
    intaglio.save_onnx(graph, folder / "int8.onnx")
    intaglio.compile(graph, target="rk3588").save(folder / "npu.itg")
    intaglio.compile(folder / "net.onnx").save(folder / "cpu.itg")
    return folder


COMMANDS = {
    "targets": "targets",
    "one target": "targets rk3588",
    "cpu": "targets cpu",
    "compile": "compile net.onnx -o o.itg --explain",
    "compile for a chip": "compile int8.onnx --target rk3588 -o o.itg",
    "inspect a model": "inspect net.onnx",
    "inspect a package": "inspect cpu.itg --choices",
    "inspect an NPU package": "inspect npu.itg",
    "bench": "bench cpu.itg --seconds 0.02 --layers",
    "bench an NPU package": "bench npu.itg --seconds 0.02 --layers",
    "perf": "perf npu.itg",
    "perf of chips": "perf int8.onnx --chips rk3588,k230,bm1684x",
    "payoff": "perf int8.onnx --target rk3576 --payoff",
    "sweep": "perf int8.onnx --target rk3588 --sweep ddr=4,8 --cores 3",
    "what if": "perf npu.itg --clock 500",
    "memory": "memory npu.itg",
    "matmul": "matmul --chip rk3588,k230 --m 1,16 --k 256 --n 256 --run",
    "optimize": "optimize net.onnx --explain",
    "quantize": "quantize net.onnx --data x.npz -o o.itg --layers",
    "run": "run cpu.itg --fill random",
}


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, command.split(), prog_name="intaglio")
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_tables_fit_80_columns(command, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(command, folder, monkeypatch)
    assert lines
    assert not [line for line in lines if len(line) > 80]


def test_a_pipe_gets_every_column(folder, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("perf npu.itg", folder, monkeypatch)
    assert {"max", "cores", "bound", "name"} <= set(lines[0].split())
    assert any(LONG in line for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run("perf npu.itg", folder, monkeypatch)
    assert any("left out, as the terminal has 80 columns: max" in line for line in narrow)


def test_columns_are_dropped_then_texts_shortened():
    rows = [("name", "a", "b"), ("x" * 30, "1", "2")]
    assert aligned(rows, (1, 2), width=0) == [f"{'name':30}  a  b", f"{'x' * 30}  1  2"]
    assert aligned(rows, (1, 2), (2,), 33)[:2] == [f"{'name':30}  a", f"{'x' * 30}  1"]
    made = aligned(rows, (1, 2), (2,), 20)
    assert made[1] == f"{'x' * 7}...{'x' * 7}  1"
    assert made[2].startswith("left out")
    assert shortened("abcdefghij", 7) == "ab...ij"


def test_long_lines_go_on_behind_their_label():
    text = "note        " + "word " * 20
    lines = wrapped(text, 40).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert all(line.startswith(" " * 12 + "word") for line in lines[1:])
    assert wrapped(text, 0) == text


def test_the_width_is_columns_or_none(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width() == 72
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_width() == 0  # pytest captures stdout: no terminal
