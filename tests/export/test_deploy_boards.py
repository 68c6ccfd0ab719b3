"""`intaglio deploy`: projects in the emulators of their boards compute the bytes of Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.export.deploy_nets import epilogues, every_kernel, floats, planes
from tests.shared_models import SHARED

import intaglio
from intaglio.export.deploy import board as boards

MODELS = ("pretrainedResnet_quant", "kws_ref_model", "vww_96_int8", "ad01_int8")
TFLM_ARENA = dict(zip(MODELS, (54_996, 22_820, 100_708, 2_580), strict=True))
QUICK = ("linux-aarch64-dotprod", "linux-armv7", "cortex-m4", "cortex-m55")  # each form but plain C
OK = "vector 0: ok\nvector 1: ok\n"


def require_tools(board: boards.Board) -> None:
    for tool, packages in (
        (board.compiler, board.compiler_packages),
        (board.qemu, board.qemu_packages),
        ("cmake", "cmake"),
    ):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}: apt-get install {packages}")


def made_and_run(folder: Path) -> str:
    done = subprocess.run(["make", "run"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return "".join(re.findall(r"^vector .*\n", done.stdout + done.stderr, re.M))


@pytest.mark.parametrize("name", QUICK)
def test_the_kernels_of_a_board_in_qemu(tmp_path: Path, name: str):
    require_tools(boards.load(name))
    intaglio.deploy(every_kernel(), name, tmp_path)
    assert made_and_run(tmp_path) == OK


def test_depthwise_layers_of_the_form_dsp_in_qemu(tmp_path: Path):
    require_tools(boards.load("cortex-m4"))
    made = intaglio.deploy(planes("u8", "u8"), "cortex-m4", tmp_path)
    assert {"conv", "dense", "depthwise", "planes"} <= set(made.kernels)
    assert made_and_run(tmp_path) == OK


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["planes", "i8", "u8", "epilogues", "floats"])
@pytest.mark.parametrize("name", boards.names())
def test_every_board_in_qemu(tmp_path: Path, name: str, kind: str):
    require_tools(boards.load(name))
    others = {"epilogues": epilogues, "floats": floats, "planes": planes}
    graph = others[kind]() if kind in others else every_kernel(kind, kind)
    intaglio.deploy(graph, name, tmp_path)
    assert made_and_run(tmp_path) == OK


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [*QUICK, "cortex-m3", "linux-riscv64-rvv"])
def test_mlperf_tiny_in_qemu(tmp_path: Path, name: str, model: str):
    path = SHARED / "models" / "tflite" / f"{model}.tflite"
    if not path.exists():
        pytest.skip(f"needs {path}")
    require_tools(boards.load(name))
    made = intaglio.deploy(path, name, tmp_path)
    assert made_and_run(tmp_path) == OK
    assert made.sizes.weights <= path.stat().st_size
    assert made.sizes.ram < TFLM_ARENA[model]
