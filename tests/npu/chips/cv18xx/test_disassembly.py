"""cvimodels as text and JSON, and mutated ones."""

from __future__ import annotations

import json

from tests.npu.chips.cv18xx import mutants, quantized_layers, single_commands

from intaglio.npu.chips.cv18xx import cvimodel, disassembly
from intaglio.npu.chips.cv18xx.commands import CHIPS, decode, tdma, tiu
from intaglio.npu.chips.cv18xx.compile import compile_cvimodel


def test_lines_of_a_network() -> None:
    made = compile_cvimodel(quantized_layers.random_network(1), "cv181x")
    lines = list(disassembly.lines(made.model, words=True))
    assert lines[0].startswith("cvimodel    version 1.4.0 for cv181x")
    assert any(line.startswith("input       x  ") for line in lines)
    assert any(line.startswith("time  ") and "TIU" in line for line in lines)
    commands = [line for line in lines if line.startswith(("  tiu ", "  tdma "))]
    assert len(commands) == len(made.commands)
    assert len(list(disassembly.lines(made.model))) == len(lines) - len(commands)


def test_text_of_commands() -> None:
    chip = CHIPS["cv181x"]
    conv = {"opd0_c": 4, "opd0_h": 8, "opd0_w": 8, "opd1_h": 3, "opd1_w": 3, "res0_c": 16}
    conv |= {"res0_h": 8, "res0_w": 8, "opd1_addr": 0x4000, "res0_addr": 0x1000, "opd1_n": 4}
    conv |= {f"conv_opd0_{side}_pad": 1 for side in ("up", "dn", "lf", "rt")}
    stream = [
        tdma({"src_base_reg_sel": 1, "src_base_addr_low": 64, "dst_c": 8, "dst_w": 9}),
        tiu(conv | {"opt_relu_typ": 1}, 1, 5),
        tdma({"spec_func": 4, "const_val": 7, "dst_base_addr_low": 32768}),
        tiu({"tsk_typ": 3, "tsk_eu_typ": 4, "opt_opd1_const": 1, "opd1_addr": 3}),
    ]
    model = single_commands.model(stream, "cv181x")
    found = [disassembly.text(c, chip) for c in decode(model.sections[1].data)[1:-1]]
    assert found[0] == "tdma     2  load             [1x8x1x9] weights+0x40 -> 0x0  layer 0"
    assert found[1].startswith(
        "tiu      1  conv             [1x4x8x8] 0x0 k3x3 s1x1 p1,1,1,1 w 0x4000 relu "
        "-> [1x16x8x8] 0x1000 after tdma 2"
    )
    assert "fill local " in found[2]
    assert "7 -> 0x0 of lane 1" in found[2]
    assert "  max " in found[3]
    assert "const 3" in found[3]


def test_json() -> None:
    made = compile_cvimodel(quantized_layers.random_layer(1), "cv180x")
    facts = json.loads(json.dumps(disassembly.facts(made.model)))
    assert facts["chip"] == "cv180x"
    (routine,) = facts["programs"][0]["routines"]
    assert len(routine["commands"]) == len(made.commands)
    fields = routine["commands"][0]["fields"]
    assert fields.items() <= made.commands[0].fields.items()
    assert fields["dst_c"] == made.commands[0].get("dst_c")
    assert routine["times"]["total_ms"] > 0


def test_mutated_files_are_refused_or_run() -> None:
    """150 mutants of two files: an error of one line, or outputs; no crash, no hang."""
    files = [
        compile_cvimodel(quantized_layers.random_network(seed), chip).data
        for seed, chip in ((1, "cv181x"), (2, "cv180x"))
    ]
    assert all(cvimodel.read(data) for data in files)
    found, failed = mutants.run(files, 150)
    assert not failed
    assert found["ran"] > 20
    assert found["refused"] > 40
