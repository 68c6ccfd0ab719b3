"""Words and command buffers of CV18xx; the golden ones are of Sophgo's own compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips.cv18xx import commands
from intaglio.npu.chips.cv18xx.commands import Command, decode, encode, tdma, tiu
from intaglio.npu.chips.cv18xx.fields import COMMANDS, TDMA, TIU

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden_commands.json").read_text()
)


def test_fields_fill_the_descriptors() -> None:
    for table in COMMANDS.values():
        assert table.fields[-1].low + table.fields[-1].bits == 8 * table.size
        assert len(table.by_name) == len(table.fields)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"{r['chip']}-{r['name']}{r['number']}")
def test_words_of_the_vendors_compiler(row: dict[str, Any]) -> None:
    data, table = bytes.fromhex(row["bytes"])[8:], COMMANDS[row["name"]]
    values = table.unpack(data)
    assert values[table.number] == row["number"]
    assert values[table.depends] == row["depends"]
    assert values[table.layer] == row["layer"]
    found = {k: v for k, v in values.items() if k in row["fields"]}
    assert found == row["fields"]
    own = {table.number: row["number"], table.depends: row["depends"], table.layer: row["layer"]}
    assert table.pack(commands.USUAL[row["name"]] | row["fields"] | own) == data


def test_golden_header_and_order() -> None:
    """Commands of both engines, numbered by `encode`, have the vendor's headers."""
    rows = [r for r in GOLDEN if r["chip"] == "cv181x"]
    for row in rows:
        make = tiu if row["name"] == "tiu" else tdma
        data = encode([make(row["fields"], 0, row["layer"])], row["chip"])
        assert data[:8] == bytes.fromhex(row["bytes"])[:8]


def _random_stream(count: int, seed: int) -> list[Command]:
    random = np.random.default_rng(seed)
    stream, numbers = [], {"tiu": 0, "tdma": 0}
    for _ in range(count):
        name = ("tiu", "tdma")[int(random.integers(2))]
        other = "tdma" if name == "tiu" else "tiu"
        own = {COMMANDS[name].number, COMMANDS[name].depends, COMMANDS[name].layer}
        fields = {
            f.name: int(random.integers(0, f.largest + 1))
            for f in COMMANDS[name].fields
            if f.name not in own and random.random() < 0.5
        }
        usual = commands.defaults(name)
        fields = {k: v for k, v in fields.items() if v != usual[k]}
        numbers[name] += 1
        depends = int(random.integers(0, numbers[other] + 1))
        engine = commands.ENGINES[name]
        stream.append(Command(engine, name, fields, numbers[name], depends, 7))
    return stream


@pytest.mark.parametrize("chip", commands.CHIPS)
def test_decode_reverses_encode(chip: str) -> None:
    stream = _random_stream(200, 1)
    data = encode(stream, chip)
    assert decode(data, chip) == stream
    assert data[0] == commands.CHIPS[chip].magic


def test_numbers_restart_after_65535() -> None:
    stream = [tdma({}) for _ in range(3)] + [tiu({}, 3)] + [tdma({}, 1) for _ in range(65535)]
    stream += [tiu({}, 65538), tiu({}, 2)]
    data = encode(stream, "cv181x")
    at = 3 * 72 + 120 + 65531 * 72
    assert TDMA.unpack(data[at + 8 : at + 72])["cmd_id"] == 65535
    after = TDMA.unpack(data[at + 80 : at + 144])
    assert (after["cmd_id"], after["wait_id_tpu"]) == (1, 0)  # both engines start again
    last = TIU.unpack(data[-112:]), TIU.unpack(data[-232:-120])
    assert [t["cmd_id_tpu"] for t in last] == [2, 1]
    assert [t["cmd_id_gdma"] for t in last] == [0, 3]
    assert encode(decode(data), "cv181x") == data
    assert decode(data)[-1].number == 3


def test_refusals_of_encode() -> None:
    with pytest.raises(BadInput, match=r"opd1_addr.*is 65536; it has 16 bits, 0 to 65535"):
        encode([tiu({"opd1_addr": 65536})], "cv181x")
    with pytest.raises(BadInput, match="no field 'nothing'"):
        encode([tdma({"nothing": 1})], "cv181x")
    with pytest.raises(BadInput, match="tiu command 1 waits for tdma command 1; 0 come before"):
        encode([tiu({}, 1)], "cv181x")
    with pytest.raises(BadInput, match="numbers count from 1"):
        encode([Command("tiu", "tiu", {}, 2)], "cv181x")
    with pytest.raises(BadInput, match="no chip 'cv182x'"):
        encode([], "cv182x")


def test_refusals_of_decode() -> None:
    good = encode([tdma({}), tiu({}, 1)], "cv181x")
    with pytest.raises(BadFile, match="no header"):
        decode(good, "cv180x")
    for cut in range(1, len(good)):
        if cut != 72:
            with pytest.raises(BadFile):
                decode(good[:cut])
    wrong = bytearray(good)
    wrong[8 + 2] = 5
    with pytest.raises(BadFile, match="has the number 5; 1 is its place"):
        decode(bytes(wrong))
    late = TIU.pack({"cmd_id_tpu": 1, "cmd_id_gdma": 4})
    with pytest.raises(BadFile, match="waits for tdma command 4, which comes later"):
        decode(bytes((0xA7, 112, 0, 0, 0, 0, 0, 0)) + late)
