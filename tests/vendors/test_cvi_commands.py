"""Single commands of CV18xx in Sophgo's own simulator (libcvicmodel of tpu_mlir) and in ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.cv18xx.command_cases import NAMES, case

from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.commands import CHIPS
from intaglio.npu.chips.cv18xx.simulate import Machine

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("INTAGLIO_SOPHGO", ROOT / ".venv-vendors" / "bin" / "python"))
RUNNER = Path(__file__).with_name("cvi_runner.py")
SEEDS = range(100, 112)


def _installed() -> bool:
    found = "import importlib.util as u, sys; sys.exit(u.find_spec('tpu_mlir') is None)"
    return (
        PYTHON.exists() and not subprocess.run([str(PYTHON), "-c", found], check=False).returncode
    )


pytestmark = pytest.mark.skipif(
    not _installed(), reason="tpu_mlir is not installed: run `make test-vendors`"
)


@pytest.mark.parametrize("chip", CHIPS)
def test_local_memory_after_each_command_is_equal(chip: str, tmp_path: Path) -> None:
    """Every kind of command, all of local memory: the same bytes."""
    ours = {}
    for number, name in enumerate(NAMES):
        for seed in SEEDS:
            model, x = case(name, chip, seed)
            path = tmp_path / f"{number}-{seed}.cvimodel"
            path.write_bytes(cvimodel.write(model))
            np.savez(path.with_suffix(".in.npz"), **{"0": x[None]})
            ours[path.stem] = name, Machine(model).run({"x": x})["y"]
    command = [str(PYTHON), str(RUNNER), chip, str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report.keys() == ours.keys()
    for stem, (name, y) in ours.items():
        assert isinstance(report[stem], float), (name, report[stem])
        with np.load(tmp_path / f"{stem}.out.npz") as found:
            assert np.array_equal(found["0"].reshape(y.shape), y), (name, stem)
