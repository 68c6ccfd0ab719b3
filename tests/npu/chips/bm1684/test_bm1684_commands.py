"""Commands of the BM1684 as bits: as Sophgo's compiler writes them, and every field alone."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.npu.chips.bm1684x import disassembly
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Group, Net, Stage, Subnet
from intaglio.npu.chips.bm1684x.commands import Command, decode, decode_stream, encode, kind_of
from intaglio.npu.chips.bm1684x.fields import FORMS, OTHER

CHIP = "bm1684"
FORM = FORMS[CHIP].by_name
# commands of files that Sophgo's compiler wrote: engine, name, what it does, number, dependency
GOLDEN = {
    ("tiu", "CONV", "conv", 11, 8): """
        5d00400000c008040730600b00004044c4ffffffffffffff3f01400120002000040024000200024000044000
        c000000000400000020000040020000400200100010008000000000000000408000002080000000824000008
        01000000010000000800000001000000090000000300000001000000010000000000000000000000
    """,
    ("tiu", "SFU", "f32_to_int", 7, 1): """
        3d000800209d0014a624001000000040c4ffffffffffffff7f00c00020002000040004400040004000044000
        4000000000400000020010008000000400200000010008000000000000000308000003080000000000000000
        01000000010000000100000001000000010000000100000001000000010000000000000000000000
    """,
    ("tiu", "PorD", "depthwise", 11, 3): """
        5d00180020c206040730001000404444c4ffffffffffffff7f00801124001c000400044002c001400004c000
        c000000000400000020010008000000400200000010008000000000000000208000001080000030800000408
        01000000010000000100000001000000010000000100000001000000010000000000000000000000
    """,
    ("dma", "DMA_tensor", "copy", 8, 10): """
        3104080000080a00000000000000000050000000080000000800000001000000400000004000000008000000
        010000000300030008000800010009000800080000501005000002080100000000000000ffffffffffffffff
        00000000000000000000000000000000000000000000000000000000000000000000000000000000
    """,
}


@pytest.mark.parametrize("key", GOLDEN)
def test_golden_commands(key: tuple[str, str, str, int, int]) -> None:
    engine, name, kind, number, depends = key
    data = bytes.fromhex("".join(GOLDEN[key].split()))
    (found,) = decode_stream(data, engine, CHIP)
    assert (found.name, kind_of(found, CHIP)) == (name, kind)
    assert (found.number, found.depends) == (number, depends)
    assert OTHER not in found.fields
    assert FORM[name].pack(found.fields, number, depends) == data


def test_golden_fields() -> None:
    """What the compiler was given: 3 x 3 over 3 channels, made 1 x 3 over 9, and a shift of 8."""
    data = bytes.fromhex("".join(next(iter(GOLDEN.values())).split()))
    f = decode_stream(data, "tiu", CHIP)[0].fields
    wanted = {"opd0_c": 9, "res0_c": 5, "res0_n": 4, "opd1_h": 1, "opd1_w": 3, "right_shift": 8}
    wanted |= {"opd1_c_str": 9, "opd1_w_str": 3, "opd2_prec": 3, "opd0_lf_pad": 1}
    wanted |= {"opd0_addr": 0x8020000, "opd1_addr": 0x8000000, "res0_addr": 0x8040000}
    assert {k: f[k] for k in wanted} == wanted


@pytest.mark.parametrize("name", FORM)
def test_every_bit_survives(name: str) -> None:
    form, rng = FORM[name], np.random.default_rng(5)
    assert form.size == 128
    for _ in range(5):
        values = {
            n: int.from_bytes(rng.bytes(8), "little") >> (64 - bits)
            for n, (_, bits) in form.bits.items()
            if n in form.names
        }
        special = "tsk_eu_typ" if form.engine == "tiu" else "cmd_special_function"
        values[special] = int(rng.choice(list(form.kinds)))
        (found,) = decode_stream(form.pack(values, 7, 9), form.engine, CHIP)
        assert (found.name, found.fields) == (name, values)
        assert (found.number, found.depends) == (7, 9)


def test_streams_have_no_end() -> None:
    copy = Command("dma", "DMA_tensor", {"src_wsize": 4}, 1)
    add = Command("tiu", "AR", {"tsk_eu_typ": 2}, 1, depends=1)
    tiu, dma = encode([copy, add], CHIP)
    assert (len(tiu), len(dma)) == (128, 128)
    assert [c.name for c in decode(tiu, dma, CHIP)] == ["DMA_tensor", "AR"]


def test_inspect_names_commands_and_places() -> None:
    texts = list(GOLDEN.values())
    conv, dma = (bytes.fromhex("".join(t.split())) for t in (texts[0], texts[3]))
    decoded = decode_stream(conv, "tiu", CHIP)[0]
    line = disassembly.text(decoded, CHIP)
    assert "CONV conv res0=i8[4x5x8x8]/1,1,1,1@local:0x40000 opd0=i8[1x9x8x8]" in line
    assert "right_shift=8" in line
    assert "cmd_en" not in line
    found = disassembly.text(decode_stream(dma, "dma", CHIP)[0], CHIP)
    assert "src=[3x3x8x8]/80,8,8,1@ddr:0x5105000" in found
    decoded.depends = 0
    assert any("1 CONV conv" in text for text in disassembly.lines(_with(decoded)))


def _with(command: Command) -> Bmodel:
    tiu, dma = encode([command], CHIP)
    group = Group(tiu, dma, 1, 0)
    return Bmodel([Net("net", [Stage([], [], [Subnet([], [], [group])], b"")])], "BM1684")
