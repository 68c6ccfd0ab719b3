"""Layers and networks of f16, bf16 and f32 in Sophgo's chip models, equal to our interpreter."""

from __future__ import annotations

import pytest
from tests.npu.chips.bm1684x import float_networks
from tests.vendors.test_sophgo import FIRMWARE, pytestmark  # noqa: F401
from tests.vendors.test_sophgo_transformers import CHIPS, differences

from intaglio import targets
from intaglio.npu.chips.bm1684x.compile import compile_layers
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
