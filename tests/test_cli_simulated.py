"""Silicon, simulation and prediction are told apart; packages for chips are not for this CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tests.test_progress import network

import intaglio
from intaglio import cpu_isa, native, targets
from intaglio.cli import cli
from intaglio.package import Package

ROOT = Path(__file__).parents[1]


def run(*args: object) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in args], prog_name="intaglio")
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A float model, its int8 version for a chip, and packages of both."""
    folder = tmp_path_factory.mktemp("simulated")
    onnx.save(network(), folder / "net.onnx")
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(4)]
    graph = intaglio.quantize(folder / "net.onnx", samples, target="rk3588", accuracy=None)
    intaglio.save_onnx(graph, folder / "int8.onnx")
    intaglio.compile(graph, target="rk3588").save(folder / "npu.itg")
    intaglio.compile(folder / "net.onnx").save(folder / "cpu.itg")
    return folder


def test_a_package_for_a_chip_is_not_packed_for_this_cpu(folder):
    package = Package.load(folder / "npu.itg")
    assert package.isa == "scalar"
    assert targets.find("k230").host.isa == 0
    asked = intaglio.compile(folder / "int8.onnx", target="rk3588", isa=native.machine())
    assert cpu_isa.bits_of(asked.isa) == native.machine()
    assert Package.load(folder / "cpu.itg").isa == cpu_isa.name_of(native.machine())


def test_the_simulator_uses_this_cpu_and_gives_the_same_bits(folder):
    """The simulator's kernel does not depend on the package: it is the fastest of this CPU."""
    x = np.random.default_rng(1).normal(size=(1, 3, 32, 32)).astype(np.float32)
    results = []
    for isa in (None, "scalar", native.machine()):
        package = intaglio.compile(folder / "int8.onnx", target="rk3588", isa=isa)
        with intaglio.open(package, threads=1, profile=True) as session:
            results.append(session.run({"x": x})["y"])
            steps = session.profile()
        best = native.find_kernel("npu.run", "u8", native.machine())
        assert {s.isa for s in steps if s.op == "npu.run"} == {best.isa}
        if isa != native.machine():
            assert {s.isa for s in steps if s.op != "npu.run"} <= {"scalar"}
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_compile_says_where_the_package_runs(folder):
    told = run("compile", folder / "int8.onnx", "--target", "rk3588", "-o", folder / "a.itg")
    assert "rk3588 is simulated on this PC, not run; steps beside the NPU are for any CPU" in told
    assert f"next: intaglio perf {folder / 'a.itg'}" in told
    told = run("compile", folder / "net.onnx", "-o", folder / "b.itg", "--isa", "avx2")
    assert "runs on the processor; for CPUs with avx2" in told
    facts = json.loads(
        run("compile", folder / "int8.onnx", "--target", "K230", "-o", folder / "c.itg", "--json")
    )
    assert facts["target"] == "k230"
    assert facts["simulated"] is True
    assert facts["partition"]["chip"] == "k230"
    assert facts["inputs"] == {"x": {"dtype": "f32", "shape": [1, 3, 32, 32]}}


def test_bench_says_what_it_times(folder):
    told = run("bench", folder / "npu.itg", "--seconds", "0.05")
    assert "these are times of the simulator on this PC, not of rk3588" in told
    predicted = Package.load(folder / "npu.itg").performance().milliseconds
    assert f"rk3588: {predicted:.3f} ms, predicted from figures of the chip" in told
    (row,) = json.loads(run("bench", folder / "npu.itg", "--seconds", "0.05", "--json"))
    assert row["simulated"] is True
    assert row["predicted_ms"] == pytest.approx(predicted)
    told = run("bench", folder / "cpu.itg", "--seconds", "0.05")
    assert "simulator" not in told
    (row,) = json.loads(run("bench", folder / "cpu.itg", "--seconds", "0.05", "--json"))
    assert (row["simulated"], row["predicted_ms"]) == (False, None)


def test_perf_and_targets_say_what_is_predicted(folder):
    assert "not measured on it; no part of this ran on rk3588" in run("perf", folder / "npu.itg")
    both = run("perf", folder / "int8.onnx", "--chips", "rk3588,rk3568")
    *_, told, band = both.splitlines()
    assert told == "times are predicted from figures of the chip, not measured on it"
    assert band.startswith("in brackets: where 80 % of published speeds lay")
    listed = run("targets")
    assert "cpu runs on the processor. All other targets are simulated" in listed
    assert "Nothing is measured" in run("perf", "--help")


def test_the_readme_says_it_in_one_line():
    lines = (ROOT / "README.md").read_text().splitlines()[:15]
    (line,) = [s for s in lines if "run in a simulator" in s]
    assert "CPU targets run on the processor" in line
    assert "predicted, not measured" in line
