"""A program in a package: the CODE section, disassembly, mutated bytes under sanitizers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from tests.npu import fuzz
from tests.npu.instruction_builder import everything

import intaglio
from intaglio import native
from intaglio.cli import cli
from intaglio.package import Package
from intaglio.package.read import sections


@pytest.fixture
def built():
    return everything()


def test_a_package_runs_like_numpy(built):
    want = built.check()
    for bits in (0, native.machine()):
        package = Package.build([built.plan()], isa=bits)
        with intaglio.open(package.bytes, threads=2) as session:
            got = session.run({f"x{i}": a for i, a in enumerate(built.inputs)})
        for g, w in zip(got.values(), want, strict=True):
            np.testing.assert_array_equal(g, w)


def test_the_section(built):
    data = Package.build([built.plan()]).bytes
    found, _ = sections(data)
    assert bytes(found["CODE"]) == built.arrays()[0].tobytes()
    step = Package(data).plan.steps[0]
    assert (step.inputs[0].memory, step.inputs[1].memory) == ("code", "const")
    np.testing.assert_array_equal(step.inputs[0].data, built.arrays()[0])


def test_files_without_programs_have_no_such_section():
    x = intaglio.ir.Value(intaglio.ir.Type("f32", (2,)), "x")
    from intaglio.ops import relu

    graph = intaglio.ir.Graph([x], [relu(x)], ["y"], "small")
    assert "CODE" not in sections(intaglio.compile(graph).bytes)[0]


def test_a_damaged_program_is_not_opened(built):
    plan = built.plan()
    code = plan.steps[0].inputs[0].data.copy()
    code[-200] ^= 0xFF
    plan.steps[0].inputs[0].data = code
    with pytest.raises(intaglio.BadFile, match=r"npu\.run.*instruction"):
        intaglio.open(Package.build([plan]).bytes)


def test_disassembly(built, tmp_path):
    path = tmp_path / "m.itg"
    Package.build([built.plan()]).save(path)
    run = CliRunner()
    made = run.invoke(cli, ["inspect", str(path), "--asm"])
    assert made.exit_code == 0, made.output
    lines = made.output.splitlines()
    assert lines[0] == "program module_0: for test, 2 cores"
    assert len([x for x in lines if " core" in x and " L" in x]) == len(built.program.instructions)
    for op in ("conv", "depthwise", "pool", "eltwise", "lut", "resize", "matmul", "barrier"):
        assert any(f" {op}" in x for x in lines)
    data = json.loads(run.invoke(cli, ["inspect", str(path), "--asm", "--json"]).output)
    assert data[0]["sram"] == built.program.sram
    assert [i["op"] for i in data[0]["instructions"]] == [i.op for i in built.program.instructions]
    facts = json.loads(run.invoke(cli, ["inspect", str(path), "--json"]).output)
    assert facts["code_bytes"] == built.arrays()[0].size


@pytest.mark.sanitized
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc and its sanitizers")
def test_mutated_programs(tmp_path):
    assert fuzz.fuzz(500, seed=3, keep=tmp_path) == []


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc and its sanitizers")
def test_many_mutated_programs(tmp_path):
    assert fuzz.fuzz(5_000, seed=4, keep=tmp_path) == []
