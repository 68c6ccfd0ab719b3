"""A truncated file of any format is refused in one line, or is still a model."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests import fuzz_frontends

import intaglio
from intaglio.errors import BadFile, IntaglioError

PLACES = 20
HEADER = 24  # bytes: the headers of most formats end before


def cuts(size: int) -> list[int]:
    """Lengths to cut a file to: its first bytes, and places spread over the rest."""
    return sorted({*range(min(size, HEADER)), *np.linspace(0, size - 1, PLACES, dtype=int)})


@pytest.mark.parametrize("kind", fuzz_frontends.FILES)
def test_truncated_files_are_refused_in_one_line(kind: str, tmp_path: Path):
    every = list(fuzz_frontends.built(kind, tmp_path))
    if not every:
        pytest.skip(f"what builds {kind} files is not installed")
    refused = 0
    for path, parts, how in every:
        for part in parts:
            good = part.read_bytes()
            for length in cuts(len(good)):
                part.write_bytes(good[:length])
                refused += is_refused(path, how)
            part.write_bytes(good)
    assert refused > HEADER


def is_refused(path: Path, how: dict) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            intaglio.load(path, **how)
        except IntaglioError as e:
            assert str(e), e  # noqa: PT017
            assert "\n" not in str(e)  # noqa: PT017
            return True
    return False


@pytest.mark.parametrize("size", [0, 3, 11, 12, 15, 19])
def test_darknet_weights_shorter_than_their_header(size: int, tmp_path: Path):
    ((cfg, _, how),) = fuzz_frontends.built("darknet", tmp_path)
    weights = cfg.with_suffix(".weights")
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(BadFile, match=rf"darknet: .*net\.weights' has {size} bytes, .* header"):
        intaglio.load(cfg, **how)
