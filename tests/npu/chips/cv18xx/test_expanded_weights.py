"""Compressed weights that the simulator expands before the first run."""

import numpy as np
import pytest

from intaglio.errors import RunError
from intaglio.npu.chips.cv18xx import commands, expanded_weights, native_machine
from intaglio.npu.chips.cv18xx.cvimodel import FIRST_IO, WEIGHTS
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU

CHIP = commands.find_chip("cv181x")
SHAPE = (2, 8, 3, 5)  # 240 bytes: 15 blocks of 16
COUNT = 240
RAW = 7 << 5  # what a block says that stores its 16 numbers as they are


def compressed(numbers: np.ndarray, kind: int = RAW) -> np.ndarray:
    return np.concatenate([np.zeros(16, np.uint8), np.full(16, kind, np.uint8), numbers])


def transfer(**fields: int) -> np.ndarray:
    n, c, h, w = SHAPE
    sizes = {"src_n": n}
    for side in ("src", "dst"):
        sizes |= {f"{side}_c": c, f"{side}_h": h, f"{side}_w": w, f"{side}_n_stride": 64}
        sizes |= {f"{side}_c_stride_low": h * w, f"{side}_h_stride": w}
    values = TDMA.resets | {"vld": 1} | sizes | fields
    return np.array([values[name] for name in TDMA.by_name], np.uint32)


def stream(*more: np.ndarray) -> native_machine.Stream:
    """Loads weights into local memory and stores them."""
    _, c, h, w = SHAPE
    load = transfer(compress_en=1, trans_dir=0, src_base_reg_sel=WEIGHTS)
    dense = {"dst_n_stride": c * h * w, "dst_c_stride_low": h * w, "dst_h_stride": w}
    store = transfer(trans_dir=1, dst_base_reg_sel=FIRST_IO, **dense)
    rows = np.stack([load, store, *more])
    return native_machine.Stream(
        np.zeros(len(rows), bool), np.zeros((0, len(TIU.by_name)), np.uint32), rows
    )


def run(made: native_machine.Stream, weights: np.ndarray, ahead: bool = True) -> np.ndarray:
    memory: list = [None] * native_machine.BASES
    memory[WEIGHTS], memory[FIRST_IO] = weights, np.zeros(COUNT, np.uint8)
    if ahead:
        expanded_weights.expand_ahead([made], memory)
    native_machine.execute(made, CHIP, memory)
    return memory[FIRST_IO]


def test_weights_are_those_of_the_command():
    numbers = np.random.default_rng(0).integers(0, 256, COUNT).astype(np.uint8)
    once, again = stream(), stream()
    assert np.array_equal(run(once, compressed(numbers)), numbers)
    assert once.more
    assert np.array_equal(run(again, compressed(numbers), ahead=False), numbers)
    assert not again.more


def test_weights_that_commands_write_are_expanded_in_each_run():
    numbers = np.arange(COUNT, dtype=np.uint8)
    made = stream(transfer(trans_dir=1, dst_base_reg_sel=WEIGHTS))
    assert np.array_equal(run(made, np.resize(compressed(numbers), 1024)), numbers)
    assert not made.more


def test_weights_that_are_not_valid_are_refused_when_they_are_loaded():
    with pytest.raises(RunError, match="its compressed weights are not valid"):
        run(stream(), compressed(np.zeros(COUNT, np.uint8), kind=6 << 5))
