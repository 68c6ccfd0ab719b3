"""f32 layers, products of activations and transformers in Sophgo's chip models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.bm1684x import transformers
from tests.vendors.test_sophgo import CHIP, FIRMWARE, difference, pytestmark, vendor  # noqa: F401

import intaglio
from intaglio import targets
from intaglio.npu.chips.bm1684x.compile import compile_bmodel, compile_layers

CHIPS = ["bm1684x", "bm1688", "sg2260"]


def differences(files: dict, folder: Path, chip: str, pictures: int = 1) -> list[str]:
    """How the chip model's outputs of compiled files differ from our interpreter's."""
    expected = {}
    for name, made in files.items():
        made.save(folder / f"{name}.bmodel")
        rng = np.random.default_rng(sum(map(ord, name)))
        feeds = [_feeds(made.lowered, rng) for _ in range(pictures)]
        given = {str(i): np.stack([f[k] for f in feeds]) for i, k in enumerate(feeds[0])}
        np.savez(folder / f"{name}.in.npz", **given)
        runs = [list(intaglio.interpret(made.graph, f).values()) for f in feeds]
        expected[name] = [np.stack(one) for one in zip(*runs, strict=True)]
    ran = vendor(folder, chip)
    return [w for n, e in expected.items() if (w := difference(folder, n, e, ran[n]))]


def _feeds(lowered, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random numbers; the mask of a text encoder is 0 or far below."""
    found = transformers.feeds_of(lowered, rng)
    for p in lowered.inputs:
        if len(lowered.inputs) == 2 and p.dtype == "f32" and p.shape[:3] == (1, 1, 1):
            found[p.name] = (-10000 * (rng.random(p.shape) < 0.3)).astype(np.float32)
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_random_float_layers_are_equal(chip, tmp_path):
    of = targets.find(chip).chip
    files = {
        f"layer{s}": compile_layers(transformers.float_layer(s), of, firmware=FIRMWARE.get(chip))
        for s in range(96)
    }
    assert not differences(files, tmp_path, chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_small_transformers_are_equal(chip, tmp_path):
    of = targets.find(chip).chip
    graphs = {f"int8_{s}": transformers.int8_attention(s) for s in range(6)}
    graphs["vision"] = transformers.quantized(transformers.vision())
    graphs["text"] = transformers.quantized(transformers.text())
    files = {n: compile_bmodel(g, of, firmware=FIRMWARE.get(chip)) for n, g in graphs.items()}
    assert not differences(files, tmp_path, chip, pictures=10 if chip == CHIP else 2)


@pytest.mark.parametrize("chip", CHIPS)
def test_masks_shared_heads_and_tables_of_floats_are_equal(chip, tmp_path):
    of = targets.find(chip).chip
    files = {
        f"{mask.replace(' ', '_')}{shared}": compile_bmodel(
            transformers.masked_attention(mask, shared, 4, 20, 70),
            of,
            firmware=FIRMWARE.get(chip),
            dtype="f32",
        )
        for mask in transformers.MASKS
        for shared in (1, 2)
    }
    for dtype in ("i8", "u8"):
        graph = transformers.table_of_floats(dtype)
        files[f"table_{dtype}"] = compile_bmodel(
            graph, of, firmware=FIRMWARE.get(chip), dtype="f32"
        )
    assert not differences(files, tmp_path, chip)


@pytest.mark.parametrize("name", ["deit_tiny", "minilm"])
def test_whole_transformers_are_equal(name, tmp_path):
    made = {
        "deit_tiny": lambda: transformers.vision(224, 16, 192, 3, 12),
        "minilm": lambda: transformers.text(128, 384, 12, 6),
    }
    graph = transformers.quantized(made[name]())
    files = {name: compile_bmodel(graph, targets.find(CHIP).chip)}
    assert not differences(files, tmp_path, CHIP, pictures=2)
