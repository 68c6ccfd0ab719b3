"""bmodels on the command line: inspect and run."""

import json

import numpy as np
import pytest
from tests.npu.chips.bm1684x import networks
from tests.test_cli import intaglio as command_line

import intaglio
from intaglio import targets
from intaglio.npu.chips.bm1684x.compile import compile_bmodel


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = compile_bmodel(networks.random_layer(0), targets.find("bm1684x").chip)
    path = tmp_path_factory.mktemp("bm1684x") / "layer.bmodel"
    made.save(path)
    return made, path


def test_inspect(made):
    path = made[1]
    done = command_line("inspect", path)
    assert done.returncode == 0, done.stderr
    assert "for BM1684X" in done.stdout
    assert "commands of the TIU" in done.stdout
    done = command_line("inspect", path, "--asm")
    lines = [line.split() for line in done.stdout.splitlines()]
    tiu, dma = (sum(1 for x in lines if x and x[0] == engine) for engine in ("tiu", "dma"))
    assert (tiu, dma) == tuple(
        1 + sum(c.engine == engine for c in made[0].commands) for engine in ("tiu", "dma")
    )
    facts = json.loads(command_line("inspect", path, "--json").stdout)
    commands = facts["nets"][0]["stages"][0]["subnets"][0]["groups"][0]["commands"]
    assert {c["engine"] for c in commands} == {"tiu", "dma"}


def test_run(made, tmp_path):
    compiled, path = made
    rng = np.random.default_rng(0)
    feeds = {}
    for p in compiled.lowered.inputs:
        feeds[p.name] = rng.integers(0, 100, p.shape).astype(np.int8 if p.dtype == "i8" else "u1")
    np.savez(tmp_path / "in.npz", **feeds)
    done = command_line("run", path, tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        expected = intaglio.interpret(compiled.graph, feeds)
        for got, want in zip(found.values(), expected.values(), strict=True):
            assert got.tobytes() == want.tobytes()


def test_a_file_is_known_by_its_first_bytes(made, tmp_path):
    other = tmp_path / "layer.bin"
    other.write_bytes(made[1].read_bytes())
    assert "for BM1684X" in command_line("inspect", other).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "--graph"], "is a bmodel; --graph is for models and packages"),
        (["run", "picture.jpg"], "is a bmodel, which reads arrays of numbers"),
    ],
)
def test_wrong_options_are_refused(made, words, message):
    done = command_line(words[0], made[1], *words[1:])
    assert done.returncode == 2
    assert message in done.stderr


def test_damaged_files_are_refused_in_a_line(made, tmp_path):
    path = tmp_path / "cut.bmodel"
    path.write_bytes(made[1].read_bytes()[:500])
    for command in ("inspect", "run"):
        done = command_line(command, path)
        assert done.returncode == 2
        assert "its parts have" in done.stderr
        assert "Traceback" not in done.stderr
