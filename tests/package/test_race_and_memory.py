"""The runtime under ThreadSanitizer and valgrind: no data race, no uninitialised memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests import fuzz_package
from tests.package import networks

from intaglio import native

ROOT = Path(__file__).parents[2]
BUILD = Path(native.library()._name).parent
# TSan starts no threads after a fork
TSAN_TESTS = ["test_null", "test_plugin", "test_runtime", "test_shapes", "test_threads"]


def run(*command: object, isa: str = "scalar", seconds: int = 200, **options: str) -> str:
    """The output of a program that reads packages from its standard input."""
    done = subprocess.run(
        [str(c) for c in command],
        input=networks.stream(isa),
        capture_output=True,
        timeout=seconds,
        env={**os.environ, **options},
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]
    return done.stdout.decode()


@pytest.mark.slow  # a build of its own
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc and its sanitizers")
def test_no_data_race(tmp_path):
    """Plain C without optimisation: every instruction set shares the work in the same way."""
    folder = ROOT / "build-sanitize-thread"
    quick = ["-DINTAGLIO_ISAS=", "-DINTAGLIO_KERNEL_LEVEL=-O0", "-DCMAKE_BUILD_TYPE=Debug"]
    targets = [*TSAN_TESTS, "test_encryption", "fuzz_driver"]
    fuzz_package.build(folder, "-DINTAGLIO_SANITIZE=thread", *quick, targets=targets)
    stop = {"TSAN_OPTIONS": "halt_on_error=1"}
    for name in TSAN_TESTS:
        run(folder / name, **stop)
    run(folder / "test_encryption", "threads", **stop)
    ranges = networks.packages_with_ranges()
    for i, data in enumerate(ranges):
        (tmp_path / f"{i}.itg").write_bytes(data)
    run(folder / "test_shapes", *(tmp_path / f"{i}.itg" for i in range(len(ranges))), **stop)
    assert " refused 0 " in run(folder / "fuzz_driver", 3, **stop)


@pytest.mark.skipif(
    not shutil.which("valgrind") or not (BUILD / "fuzz_driver").exists(),
    reason="needs valgrind and a build of the checkout",
)
@pytest.mark.parametrize("isa", ["scalar", "avx2"])  # valgrind knows no AVX-512
def test_valgrind_has_nothing_to_report(isa):
    if isa not in {k.isa for k in native.kernels() if not k.needs & ~native.machine()}:
        pytest.skip(f"this build or this CPU has no {isa}")
    strict = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]
    assert " refused 0 " in run("valgrind", *strict, BUILD / "fuzz_driver", isa=isa)
