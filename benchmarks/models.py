"""The models that the benchmarks run: the one that ships, those of ../shared if it is there, and by
name those that `python -m benchmarks.zoo` has exported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("INTAGLIO_SHARED", ROOT.parent / "shared"))
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def available() -> list[Path]:
    """Every ONNX model that can be found, the one that ships first."""
    return [DIGITS, *sorted((SHARED / "models" / "onnx").glob("*.onnx"))]


def find(name: str) -> Path | None:
    """The model file of that name, with or without its ending."""
    known = [*available(), *sorted((ROOT / "build" / "zoo").glob("*/*.onnx"), reverse=True)]
    return next((p for p in known if name in (p.stem, p.name, str(p))), None)


def dims(path: Path) -> dict[str, int]:
    """Every dimension that the model leaves open, set to 1."""
    import onnx

    inputs = onnx.load(path, load_external_data=False).graph.input
    return {d.dim_param: 1 for i in inputs for d in i.type.tensor_type.shape.dim if d.dim_param}


def feeds(types: dict[str, Any], seed: int = 0) -> dict[str, Array]:
    """Seeded inputs of the given types."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, t in types.items():
        numpy = dtypes.numpy_of(t.dtype)
        if dtypes.is_float(t.dtype):
            made[name] = rng.standard_normal(t.shape, np.float32).astype(numpy)
        else:
            made[name] = rng.integers(0, 2, t.shape).astype(numpy)
    return made
