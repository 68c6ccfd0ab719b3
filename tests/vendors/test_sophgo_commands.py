"""Single commands of the BM1684X in Sophgo's chip model and in our simulator: the same memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.npu.chips.bm1684x import command_cases
from tests.vendors.test_sophgo import PYTHON, pytestmark  # noqa: F401

from intaglio.npu.chips.bm1684x import simulate
from intaglio.npu.chips.bm1684x.fields import COMMANDS
from intaglio.npu.chips.bm1684x.lanes import Memory

RUNNER = Path(__file__).with_name("sophgo_commands.py")
GOLDEN = Path(command_cases.__file__).with_name("golden_commands.json")


def vendor(seeds, folder: Path) -> list[str]:
    """What the chip model makes of random commands: digests, or `refused`."""
    find = "import tpu_mlir, os; print(os.path.dirname(tpu_mlir.__file__))"
    where = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, check=True)
    library = Path(where.stdout.strip().splitlines()[-1]) / "lib" / "libcmodel_bm1684x.so"
    (folder / "memory.bin").write_bytes(command_cases.image().tobytes())
    cases = [command_cases.case(s) for s in seeds]
    lines = [COMMANDS[c.name].pack(c.fields, 1, 0).hex() for c in cases]
    (folder / "commands.txt").write_text("\n".join(lines))
    command = [PYTHON, RUNNER, library, folder / "memory.bin", folder / "commands.txt"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [row[1] for row in rows if row and row[0] == "digest"]


@pytest.mark.parametrize("first", [0, 1000, 2000])
def test_random_commands_leave_the_same_memory(first, tmp_path):
    seeds = range(first, first + 200)
    memory, image, wrong, ran = Memory(1 << 16), command_cases.image(), [], 0
    for seed, digest in zip(seeds, vendor(seeds, tmp_path), strict=True):
        if digest == "refused":
            continue
        command_cases.local(memory)[:] = image
        simulate.execute(memory, command_cases.case(seed))
        ran += 1
        if command_cases.digest(command_cases.local(memory)) != digest:
            wrong.append(seed)
    assert not wrong
    assert ran > 150


def test_the_golden_digests_are_the_vendors(tmp_path):
    golden = json.loads(GOLDEN.read_text())
    assert vendor([int(s) for s in golden], tmp_path) == list(golden.values())
