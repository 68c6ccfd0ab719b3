"""OpenVINO after NNCF's post-training quantisation, by its scheme for convolutions or by that for
transformers, whichever is faster; layers that stay float have OpenVINO's default type."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import Case
from benchmarks.peers import Array, openvino_peer
from benchmarks.peers.int8 import SAMPLES, keep_fastest

ENGINE = "openvino"
PACKAGES = ("openvino", "nncf")


def convert(case: Case, folder: Path, threads: int) -> Path:
    import openvino

    def save(model: Any, name: str) -> Path:
        openvino.save_model(model, folder / f"{name}.xml", compress_to_fp16=False)
        return folder / f"{name}.xml"

    def made(transformer: bool) -> Path:
        model = quantize(read(case.path, case.feeds), case.samples(SAMPLES), transformer)
        return save(model, "attention" if transformer else "plain")

    float_file = save(read(case.path, case.feeds), "float")
    exact = openvino_peer.Runner(float_file, case.feeds, 1, "f32")
    exact.run()
    file = keep_fastest(
        case,
        load,
        exact.outputs(),
        {"plain": lambda: made(False), "transformer": lambda: made(True)},
    )
    for left in folder.glob("*"):
        if left.stem != file.stem:
            left.unlink()
    return file


def read(path: Path, feeds: dict[str, Array]) -> Any:
    """The model with fixed shapes and folded constants, so that NNCF recognises weights."""
    import openvino

    return openvino.convert_model(path, input=[(n, list(a.shape)) for n, a in feeds.items()])


def quantize(model: Any, samples: Sequence[dict[str, Array]], transformer: bool = False) -> Any:
    """NNCF's result."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    kind = nncf.ModelType.TRANSFORMER if transformer else None
    return nncf.quantize(model, nncf.Dataset(samples), subset_size=len(samples), model_type=kind)


def load(file: Path, feeds: dict[str, Array], threads: int) -> openvino_peer.Runner:
    return openvino_peer.Runner(file, feeds, threads, None)
