"""The wheel: one for every Python 3; a clear message if there is no C compiler."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import intaglio
from intaglio import native

ROOT = Path(__file__).parents[1]


def test_without_a_compiler_the_build_says_so_in_one_line(tmp_path: Path):
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cmake, ninja = shutil.which("cmake", path=tools), shutil.which("ninja", path=tools)
    if cmake is None or ninja is None:
        pytest.skip("there is no cmake or no ninja here")
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS")}
    done = subprocess.run(
        [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", ROOT, "-B", tmp_path / "b"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, "PATH": str(tmp_path)},
    )
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "Intaglio needs a C compiler and found none: install one" in said
    assert len(re.findall("CMake Error", said)) == 1


def test_the_runtime_library_has_nothing_that_only_the_compiler_calls():
    headers = [p.read_text() for p in (ROOT / "csrc" / "compiler").glob("*.h")]
    names = re.findall(r"^ITG_API .*?\b(itg_\w+)\(", "\n".join(headers), re.M)
    assert len(names) >= 4
    runtime = Path(native.library()._name).read_bytes()
    compiler = Path(native.compiler_library()._name).read_bytes()
    assert [n for n in names if n.encode() in runtime] == []
    assert [n for n in names if n.encode() not in compiler] == []


def test_perf_shows_kernels_by_name():
    """Their functions are static: the symbol table has to stay, in wheels too."""
    assert b"\0.symtab\0" in Path(native.library()._name).read_bytes()
    assert "\ninstall.strip = false" in (ROOT / "pyproject.toml").read_text()


def test_the_version_stands_in_one_place():
    version = native.library().itg_version
    version.restype = ctypes.c_char_p
    assert version().decode() == intaglio.__version__
    assert "version =" not in (ROOT / "pyproject.toml").read_text().split("[tool.")[0]


def test_the_example_in_c_is_built_by_the_lines_in_its_comment(tmp_path: Path):
    """The lines as they stand, in the root of a copy of what a checkout has after `make build`."""
    if shutil.which("cc") is None:
        pytest.skip("there is no cc here")
    for part in ("csrc/include", "examples/c"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "build").mkdir()
    for library in Path(native.library()._name).parent.glob("libintaglio.*"):
        shutil.copy(library, tmp_path / "build", follow_symlinks=True)
    model = intaglio.load(ROOT / "examples/digits/digits.onnx", dims={"batch": 1})
    intaglio.compile(model).save(tmp_path / "model.itg")
    text = (ROOT / "examples/c/run.c").read_text()
    build, run = re.findall(r"^//   (.*)$", text, re.M)
    assert (build.split()[0], run) == ("cc", "./run model.itg")
    for line in (build, run):
        said = subprocess.run(
            line.split(), cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert said.returncode == 0, said.stderr
    assert "probabilities" in said.stdout


@pytest.mark.slow
def test_the_wheel_fits_every_python_3_and_runs_in_a_clean_environment(tmp_path: Path):
    def run(*args: object) -> str:
        done = subprocess.run(
            [str(a) for a in args], capture_output=True, text=True, timeout=900, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    plain = "cmake.define.INTAGLIO_ISAS="  # plain C alone: `make build` compiles the rest
    apart = f"build-dir={tmp_path / 'build'}"  # no other build may find that setting
    options = ["-q", "--no-deps", "-C", plain, "-C", apart, "-w", tmp_path / "wheel"]
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT)
    (wheel,) = (tmp_path / "wheel").iterdir()
    assert re.fullmatch(r"intaglio-[\d.]+-py3-none-\w+\.whl", wheel.name)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"intaglio/analysis/report/graph.js", "intaglio/ui/live.js"} <= names
    chips = "intaglio/targets/chips/rk3588.toml"
    libraries = {"intaglio/libintaglio.so", "intaglio/libintaglio_compiler.so"}
    assert libraries | {"intaglio/include/intaglio.h", chips} <= names
    run(sys.executable, "-m", "venv", tmp_path / "clean")
    run(tmp_path / "clean/bin/pip", "install", "-q", f"{wheel}[onnx]")
    model = ROOT / "examples" / "digits" / "digits.onnx"
    said = run(tmp_path / "clean/bin/intaglio", "run", model, "--dim", "batch=1", "--fill", "zeros")
    assert said.startswith("probabilities: float32[1, 10]")
