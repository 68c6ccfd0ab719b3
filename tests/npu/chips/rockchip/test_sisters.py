"""Convolutions for other chips than the RK3588: registers of RKNN-Toolkit2 2.5.0, and splits."""

import numpy as np
import pytest

from intaglio.npu.chips.rockchip import packing
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.geometry import DESIGNS, RK3588, RV110X, Convolution

WINDOW = (3, 3), (2, 2), (1, 1, 1, 1)
NUMBERS = {"zero_in": -6, "zero_out": 1, "scale": 0x40BA, "shift": 0x18}
WANTED = {  # of a layer of 128 x 30 x 20 with 64 outputs
    "rk3566": {0x1040: 0x53, 0x1044: 0x140050, 0x1068: 0xFFFA0011, 0x3010: 0xE0009, 0x40C0: 0x980},
    "rk3576": {0x1018: 0x40000404, 0x1028: 0x4B0007F, 0x1080: 0x101, 0x40B0: 0x40BA, 0x40B8: 0x9A},
    "rv1106": {0x103C: 0x500000, 0x1048: 0xC000000, 0x1188: 0x240, 0x4058: 0x30003, 0x4024: 0x980},
}


def words_of(conv):
    return [{w.register: w.value for w in task.words} for task in encode(conv)]


@pytest.mark.parametrize("chip", WANTED)
def test_registers_are_those_of_the_chip(chip):
    (words,) = words_of(Convolution(128, 30, 20, 64, *WINDOW, **NUMBERS, design=DESIGNS[chip]))
    assert {r: words[r] for r in WANTED[chip]} == WANTED[chip]
    (others,) = words_of(Convolution(128, 30, 20, 64, *WINDOW, **NUMBERS))
    assert others != words


def test_all_rows_beside_a_part_of_the_weights():
    """A layer of ResNet-18 is one task; where rows do not all fit, weights stay."""
    (words,) = words_of(Convolution(128, 28, 28, 256, *WINDOW))
    assert words[0x1040] == 0x84
    parts = words_of(Convolution(192, 40, 40, 192, (3, 3), pads=(1, 1, 1, 1)))
    assert [p[0x1040] for p in parts] == [0xB1, *[0x20B1] * 19]


def test_rows_stay_in_the_buffer_of_an_rk3576():
    parts = words_of(
        Convolution(64, 112, 112, 32, (3, 3), pads=(1, 1, 1, 1), design=DESIGNS["rk3576"])
    )
    assert [p[0x1018] for p in parts] == [0x40000505, 0xC0000505, 0xC0000505]
    assert [p[0x103C] & 0xFFFF for p in parts[:2]] == [0, 43 * 112]
    assert [p[0x1040] & 0xFFFFFF for p in parts] == [0, 45 * 112, 88 * 112 - 5 * 1024]


def test_outputs_of_a_pointwise_layer_share_the_rows_of_an_rk3566():
    parts = encode(Convolution(512, 56, 7, 320, (1, 1), design=DESIGNS["rk3566"]))
    buffers = [{w.register: w.value for w in p.words}[0x1040] for p in parts]
    assert buffers == [0x17, *[0x1017] * 4]
    places = [dict(p.addresses.values()) for p in parts]
    assert [p["weights"] for p in places] == [k * 64 * 512 for k in range(5)]
    assert [p["output"] for p in places] == [k * 64 * 392 for k in range(5)]
    assert {p["input"] for p in places} == {0}


def test_depthwise_weights_stand_beside_their_zero_points():
    values = np.arange(32, dtype=np.int8).reshape(32, 1, 1, 1)
    zeros = np.full(32, -9)
    packed = np.frombuffer(packing.depthwise_weights(values, zeros, 32, RV110X), np.int8)
    assert packed[:6].tolist() == [0, 9, 1, 9, 2, 9]
    packed = np.frombuffer(packing.depthwise_weights(values, zeros, 32, DESIGNS["rk3576"]), np.int8)
    assert packed[:8].tolist() == [0, 1, 9, 9, 2, 3, 9, 9]
    plain = np.frombuffer(packing.depthwise_weights(values, zeros, 32, RK3588), np.int8)
    np.testing.assert_array_equal(plain, np.arange(32))
