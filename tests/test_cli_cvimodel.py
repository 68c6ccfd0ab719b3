"""cvimodels on the command line: compile, inspect, run, and the words of refusals."""

import json

import numpy as np
import pytest
from tests.npu.chips.cv18xx import single_commands
from tests.test_cli import intaglio as command_line

from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.commands import tiu

COPY = {"tsk_typ": 3, "tsk_eu_typ": 10, "tsk_opd_num": 1, "res0_addr": 64}


@pytest.fixture
def model(tmp_path):
    """A file that copies 16 bytes of every lane."""
    made = single_commands.model([tiu(COPY | {"res0_c": 8, "opd0_c": 8})], "cv181x")
    path = tmp_path / "copy.cvimodel"
    path.write_bytes(cvimodel.write(made))
    return path


def test_inspect(model):
    done = command_line("inspect", model)
    assert done.returncode == 0, done.stderr
    assert "cvimodel    version 1.4.0 for cv181x, 'single'" in done.stdout
    assert "1 TIU and 2 TDMA commands" in done.stdout
    assert "tiu      1  copy" not in done.stdout
    assert "tiu      1  copy" in command_line("inspect", model, "--asm").stdout
    facts = json.loads(command_line("inspect", model, "--json").stdout)
    assert facts["programs"][0]["inputs"] == ["x"]


def test_run(model, tmp_path):
    x = single_commands.memory(1, "cv181x")
    np.save(tmp_path / "x.npy", x)
    done = command_line("run", model, tmp_path / "x.npy", "-o", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    before = x.reshape(8, -1)
    after = np.load(tmp_path / "y.npz")["y"].reshape(8, -1)
    assert np.array_equal(after[:, 64:80], before[:, :16])
    after[:, 64:80] = before[:, 64:80]
    assert np.array_equal(after, before)


def test_files_are_found_by_their_first_bytes(model, tmp_path):
    other = tmp_path / "renamed.bin"
    other.write_bytes(model.read_bytes())
    assert "for cv181x" in command_line("inspect", other).stdout


def test_refusals(model, tmp_path):
    cut = tmp_path / "cut.cvimodel"
    cut.write_bytes(model.read_bytes()[:-8])
    for words in (("inspect", cut), ("run", cut, "--fill", "zeros")):
        done = command_line(*words)
        assert done.returncode == 2
        assert done.stderr.startswith("intaglio: cvimodel: ")
        assert len(done.stderr.splitlines()) == 1
    done = command_line("inspect", model, "--graph")
    assert done.returncode == 2
    assert "is a cvimodel; --graph is for models and packages" in done.stderr
