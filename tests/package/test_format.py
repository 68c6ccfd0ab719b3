"""The records of the file: numpy dtypes, C structs and docs/format.md agree."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from intaglio import dtypes, native
from intaglio.package import format as f

ROOT = Path(__file__).parents[2]
SIZES = {"char": 1, "uint8_t": 1, "uint32_t": 4, "int32_t": 4, "uint64_t": 8, "int64_t": 8}


def structs(text: str) -> dict[str, str]:
    """The C structs `itg_file_<name>` of a text, by name."""
    found = re.findall(r"typedef struct itg_file_(\w+) \{\n(.*?)\} itg_file_\1;", text, re.S)
    return dict(found)


def layout(body: str) -> tuple[dict[str, tuple[int, int]], int]:
    """Offset and size of each field as a C compiler lays them out, and the size of the struct."""
    fields, at, widest = {}, 0, 1
    for kind, name, count in re.findall(r"^\s*(\w+) (\w+)(?:\[(\d+)\])?;", body, re.M):
        size = SIZES[kind]
        at = -(-at // size) * size
        fields[name] = (at, size * int(count or 1))
        at += fields[name][1]
        widest = max(widest, size)
    return fields, -(-at // widest) * widest


@pytest.mark.parametrize("name", f.RECORDS)
def test_numpy_and_c_agree(name):
    dtype = f.RECORDS[name]
    text = (ROOT / "csrc/format.h").read_text()
    fields, size = layout(structs(text)[name])
    assert fields == {n: (o, d.itemsize) for n, (d, o) in dtype.fields.items()}
    assert size == dtype.itemsize
    assert f"_Static_assert(sizeof(itg_file_{name}) == {size}," in text


def test_the_document_shows_the_structs_as_they_are():
    code = structs((ROOT / "csrc/format.h").read_text())
    shown = structs((ROOT / "docs/format.md").read_text())
    assert shown == code


def test_every_section_is_documented():
    text = (ROOT / "docs/format.md").read_text()
    for kind in [
        "META",
        "PLAN",
        "TENS",
        "QUNT",
        "STEP",
        "ARGS",
        "ATTR",
        "CNST",
        "CODE",
        "NAME",
        "ORIG",
        "STAT",
        "SYMB",
        "AXES",
        "PTCH",
        "FORM",
        "WGTS",
        "PLUG",
        "PADS",
        "CRPT",
        "BODY",
        "SIGN",
    ]:
        assert f"`{kind}`" in text


def test_element_types_of_c_and_python_agree():
    name = native.library().itg_dtype_name
    name.restype = __import__("ctypes").c_char_p
    for d in dtypes.TABLE.values():
        assert name(d.code).decode() == d.name
    assert name(0) == name(len(dtypes.TABLE) + 1) == b"?"


def test_little_endian():
    for dtype in f.RECORDS.values():
        assert dtype == dtype.newbyteorder("<")
    assert np.dtype("<u4") == f.STEP["op"]
