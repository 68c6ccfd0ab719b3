"""The simulator of CV18xx: single commands beside the results of Sophgo's own simulator, and whole
networks beside the interpreter."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.cv18xx import quantized_layers, single_commands
from tests.npu.chips.cv18xx.command_cases import NAMES, case

import intaglio
from intaglio.errors import BadFile, BadInput, RunError, Unsupported
from intaglio.npu.chips.cv18xx import cpu_routines, cvimodel
from intaglio.npu.chips.cv18xx.commands import CHIPS, Command, tdma, tiu
from intaglio.npu.chips.cv18xx.compile import compile_cvimodel
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU
from intaglio.npu.chips.cv18xx.simulate import NUMPY, Machine

HERE = Path(__file__).parent
ISAS = {"scalar": 0, "avx2": 1, "avx512": 3, "avx512vnni": 7, "best": 0xFFFFFFFF}
# CRCs of local memory after each command, of libcvicmodel in tpu_mlir 1.30.2.
GOLDEN: dict[str, list[int]] = json.loads((HERE / "golden_results.json").read_text())


def test_structs_of_c_have_the_fields_in_order() -> None:
    header = (HERE.parents[3] / "csrc" / "compiler" / "cv18xx.h").read_text()
    for table, name in ((TIU, "itg_cv18xx_tiu"), (TDMA, "itg_cv18xx_tdma")):
        (body,) = re.findall(r"typedef struct \{\s*uint32_t ([^;]*);\s*\} " + name, header)
        assert [n.strip() for n in body.split(",")] == [f.name for f in table.fields]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NAMES)
def test_single_commands(name: str, chip: str) -> None:
    for seed, want in enumerate(GOLDEN[f"{chip} {name}"]):
        model, x = case(name, chip, seed)
        assert zlib.crc32(Machine(model).run({"x": x})["y"].tobytes()) == want, seed


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
def test_instruction_sets_give_the_same_bytes(isa: int) -> None:
    for name in NAMES:
        if name.startswith(("conv", "depthwise", "pool")) and "bf16" not in name:
            for seed, want in enumerate(GOLDEN[f"cv181x {name}"]):
                model, x = case(name, "cv181x", seed)
                made = Machine(model, isa=isa).run({"x": x})["y"]
                assert zlib.crc32(made.tobytes()) == want, (name, seed)


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
@pytest.mark.parametrize("seed", range(20))
def test_weights_without_sign(seed: int, isa: int) -> None:
    """Sums of weights up to 255 are twice those of their halves, and those of their last bits."""
    rng, lanes = np.random.default_rng(seed), CHIPS["cv181x"].lanes
    (command,), _ = single_commands.convolution(rng, lanes, False, 2)
    unsigned = tiu(command.fields | {"opt_opd1_sign": 0})
    start, size = command.fields["res0_addr"], command.fields["res0_b_str"]
    weights = slice(single_commands.W, single_commands.Q)

    def sums(one: Command, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        x = single_commands.memory(seed, "cv181x")
        by_lane = x.reshape(lanes, -1)
        by_lane[:, start : start + 4 * size] = 0
        by_lane[:, weights] = change(by_lane[:, weights])
        y = Machine(single_commands.model([one], "cv181x"), isa=isa).run({"x": x})["y"]
        planes = y.reshape(lanes, -1)[:, start : start + 4 * size].reshape(lanes, 4, size)
        return np.ascontiguousarray(planes.transpose(0, 2, 1)).view(np.int32)

    halves, bits = sums(command, lambda w: w >> 1), sums(command, lambda w: w & 1)
    assert np.array_equal(sums(unsigned, lambda w: w), 2 * halves + bits)


def _run(chip: str, command: Command) -> None:
    model = single_commands.model([command], chip)
    Machine(model).run({"x": single_commands.memory(0, chip)})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (tiu({"tsk_typ": 9}), r"tiu command 1 \(.*\): the kind of command is not known"),
        (tiu({"tsk_typ": 3, "tsk_eu_typ": 30}), "the element-wise operation is not known"),
        (tiu({"tsk_typ": 3, "tsk_eu_typ": 10, "opd0_addr": 32760}), "beyond the end of local"),
        (tiu({"tsk_typ": 3, "tsk_eu_typ": 10, "res0_n": 0}), "a tensor is empty"),
        (tiu({"tsk_typ": 0, "opd1_n": 3}), "weights and input have different channels"),
        (tiu({"tsk_typ": 1, "opd1_w": 99}), "windows reach beyond the padded input"),
        (tiu({"tsk_typ": 2, "opd1_n": 3}), "the matrices do not fit each other"),
        (tdma({"src_base_reg_sel": 7}), "tdma command 2: it reads or writes beyond the memory"),
        (tdma({"src_base_reg_sel": 3, "dst_base_addr_low": 1 << 20}), "beyond local memory"),
        (tdma({"src_fmt": 0}), "the element type is not int8 or bf16"),
        (tdma({"src_base_reg_sel": 3, "spec_func": 2}), "the special function is not known"),
    ],
)
def test_commands_that_cannot_be_executed_are_named(command: Command, words: str) -> None:
    with pytest.raises(RunError, match=words):
        _run("cv181x", command)


@pytest.mark.parametrize("chip", CHIPS)
def test_networks_of_our_compiler(chip: str) -> None:
    """Simulator and interpreter give the same bytes."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        graph = quantized_layers.random_network(seed)
        made = compile_cvimodel(graph, chip)
        machine = Machine(cvimodel.read(made.data))
        feeds = {
            t.name: rng.integers(0, 256, t.shape).astype(np.uint8).view(NUMPY[t.dtype])
            for t in machine.inputs
        }
        got = machine.run(feeds)
        want = intaglio.interpret(made.graph, feeds)
        for name, y in want.items():
            assert np.array_equal(got[name].reshape(y.shape), y), (seed, name)


def test_inputs_are_checked() -> None:
    machine = Machine(single_commands.model([], "cv181x"))
    with pytest.raises(BadInput, match="input 'x' is missing"):
        machine.run({})
    with pytest.raises(BadInput, match=r"int8\[1\]; uint8\[1, 8, 128, 256\] is needed"):
        machine.run({"x": np.zeros(1, np.int8)})


def test_functions_of_the_runtime() -> None:
    x = np.array([0.4, 0.6, -3.0, 500.0, 1.25, -1.25], np.float32)
    made = cpu_routines.run("quant", {"scale": 2.0}, [x], "i8")
    assert made.tolist() == [1, 1, -6, 127, 3, -3]  # halves away from zero
    with pytest.raises(Unsupported, match="calls the function 'yolo_detection' on the CPU"):
        cpu_routines.run("yolo_detection", {}, [x], "f32")


def test_tensors_beyond_their_memory_are_refused() -> None:
    model = single_commands.model([], "cv181x")
    model.programs[0].tensors[0].base = 0
    with pytest.raises(BadFile, match="tensor 'x' lies beyond its memory"):
        Machine(model).run({"x": single_commands.memory(0, "cv181x")})
