"""Commands of convolutions: executed from the words alone, they give the sums of numpy."""

from dataclasses import replace

import numpy as np
import pytest
from tests.npu.chips.rockchip import layers

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.rockchip import scaling
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.geometry import Added, Convolution, split, why_not
from intaglio.npu.chips.rockchip.native_machine import Machine, available, placed
from intaglio.npu.chips.rockchip.words import Word

pytestmark = pytest.mark.skipif(not available(), reason="the C library is missing")

SCALED = {"scale": 20000, "shift": 26, "zero_in": -7, "zero_out": 11}
CASES = {
    "3x3": Convolution(20, 9, 11, 33, (3, 3), pads=(1, 1, 1, 1), **SCALED),
    "stride": Convolution(48, 13, 10, 20, (5, 3), (2, 2), (2, 1, 1, 0), relu=True, **SCALED),
    "dilated": Convolution(16, 12, 12, 8, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), **SCALED),
    "pointwise": Convolution(130, 4, 5, 70, (1, 1), limit=200000, relu=True, **SCALED),
    "one pixel": Convolution(64, 1, 1, 10, (1, 1), **SCALED),
    "depthwise": Convolution(40, 10, 9, 40, (3, 3), (2, 1), (1, 1, 1, 1), depthwise=True, **SCALED),
    "picture": Convolution(3, 17, 19, 16, (7, 7), (2, 2), (3, 3, 3, 3), **SCALED),
    "grey": Convolution(1, 12, 12, 8, (3, 3), (1, 1), (1, 1, 1, 1), **SCALED),
    "rows": Convolution(64, 40, 200, 8, (3, 3), (2, 2), (1, 1, 1, 1), **SCALED),
    "channels": Convolution(
        192, 40, 60, 192, (3, 3), (2, 2), (1, 1, 1, 1), depthwise=True, **SCALED
    ),
}
TASKS = {"rows": 2, "channels": 2, "added in rows": 2}
ADDED = {
    "added": Convolution(20, 7, 7, 40, (1, 1), added=Added(-5, 17000, 5), **SCALED),
    "added in rows": Convolution(
        64, 40, 200, 24, (3, 3), pads=(1, 1, 1, 1), added=Added(9, 30000, 6), **SCALED
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_commands_give_the_sums(name):
    conv = CASES[name]
    numbers = layers.random_numbers(conv, 3)
    assert len(encode(conv)) == TASKS.get(name, 1)
    found, wanted = layers.run(conv, *numbers), layers.meaning(conv, *numbers)
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ADDED)
def test_a_second_map_is_added(name):
    conv = ADDED[name]
    numbers = layers.random_numbers(conv, 4)
    shape = conv.outputs, conv.out_height, conv.out_width
    added = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    assert len(encode(conv)) == TASKS.get(name, 1)
    found, wanted = layers.run(conv, *numbers, added), layers.meaning(conv, *numbers, added)
    np.testing.assert_array_equal(found, wanted)
    assert (wanted != layers.meaning(conv, *numbers, 0 * added)).mean() > 0.3


def test_registers_of_a_layer():
    conv = Convolution(16, 16, 16, 32, (3, 3), pads=(1, 1, 1, 1), zero_in=4, zero_out=6)
    (task,) = encode(conv)
    found = {(w.block, w.name): w.value for w in task.words}
    wanted = {
        ("CNA", "CBUF_CON0"): 0xB1,
        ("CNA", "DATA_SIZE0"): 0x100010,
        ("CNA", "DATA_SIZE1"): 0xF0010,
        ("CNA", "WEIGHT_SIZE0"): 32 * 9 * 16,
        ("CNA", "CBUF_CON1"): 4,
        ("CNA", "DMA_CON1"): 64,
        ("CNA", "DMA_CON2"): 192,
        ("CORE", "DATAOUT_SIZE_1"): 31,
        ("DPU", "DST_SURF_STRIDE"): 0x1000,
        ("DPU", "OUT_CVT_OFFSET"): 6,
        ("ENABLE", "OPERATION_ENABLE"): 0x1D,
    }
    assert {k: found[k] for k in wanted} == wanted
    assert sorted(name for name, _ in task.addresses.values()) == [
        "channels",
        "input",
        "output",
        "weights",
    ]


def test_tasks_take_every_row_once():
    conv = Convolution(48, 112, 112, 24, (3, 3), pads=(1, 1, 1, 1))
    parts = split(conv)
    assert [p.count for p in parts] == [50, 50, 16]
    assert sum(p.out_count for p in parts) == conv.out_height
    assert [p.pad_top for p in parts] == [1, 0, 0]


def test_what_does_not_fit_is_named():
    assert why_not(Convolution(512, 8, 8, 16, (3, 3))) is None
    large = Convolution(1024, 8, 8, 256, (3, 3))
    assert "9216 bytes; 64 of them do not fit the buffer" in why_not(large)
    with pytest.raises(Unsupported, match="a picture has 1, 3 or 4 channels, not 2"):
        encode(Convolution(2, 8, 8, 16, (3, 3)))
    wide = Convolution(4096, 8, 1000, 4096, (3, 3), depthwise=True)
    assert "3 rows of the input do not fit" in why_not(replace(wide, depthwise=True, kernel=(3, 3)))


def test_wrong_commands_are_refused():
    (task,) = encode(CASES["3x3"])
    memory = np.zeros(64, np.uint8)
    with pytest.raises(BadFile, match="not in the memory"):
        Machine(memory).run([placed(task.words, {})])
    changed = [
        Word(w.target, w.register, 0x91 if w.name == "CBUF_CON0" else w.value) for w in task.words
    ]
    changed = [w if w.name != "CBUF_CON1" else Word(w.target, w.register, 99) for w in changed]
    with pytest.raises(BadFile, match="entries of the buffer"):
        Machine(memory).run([placed(changed, {})])


def test_factors_keep_the_real_ones():
    scales = np.array([0.0021, 0.00093, 0.0007])
    multipliers, scale, shift = scaling.factors(scales)
    assert scale < 1 << 15
    np.testing.assert_allclose(multipliers / 2**14 * scale / 2**shift, scales, rtol=2e-4)


def test_halves_go_to_the_even_neighbour():
    values = np.array([1, 3, 5, -1, -3, 2, 6])
    np.testing.assert_array_equal(scaling.half_even(values, 1), [0, 2, 2, 0, -2, 1, 3])
    np.testing.assert_array_equal(scaling.half_even(values, 2), [0, 1, 1, 0, -1, 0, 2])
