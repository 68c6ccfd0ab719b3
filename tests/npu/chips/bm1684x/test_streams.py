"""Commands of the BM1684X as bits, and streams of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips.bm1684x.commands import Command, decode, decode_stream, encode, kind_of
from intaglio.npu.chips.bm1684x.fields import COMMANDS, FORMS, OTHER, layout

# commands of a file that Sophgo's compiler wrote: name, what it does, number, dependency, bytes
TEXT = """
DMA_tensor copy 1 0
    26020000000200000000000000000000c01200004006000028000000010000004006000040060000
    28000000010000000100030028002800000000000000000000000100010000000000000800000000
    0000000000000000ffffffffffffffff
sAR mul 1 1
    030020000006c8009230000001000300280028000000000000000000ea213e420000000000000000
    000000000000000000000000000000000000000000000000
sTRANS&sBC broadcast 4 2
    09004000006a8000010009002800280001002800000000000080480000800800
sSG scatter_hazard 11 2
    1700400000cc810001000900010009000100010009000100003e0100003c0100003a010000000000
    0000000000000000
sPorD depthwise 14 2
    1d00400000028800030000111122000001001b001400140028002800030003008025000000800000
    c02700000000000000000000000000000000000000000000
sCONV conv 15 2
    1f00400000008c0008010022022003000000000001004800140014001b0014001400010001000000
    8025000080c0000000000000000000000000000000000000
sRQ&sDQ rq1 17 2
    23004000002884002c00800000900100010048001400140000c0000000000000
sMM2 matmul_nn 31 9
    3f0020010084cc8001000a0048000a0000001000000000008000000000000000
DMA_matrix matrix 14 42
    221c0000010000002a0000000000000000000000000000000a000000000000004000000040000000
    00000000000000000000000001000a00010005000000020000500100010000000000000800000000
    0000000000000000ffffffffffffffff
SYSID end 44 0
    5800000000fe03000000000000000000
sDMA_sys end 16 0
    28200000060000000000000000000000
"""
GOLDEN = [
    (name, kind, int(number), int(depends), "".join(data))
    for name, kind, number, depends, *data in (
        item.split() for item in re.split(r"\n(?=\S)", TEXT.strip())
    )
]


@pytest.mark.parametrize(("name", "kind", "number", "depends", "text"), GOLDEN)
def test_golden_commands(name: str, kind: str, number: int, depends: int, text: str) -> None:
    data, form = bytes.fromhex(text), COMMANDS[name]
    found = decode_stream(data, form.engine)
    assert [(c.name, kind_of(c), c.number, c.depends) for c in found] == [
        (name, kind, number, depends)
    ]
    assert OTHER not in found[0].fields
    assert form.pack(found[0].fields, number, depends) == data


def test_golden_fields() -> None:
    conv = decode_stream(bytes.fromhex(GOLDEN[5][4]), "tiu")[0].fields
    assert {k: conv[k] for k in ("res0_c", "res0_h", "opd0_c", "opd0_h", "opd1_h", "opd1_w")} == {
        "res0_c": 72,
        "res0_h": 20,
        "opd0_c": 27,
        "opd0_h": 20,
        "opd1_h": 1,
        "opd1_w": 1,
    }
    assert (conv["opd0_addr"], conv["opd1_addr"]) == (9600, 3 * 16384 + 128)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_bit_of_every_command_survives(name: str) -> None:
    form, rng = COMMANDS[name], np.random.default_rng(5)
    assert sum(n for _, n in form.bits.values()) <= 8 * form.size
    for _ in range(5):
        values = {
            n: int.from_bytes(rng.bytes(8), "little") >> (64 - bits)
            for n, (_, bits) in form.bits.items()
            if n in form.names
        }
        special = "tsk_eu_typ" if form.engine == "tiu" else "cmd_special_function"
        values[special] = int(rng.choice(list(form.kinds))) if form.kinds else 0
        number, depends = (7, 9) if "cmd_id" in form.bits else (0, 0)
        data = form.pack(values, number, depends)
        (found,) = decode_stream(data, form.engine)
        assert (found.name, found.fields, found.number) == (name, values, number)


def test_unknown_commands_and_bits_are_kept() -> None:
    odd = bytes.fromhex("0102030405f8ff000910111213141516")
    (command,) = decode_stream(odd, "tiu")
    assert command.name == "unknown"
    end = COMMANDS["SYSID"].pack({"tsk_eu_typ": 31, OTHER: 1 << 127}, 1, 0)
    stream = odd + end
    assert encode(decode_stream(stream, "tiu"))[0] == stream.ljust(128, b"\0")


def test_encode_adds_ends_and_padding() -> None:
    copy = Command("dma", "DMA_tensor", {"src_wsize": 4}, 1)
    add = Command("tiu", "sAR", {"tsk_eu_typ": 2}, 1, depends=1)
    tiu, dma = encode([copy, add])
    assert (len(tiu), len(dma)) == (128, 128)
    names = [(c.engine, c.name, c.number, c.depends) for c in decode(tiu, dma)]
    assert names == [
        ("dma", "DMA_tensor", 1, 0),
        ("dma", "sDMA_sys", 2, 0),
        ("tiu", "sAR", 1, 1),
        ("tiu", "SYSID", 2, 0),
    ]
    assert encode(decode(tiu, dma)) == (tiu, dma)


def test_commands_run_in_an_order_that_dependencies_allow() -> None:
    load = Command("dma", "DMA_tensor", {}, 1)
    store = Command("dma", "DMA_tensor", {}, 2, depends=1)
    add = Command("tiu", "sAR", {}, 1, depends=1)
    order = [(c.engine, c.number) for c in decode(*encode([load, store, add]))]
    assert order.index(("dma", 1)) < order.index(("tiu", 1)) < order.index(("dma", 2))


def test_what_cannot_be_encoded_or_decoded() -> None:
    with pytest.raises(BadInput, match="field 'res0_addr' is 67108864; it has 0 to 67108863"):
        encode([Command("tiu", "sCONV", {"res0_addr": 1 << 26}, 1)])
    with pytest.raises(BadInput, match="there is no field 'colour'"):
        encode([Command("tiu", "sCONV", {"colour": 1}, 1)])
    with pytest.raises(BadInput, match="no command 'sSING'"):
        encode([Command("tiu", "sSING", {}, 1)])
    waiting = [Command("tiu", "sAR", {}, 1, 1), Command("dma", "DMA_tensor", {}, 1, 1)]
    with pytest.raises(BadFile, match="never ends"):
        decode(*encode(waiting))
    with pytest.raises(BadFile, match="has 64 bytes; the stream has 16"):
        decode_stream(bytes.fromhex(GOLDEN[5][4])[:16], "tiu")


def test_notation() -> None:
    assert layout("a:1 _:3 b{0,1}_{x,y}:4 c:2") == (
        {
            "a": (0, 1),
            "b0_x": (4, 4),
            "b0_y": (8, 4),
            "b1_x": (12, 4),
            "b1_y": (16, 4),
            "c": (20, 2),
        },
        22,
    )


# the same of its relatives: chip, name, what it does, dependency, bytes
RELATIVES = """
bm1688 sAR mul 1
    01000200000648009230000001000300280028000000000000000000ea213e420000000000000000
    000000000000000000000000000000000000000000000000
