"""From a quantised graph to a package for a chip: simulated results and reports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.npu.quantized_networks import Net, networks

import intaglio
from intaglio import ops, targets
from intaglio.catalogue.builder import Builder
from intaglio.cli import cli
from intaglio.compiler import trace
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.ops.program import MOST_RESULTS

CHIPS = ("rk3588", "rk3566", "k230", "bm1684x")


@settings(max_examples=40, deadline=None)
@given(networks(10), st.sampled_from(CHIPS))
def test_a_package_computes_the_interpreters_bits(made, chip):
    """Integers are bit-exact; floats are those of the CPU's kernels."""
    graph, inputs = made
    want = intaglio.interpret(graph, inputs)
    with intaglio.open(intaglio.compile(graph, target=chip).bytes, threads=1) as session:
        got = session.run(inputs)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The file of a quantised model with one op that stays on the CPU."""
    n = Net(np.random.default_rng(3), [])
    x = Value(Type("i8", (1, 32, 12, 12)), "x")
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    y = ops.qlinear_conv(*n.of(x), *n.weights(32, 32, (3, 3)), *n.result("i8"), **window)
    y = ops.resize(y, axes=(2, 3), shape=(18, 18), scales=(1.5, 1.5))
    y = ops.qlinear_conv(*n.of(y), *n.weights(8, 32, (3, 3)), *n.result("i8"), **window)
    path = tmp_path_factory.mktemp("npu") / "model.onnx"
    intaglio.save_onnx(Graph([x], [y], ["y"], "model"), path)
    return path


def test_a_package_says_what_stays_on_the_cpu(model):
    made = trace(model, target="rk3588", isa="scalar")
    assert made.package.meta["target"] == "rk3588"
    assert made.package.meta["partition"] == made.partition.to_dict()
    assert [m.kind for m in made.partition.modules] == ["npu", "cpu", "npu"]
    assert {row.op for row in made.partition.on_cpu} == {"resize"}
    steps = [s.op for s in made.plan.steps]
    assert steps.count("npu.run") == 2
    assert "partition" not in intaglio.compile(model, target="rk3588", strip=True).meta
    assert trace(model).partition is None


def test_the_command_line_reports_it(model, tmp_path):
    package = tmp_path / "model.itg"
    done = CliRunner().invoke(
        cli, ["compile", str(model), "--target", "rk3588", "-o", str(package)]
    )
    assert done.exit_code == 0, done.output
    assert "rk3588: 2 NPU programs with 2 of 3 ops" in done.output
    done = CliRunner().invoke(cli, ["inspect", str(package)])
    assert "for rk3588" in done.output
    assert "1 x resize" in done.output
    assert "equally often" in done.output
    done = CliRunner().invoke(cli, ["inspect", str(package), "--json"])
    assert json.loads(done.output)["partition"]["modules"][0]["kind"] == "npu"


def test_chips_are_found_by_name_or_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text((targets.chips.CHIPS / "rk3588.toml").read_text())
    assert targets.find(str(file), "scalar").name == "mine"
    with pytest.raises(BadInput, match="any TOML file"):
        targets.find("rk9999")


def test_cores_and_layers_by_name(model, tmp_path):
    file = model
    out = ["-o", str(tmp_path / "m.itg")]
    done = CliRunner().invoke(
        cli, ["compile", str(file), "--target", "rk3588", "--cores", "3", "--by-layer", *out]
    )
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["inspect", out[1], "--asm"])
    assert "for rk3588, 3 cores" in done.output
    done = CliRunner().invoke(cli, ["compile", str(file), "--cores", "2", *out])
    assert "--cores 2 is for chips with an NPU" in str(done.exception)
    done = CliRunner().invoke(cli, ["compile", str(file), "--target", "rk3588", "--cores", "9"])
    assert "cores is 9; rk3588 has 3; give at most --cores 3" in str(done.exception)


def test_a_model_of_floats_stays_on_the_cpu():
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    made = trace(Graph([x], [ops.relu(x)], ["y"]), target="rk3588")
    assert not any(m.kind == "npu" for m in made.partition.modules)
    assert "quantise it" in made.partition.on_cpu[0].remedy
    assert "computes in floats; quantise it for rk3588" in str(made.partition)


def test_the_quantiser_uses_the_npus_precisions():
    chip = targets.find("rk3588", "scalar")
    assert chip.preferred_precision.name == "int8"
    assert chip.preferred_precision.weights.why_not("i8", zeros=True) is not None
    assert [p.name for p in chip.precisions] == ["int8", "int16", "f16", "f32"]


@pytest.mark.parametrize("chip", ["rk3588", "rk3566"])
def test_rows_that_a_core_cannot_hold_stay_on_the_cpu(chip: str):
    """Words of a vocabulary, and products whose second operand is larger than the memory."""
    rng = np.random.default_rng(3)
    x, y = (Value(Type("f32", (1, 12, n)), name) for n, name in ((16, "x"), (128, "y")))
    z = Value(Type("f32", (1, 128, 4096)), "z")
    table = constant(rng.normal(0, 0.2, (16, 30522)).astype(np.float32))
    words, pairs = ops.matmul(x, table), ops.matmul(y, z)
    words.name, pairs.name = "words", "pairs"
    graph = Graph([x, y, z], [words, pairs])
    feeds = {v.name: rng.normal(0, 1, v.shape).astype(np.float32) for v in graph.inputs}
    package = intaglio.compile(graph, target=chip, precision="f16")
    wanted = intaglio.interpret(graph, feeds)
    found = intaglio.open(package).run(feeds)
    for a, b in zip(found.values(), wanted.values(), strict=True):
        assert np.linalg.norm(a - b) < 2e-3 * np.linalg.norm(b)


@pytest.mark.parametrize("chip", ["rk3588", "cv181x"])
def test_networks_with_more_results_than_a_program_may_have(chip: str):
    b, rng = Builder("random"), np.random.default_rng(0)
    x = y = b.input(16, 8)
    outputs = [y := b.conv(y, 8, 3) for _ in range(MOST_RESULTS + 4)]
    graph = Graph([x], outputs, [f"y{i}" for i in range(len(outputs))])
    feeds = [{"input": rng.standard_normal(x.shape).astype(np.float32)} for _ in range(4)]
    result = trace(intaglio.quantize(graph, feeds, target=chip), chip)
    assert result.partition is not None
    assert [m.name for m in result.partition.modules if m.kind == "npu"] == ["npu0", "npu0_1"]
    want = intaglio.interpret(graph, feeds[0])
    with intaglio.open(result.package) as session:
        for name, array in session.run(feeds[0]).items():
            assert np.corrcoef(array.ravel(), want[name].ravel())[0, 1] > 0.9
