"""Package files: round trips, reproducible bytes, detection of damage."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from tests.package.mutate import fix_checksums, mutate
from tests.package.samples import SAMPLES, ramp, t

from intaglio import BadFile, BadInput, Unsupported, cpu_isa
from intaglio.package import Package, read
from intaglio.package import format as f
from intaglio.package.constant_pool import HASHED_BYTES
from intaglio.package.read import sections
from intaglio.package.write import Constants, assemble
from intaglio.plan import Plan, Step, Tensor


def describe(plan: Plan) -> list:
    """A plan as plain data, tensors by the order of mention."""
    number = {x: i for i, x in enumerate(plan.tensors())}
    number[None] = None
    plans = {p: i for i, p in enumerate(plan.walk())}

    def tensor(x: Tensor) -> tuple:
        offset = x.data.tobytes() if x.fixed else x.offset
        return x.type, x.memory, offset, x.slot, x.name, x.size

    def steps(p: Plan) -> list:
        return [
            (
                s.op,
                [number[x] for x in s.inputs],
                [number[x] for x in s.outputs],
                {k: plans[a] if isinstance(a, Plan) else a for k, a in s.attrs.items()},
                s.origin,
                s.macs,
            )
            for s in p.steps
        ]

    return [
        [tensor(x) for x in number if x is not None],
        *(
            (
                [number[x] for x in p.inputs],
                [number[x] for x in p.outputs],
                steps(p),
                p.arena,
                p.name,
            )
            for p in plans
        ),
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip(name):
    plans = SAMPLES[name]().plans
    contents = read(Package.build(plans, isa=3, meta={"name": "ä", "n": 1}).bytes)
    assert contents.isa == 3
    assert contents.meta == {"name": "ä", "n": 1}
    assert [describe(p) for p in contents.plans] == [describe(p) for p in plans]


@pytest.mark.parametrize("name", SAMPLES)
def test_same_plans_give_the_same_bytes(name):
    a, b = (SAMPLES[name]().package(meta=m) for m in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert a.bytes == b.bytes


def test_constants_are_stored_once_and_aligned():
    package = SAMPLES["two_shapes"]().package()
    parts, _ = sections(package.bytes)
    assert len(parts["CNST"]) == 20  # one copy for both plans
    for kind, part in parts.items():
        start = np.frombuffer(part, np.uint8).ctypes.data if len(part) else 0
        base = np.frombuffer(package.bytes, np.uint8).ctypes.data
        assert not len(part) or (start - base) % f.ALIGN == 0, kind


def test_a_built_package_runs_in_place_and_is_sealed_when_saved(tmp_path):
    sample = SAMPLES["two_shapes"]()
    package = sample.package()
    assert np.frombuffer(package.image, np.uint8).ctypes.data % f.ALIGN == 0  # no session copies it
    assert [describe(p) for p in package.plans] == [describe(p) for p in sample.plans]
    assert not package.sealed
    with pytest.raises(BadFile, match="checksum of section CNST"):
        read(package.image)
    package.save(tmp_path / "m.itg")
    assert package.sealed
    read(package.image)
    assert (tmp_path / "m.itg").read_bytes() == package.bytes == bytes(package.image)


def test_arrays_with_equal_ends_are_stored_separately():
    long = np.zeros(3 * HASHED_BYTES, np.uint8)
    other = long.copy()
    other[len(long) // 2] = 1
    kept = Constants()
    starts = [kept.add(a)[0] for a in (long, other, long.copy(), other.copy(), long[:-1])]
    assert starts == [0, 3 * HASHED_BYTES, 0, 3 * HASHED_BYTES, 6 * HASHED_BYTES]
    image = np.full(len(kept), 9, np.uint8)
    kept.lay(image)
    assert image.tobytes() == b"".join((long, other, long[:-1]))


def test_strip_drops_names_that_the_runtime_does_not_need():
    sample = SAMPLES["chain"]()
    sample.plans[0].steps[0].outputs[0].name = "inner"
    full, bare = sample.package(), sample.package(strip=True)
    assert b"inner" in full.bytes
    assert b"Relu_0" in full.bytes
    assert b"inner" not in bare.bytes
    assert b"Relu_0" not in bare.bytes
    assert bare.inputs == full.inputs
    assert bare.plan.steps[0].origin == ""


def test_save_is_atomic(tmp_path):
    package = SAMPLES["chain"]().package()
    path = tmp_path / "m.itg"
    path.write_bytes(b"old")
    package.save(path)
    assert os.listdir(tmp_path) == ["m.itg"]
    assert Package.load(path).bytes == package.bytes
    assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()
    with pytest.raises(BadInput, match="cannot write"):
        package.save(tmp_path / "missing" / "m.itg")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="cannot write"):
        package.save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "m.itg"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_describes_itself():
    package = SAMPLES["chain"]().package(isa=cpu_isa.BITS["avx2"], meta={"name": "net"})
    assert package.inputs == {"x": t("f32", 3, 5)}
    assert package.outputs == {"y": t("f32", 3, 5)}
    assert (package.isa, package.meta["name"]) == ("avx2", "net")
    assert repr(package) == f"Package({len(package.bytes)} bytes, 3 steps, avx2)"


def test_unknown_sections_are_skipped_and_required_ones_refused():
    import intaglio

    sample = SAMPLES["chain"]()
    parts, isa = sections(sample.package().bytes)
    more = assemble({"ZZZZ": b"news", **{k: bytes(v) for k, v in parts.items()}}, isa)
    assert read(more).sizes["ZZZZ"] == 4
    with intaglio.open(more) as session:
        np.testing.assert_array_equal(session.run(sample.inputs)["y"], sample.outputs["y"])
    data = bytearray(more)
    data[f.HEADER.itemsize + 4] = f.REQUIRED
    with pytest.raises(Unsupported, match="needs section ZZZZ"):
        intaglio.open(fix_checksums(data))


def test_damage_is_noticed(tmp_path):
    data = SAMPLES["chain"]().package().bytes
    for bad, words in [
        (b"", "0 bytes"),
        (data[:31], "31 bytes"),
        (b"JUNK" + data[4:], "it is not a package"),
        (data[:4] + b"\2" + data[5:], "format version 2"),
        (data[:-1], "truncated"),
        (data[:700] + b"x" + data[701:], "checksum of section"),
        (data[:40] + b"x" + data[41:], "checksum of the header"),
    ]:
        with pytest.raises(BadFile, match=words):
            read(bad)
    with pytest.raises(BadFile, match="cannot read"):
        Package.load(tmp_path / "nowhere.itg")
    (tmp_path / "bad.itg").write_bytes(b"bad")
    with pytest.raises(BadFile, match=r"bad\.itg: package has 3 bytes"):
        Package.load(tmp_path / "bad.itg")


def test_a_mutated_file_is_read_or_refused_with_words():
    rng = random.Random(5)
    files = [make().package().bytes for make in SAMPLES.values()]
    refused = 0
    for _ in range(400):
        try:
            for plan in read(mutate(rng, rng.choice(files))).plans:
                list(plan.tensors())
        except BadFile:
            refused += 1
    assert 50 < refused < 350


def test_a_sub_plan_belongs_to_one_step():
    x, y = Tensor(t("f32", 2), "input", name="x"), Tensor(t("f32", 2), "output", name="y")
    c = Tensor(t("bool"), "input", slot=1, name="c")
    body = Plan([x], [y], [Step("neg", [x], [y])])
    step = Step("if", [c, x], [y], {"then_graph": body, "else_graph": body})
    with pytest.raises(ValueError, match="run by two steps"):
        Package.build([Plan([x, c], [y], [step])])


def test_writer_refuses_plans_that_the_runtime_cannot_run():
    x = Tensor(t("f32", *[1] * 9), "input", name="x")
    with pytest.raises(Unsupported, match="'x' has rank 9"):
        Package.build([Plan([x], [x], [])])
    y = Tensor(t("f32", 3), "input", name="y")
    with pytest.raises(Unsupported, match="no op 'frobnicate'"):
        Package.build([Plan([y], [y], [Step("frobnicate", [y], [y])])])


def test_a_constant_keeps_its_bytes_whatever_its_order():
    data = ramp(4, 6).T
    w = Tensor.const(data, t("f32", 6, 4), "w")
    contents = read(Package.build([Plan([], [w], [])]).bytes)
    np.testing.assert_array_equal(contents.plans[0].outputs[0].data, data)
