"""bmodel files: written, read back, and damaged."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from intaglio.errors import BadFile
from intaglio.npu.chips.bm1684x.bmodel import (
    HEADER,
    SCHEMA,
    Bmodel,
    Group,
    Net,
    Stage,
    Subnet,
    Tensor,
    read,
    write,
)
from intaglio.npu.chips.bm1684x.commands import encode
from intaglio.npu.chips.flatbuffer import read as read_tables


def small() -> Bmodel:
    x = Tensor("x", 2, (1, 3, 8, 8), 0x1_0000_1000, scale=0.5, hidden=1)
    y = Tensor("y", 6, (1, 5), 0x1_0000_2000, zero=-3, hidden=2)
    tiu, dma = encode([])
    subnet = Subnet([x], [y], [Group(tiu, dma, 1, 1)])
    stage = Stage([x], [y], [subnet], bytes(range(100)), neurons=0x1_0000_1000, neuron_bytes=8192)
    return Bmodel([Net("tiny", [stage])], time="today")


def test_round_trip() -> None:
    model = small()
    model.kernel = ("firmware.so", b"code" * 2000)
    assert read(write(model)) == model


def test_container() -> None:
    data = write(small())
    magic, header, table, binaries = HEADER.unpack_from(data)
    assert (magic, header, binaries % 4096) == (0xFF55AAEE, 64, 0)
    assert len(data) == 64 + table + binaries
    root = read_tables(data[64 : 64 + table], SCHEMA, "Model", "bmodel")
    (stage,) = root["net"][0]["parameter"]
    assert (root["type"], root["chip"], root["device_num"]) == ("B", "BM1684X", 1)
    assert bytes(stage["coeff_mem"]["check_code"]) == hashlib.sha256(bytes(range(100))).digest()
    assert stage["sub_net"][0]["next_subnet_ids"] == [-1]
    assert stage["input_tensor"][0]["size"] == 192
    assert stage["output_tensor"][0]["size"] == 20


def test_flatbuffers_own_reader_agrees() -> None:
    flatbuffers = pytest.importorskip("flatbuffers")
    data = write(small())[64:]
    start = flatbuffers.encode.Get(flatbuffers.packer.uoffset, data, 0)
    root = flatbuffers.table.Table(bytearray(data), start)
    assert root.String(root.Offset(10) + root.Pos) == b"BM1684X"
    nets = root.Offset(12)
    net = flatbuffers.table.Table(root.Bytes, root.Indirect(root.Vector(nets)))
    assert (root.VectorLen(nets), net.String(net.Offset(4) + net.Pos)) == (1, b"tiny")


def test_values_are_aligned() -> None:
    """A reader in C casts pointers: u64 at multiples of 8, offsets at multiples of 4."""
    data = write(small())[64:]
    at = data.index(struct.pack("<Q", 0x1_0000_2000))
    assert at % 8 == 0


def test_damaged_files_are_refused_in_a_line() -> None:
    data = write(small())
    with pytest.raises(BadFile, match="its header alone has 64"):
        read(data[:40])
    with pytest.raises(BadFile, match="it begins with 0x00000000"):
        read(bytes(4) + data[4:])
    with pytest.raises(BadFile, match="its parts have"):
        read(data[:-1])
    rng = np.random.default_rng(3)
    refused = []
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 5)):
            changed[rng.integers(0, 64 + 1500) % len(data)] = rng.integers(0, 256)
        try:
            read(bytes(changed))
        except BadFile as e:
            refused.append(str(e))
    assert len(refused) > 100
    assert not any("\n" in line for line in refused)
