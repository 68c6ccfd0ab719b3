"""The records of a program: numpy dtypes, C structs and the document say the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from intaglio.npu.own import isa

ROOT = Path(__file__).parents[3]
SIZES = {
    "char": 1,
    "uint8_t": 1,
    "uint16_t": 2,
    "uint32_t": 4,
    "int32_t": 4,
    "float": 4,
    "uint64_t": 8,
    "int64_t": 8,
}
RECORDS = {
    "program": isa.PROGRAM,
    "port": isa.PORT,
    "head": isa.HEAD,
    "feature": isa.FEATURE,
    "product": isa.OPS["conv"],
    "move": isa.OPS["load"],
    **{op: isa.OPS[op] for op in ("pool", "eltwise", "lut", "resize", "matmul", "barrier")},
}


def structs(path: str) -> dict[str, str]:
    text = (ROOT / path).read_text()
    return dict(re.findall(r"typedef struct itg_npu_(\w+) \{\n(.*?)\} itg_npu_\1;", text, re.S))


def layout(body: str, known: dict[str, int]) -> tuple[dict[str, tuple[int, int]], int]:
    """Offset and size of each field as a C compiler lays them out, and the size of the struct."""
    fields, at, widest = {}, 0, 1
    for kind, name, count in re.findall(
        r"^\s*(?:_Alignas\(8\) )?(\w+) (\w+)(?:\[(\d+)\])?;", body, re.M
    ):
        size = known[kind]
        align = 8 if kind == "itg_npu_feature" else 4 if kind == "itg_npu_head" else size
        at = -(-at // align) * align
        fields[name] = (at, size * int(count or 1))
        at += fields[name][1]
        widest = max(widest, align)
    return fields, -(-at // widest) * widest


@pytest.mark.parametrize("name", RECORDS)
def test_numpy_and_c_agree(name):
    dtype, known = RECORDS[name], dict(SIZES)
    code = structs("csrc/npu/isa.h")
    for inner in ("head", "feature"):
        known[f"itg_npu_{inner}"] = layout(code[inner], known)[1]
    fields, size = layout(code[name], known)
    want = {n: (o, d.itemsize) for n, (d, o, *_) in dtype.fields.items() if n != "pad_"}
    assert (fields, size) == (want, dtype.itemsize)
    text = (ROOT / "csrc/npu/isa.h").read_text()
    assert f"_Static_assert(sizeof(itg_npu_{name}) == {size}," in text
    kinds = {n: d.base for n, (d, *_) in dtype.fields.items()}
    for kind, field in re.findall(
        r"^\s*(?:_Alignas\(8\) )?(\w+) (\w+)(?:\[\d+\])?;", code[name], re.M
    ):
        if kind in SIZES and kind != "char":
            sort = {"u": "u", "i": "i", "f": "f"}[kind[0]]
            assert kinds[field].kind == sort, f"{name}.{field} is {kind} and {kinds[field]}"


def test_every_instruction_has_a_record_and_a_number():
    text = (ROOT / "csrc/npu/isa.h").read_text()
    words = re.search(r"enum itg_npu_op \{(.*?)\};", text, re.S)
    assert words is not None
    named = re.findall(r"ITG_NPU_(\w+)", words[1])
    assert [n.lower() for n in named] == list(isa.CODES)
    assert isa.OPS["store"] == isa.OPS["copy"] == isa.OPS["load"]
    assert isa.OPS["depthwise"] == isa.OPS["conv"]


@pytest.mark.parametrize(
    ("what", "words"),
    [("space", isa.SPACES), ("queue", isa.QUEUES), ("pools", isa.POOLS), ("pairs", isa.ELTWISE)],
)
def test_codes_agree(what, words):
    text = (ROOT / "csrc/npu/isa.h").read_text()
    found = re.search(rf"enum itg_npu_{what} \{{(.*?)\}};", text, re.S)
    assert found is not None
    named = [n.lower().removesuffix("s") for n in re.findall(r"ITG_NPU_(\w+)", found[1])]
    assert named[: len(words)] == [w.removesuffix("s") for w in words]


def test_little_endian():
    for dtype in RECORDS.values():
        assert dtype == dtype.newbyteorder("<")
    assert np.dtype("<u4") == isa.HEAD["layer"]


def test_the_document_shows_the_structs_as_they_are():
    assert structs("docs/npu-isa.md") == structs("csrc/npu/isa.h")


def test_the_document_names_every_instruction():
    text = (ROOT / "docs/npu-isa.md").read_text()
    for name, code in isa.CODES.items():
        assert f"| {code} | {name} | {isa.QUEUE[name]} |" in text