bm1688 sCW&sBC broadcast 2
    01000400006a0000010009002800280001002800000000000040240000400400
bm1688 sPorD depthwise 2
    0900040000028800030000111122000001001b00140014002800280003000300c092000000400000
    709400000000000000000000000000000000000000000000
bm1688 SYS_TR_ACC write_imm 0
    000000000518067f0060000000000000
bm1688 sCONV conv 2
    7501040000001c0000000022020004000000000001004800140014001b0014001400010001000000
    c09200003060000018600000000000000000000000000000
bm1688 SYS end 0
    0000000000fe03000000000000000000
bm1688 DMA_tensor copy 0
    06000000000200000000000000000000c01200004006000028000000010000004006000040060000
    28000000010000000100030028002800000000000000000000000000b00000000000000000000000
    0000000000000000ffffffffffffffff
bm1688 sDMA_sys end 0
    08000000060000000000000000000000
bm1690 sAR mul 1048577
    01000200200648009200000001000300280028000000000000000000ea213e420000000000000000
    000000000000000000000000000000000000000000000000
bm1690 sCW&sBC broadcast 1048578
    01000400206a0000010009002800280001002800000000000080480000800800
bm1690 sPorD depthwise 1048578
    0900040020028800030000111122000001001b001400140028002800030003008025000000800000
    c02700000000000000000000000000000000000000000000
bm1690 SYS_TR_ACC write_imm 0
    000000000518067f00c0000000000000
bm1690 sCONV conv 1048578
    7501040020001c0000000022020008000000000001004800140014001b0014001400010001000000
    8025000040c0000010c00000000000000000000000000000
bm1690 SYS end 0
    0000000000fe03000000000000000000
bm1690 DMA_tensor copy 1048576
    06000000000400000000100000000000c01200004006000028000000010000004006000040060000
    280000000100000001000300280028000000000000000000000000000002000000000000001f0000
    0000000000000000ffffffffffffffff
bm1690 sDMA_sys end 0
    08000000060000000000000000000000
"""


@pytest.mark.parametrize("item", re.split(r"\n(?=\S)", RELATIVES.strip()))
def test_golden_commands_of_relatives(item: str) -> None:
    chip, name, kind, depends, *data = item.split()
    text, form = "".join(data), FORMS[chip].by_name[name]
    (found,) = decode_stream(bytes.fromhex(text), form.engine, chip)
    assert (found.name, kind_of(found, chip), found.number) == (name, kind, 1)
    assert found.depends == int(depends)
    assert OTHER not in found.fields
    assert form.pack(found.fields, 1, found.depends).hex() == text
