"""Layers and networks of f16, bf16 and f32 in Sophgo's chip models, equal to our interpreter."""

from __future__ import annotations

import pytest
from tests.npu.chips.bm1684x import float_networks
from tests.vendors.test_sophgo import CHIP, FIRMWARE, pytestmark  # noqa: F401
from tests.vendors.test_sophgo_transformers import CHIPS, differences

from intaglio import targets
from intaglio.npu.chips.bm1684x.compile import compile_bmodel, compile_layers
from intaglio.npu.chips.bm1684x.variants import VARIANTS

LAYERS = 126


@pytest.mark.parametrize("chip", CHIPS)
def test_random_layers_are_equal(chip, tmp_path):
    of, firmware = targets.find(chip).chip, FIRMWARE.get(chip)
    files = {
        f"layer{s}": compile_layers(float_networks.layer(s, VARIANTS[chip]), of, firmware=firmware)
        for s in range(LAYERS)
    }
    assert not differences(files, tmp_path, chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_small_networks_are_equal(chip, tmp_path):
    of, firmware = targets.find(chip).chip, FIRMWARE.get(chip)
    files = {
        f"{dtype}_{s}": compile_bmodel(
            float_networks.small_cnn(s, 20 + 4 * s), of, firmware=firmware, dtype=dtype
        )
        for dtype in float_networks.TYPES
        for s in range(4)
    }
    assert not differences(files, tmp_path, chip, pictures=2)


@pytest.mark.parametrize("chip", CHIPS)
def test_upsampling_is_equal(chip, tmp_path):
    of, firmware = targets.find(chip).chip, FIRMWARE.get(chip)
    files = {
        f"up{s}": compile_bmodel(
            float_networks.upsampling(s), of, firmware=firmware, dtype=float_networks.TYPES[s % 3]
        )
        for s in range(30)
    }
    assert not differences(files, tmp_path, chip)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_whole_networks_are_equal(name, dtype, tmp_path):
    graph = getattr(float_networks, name)()
    files = {name: compile_bmodel(graph, targets.find(CHIP).chip, dtype=dtype)}
    assert not differences(files, tmp_path, CHIP, pictures=2)


@pytest.mark.parametrize("chip", ["bm1688", "sg2260"])
def test_a_whole_network_is_equal_on_other_chips(chip, tmp_path):
    of, firmware = targets.find(chip).chip, FIRMWARE.get(chip)
    graph = float_networks.mobilenet_v2()
    files = {"mobilenet_v2": compile_bmodel(graph, of, firmware=firmware, dtype="f16")}
    assert not differences(files, tmp_path, chip)
