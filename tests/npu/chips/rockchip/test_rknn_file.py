import random

import pytest
from tests.npu.chips.rockchip import rknn_samples
from tests.test_cli import intaglio as command_line

from intaglio.errors import BadFile
from intaglio.npu.chips.rockchip import disassembly
from intaglio.npu.chips.rockchip.registers import registers
from intaglio.npu.chips.rockchip.rknn_file import read
from intaglio.npu.chips.rockchip.words import decode

FILES = {"rk3588": rknn_samples.tables, "rv1106": rknn_samples.in_memory}


@pytest.mark.parametrize("target", FILES)
def test_contents(target):
    file = read(FILES[target]())
    assert (file.target, file.compiler, file.framework) == (target, "2.5.0", "ONNX")
    assert (file.weight_bytes, file.internal_bytes) == (16, 128)
    x = file.tensor("x")
    assert (x.kind, x.dtype, x.shape, x.scale, x.zero) == ("input", "i8", (1, 4, 2, 2), 0.5, 3)
    assert file.tensor("w").data == rknn_samples.WEIGHTS
    assert file.operators[1].inputs == ["x", "w"]
    assert file.operators[1].on_npu
    (task,) = file.tasks
    assert task.words == rknn_samples.WORDS
    assert task.operator == 1
    assert file.description == {"target_platform": [target]}


def test_words_keep_all_bits():
    for word in rknn_samples.WORDS:
        assert decode(word.encode()) == word


def test_fields_join_to_the_value_they_came_from():
    for register in registers().values():
        whole = sum((1 << bits) - 1 << at for _, at, bits in register.fields)
        for value in (0x12345678 & whole, whole):
            assert register.join(register.split(value)) == value
    with pytest.raises(ValueError, match="DATA_BANK has 4 bits"):
        registers()["CNA", 0x1040].join({"DATA_BANK": 16})


def test_text_names_registers_and_addresses():
    text = "\n".join(disassembly.lines(read(rknn_samples.tables()), words=True))
    assert "CBUF_CON0              0x000000b1  WEIGHT_BANK=11 DATA_BANK=1" in text
    assert "address of x+0x20" in text
    assert "DPU      0x40c4                 0x00000007  value=7" in text
    assert "ENABLE   OPERATION_ENABLE       0x0000000d  CNA+CORE+DPU" in text
    assert "1 operators: 1 Conv" in text


@pytest.mark.parametrize("target", FILES)
def test_damaged_files_are_refused_in_a_line(target):
    data = FILES[target]()
    chance = random.Random(5)
    refused = []
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(data))] = chance.choice((0, 1, 127, 255))
        if chance.random() < 0.3:
            del changed[chance.randrange(len(data)) :]
        try:
            list(disassembly.lines(read(bytes(changed)), words=True))
        except BadFile as e:
            refused.append(str(e))
    assert len(refused) > 50
    assert not any("\n" in words for words in refused)


def test_command_line(tmp_path):
    path = tmp_path / "m.rknn"
    path.write_bytes(rknn_samples.tables())
    shown = command_line("inspect", path, "--asm")
    assert shown.returncode == 0, shown.stderr
    assert "CBUF_CON0" in shown.stdout
    as_json = command_line("inspect", path, "--json")
    assert '"register": "CBUF_CON0"' in as_json.stdout
    for command in ("run", "perf"):
        refused = command_line(command, path)
        assert refused.returncode == 2
        assert "it can be shown" in refused.stderr
