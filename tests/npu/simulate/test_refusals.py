"""Invalid programs are refused with a message that names the instruction."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.npu.instruction_builder import KERNELS, Builder

from intaglio import native
from intaglio.errors import RunError
from intaglio.npu.own.isa import Feature


def sample() -> Builder:
    """load, load, load, conv, copy, store."""
    b = Builder(1)
    src, dst = b.operand("i8", (20, 6, 6)), b.feature("i8", (16, 6, 6))
    b.product("conv", src, dst, pad=(1, 1))
    to = b.feature("i8", (16, 6, 6))
    b.emit("copy", src=dst, dst=to)
    b.store(to)
    return b


def refused(b: Builder) -> str:
    arrays = b.arrays()
    with pytest.raises(RunError) as e:
        native.run_kernel(KERNELS[0], arrays, {}, len(b.program.outputs))
    return str(e.value)


def test_the_sample_runs():
    sample().check()


CONV, COPY = 3, 4
WRONG: list[tuple[int, dict[str, Any], str]] = [
    (CONV, {"x_zero": 200}, "x_zero 200 is no number of i8"),
    (CONV, {"kernel": (0, 3)}, "its window has kernel 0"),
    (CONV, {"stride": (1, 0)}, "stride 0"),
    (CONV, {"weight_bytes": 5}, "its weights have 5 bytes"),
    (CONV, {"weights": 1 << 30}, "its weights lie outside of SRAM"),
    (CONV, {"weights": 8}, "no multiple of 16"),
    (CONV, {"params": 1 << 31}, "its parameters lie outside"),
    (CONV, {"in_atom": 0}, "atoms of 0 inputs"),
    (CONV, {"high": 300}, "rounds to -128 .. 300"),
    (CONV, {"low": 100, "high": 10}, "rounds to 100 .. 10"),
    (CONV, {"entries": 1 << 30}, "its table lie outside of SRAM"),
    (CONV, {"sparse": 9}, "packed in form 9"),
    (CONV, {"pad": (1 << 30, 0)}, "begins 1073741824 before"),
    (COPY, {"dtype": "f32"}, "src and dst differ|not aligned"),
]


@pytest.mark.parametrize(("at", "fields", "words"), WRONG, ids=[w[2] for w in WRONG])
def test_wrong_fields(at, fields, words):
    b = sample()
    i = b.program.instructions[at]
    for name, value in fields.items():
        if name == "dtype":
            i.fields["src"] = replace(i.fields["src"], dtype=value)
        else:
            i.fields[name] = value
    said = refused(b)
    assert re.search(words, said), said
    assert f"instruction {at} " in said


BOXES: list[tuple[str, dict[str, Any], str]] = [
    ("src", {"offset": 1 << 40}, "src lies outside"),
    ("src", {"offset": (1 << 64) - 64}, "src lies outside"),
    ("dst", {"plane": (1 << 32) - 16, "channels": 17}, "dst lies outside|differ in extents"),
    ("src", {"row": (1 << 32) - 16}, "src lies outside"),
    ("dst", {"height": 7}, "differ in extents|lies outside"),
    ("dst", {"space": "output"}, "cannot reach"),
    ("src", {"space": "weights"}, "cannot reach"),
    ("src", {"c2": 0}, "src is empty"),
    ("src", {"first": 16}, "src is empty"),
    ("dst", {"pixel": 0}, "elements of dst lie on each other"),
    ("dst", {"row": 16}, "elements of dst lie on each other"),
    ("dst", {"offset": 7}, "no multiple of 16"),
]


@pytest.mark.parametrize(("which", "fields", "words"), BOXES, ids=[str(b[1]) for b in BOXES])
def test_wrong_boxes(which, fields, words):
    b = sample()
    i = b.program.instructions[COPY]
    i.fields[which] = replace(i.fields[which], **fields)
    said = refused(b)
    assert re.search(words, said), said


def test_results_on_operands():
    b = sample()
    i = b.program.instructions[COPY]
    i.fields["dst"] = replace(i.fields["src"], offset=i.fields["src"].offset + 96)
    assert "writes to bytes that it reads" in refused(b)


# ---- queues --------------------------------------------------------------------------------------
def test_every_wait_of_the_sample_is_needed():
    for at in range(CONV, 6):
        b = sample()
        i = b.program.instructions[at]
        i.wait = (0, 0, 0)
        if at == COPY:  # the conv before it in its queue has waited
            b.check()
            continue
        said = refused(b)
        assert f"instruction {at} " in said
        assert "without a wait" in said


def test_waits_reach_through_other_queues():
    """The store waits for the copy, which followed the conv, which waited for the loads."""
    b = sample()
    b.program.instructions[5].wait = (0, 2, 0)
    b.check()
    b.program.instructions[5].wait = (3, 1, 0)
    assert "instruction 4 writes, without a wait" in refused(b)


def test_waits_for_later_instructions():
    b = sample()
    b.program.instructions[CONV].wait = (4, 0, 0)
    assert "it waits for 4 of queue load, of which 3 come before it" in refused(b)


def test_overwriting_bytes_that_are_still_read():
    b = sample()
    b.load(b.program.instructions[CONV].fields["src"])
    b.program.instructions[-1].wait = (0, 0, 0)
    assert "it writes bytes of SRAM" in refused(b)
    b.program.instructions[-1].wait = (0, 1, 0)
    b.check()


def test_interleaved_rows_do_not_conflict():
    """A load may fill the even rows while the odd ones are in use."""
    b = Builder(2)
    whole = b.feature("i8", (20, 8, 4))
    odd = replace(whole, offset=whole.offset + whole.row, row=2 * whole.row, height=4)
    even = replace(whole, row=2 * whole.row, height=4)
    b.load(odd)
    to = b.feature("i8", (20, 4, 4))
    b.emit("copy", src=odd, dst=to)
    b.load(even)
    b.program.instructions[-1].wait = (0, 0, 0)
    b.store(to)
    b.store(even)
    b.check()
    b.program.instructions[2].fields["dst"] = replace(odd, offset=odd.offset + 32)
    assert "without a wait" in refused(b)


def test_reading_bytes_that_were_never_written():
    b = Builder(3)
    b.store(b.feature("i8", (5, 2, 2)))
    assert "nothing has written" in refused(b)
    b = Builder(3)
    f = b.operand("i8", (5, 2, 2))
    b.store(replace(f, channels=6))  # one channel more than was loaded
    assert "nothing has written" in refused(b)


def test_outputs_must_be_whole():
    b = Builder(4)
    f = b.operand("i8", (5, 2, 2))
    b.store(f)
    i = b.program.instructions[-1].fields
    i["src"], i["dst"] = replace(f, channels=4), replace(i["dst"], channels=4)
    assert "leaves bytes of its outputs unwritten" in refused(b)


def cores(barrier: int) -> Builder:
    """Core 0 stores a feature and core 1 loads it, after `barrier` barriers."""
    b = Builder(5, cores=2)
    f, outside = b.operand("i8", (5, 2, 2)), b.feature("i8", (5, 2, 2), space="internal")
    b.emit("store", src=f, dst=outside)
    b.emit("barrier")
    b.core = 1
    b.emit("barrier", wait=(0, 0, 0))
    to: Feature = replace(f)
    b.emit("load", wait=(0, 0, 0), barrier=barrier, src=outside, dst=to)
    b.store(to)
    return b


def test_barriers_keep_cores_apart():
    b = cores(1)
    np.testing.assert_array_equal(b.check()[0], b.inputs[0])
    assert "internal memory at 0 that instruction 1 writes, without a wait" in refused(cores(0))
    assert "it waits for barrier 2, which core 0 has not reached" in refused(cores(2))


# ---- the whole -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cores", 0, "no cores"),
        ("cores", 17, "more than 16"),
        ("sram", 1 << 40, "too much memory"),
        ("internal", 1 << 60, "too much memory"),
        ("align", 3, "power of two"),
        ("align", 0, "power of two"),
        ("near", 10, "too much memory"),
        ("sram", 64, "lies outside"),
    ],
)
def test_wrong_heads(field, value, words):
    b = sample()
    setattr(b.program, field, value)
    assert words in refused(b)


def test_programs_that_end_early_or_late():
    b = sample()
    arrays = b.arrays()
    whole = arrays[0]
    for code in (whole[:50], whole[:100], whole[:-8], np.append(whole, np.zeros(8, np.uint8))):
        arrays[0] = np.ascontiguousarray(code)
        with pytest.raises(RunError, match="program"):
            native.run_kernel(KERNELS[0], arrays, {}, 1)


def test_random_bytes():
    """Mutated programs are refused or run; they never crash."""
    assert 0 < mutations(400, 0) < 400


@pytest.mark.slow
def test_many_random_bytes():
    assert 0 < mutations(20_000, 1) < 20_000


def mutations(count: int, seed: int) -> int:
    """Mutate 1 to 3 fields of random programs; returns how many ran."""
    random, ran = np.random.default_rng(seed), 0
    good = [sample().arrays(), cores(1).arrays()]
    for k in range(count):
        arrays = list(good[k % 2])
        code = arrays[0].copy()
        for _ in range(random.integers(1, 4)):
            width = int(random.choice([1, 1, 2, 4, 8]))
            at = int(random.integers(len(code) // width)) * width
            value = int(random.choice([0, 1, 2, 3, 16, 255, 256, 65535, 1 << 31, (1 << 63) - 1]))
            value = int(random.integers(256)) if random.random() < 0.5 else value
            code[at : at + width] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)[:width]
        arrays[0] = code
        sram = int(np.frombuffer(code[24:40].tobytes(), "<u8").max())
        if sram > 1 << 24:
            continue  # allowed, but it takes memory
        for kernel in KERNELS[-2:]:
            try:
                native.run_kernel(kernel, arrays, {}, 1)
            except RunError:
                break
        else:
            ran += 1
    return ran
