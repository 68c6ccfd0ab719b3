"""The models of the benchmarks: the zoo (exported on demand), the model in the repository,
the models in ../shared if it exists, and any ONNX file by its path."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import MODELS
from intaglio import dtypes
from intaglio.ir import Array

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("INTAGLIO_SHARED", ROOT.parent / "shared"))
ZOO = Path(os.environ.get("INTAGLIO_ZOO", ROOT / "build" / "zoo"))
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"

LIST = (
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2",
    "squeezenet1_1",
    "efficientnet_lite0",
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "fastvit_t8",
    "yolov8n_320",
    "yolov8n_640",
    "yolov5s_320",
    "yolov5s_640",
    "minilm_l6",
    "bert_mini",
    "vit_tiny_224",
    "lstm",
    "gru",
    "unet_small",
    "espcn_x3",
    "lraspp_320",
)
QUICK = ("mobilenet_v2", "resnet18", "bert_mini", "gru")


class NotExported(SystemExit):
    """A model of the zoo cannot be exported here; lists of models skip it."""


@dataclass(frozen=True)
class Case:
    """One model to measure."""

    name: str
    path: Path  # ONNX

    @property
    def in_zoo(self) -> bool:
        return self.name in MODELS and ZOO in self.path.parents

    @functools.cached_property
    def dims(self) -> dict[str, int]:
        return dims(self.path)

    @functools.cached_property
    def feeds(self) -> dict[str, Array]:
        """The same inputs for every engine."""
        if self.in_zoo:
            return MODELS[self.name].feeds(1)
        import intaglio

        graph = intaglio.load(self.path, dims=self.dims)
        return feeds({v.name: v.type for v in graph.inputs})

    def samples(self, count: int) -> list[dict[str, Array]]:
        """Seeded inputs for calibration, distinct from the measured ones."""
        if self.in_zoo:
            return [MODELS[self.name].feeds(1000 + i) for i in range(count)]
        import intaglio

        graph = intaglio.load(self.path, dims=self.dims)
        types = {v.name: v.type for v in graph.inputs}
        return [feeds(types, 1000 + i) for i in range(count)]

    def net(self) -> Any:
        """The torch module that the ONNX file was exported from."""
        if not self.in_zoo:
            from benchmarks.peers import Refused

            raise Refused("needs a torch module, which only the zoo's models have")
        return MODELS[self.name].build()


def case(name: str) -> Case:
    """The model of that name or path; a model of the zoo is exported if necessary."""
    path = find(name) or Path(name)
    if not path.exists() and name in MODELS:
        path = ZOO / "torchscript-14" / f"{name}.onnx"
        command = [sys.executable, "-m", "benchmarks.zoo", name, "--out", str(ZOO)]
        print(f"{name}: exporting from torch ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise NotExported(f"{name}: could not be exported: {' '.join(said)}")
    if not path.exists():
        raise SystemExit(
            f"no model '{name}': give the path of an ONNX file, or one of {', '.join(LIST)}"
        )
    return Case(path.stem, path.resolve())


def cases(names: Sequence[str]) -> list[Case]:
    """The available models; missing ones are reported. Without any: the repository's model."""
    found = []
    for name in names:
        try:
            found.append(case(name))
        except NotExported as e:
            print(f"left out: {e}", file=sys.stderr, flush=True)
    if not found:
        print(f"no model is available; measuring {DIGITS.stem} of the repository", file=sys.stderr)
    return found or [case(DIGITS.stem)]


def available() -> list[Path]:
    """Every ONNX model that exists already, the one of the repository first."""
    return [DIGITS, *sorted((SHARED / "models" / "onnx").glob("*.onnx"))]


def find(name: str) -> Path | None:
    """The model file of that name, with or without its suffix."""
    known = [*available(), *sorted(ZOO.glob("*/*.onnx"), reverse=True)]
    return next((p for p in known if name in (p.stem, p.name, str(p))), None)


def dims(path: Path) -> dict[str, int]:
    """Every symbolic dimension of the model, set to 1."""
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
