"""The simulator of BM1684X: single commands, compiled networks, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests import fuzz_bmodel
from tests.npu.chips.bm1684x import command_cases, networks
from tests.npu.chips.k210.quantized_cnn import random_cnn

import intaglio
from intaglio import dtypes, targets
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.npu.chips.bm1684x import bmodel, jobs, native_units, simulate
from intaglio.npu.chips.bm1684x.commands import Command, decode_stream
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.bm1684x.lanes import LANE, Memory
from intaglio.npu.chips.bm1684x.variants import BM1688

# digests of local memory after each command, computed by Sophgo's chip model (tests/vendors)
GOLDEN = json.loads(Path(__file__).with_name("golden_commands.json").read_text())


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory(1 << 16)


def _needs_c(command: Command) -> bool:
    return command.name in ("sCONV", "sMM2") and command.fields["opd0_prec"] == 1


@pytest.mark.parametrize("isa", [None, 0, 1, 0xFFFF])  # none: numpy; plain C, AVX2, all
def test_commands_do_what_the_vendors_chip_model_does(memory, monkeypatch, isa):
    native = isa is not None
    if not native:
        monkeypatch.setattr(native_units, "available", lambda: False)
    elif not native_units.available():
        pytest.skip("the C library is missing")
    else:
        found = jobs._cpu()
        monkeypatch.setattr(jobs, "_cpu", lambda: found & isa)
    image = command_cases.image()
    wrong = []
    for seed, digest in GOLDEN.items():
        command = command_cases.case(int(seed))
        command_cases.local(memory)[:] = image
        if not native and _needs_c(command):
            with pytest.raises(Unsupported, match="by the C library, which is missing"):
                simulate.execute(memory, command)
            continue
        simulate.execute(memory, command)
        if command_cases.digest(command_cases.local(memory)) != digest:
            wrong.append((seed, command.name))
    assert not wrong


def _run(graph, chip="bm1684x", cores=1):
    made = compile_bmodel(graph, targets.find(chip).chip, cores=cores)
    rng = np.random.default_rng(1)
    feeds = {}
    for p in made.lowered.inputs:
        low, high = dtypes.limits(p.dtype)
        feeds[p.name] = rng.integers(low, high + 1, p.shape).astype(dtypes.numpy_of(p.dtype))
    found = simulate.Machine(bmodel.read(made.data)).run(feeds)
    return list(intaglio.interpret(made.graph, feeds).values()), list(found.values())


@pytest.mark.parametrize("seed", range(24))
def test_layers_equal_the_interpreter(seed):
    for a, b in zip(*_run(networks.random_layer(seed)), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_networks_equal_the_interpreter(seed):
    for a, b in zip(*_run(networks.random_network(seed)), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("chip", ["bm1688", "sg2260"])
def test_other_chips_equal_the_interpreter(chip):
    nets = [*map(networks.random_layer, range(8)), networks.random_network(0)]
    for graph in nets:
        for a, b in zip(*_run(graph, chip), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("chip", "cores"), [("bm1688", 2), ("sg2260", 8)])
def test_cores_share_the_work(chip, cores):
    for seed in (4, 6):
        for a, b in zip(*_run(networks.random_network(seed), chip, cores), strict=True):
            assert a.tobytes() == b.tobytes()


def test_cores_meet_at_barriers():
    """Commands of both cores as tpu-mlir's: messages 30 and 31 in turn, four of each expected."""
    made = compile_bmodel(random_cnn(1), targets.find("bm1688").chip, grouped=False, cores=2)
    (subnet,) = made.model.nets[0].stages[0].subnets
    assert made.model.nets[0].stages[0].cores == len(subnet.cores) == 2
    seen = []
    for ((group,),) in zip(subnet.cores, strict=True):
        tiu = [c for c in decode_stream(group.tiu, "tiu", "bm1688") if c.name == "SYS"][:-1]
        dma = [c for c in decode_stream(group.dma, "dma", "bm1688") if c.name == "sDMA_sys"][:-1]
        assert [c.fields["tsk_eu_typ"] for c in tiu] == [8, 9] * (len(tiu) // 2)
        assert [c.fields["cmd_special_function"] for c in dma] == [3, 4] * (len(dma) // 2)
        assert all(d.depends == t.number for t, d in zip(tiu, dma, strict=True))
        seen.append(([c.fields["imm"] for c in tiu], [c.fields["constant_value"] for c in dma]))
    assert seen[0] == seen[1]
    assert seen[0][0][:4] == [4 << 16 | 30] * 2 + [4 << 16 | 31] * 2
    assert seen[0][1][:4] == [4 << 8 | 30] * 2 + [4 << 8 | 31] * 2
    subnet.cores[1] = subnet.cores[0][:0]
    with pytest.raises(BadFile, match=r"its cores have .* barriers"):
        simulate.Machine(made.model)
    with pytest.raises(BadInput, match="bm1684x: 2 cores are requested; it has 1"):
        compile_bmodel(random_cnn(1), targets.find("bm1684x").chip, cores=2)


@pytest.mark.parametrize("native", [True, False])
def test_bm1688_rounds_in_the_convolution(native, monkeypatch):
    """40 channels, more than a round of its 32 lanes; multiplier, shift and zero of each."""
    if not native:
        monkeypatch.setattr(native_units, "available", lambda: False)
    rng = np.random.default_rng(0)
    memory, c, (h, w) = Memory(4096, BM1688), 40, (5, 6)
    x = rng.integers(-128, 128, (1, c, h, w)).astype(np.int8)
    weights = rng.integers(-9, 10, (1, c, 1, 64)).astype(np.int8)
    bias = rng.integers(-999, 999, (1, c, 1, 1)).astype(np.int32)
    factors = rng.integers(1 << 20, 1 << 21, (1, c, 1, 1)).astype(np.int32)
    zeros, shift = np.arange(c, dtype=np.int32).reshape(1, c, 1, 1) - 20, -26
    rest = (zeros << 16) | (shift & 0xFF)
    memory.write(0, x, memory.strides(x.shape, 0, 0, 0))
    memory.write(0x1000, weights, (128, 64, 64, 1))
    memory.write(0x2000, bias, memory.strides(bias.shape, 4, 1, 0x2000))
    both = np.concatenate([factors, rest], 3)
    memory.write(0x3000, both, memory.strides(both.shape, 4, 1, 0x3000))
    writes = {"reg_idx0": 127, "reg_idx1": 6, "reg_idx2": 127, "imm1": 0x3000}
    simulate.execute(memory, Command("tiu", "SYS_TR_ACC", writes))
    fields = {"res0_n": 1, "res0_c": c, "res0_h": h, "res0_w": w, "res0_addr": 0x4000}
    fields |= {"opd0_c": c, "opd0_h": h, "opd0_w": w, "opd0_sign": 1, "opd1_sign": 1}
    fields |= {"opd1_h": 1, "opd1_w": 1, "opd1_addr": 0x1000, "opd2_addr": 0x2000, "opd2_sign": 1}
    fields |= {"opd3_const": 1, "opd4_const": 1, "rq": 1, "relu": 1, "opd2_n_str": 5}
    fields |= {"res_op_x_str": 1, "res_op_y_str": 1, "res0_sign": 1}
    simulate.execute(memory, Command("tiu", "sCONV", fields))
    sums = np.einsum("oi,ihw->ohw", weights[0, :, 0, :c].astype(np.int64), x[0].astype(np.int64))
    sums = np.maximum(sums + bias[0], 0) * factors[0].astype(np.int64)
    expected = np.clip((sums + (1 << 25) >> 26) + zeros[0], -128, 127)
    found = memory.read(0x4000, np.dtype(np.int8), x.shape, memory.strides(x.shape, 0, 0, 0x4000))
    assert (found[0] == expected).all()
    assert len(np.unique(expected)) > 100


def test_layers_equal_the_interpreter_without_c(monkeypatch):
    monkeypatch.setattr(native_units, "available", lambda: False)
    for seed in range(6):
        for a, b in zip(*_run(networks.random_layer(seed)), strict=True):
            assert a.tobytes() == b.tobytes()


def test_dma_moves_tensors_between_ddr_and_lanes():
    memory = Memory(4096)
    memory.ddr[:] = np.arange(4096) % 251
    size = {"src_nsize": 1, "src_csize": 70, "src_hsize": 2, "src_wsize": 3}
    far = {"src_nstride": 420, "src_cstride": 6, "src_hstride": 3, "src_wstride": 1}
    near = {"dst_nstride": 128, "dst_cstride": 64, "dst_hstride": 3, "dst_wstride": 1}
    places = {"src_start_addr_h8": 1, "dst_start_addr_l32": 0x0800_0000 + 3 * LANE + 64}
    flags = {"stride_enable": 1, "nchw_copy": 1}
    simulate.execute(memory, Command("dma", "DMA_tensor", size | far | near | places | flags, 1))
    lanes = memory.raw.reshape(64, LANE)
    for c in (0, 17, 60, 61, 69):  # the first channel lies in lane 3
        lane, block = (3 + c) % 64, (3 + c) // 64
        at = 64 + 64 * block
        assert (lanes[lane, at : at + 6] == memory.ddr[6 * c : 6 * c + 6]).all()


def test_what_is_not_simulated_says_so(memory):
    with pytest.raises(Unsupported, match=r"command 7 of the tiu, sCONV: .* not simulated"):
        simulate.execute(memory, Command("tiu", "sCONV", {"opd0_prec": 6}, 7))
    with pytest.raises(Unsupported, match=r"command sCMP \(gt_select_gt\) is not simulated"):
        simulate.execute(memory, Command("tiu", "sCMP", {"tsk_eu_typ": 22}, 1))
    fields = {"res0_n": 1, "res0_c": 1, "res0_h": 1, "res0_w": 1, "tsk_opd_num": 1}
    fields |= {"tsk_eu_typ": 19, "opd0_addr": 1 << 25}
    with pytest.raises(BadFile, match="there are 64 lanes"):
        simulate.execute(memory, Command("tiu", "sAR", fields, 1))


def test_wrong_inputs_are_refused():
    made = compile_bmodel(networks.random_layer(0), targets.find("bm1684x").chip)
    machine = simulate.Machine(bmodel.read(made.data))
    name = made.lowered.inputs[0].name
    with pytest.raises(BadInput, match=f"input '{name}' is missing"):
        machine.run({})
    with pytest.raises(BadInput, match="is needed"):
        machine.run({p.name: np.zeros(3) for p in made.lowered.inputs})
    with pytest.raises(BadInput, match=r"is float32.*8.* is needed"):
        machine.run({p.name: np.zeros(p.shape, np.float32) for p in made.lowered.inputs})
    model = bmodel.read(made.data)
    model.chip = "BM1684"
    with pytest.raises(Unsupported, match="a file for BM1684 is not simulated"):
        simulate.Machine(model)


def test_mutated_files_are_refused_in_a_line_or_run():
    done = fuzz_bmodel.fuzz(150, fuzz_bmodel.seeds(), seed=7)
    assert done["refused"] > 30
    assert done["ran"] > 5
