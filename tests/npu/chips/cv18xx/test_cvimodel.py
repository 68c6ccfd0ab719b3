"""The cvimodel container: what is written is read again, and wrong files are refused."""

from __future__ import annotations

import hashlib

import pytest

from intaglio.errors import BadFile
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.commands import encode, tdma
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel, Program, Routine, Section, Tensor, Weight


def model() -> Cvimodel:
    tensors = [
        Tensor("x", "i8", (1, 3, 4, 4), 3, 0, 16.5, 48),
        Tensor("p", "u8", (1, 3, 4, 4), 4, 0, 1.0, 96, False, (1, 2, 3), (4, 5, 6), "RGB", True),
        Tensor("y", "bf16", (1, 8), 0, 4096, 0.25, 16, True),
    ]
    routines = [
        Routine("cpu", ["x"], ["p"], "quant", b"\1\2\3"),
        Routine("tpu", ["p"], ["y"], "main"),
    ]
    program = Program(["x"], ["y"], tensors, routines, 8192, 64)
    commands = encode([tdma({})], "cv181x")
    sections = [Section(0, "weight", bytes(range(200))), Section(1, "main", commands)]
    return Cvimodel("m", "cv181x", [program], sections, [Weight("w", "i8", (2, 100), 0, 200)])


def test_round_trip() -> None:
    data = cvimodel.write(model())
    assert cvimodel.read(data) == model()
    assert cvimodel.write(cvimodel.read(data)) == data
    size = int.from_bytes(data[8:12], "little")
    assert data[14:30] == hashlib.md5(data[48:]).digest()
    assert data[30:46] == b"cv181x".ljust(16, b"\0")
    assert data[48 + size : 48 + size + 200] == bytes(range(200))


def test_sections_by_kind_and_name() -> None:
    m = model()
    assert m.section(cvimodel.WEIGHT) == bytes(range(200))
    assert len(m.section(cvimodel.CMDBUF, "main")) == 72
    with pytest.raises(BadFile, match="no section 'other'"):
        m.section(cvimodel.CMDBUF, "other")
    with pytest.raises(BadFile, match="no tensor 'z'"):
        m.programs[0].tensor("z")


def test_truncated_files_are_refused() -> None:
    data = cvimodel.write(model())
    for size in range(len(data)):
        with pytest.raises(BadFile):
            cvimodel.read(data[:size])


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, b"X", "not a cvimodel"),
        (12, b"\2", "version 2.4; 1 is readable"),
        (30, b"bm168x", "for the chip 'bm168x'"),
        (8, b"\xff\xff\xff\x7f", "its tables have 2147483647 bytes"),
    ],
)
def test_header_is_checked(at: int, value: bytes, words: str) -> None:
    data = bytearray(cvimodel.write(model()))
    data[at : at + len(value)] = value
    with pytest.raises(BadFile, match=words):
        cvimodel.read(bytes(data))
