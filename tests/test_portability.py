"""The runtime on other machines: 32-bit ones, and big-endian ones, which it refuses in words."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.package.networks import packages
from tests.package.samples import SAMPLES

from intaglio import native

ROOT = Path(__file__).parents[1]
BUILD = Path(native.library()._name).parent
INCLUDES = [f"-I{ROOT / folder}" for folder in ("csrc", "csrc/include", "csrc/kernels")]
# gcc's name of a machine, its emulator, the folder of its C library, the loader there
I686 = ("i686-linux-gnu", "", "/usr/i686-linux-gnu/lib/ld-linux.so.2")
ARMHF = ("arm-linux-gnueabihf", "qemu-arm", "")
S390X = ("s390x-linux-gnu", "qemu-s390x", "")


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("gcc"), reason="needs gcc for x86-64"
)
def test_every_source_compiles_for_a_32_bit_machine(tmp_path: Path):
    """No type of 128 bits, and records of the size that files have."""
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu/stubs-32.h").touch()  # the one header that a 64-bit C library lacks
    sources = [p for p in (ROOT / "csrc").rglob("*.c") if p.parent.name not in ("test", "bench")]
    arch = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True
    ).stdout.strip()
    headers = [f"-I{tmp_path}", *INCLUDES, "-idirafter", f"/usr/include/{arch}"]  # also for 32 bits
    machine = ["-m32", "-msse2", "-mfpmath=sse", *headers]
    flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    done = subprocess.run(
        ["gcc", *machine, *flags, *sources], capture_output=True, text=True, timeout=300
    )
    assert len(sources) > 80
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_package_with_numbers_in_the_other_byte_order_is_named_so():
    import intaglio

    data = bytearray(SAMPLES["chain"]().package().bytes)
    data[4:8] = data[4:8][::-1]
    with pytest.raises(intaglio.Unsupported, match="big-endian numbers; packages are little-end"):
        intaglio.open(bytes(data))


def build(machine: tuple[str, str, str], folder: Path) -> list[str]:
    """Builds the runtime in plain C for another machine; the command that runs its programs."""
    target, emulator, loader = machine
    compiler = shutil.which(f"{target}-gcc")
    if compiler is None or (emulator and shutil.which(emulator) is None):
        pytest.skip(f"needs gcc-{target} and {emulator or 'nothing else'} of the system's packages")
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake, ninja = shutil.which("cmake", path=places), shutil.which("ninja", path=places)
    system = [f"-DCMAKE_SYSTEM_PROCESSOR={target.split('-')[0]}", f"-DCMAKE_C_COMPILER={compiler}"]
    quick = ["-DINTAGLIO_ISAS=", "-DINTAGLIO_KERNEL_LEVEL=-O0", "-DCMAKE_BUILD_TYPE=Debug"]
    options = ["-DCMAKE_SYSTEM_NAME=Linux", *system, *quick, f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for command in (
        [cmake, "-G", "Ninja", "-S", ROOT, "-B", folder, *options],
        [cmake, "--build", folder],
    ):
        done = subprocess.run(command, capture_output=True, text=True)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if loader:
        return [loader, "--library-path", f"/usr/{target}/lib:{folder}"]
    return [emulator, "-L", f"/usr/{target}", "-E", f"LD_LIBRARY_PATH={folder}"]


@pytest.mark.slow
@pytest.mark.parametrize("machine", [I686, ARMHF], ids=["i686", "armhf"])
def test_a_32_bit_build_passes_the_c_tests_and_runs_packages(machine, tmp_path: Path):
    run = build(machine, tmp_path)
    names = ["test_runtime", "test_null", "test_threads", "test_crypto"]
    if machine is I686:
        names += ["test_fork", "test_malloc"]  # qemu forks no threads
        names.append("test_encryption")  # qemu keeps no memory out of core dumps
    for name in names:
        done = subprocess.run([*run, tmp_path / name], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    files = [make().package().bytes for make in SAMPLES.values()]
    stream = b"".join(struct.pack("<Q", len(d)) + d for d in files)
    done = subprocess.run([*run, tmp_path / "fuzz_driver"], input=stream, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert f"files {len(files)} refused 0" in done.stdout.decode()
    for i, data in enumerate(packages()):  # the same numbers as here, to the digits shown
        (tmp_path / f"{i}.itg").write_bytes(data)
        here, there = (
            subprocess.run([*how, tmp_path / f"{i}.itg"], capture_output=True, text=True).stdout
            for how in ([BUILD / "example_run"], [*run, tmp_path / "example_run"])
        )
        assert "largest is" in here
        assert there == here


@pytest.mark.slow
def test_a_big_endian_machine_is_told_so(tmp_path: Path):
    run = build(S390X, tmp_path / "build")
    SAMPLES["chain"]().package().save(tmp_path / "m.itg")
    command = [*run, tmp_path / "build/example_run", tmp_path / "m.itg"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "this CPU is big-endian; packages are little-endian" in done.stderr
    assert "version" not in done.stderr
