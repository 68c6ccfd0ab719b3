"""intaglio-rk on a device in user space whose jobs our simulator executes, with faults and without.

The tool and the device are those of `make build`; other builds are made by the slow tests.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.cv18xx.quantized_layers import random_network
from tests.npu.chips.rockchip import jobs

from intaglio.npu.chips.rockchip.compile import compile_job
from intaglio.npu.chips.rockchip.run_job import JobMachine

ROOT = Path(__file__).parents[4]
CSRC = ROOT / "csrc"
TOOL, FAKE = ROOT / "build/intaglio-rk", ROOT / "build/libfake_rockchip.so"
DRIVERS = ("rocket", "rknpu")
NETWORK = 2  # of random_network
MANY_RUNS = 10_000
RUNNER = [*(f"rockchip/board/{n}.c" for n in ("tool", "network", "job", "chip", "rocket", "rknpu"))]
PARTS = ("machine", "convolution", "output", "elementwise", "pool", "rk3562", "rk3576")
SIMULATOR = [f"rockchip/{n}.c" for n in PARTS]
DEVICE = [*SIMULATOR, "crc.c", "test/rockchip/fake_device.c"]
FAULTS = {  # what goes wrong: what the tool says
    "timeout": "did not finish in 300 ms; see dmesg",
    "lost": "did not finish in 300 ms; see dmesg",
    "busy": "the job is refused: Device or resource busy",
    "refused": "the job is refused: Invalid argument",
    "create:1": "Cannot allocate memory; the NPU's memory is full",
    "create:3": "Cannot allocate memory; the NPU's memory is full",
    "high:2": "commands hold addresses of 32 bits",
    "map:1": "is not mapped: Cannot allocate memory",
    "map:3": "is not mapped: Cannot allocate memory",
    "sync:1": "Input/output error",
    "sync:4": "Input/output error",
    "driver": "no NPU: neither /dev/accel/accelN of rocket nor /dev/dri/cardN of rknpu opens",
    "denied": "no NPU: neither /dev/accel/accelN of rocket nor /dev/dri/cardN of rknpu opens",
}
OF_RKNPU = {
    "version": "driver version 0.7.2; 0.9 is known",
    "short": "the NPU did",
    "place:2": "has no place to map",
    "create:4": "Cannot allocate memory; the NPU's memory is full",
}
PASSING = ("busy:1", "signal")  # the runner tries again

pytestmark = pytest.mark.skipif(
    not (TOOL.exists() and FAKE.exists()), reason="intaglio-rk is not built: run make build"
)


class Board:
    """A folder with a job, its inputs and expected outputs."""

    def __init__(self, folder, chip="rk3588"):
        self.folder, self.chip = folder, chip
        made = compile_job(random_network(NETWORK), chip)
        made.save(folder / "m.rkjob")
        feeds = jobs.random_inputs(made.job)
        self.words = []
        for name, value in feeds.items():
            value.tofile(folder / f"{name}.bin")
            self.words += ["--input", f"{name}={folder}/{name}.bin"]
        self.outputs = JobMachine(made.job).run(feeds)
        for name, value in self.outputs.items():
            value.tofile(folder / f"{name}.wanted")
            self.words += ["--expect", f"{name}={folder}/{name}.wanted"]

    def run(self, driver, *more, fault="", command=(TOOL,), preload=True, words=None, on=""):
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        own = {"INTAGLIO_RK_FAKE": driver, "INTAGLIO_RK_FAULT": fault}
        own["INTAGLIO_RK_FAKE_LOG"] = str(log)
        own |= {"INTAGLIO_RK_FAKE_CHIP": self.chip, "INTAGLIO_RK_FAKE_BOARD": on or self.chip}
        if preload:
            own["LD_PRELOAD"] = str(FAKE)
        given = [*command, *(words or ("run", self.folder / "m.rkjob", *self.words, *more))]
        done = subprocess.run(
            [str(w) for w in given],
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=550,
        )
        return done, log.read_text() if log.exists() else ""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    return Board(tmp_path_factory.mktemp("board"))


@pytest.mark.parametrize("driver", DRIVERS)
def test_jobs_run_on_both_drivers(board, driver):
    done, log = board.run(driver, "--repeat", "3", "--out", board.folder)
    assert (done.returncode, done.stderr) == (0, "")
    for name, value in board.outputs.items():
        assert f"{name}: 0 of {value.size} bytes differ" in done.stdout
        written = np.fromfile(board.folder / f"{name}.bin", value.dtype)
        np.testing.assert_array_equal(written, value.reshape(-1))
    assert log == "0 buffers left, 3 jobs\n"


@pytest.mark.parametrize("chip", ["rk3566", "rk3562", "rk3576", "rv1106"])
def test_jobs_of_sister_chips(chip, tmp_path):
    board = Board(tmp_path, chip)
    done, log = board.run("rknpu", "--repeat", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(": 0 of ") == len(board.outputs)
    assert log == "0 buffers left, 2 jobs\n"


def test_a_job_for_another_chip_is_refused(board):
    done, log = board.run("rknpu", on="rk3566")
    assert done.returncode == 2
    said = "rkjob: it is for rk3588, this board has rk3566; compile with --target"
    assert done.stderr == f"intaglio-rk: {said}\n"
    assert log == "0 buffers left, 0 jobs\n"
    done, _ = board.run("rknpu", on="rk3588s")
    assert done.returncode == 0
    other = bytearray((board.folder / "m.rkjob").read_bytes())
    other[8:14] = b"rk9999"
    (board.folder / "other.rkjob").write_bytes(other)
    done, _ = board.run("rknpu", words=("run", board.folder / "other.rkjob"))
    assert done.returncode == 2
    assert done.stderr == "intaglio-rk: rkjob: the chip 'rk9999' is not known\n"


@pytest.mark.parametrize("driver", DRIVERS)
def test_three_cores(board, driver):
    done, log = board.run(driver, "--repeat", "4", "--cores", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("0 of ") == 3 * len(board.outputs)
    assert log == "0 buffers left, 12 jobs\n"


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_fault_has_words_and_leaves_no_buffer(board, driver):
    expected = FAULTS | (OF_RKNPU if driver == "rknpu" else {})
    for fault, words in expected.items():
        done, log = board.run(driver, "--timeout", "300", fault=fault)
        assert done.returncode == 2, fault
        assert done.stderr.startswith("intaglio-rk: "), fault
        assert done.stderr.count("\n") == 1, fault
        assert words in done.stderr, fault
        assert log.startswith("0 buffers left"), fault


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again(board, driver, fault):
    done, log = board.run(driver, "--timeout", "300", fault=fault)
    assert (done.returncode, done.stderr) == (0, "")
    assert log == "0 buffers left, 1 jobs\n"


def test_what_a_user_gives_is_checked(board):
    def said(*words):
        done, _ = board.run("rocket", words=words)
        assert done.returncode == 2
        return done.stderr

    job = board.folder / "m.rkjob"
    assert "give info, ports or run" in said("walk")
    assert "which .rkjob?" in said("run")
    assert "'nothing=x' names no input" in said("run", job, "--input", "nothing=x")
    assert "'0' is no number from 1" in said("run", job, "--repeat", "0")
    assert "--input needs a value" in said("run", job, "--input")
    assert "cannot be read" in said("run", board.folder / "none.rkjob")
    name = next(iter(board.outputs))
    small = board.folder / "small"
    small.write_bytes(b"x")
    assert "not " in said("run", job, "--expect", f"{name}={small}")
    done, _ = board.run("rocket", words=["info"])
    assert done.stdout == "/dev/accel/accel0: driver rocket\n"
    done, _ = board.run("rknpu", words=["ports", job])
    assert f"output {name} i8 [" in done.stdout
    assert subprocess.run([TOOL, "--help"], capture_output=True, text=True).stdout.count("\n") > 10


def test_a_difference_is_exit_code_1(board):
    name, value = next(iter(board.outputs.items()))
    other = board.folder / "other"
    (value ^ np.int8(1)).tofile(other)
    words = ["run", board.folder / "m.rkjob", *board.words[:2], "--expect", f"{name}={other}"]
    done, _ = board.run("rknpu", words=words)
    assert done.returncode == 1
    assert f"{name}: {value.size} of {value.size} bytes differ" in done.stdout


def test_damaged_files_are_refused(board):
    """By the checksum, and behind a right one by the checks of sizes and offsets."""
    import zlib

    data = (board.folder / "m.rkjob").read_bytes()
    chance = np.random.default_rng(1)
    path = board.folder / "damaged.rkjob"
    refused = 0
    for k in range(40):
        changed = bytearray(data[: int(chance.integers(1, len(data)))] if k % 4 == 0 else data)
        for at in chance.integers(0, min(len(changed), 700), 3):
            changed[at] = int(chance.integers(0, 256))
        if k % 2 and len(changed) > 64:
            changed[24:28] = zlib.crc32(changed[64:]).to_bytes(4, "little")
        path.write_bytes(changed)
        done, log = board.run("rocket", words=["run", path, "--timeout", "50"])
        assert done.returncode in (0, 2), done.stderr
        assert log.startswith("0 buffers left")
        refused += done.returncode == 2
    assert refused > 30


def built(folder, compiler, *flags, of_device=()):
    """The tool with the device and the simulator in one program; the device has its own flags."""
    include = [f"-I{CSRC}", f"-I{CSRC}/include", f"-I{ROOT}/build/include"]
    parts = []
    for name, own in ((RUNNER, flags), (DEVICE, of_device or flags)):
        for source in name:
            parts.append(folder / f"{len(parts)}.o")
            command = [*compiler, "-std=gnu11", "-g1", "-O1", *own, *include, "-c", source]
            subprocess.run([*map(str, command), "-o", str(parts[-1])], cwd=CSRC, check=True)
    tool = folder / "intaglio-rk"
    command = [*compiler, *flags, *parts, "-o", tool, "-lpthread"]
    subprocess.run([*map(str, command)], check=True)
    return tool


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(board, tmp_path, sanitizer):
    flags = f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"
    # the device is part of what ThreadSanitizer itself needs to start
    plain = ["-fPIC"] if sanitizer == "thread" else []
    tool = built(tmp_path, ["cc"], *flags, of_device=plain)
    for driver in DRIVERS:
        faults = ["", *FAULTS, *(OF_RKNPU if driver == "rknpu" else ()), *PASSING]
        for fault in faults:
            more = ("--timeout", "300", "--cores", "3")
            done, _ = board.run(driver, *more, fault=fault, command=[tool], preload=False)
            assert "Sanitizer" not in done.stderr, (fault, done.stderr)
            assert done.returncode in (0, 2), (fault, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_many_runs_do_not_grow(board, driver):
    """The peak of ten thousand runs is that of a hundred."""
    peaks = []
    log = board.folder / "log"
    own = {"INTAGLIO_RK_FAKE": driver, "INTAGLIO_RK_FAKE_LOG": str(log), "LD_PRELOAD": str(FAKE)}
    for runs in (100, MANY_RUNS):
        command = [TOOL, "run", board.folder / "m.rkjob", *board.words, "--repeat", str(runs)]
        process = subprocess.Popen(list(map(str, command)), env=os.environ | own)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert log.read_text() == f"0 buffers left, {runs} jobs\n"
        peaks.append(used.ru_maxrss)
    assert peaks[1] - peaks[0] < 1000  # KiB; the times of all runs take 80


@pytest.mark.slow
def test_on_64_bit_arm(board, tmp_path):
    """The same program for aarch64, emulated."""
    needed = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
    if missing := [n for n in needed if shutil.which(n) is None]:
        pytest.skip(f"{', '.join(missing)} is missing")
    tool = built(tmp_path, ["aarch64-linux-gnu-gcc"], "-Wall", "-Wextra", "-Werror")
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", tool]
    for driver in DRIVERS:
        done, log = board.run(driver, "--repeat", "2", command=emulator, preload=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count(": 0 of ") == len(board.outputs)
        assert log == "0 buffers left, 2 jobs\n"
