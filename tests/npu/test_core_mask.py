"""Core masks: a program for several cores gives the same bits on fewer of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.npu.instruction_builder import Builder
from tests.npu.test_random_programs import KINDS, fitting, picture

import intaglio
from intaglio import ops
from intaglio.cli import cli, main
from intaglio.core_mask import ALL_CORES, chosen_cores, mask_bits
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Graph, Type, Value
from intaglio.npu.compile import Compiled
from intaglio.npu.own.isa import CODES, Program
from intaglio.npu.predict.cycles import costs
from intaglio.npu.predict.on_cores import on_cores
from intaglio.npu.predict.timeline import timeline
from intaglio.npu.simulate import functional
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor
from intaglio.quant import Options
from intaglio.targets import chip as chips

MASKS = (1, 2, 4, 3, 5, 6, 7, ALL_CORES)


def network(batch: int, size: int = 64, width: int = 32) -> Graph:
    """A few quantised convolutions that keep all cores of an rk3588 busy."""
    random = np.random.default_rng(0)
    x = Value(Type("f32", (batch, 3, size, size)), "x")
    y = x
    for out, stride in ((width, 2), (width, 1), (2 * width, 2), (2 * width, 1)):
        w = random.normal(0, 0.2, (out, y.shape[1], 3, 3)).astype(np.float32)
        y = ops.relu(
            ops.conv(y, w, None, stride=(stride,) * 2, pad=(1,) * 4, dilation=(1, 1), groups=1)
        )
    y = ops.reduce_mean(y, axes=(2, 3), keepdims=False)
    samples = [{"x": random.normal(size=x.shape).astype(np.float32)} for _ in range(3)]
    how = Options(method="minmax", accuracy=None)
    return intaglio.quantize(Graph([x], [y], ["y"]), samples, target="rk3588", options=how)


@pytest.fixture(scope="module")
def package() -> Package:
    """A batch of three pictures for the three cores of an rk3588."""
    return intaglio.compile(network(3), target="rk3588", cores=3)


@pytest.fixture(scope="module")
def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(3, 3, 64, 64)).astype(np.float32)}


def as_package(net: Graph, made: Compiled) -> Package:
    """One step, which runs the program of a network."""
    code = made.program.encode()
    first = [
        Tensor(Type("u8", code.shape), "code", data=code),
        Tensor.const(made.weights, Type("u8", made.weights.shape)),
    ]
    ins = [Tensor(v.type, "input", slot=i, name=v.name) for i, v in enumerate(net.inputs)]
    outs = [Tensor(v.type, "output", slot=i, name=f"y{i}") for i, v in enumerate(net.outputs)]
    return Package.build([Plan([*ins], outs, [Step("npu.run", [*first, *ins], outs)])])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 3), st.sampled_from((1, 2, 5)), st.sampled_from(KINDS))
def test_every_mask_gives_the_bits_of_the_graph(seed: int, cores: int, mask: int, kind: str):
    found = fitting(seed, True, cores, kind)
    assume(found is not None)
    net, made = found
    x = picture(net, seed)
    want = list(intaglio.interpret(net, {"x": x}).values())
    many = min(mask.bit_count(), cores)
    program = Program.decode(made.program.encode())
    for a, b in zip(want, functional.run(program, made.weights, [x], many), strict=True):
        np.testing.assert_array_equal(a, b)
    with intaglio.open(as_package(net, made), core_mask=mask) as session:
        for a, b in zip(want, session.run({"x": x}).values(), strict=True):
            np.testing.assert_array_equal(a, b)
    line = timeline(program, made.context.chip, on=many)
    assert line.cores <= many
    assert (line.costs.op != CODES["barrier"]).sum() == sum(
        i.op != "barrier" for i in program.instructions
    )


def test_a_session_gives_the_same_bits_on_every_mask(package, feeds):
    with intaglio.open(package) as session:
        want = session.run(feeds)["y"]
        for mask in MASKS:
            got = session.clone(core_mask=mask).run(feeds)["y"]
            np.testing.assert_array_equal(got, want)
    for mask in ((0, 2), "0,2", 5):
        with intaglio.open(package, core_mask=mask) as session:
            np.testing.assert_array_equal(session.run(feeds)["y"], want)
    pool = intaglio.SessionPool(package, 2, core_mask="1")
    np.testing.assert_array_equal(pool.run(feeds)["y"], want)


@pytest.fixture(scope="module")
def large() -> Package:
    return intaglio.compile(network(3, 96, 64), target="rk3588", cores=3)


def test_more_cores_are_predicted_faster(large):
    times = [large.performance(core_mask=m).npu_milliseconds for m in (1, 3, 7)]
    assert times[0] > 1.3 * times[1]  # two parts of three run on one core
    assert times[1] > 1.5 * times[2]
    assert times[0] > 2.4 * times[2]


def test_reports_name_the_cores_of_the_mask(package):
    times = [package.performance(core_mask=m).milliseconds for m in (1, 3, 7)]
    assert package.performance().milliseconds == times[2]
    assert package.performance(core_mask="2").milliseconds == times[0]
    two = package.performance(core_mask=(1, 2))
    assert (two.cores, two.core_numbers) == (2, (1, 2))
    assert '"NPU core 2"' in two.trace()
    assert '"NPU core 0"' not in two.trace()
    assert sum(r.bytes for r in two.layers) == package.performance().bytes


def test_one_core_is_as_fast_as_a_package_for_one_core(large):
    """Pictures of a batch come one after the other, as in a package for one core."""
    alone = intaglio.compile(network(3, 96, 64), target="rk3588").performance().npu_milliseconds
    assert 0.95 < large.performance(core_mask=1).npu_milliseconds / alone < 1.2


def test_a_batch_is_split_over_cores(large):
    one = intaglio.compile(network(1, 96, 64), target="rk3588").performance().npu_milliseconds
    assert large.performance().npu_milliseconds < 1.3 * one  # three pictures on three cores


def test_wrong_masks(package, feeds):
    for mask, words in (
        (8, "core_mask 0x8 has core 3; rk3588 has cores 0 to 2"),
        ((0, 7), "core_mask 0x81 has core 7; rk3588 has cores 0 to 2"),
        ((), 'core_mask names no core; give for example core_mask="0,1"'),
        ("", "core_mask names no core"),
        ("0;1", "numbers of cores are separated by commas"),
        ((0, 99), "core_mask has core 99; cores are numbered 0 to 15"),
        (-1, "bits lie from 0 to 0xffff"),
        (1 << 16, "bits lie from 0 to 0xffff"),
        (True, "cores are whole numbers"),
        (1.5, "cores are whole numbers"),
    ):
        for use in (
            lambda m: intaglio.open(package, core_mask=m),
            lambda m: package.performance(core_mask=m),
        ):
            with pytest.raises(BadInput, match=words.replace("(", r"\(")) as e:
                use(mask)
            assert "\n" not in str(e.value)


def test_a_package_for_the_cpu_has_no_cores():
    x = Value(Type("f32", (4,)), "x")
    cpu = intaglio.compile(Graph([x], [ops.relu(x)], ["y"]))
    with pytest.raises(BadInput, match="core_mask 0x1: the package has no NPU program"):
        intaglio.open(cpu, core_mask=1)
    with intaglio.open(cpu, core_mask=0) as session:  # automatic
        assert session.run({"x": np.ones(4, np.float32)})["y"].sum() == 4


def test_a_program_that_keeps_data_across_a_barrier_needs_all_its_cores():
    b = Builder(5, cores=2)
    kept = b.operand("i8", (5, 2, 2))
    b.core = 1
    b.operand("i8", (5, 2, 2))
    for core in range(2):
        b.core = core
        b.emit("barrier")
    b.core = 0
    b.store(kept)
    want = b.check()
    package = Package.build([b.plan()])
    feeds = {f"x{i}": a for i, a in enumerate(b.inputs)}
    for mask in (0, 3):
        with intaglio.open(package, core_mask=mask) as session:
            np.testing.assert_array_equal(session.run(feeds)["y0"], want[0])
    with pytest.raises(BadInput, match="keeps data in the memory of each of its 2 cores; give it"):
        intaglio.open(package, core_mask=1)


def test_a_timeline_refuses_uneven_barriers():
    chip = chips.load("rk3588")
    b = Builder(5, cores=2)
    b.store(b.operand("i8", (5, 2, 2)))
    b.core = 1
    b.emit("barrier")
    with pytest.raises(BadFile, match="its cores have 0 to 1 barriers"):
        on_cores(costs(b.program, chip), 1)


def test_parts_run_one_after_the_other(package):
    """On one core, no instruction of a part starts before the part before it has ended."""
    data = next(s.inputs[0].data for s in package.plan.steps if s.op == "npu.run")
    chip = chips.load("rk3588")
    whole = costs(data, chip)
    one = on_cores(whole, 1)
    assert set(one.core.tolist()) == {0}
    barriers = (whole.op == CODES["barrier"]).sum()
    assert (one.op == CODES["barrier"]).sum() == barriers // 3
    line = timeline(data, chip, on=1)
    compute = line.costs.queue == 1
    starts, ends = line.start[compute], line.end[compute]
    assert (starts[1:] >= ends[:-1]).all()


def test_masks_as_bits_and_cores():
    assert [mask_bits(m) for m in (None, 0, "auto", "all", 5, (0, 2), "2,0", [1])] == [
        *(0, 0, 0, ALL_CORES, 5, 5, 5, 2)
    ]
    assert chosen_cores(0, 2, "c", 3) == (0, 1)
    assert chosen_cores(6, 3, "c", 3) == (1, 2)
    assert chosen_cores(7, 1, "c", 3) == (0,)
    assert chosen_cores(ALL_CORES, 3, "c", 3) == (0, 1, 2)


def test_the_command_line(package, tmp_path, capsys):
    path, cpu = tmp_path / "net.itg", tmp_path / "cpu.itg"
    package.save(path)
    x = Value(Type("f32", (4,)), "x")
    intaglio.compile(Graph([x], [ops.relu(x)], ["y"])).save(cpu)
    run = CliRunner().invoke
    outputs = [
        run(cli, ["run", str(path), "--fill", "random", "--json", *mask]).output
        for mask in ([], ["--core-mask", "1"], ["--core-mask", "0,2"])
    ]
    assert outputs[0] == outputs[1] == outputs[2]
    found = run(cli, ["perf", str(path), "--core-mask", "0,1"])
    assert "2 cores: " in found.output
    found = run(cli, ["bench", str(path), "--seconds", "0.01", "--core-mask", "0", "--json"])
    assert f"{package.performance(core_mask=1).milliseconds}" in found.output
    for command in ("run", "bench", "perf"):
        more = ["--fill", "zeros"] if command == "run" else []
        words = refused(capsys, [command, str(path), "--core-mask", "3", *more])
        assert "core_mask 0x8 has core 3; rk3588 has cores 0 to 2" in words
    words = refused(capsys, ["run", str(cpu), "--fill", "zeros", "--core-mask", "0"])
    assert "it runs on the CPU" in words


def refused(capsys, args: list[str]) -> str:
    """The one line of a command that ends with exit code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as e:
        main(args)
    assert e.value.code == 2
    words = capsys.readouterr().err
    assert len(words.splitlines()) == 1
    return words


def test_old_programs_do_not_name_the_cores_of_their_chip(package, feeds):
    data = next(s.inputs[0].data for s in package.plan.steps if s.op == "npu.run")
    program = Program.decode(data)
    assert program.chip_cores == 3
    program.chip_cores = 0
    again = Program.decode(program.encode())
    assert replace(again, chip_cores=3).encode().tobytes() == data.tobytes()
