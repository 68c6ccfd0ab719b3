"""The C tests, and mutated files, on a runtime that is built with AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import fuzz_package, fuzz_protected
from tests.package.mutate import mutate
from tests.package.samples import SAMPLES

from intaglio import BadFile
from intaglio.package.read import sections

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc and its sanitizers"),
]


@pytest.fixture(scope="module")
def driver():
    return fuzz_package.build_driver()


def test_c_tests(driver):
    tests = sorted(t for t in driver.parent.glob("test_*") if t.is_file())
    assert len(tests) >= 3
    for test in tests:
        done = subprocess.run([test], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{test.name}: {done.stderr}"


def test_the_example_in_c(driver, tmp_path):
    SAMPLES["chain"]().package().save(tmp_path / "m.itg")
    run = [driver.parent / "example_run", tmp_path / "m.itg"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "input  x: f32, 60 bytes\noutput y: f32, 60 bytes, largest is 0 at 0\n"
    bad = subprocess.run([run[0], tmp_path / "no.itg"], capture_output=True, text=True)
    assert (bad.returncode, "cannot open" in bad.stderr) == (2, True)


def test_mutated_files(driver, tmp_path):
    assert fuzz_package.fuzz(500, seed=7, keep=tmp_path) == []


def test_mutated_encrypted_and_signed_files(driver, tmp_path):
    pytest.importorskip("cryptography")
    assert fuzz_protected.fuzz(1750, seed=7, keep=tmp_path) == []


def test_the_driver_runs_good_files(driver):
    files = [make().package().bytes for make in SAMPLES.values()]
    summary, words, _ = fuzz_package.run_driver(driver, files)
    assert not words
    assert summary.startswith(f"files {len(files)} refused 0")


def sanitized(driver: Path, *arguments: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Python with the sanitized library, whose checks see the arrays of numpy, too."""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    env = {
        **os.environ,
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python itself leaks
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "INTAGLIO_LIBRARY": str(driver.parent / "libintaglio.so"),
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=seconds)


@pytest.mark.parametrize("calls", ["test_hostile", "test_hostile_packed"])
def test_hostile_calls_on_every_isa(driver, calls):
    done = sanitized(driver, "-m", f"tests.kernels.{calls}", "11", seconds=120)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) > 50, "hardly any call was accepted"


def test_weight_files_on_the_sanitized_runtime(driver):
    tests = "tests/package/test_weight_files.py"
    chosen = "shar or mapping or missing or plain_names or links or outside or signature or state"
    done = sanitized(
        driver, "-m", "pytest", "-q", "-p", "no:xdist", tests, "-k", chosen, seconds=400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "100%" in done.stdout


def test_changed_requests_on_the_sanitized_runtime(driver):
    """What a server does with requests over HTTP and gRPC."""
    pytest.importorskip("uvicorn", reason='needs pip install "intaglio[serve]"')
    done = sanitized(driver, "-m", "tests.serve.fuzz_requests", "--count", "300", seconds=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert '"OK"' in done.stdout.splitlines()[-1]


def test_layers_of_the_k210_on_the_sanitized_library(driver):
    tests = "tests/npu/chips/k210/test_arithmetic.py"
    chosen = "test_c_gives_the_bits_of_numpy"
    done = sanitized(
        driver, "-m", "pytest", "-q", "-p", "no:xdist", tests, "-k", chosen, seconds=400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "100%" in done.stdout


def test_mutations_get_past_the_checksums():
    rng = random.Random(3)
    data = SAMPLES["chain"]().package().bytes
    changed = [mutate(rng, data) for _ in range(100)]
    assert sum(c != data for c in changed) > 80
    good = 0
    for c in changed:
        try:
            sections(c)
            good += 1
        except BadFile:
            continue
    assert good > 70
