"""Files of register commands: written, read, damaged, and on the command line."""

import json
import zlib

import numpy as np
import pytest
from click.testing import CliRunner
from tests.npu.chips.cv18xx.quantized_layers import random_network
from tests.npu.chips.rockchip import jobs

from intaglio.cli import cli
from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips.rockchip import job, native_machine, timing
from intaglio.npu.chips.rockchip.compile import compile_job
from intaglio.npu.chips.rockchip.run_job import JobMachine, from_stored, stored

pytestmark = pytest.mark.skipif(not native_machine.available(), reason="the C library is missing")

SEED = 1  # of a network with several kinds of tasks


@pytest.fixture(scope="module")
def made():
    return compile_job(random_network(SEED), "rk3588")


def test_a_file_keeps_everything(made):
    read = job.read(made.data)
    assert read == made.job
    assert job.write(read) == made.data
    assert compile_job(random_network(SEED), "rk3588").data == made.data


def test_records_are_those_of_the_c_header():
    sizes = {job.HEADER: 64, job.TASK: 16, job.ADDRESS: 16, job.PORT: 48}
    assert [kind.itemsize for kind in sizes] == list(sizes.values())


def test_ports_survive_the_layout_of_memory():
    chance = np.random.default_rng(1)
    for shape, picture in (((1, 20, 5, 7), False), ((1, 3, 4, 16), True), ((1, 40, 1, 1), False)):
        size = job.stored_bytes(shape, picture)
        port = job.JobPort("x", False, True, picture, shape, 1.0, 0, 0, size)
        values = chance.integers(0, 256, shape).astype(np.uint8)
        data = stored(values, port)
        assert data.nbytes == size
        if not picture:
            np.testing.assert_array_equal(from_stored(data, port), values)


def test_damaged_files_are_refused(made):
    with pytest.raises(BadFile, match="does not begin with RKJ1"):
        job.read(b"RKNN" + made.data[4:])
    with pytest.raises(BadFile, match="its checksum differs"):
        job.read(made.data[:-1])
    with pytest.raises(BadFile, match="it is for the chip 'rk9999'"):
        job.read(made.data.replace(b"rk3588", b"rk9999", 1))
    chance = np.random.default_rng(2)
    refused = 0
    for _ in range(200):
        changed = bytearray(made.data)
        for at in chance.integers(28, 900, 4):
            changed[at] = int(chance.integers(0, 256))
        changed[24:28] = zlib.crc32(changed[job.HEADER.itemsize :]).to_bytes(4, "little")
        try:
            read = job.read(bytes(changed))
        except BadFile:
            refused += 1
        else:
            assert len(read.tasks) >= 1
    assert refused > 100


def test_addresses_beyond_the_memory_are_refused(made):
    read = job.read(made.data)
    read.tasks[0].addresses = dict.fromkeys(
        read.tasks[0].addresses, job.Address(job.INTERNAL, read.internal - 1)
    )
    with pytest.raises(BadFile, match="not in the memory"):
        JobMachine(read).run(jobs.random_inputs(read))


def test_inputs_are_checked(made):
    machine = JobMachine(made.job)
    with pytest.raises(BadInput, match="is missing"):
        machine.run({})
    (name,) = jobs.random_inputs(made.job)
    with pytest.raises(BadInput, match=r"float32.* is needed"):
        machine.run({name: np.zeros((1, 1), np.float32)})


def test_other_chips_have_none():
    with pytest.raises(BadInput, match="rv1126b has no register commands here; rk3588"):
        compile_job(random_network(SEED), "rv1126b")


@pytest.mark.parametrize("chip", ["rk3566", "rk3562", "rv1106"])
def test_times_of_sister_chips(made, chip):
    """The slower chips take longer, by the same network's commands."""
    slower = timing.of_job(compile_job(random_network(SEED), chip).job)
    assert all(s.microseconds > 0 for s in slower.steps)
    assert slower.microseconds > timing.of_job(made.job).microseconds


def test_every_task_has_a_time_and_a_bound(made):
    timed = timing.of_job(made.job)
    assert len(timed.steps) == len(made.job.tasks)
    assert all(s.microseconds > s.start > 0 for s in timed.steps)
    macs = sum(s.macs for s in timed.steps)
    assert macs == sum(timing.of_task(t).macs for t in made.job.tasks) > 0
    faster = timing.of_job(made.job, clock=2 * timed.clock, ddr=2 * timed.ddr)
    assert faster.microseconds == pytest.approx(timed.microseconds / 2)
    assert {text.op.split()[-1] for text in timed.layers} <= {"(CNA)", "(DPU)", "(DDR)"}


def test_command_line(tmp_path, made):
    def said(*words):
        done = CliRunner().invoke(cli, [str(w) for w in words])
        assert done.exit_code == 0, done.output
        return done.output

    path = tmp_path / "m.rkjob"
    made.save(path)
    text = said("inspect", path)
    assert f"{len(made.job.tasks)} tasks" in text
    assert "CONV_CON1" in said("inspect", path, "--asm")
    assert len(json.loads(said("inspect", path, "--json"))["tasks"]) == len(made.job.tasks)
    assert "(CNA)" in said("perf", path)
    feeds = jobs.random_inputs(made.job)
    (name,) = feeds
    np.save(tmp_path / "x.npy", feeds[name])
    said("run", path, tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    found = np.load(tmp_path / "out.npz")
    for port, value in jobs.meaning(made, feeds).items():
        np.testing.assert_array_equal(found[port], value)
