"""Running packages: every feature of the format, threads, wrong inputs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.check import compare
from tests.package.samples import SAMPLES, const, ramp, t

import intaglio
from intaglio import BadFile, BadInput, RunError, Unsupported, cpu_isa, native
from intaglio.dtypes import numpy_of
from intaglio.ir import Type
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor


@pytest.mark.parametrize("isa", [0, native.machine()])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name, threads, isa):
    sample = SAMPLES[name]()
    with intaglio.open(sample.package(isa=isa), threads=threads) as session:
        for _ in range(2):  # a second run must not see what the first left behind
            got = session.run(sample.inputs)
            assert list(got) == list(sample.outputs)
            for n, want in sample.outputs.items():
                assert (got[n].dtype, got[n].shape) == (want.dtype, want.shape), n
                compare(got[n], want, n)


def test_from_file_bytes_and_package(tmp_path):
    sample = SAMPLES["chain"]()
    package = sample.package()
    package.save(tmp_path / "m.itg")
    for source in (tmp_path / "m.itg", str(tmp_path / "m.itg"), package, package.bytes):
        with intaglio.open(source) as session:
            assert session.inputs == {"x": t("f32", 3, 5)}
            assert session.outputs == package.outputs
            compare(session.run(sample.inputs)["y"], sample.outputs["y"], "y")


def test_a_copied_package_does_not_need_its_file(tmp_path):
    sample = SAMPLES["chain"]()
    sample.package().save(tmp_path / "m.itg")
    with intaglio.open(tmp_path / "m.itg", copy=True) as session:
        (tmp_path / "m.itg").write_bytes(b"")  # a mapped file would end the process: SIGBUS
        compare(session.run(sample.inputs)["y"], sample.outputs["y"], "y")


def test_saving_over_an_open_package_does_not_disturb_it(tmp_path):
    sample, other = SAMPLES["chain"](), SAMPLES["two_shapes"]()
    sample.package().save(tmp_path / "m.itg")
    with intaglio.open(tmp_path / "m.itg") as session:
        before = (tmp_path / "m.itg").stat().st_ino
        other.package().save(tmp_path / "m.itg")
        assert (tmp_path / "m.itg").stat().st_ino != before  # a new file, not the mapped one
        compare(session.run(sample.inputs)["y"], sample.outputs["y"], "y")
    with intaglio.open(tmp_path / "m.itg") as session:
        assert list(session.inputs) == list(other.package().inputs)


def big(n: int) -> tuple[Package, np.ndarray]:
    """Enough work that several threads share it."""
    kind = t("f32", n)
    x, y = Tensor(kind, "input", name="x"), Tensor(kind, "output", name="y")
    a = Tensor(kind)
    flips = [Step("neg", [a], [Tensor(kind)]) for _ in range(20)]  # in place
    steps = [Step("exp", [x], [a]), *flips, Step("abs", [a], [y])]
    return Package.build([Plan([x], [y], steps, kind.bytes)], isa=native.machine()), ramp(n)


def test_threads_share_the_work():
    package, x = big(200_003)
    with intaglio.open(package, threads=3, profile=True) as session:
        for _ in range(20):
            compare(session.run({"x": x})["y"], np.exp(x), "y")
        assert {s.threads for s in session.profile()} == {3}
    with intaglio.open(package, threads=1, profile=True) as session:
        assert {s.threads for s in session.profile()} == {1}


def test_arithmetic_on_bytes_is_shared_sooner_than_copies():
    image = Type("i8", (1, 7, 7, 288))
    x, y = Tensor(image, "input", name="x"), Tensor(image, "output", name="y")
    values, turned = (
        np.arange(-144, 144).clip(-128, 127).reshape(1, 1, 1, 288).astype(np.int8),
        Tensor(image),
    )
    gate = Tensor.const(values, Type("i8", values.shape))
    of = [const(0.05), Tensor.const(np.int8(3), Type("i8", ()))]
    steps = [
        Step("transpose", [x], [turned], {"perm": (0, 2, 1, 3)}),
        Step("qlinear_mul", [turned, *of, gate, *of, *of], [y]),
    ]
    package = Package.build([Plan([x], [y], steps, image.bytes)], isa=native.machine())
    with intaglio.open(package, threads=2, profile=True) as session:
        assert [s.threads for s in session.profile()] == [1, 2]


def test_one_session_used_by_many_threads():
    package, x = big(5000)
    wrong = []
    with intaglio.open(package, threads=2) as session:

        def work(k: int) -> None:
            for _ in range(50):
                if not np.allclose(session.run({"x": x / k})["y"], np.exp(x / k), rtol=1e-4):
                    wrong.append(k)

        workers = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    assert not wrong


def test_fork_shares_the_weights_and_outlives_its_parent():
    sample = SAMPLES["chain"]()
    session = intaglio.open(sample.package(), threads=1)
    other = session.clone()
    session.close()
    compare(other.run(sample.inputs)["y"], sample.outputs["y"], "y")
    with pytest.raises(BadInput, match="closed"):
        session.run(sample.inputs)


def test_inputs_need_not_be_contiguous_or_aligned():
    sample = SAMPLES["chain"]()
    x = sample.inputs["x"]
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(x.shape)
    unaligned[:] = x
    with intaglio.open(sample.package()) as session:
        for a in (strided, unaligned, np.asfortranarray(x)):
            compare(session.run({"x": a})["y"], sample.outputs["y"], "y")


def test_out_is_written_in_place():
    sample = SAMPLES["outputs_everywhere"]()
    out = {n: np.empty_like(a) for n, a in sample.outputs.items()}
    with intaglio.open(sample.package()) as session:
        got = session.run(sample.inputs, out=out)
        for n, want in sample.outputs.items():
            assert got[n] is out[n]
            compare(out[n], want, n)
        with pytest.raises(BadInput, match="no output is called 'z'"):
            session.run(sample.inputs, out={"z": out["y"]})
        with pytest.raises(BadInput, match="must be an array float32"):
            session.run(sample.inputs, out={"y": np.empty(4)})
        with pytest.raises(BadInput, match="shares memory"):
            session.run(sample.inputs, out={"y": sample.inputs["x"]})


def test_input_is_never_changed():
    sample = SAMPLES["chain"]()
    x = sample.inputs["x"].copy()
    x.flags.writeable = False
    with intaglio.open(sample.package()) as session:
        session.run({"x": x})
    np.testing.assert_array_equal(x, sample.inputs["x"])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_every_kind_of_array_has_an_address(dtype, shape):
    x = Tensor(Type(dtype, shape), "input", name="x")
    y = Tensor(Type(dtype, shape), "output", name="y")
    package = Package.build([Plan([x], [y], [Step("reshape", [x], [y], {"shape": shape})])])
    given = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(numpy_of(dtype))
    frozen = given.copy()
    frozen.flags.writeable = False
    with intaglio.open(package) as session:
        for a in (given, frozen):
            np.testing.assert_array_equal(session.run({"x": a})["y"], given)


def test_subclasses_and_lists_are_taken_as_before():
    sample = SAMPLES["chain"]()
    x = sample.inputs["x"]
    with intaglio.open(sample.package()) as session:
        compare(session.run({"x": x.view(np.matrix)})["y"], sample.outputs["y"], "y")
        with pytest.raises(BadInput, match="has dtype float64"):
            session.run({"x": x.tolist()})
        with pytest.raises(BadInput, match="no input is called 'more'"):
            session.run({"x": x, "more": x})


def test_second_plan():
    sample = SAMPLES["two_shapes"]()
    with intaglio.open(sample.package(), plan=1) as session:
        assert session.inputs["x"].shape == (7, 5)
        compare(session.run({"x": ramp(7, 5)})["y"], np.tanh(ramp(7, 5) * ramp(5)), "y")
    with pytest.raises(BadInput, match="plan 2 does not exist; the package has 2"):
        intaglio.open(sample.package(), plan=2)


def test_profile_and_memory():
    sample = SAMPLES["loop"]()
    with intaglio.open(sample.package(), profile=True) as session:
        session.run(sample.inputs)
        session.run(sample.inputs)
        steps = session.profile()
        assert [(s.op, s.calls) for s in steps[:2]] == [("loop", 2), ("add", 8)]
        assert steps[0].origin == "Loop"
        assert steps[0].milliseconds > 0
        assert steps[0].milliseconds >= sum(s.milliseconds for s in steps[1:])
        session.reset_profile()
        assert {s.calls for s in session.profile()} == {0}
        memory = session.memory()
        assert memory["arena"] == 192
        assert memory["io"] == 12 + 12 + 96 + 8
    with intaglio.open(sample.package()) as session:
        session.run(sample.inputs)
        assert session.profile() == []


def test_static_views_take_no_step():
    sample = SAMPLES["view"]()
    with intaglio.open(sample.package(), profile=True) as session:
        assert [s.op for s in session.profile()] == ["neg", "bitwise_not", "bitcast"]


def test_quantisation_reaches_the_caller():
    sample = SAMPLES["quantised"]()
    with intaglio.open(sample.package()) as session:
        assert session.inputs == {"x": sample.plans[0].inputs[0].type}
        assert session.outputs == {"y": sample.plans[0].outputs[0].type}


# ---- mistakes ----------------------------------------------------------------------------------
def test_bad_inputs():
    sample = SAMPLES["chain"]()
    with intaglio.open(sample.package()) as session:
        with pytest.raises(BadInput, match="no input is called 'z'"):
            session.run({"z": ramp(3)})
        with pytest.raises(BadInput, match="'x' is missing"):
            session.run({})
        with pytest.raises(BadInput, match="dtype float64"):
            session.run({"x": np.zeros((3, 5))})
        with pytest.raises(BadInput, match="shape"):
            session.run({"x": np.zeros((3, 6), np.float32)})
    with pytest.raises(BadInput, match="threads is 0"):
        intaglio.open(sample.package(), threads=0)


def test_bad_files(tmp_path):
    package = SAMPLES["chain"]().package()
    with pytest.raises(BadFile, match=r"cannot open .*nowhere\.itg: No such file"):
        intaglio.open(tmp_path / "nowhere.itg")
    for data, words in [
        (b"", "empty or truncated"),
        (b"hello" * 20, "no package file"),
        (package.bytes[:-64], "truncated or damaged"),
        (package.bytes[:700] + b"!" + package.bytes[701:], "checksum of section"),
        (package.bytes[:40] + b"!" + package.bytes[41:], "checksum of the header"),
    ]:
        with pytest.raises(BadFile, match=words):
            intaglio.open(data)
        (tmp_path / "bad.itg").write_bytes(data)
        with pytest.raises(BadFile, match=r"bad\.itg"):
            intaglio.open(tmp_path / "bad.itg")
    with pytest.raises(BadFile):
        intaglio.open(tmp_path)


def test_package_for_another_cpu():
    package = SAMPLES["chain"]().package(isa=cpu_isa.BITS["rvv"])
    with pytest.raises(Unsupported, match="compiled for a CPU with rvv, which this one lacks"):
        intaglio.open(package)


def test_index_out_of_range_names_the_node():
    x = Tensor(t("f32", 4), "input", name="x")
    i = Tensor(t("i64", 1), "input", slot=1, name="i")
    y = Tensor(t("f32", 1), "output", name="y")
    plan = Plan([x, i], [y], [Step("gather", [x, i], [y], {"axis": 0}, "Gather_7")])
    with intaglio.open(Package.build([plan])) as session:
        for _ in range(2):
            with pytest.raises(RunError, match="gather 'Gather_7'"):
                session.run({"x": ramp(4), "i": np.array([4])})
            assert session.run({"x": ramp(4), "i": np.array([3])})["y"] == 4  # it goes on


def endless(bound: int) -> Package:
    go, y = Tensor(t("bool")), Tensor(t("f32", 1), "output", name="y")
    new = Tensor(t("f32", 1), offset=64)
    body = Plan(
        [None, None, y],
        [go, new],
        [Step("neg", [y], [new]), Step("logical_not", [const(False, "bool")], [go])],
    )
    attrs = {"body": body, "carried": 1, "bound": bound}
    return Package.build(
        [Plan([], [y], [Step("loop", [None, None, const([1.0])], [y], attrs)], 128)]
    )


def test_loops_end():
    with (
        intaglio.open(endless(1000)) as session,
        pytest.raises(RunError, match="more iterations than were planned"),
    ):
        session.run({})
    with (
        intaglio.open(endless(2**62), max_steps=5000) as session,
        pytest.raises(RunError, match="ran more than 5000 steps"),
    ):
        session.run({})


def refused(plan: Plan) -> str:
    with pytest.raises(BadFile) as e:
        intaglio.open(Package.build([plan]))
    return str(e.value)


def test_rules_of_a_plan_are_checked():
    x, y = Tensor(t("f32", 4), "input", name="x"), Tensor(t("f32", 4), "output", name="y")
    w, a = const([1, 2, 3, 4]), Tensor(t("f32", 4), offset=0)
    assert "writes to a constant or an input" in refused(Plan([x], [x], [Step("neg", [w], [x])]))
    assert "writes to a constant or an input" in refused(Plan([x], [w], [Step("neg", [x], [w])]))
    assert "outside of its memory" in refused(Plan([x], [y], [Step("neg", [x], [a])], 15))
    beyond = Tensor(t("f32", 4), "output", offset=4)
    assert "outside of its memory" in refused(Plan([x], [y], [Step("neg", [x], [beyond])]))
    shifted = Tensor(t("f32", 4), offset=4)
    steps = [Step("neg", [x], [a]), Step("neg", [a], [shifted])]
    assert "output 0 lies on input 0" in refused(Plan([x], [y], steps, 64))
    crooked = Tensor(t("f32", 4), offset=2)
    assert "not aligned" in refused(Plan([x], [y], [Step("neg", [x], [crooked])], 64))
    wide = Tensor(t("f32", 5), offset=0)
    assert "type of output 0 differs" in refused(Plan([x], [y], [Step("neg", [x], [wide])], 64))
    elsewhere = Tensor(t("f32", 4), "input", slot=1, name="x")
    assert "not at the start of input slot 0" in refused(Plan([elsewhere], [y], []))
    late = Tensor(Type("f32", (4,), dynamic=(0,)), "input", name="x")
    assert "run-time extents" in refused(Plan([late], [y], []))
    twice = Step(
        "topk",
        [x],
        [a, Tensor(t("i64", 4), offset=8)],
        {"k": 4, "axis": 0, "largest": 1, "sorted": 1},
    )
    assert "lie on each other" in refused(Plan([x], [y], [twice], 64))
