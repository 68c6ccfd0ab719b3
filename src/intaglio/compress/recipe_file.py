"""A recipe in YAML: the steps of `intaglio compress`, read, checked and run.

model: model.onnx
data: {mean: [123.7, 116.3, 103.5], std: [58.4, 57.1, 57.4]}
steps:
  - train: {epochs: 5, flip: true, crop: 4}
  - prune: {macs: 0.5}
  - train: {epochs: 10, teacher: self}
  - quantize: {weights: 4, activations: 8}
  - train: {epochs: 5}
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import progress
from intaglio.compress.data import Labelled, read
from intaglio.compress.recipe import Recipe
from intaglio.compress.train import Training
from intaglio.compress.twin.write_back import to_graph
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.ir import Graph
from intaglio.ops.complexity import complexity

KEYS = ("model", "target", "data", "steps", "calibration", "channel")
STEPS = ("train", "prune", "sparsify", "quantize")
CALIBRATION = 100  # samples
TEACHING = ("teacher", "temperature", "labels")
TRAINING = (*(f.name for f in fields(Training)), *TEACHING)
PRUNING = ("macs", "parameters", "ms", "criterion", "spread", "round_to", "least", "only", "leave")
QUANTIZING = ("weights", "activations", "method", "ends", "fast", "per")


@dataclass
class Stage:
    """What one step reached."""

    name: str
    words: str
    macs: int
    parameters: int
    accuracy: float | None  # of the test data, in percent
    seconds: float


@dataclass
class Result:
    """The graph, and what every step reached."""

    graph: Graph
    stages: list[Stage] = field(default_factory=list)
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)  # channels by layer

    def to_dict(self) -> dict[str, Any]:
        """Values by name."""
        names = ("name", "words", "macs", "parameters", "accuracy", "seconds")
        return {
            "stages": [{n: getattr(s, n) for n in names} for s in self.stages],
            "layers": {k: list(v) for k, v in self.layers.items()},
        }


def load(path: str | Path) -> dict[str, Any]:
    """The recipe of a file; BadFile or BadInput names the line or key that is wrong."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as e:
        raise BadFile(f"{path}: no YAML: {' '.join(str(e).split())[:120]}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no keys; a recipe has model and steps")
    _check_keys(str(path), content, KEYS)
    for key in ("model", "steps"):
        if key not in content:
            raise BadInput(f"{path}: '{key}' is missing; a recipe has model and steps")
    content["steps"] = [_step(f"{path}: step {i}", s) for i, s in enumerate(content["steps"], 1)]
    return content


def _check_keys(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; known are {', '.join(known)}"
            raise BadInput(f"{where}: no key is called '{key}'{hint}")


def _step(where: str, step: Any) -> tuple[str, Any]:
    if not isinstance(step, dict) or len(step) != 1:
        raise BadInput(f"{where} is {step!r}; write one step, such as `- prune: {{macs: 0.5}}`")
    ((name, options),) = step.items()
    _check_keys(where, step, STEPS)
    known = {"train": TRAINING, "prune": PRUNING, "quantize": QUANTIZING}.get(name)
    if known is None:
        return name, options
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise BadInput(f"{where}: {name} is {options!r}; give its options, such as {{}}")
    _check_keys(f"{where}: {name}", options, known)
    return name, options


class Runner:
    """Runs a recipe. Trainings keep checkpoints in a folder and go on from them."""

    def __init__(
        self, recipe: Mapping[str, Any], data: str | Path, test: str | Path | None = None,
        folder: str | Path | None = None, base: str | Path = ".",
    ):  # fmt: skip
        self.content, self.base = recipe, Path(base)
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.recipe = Recipe(self._path(recipe["model"]), target=recipe.get("target", "cpu"))
        (first, *more) = self.recipe.graph.inputs
        if more:
            raise BadInput(
                f"the model has the inputs {first.name} and {more[0].name}; recipes are for models "
                "with one; use intaglio.compress.Recipe from Python"
            )
        self.shape, scaling = first.shape, dict(recipe.get("data") or {})
        _check_keys("data", scaling, ("mean", "std"))
        scaling = {k: tuple(np.ravel(v).tolist()) for k, v in scaling.items()}
        channel = recipe.get("channel", _channel_axis(self.shape))
        self.train = read(data, self.shape, channel, **scaling)
        self.test = None if test is None else read(test, self.shape, channel, **scaling)
        self.input = first.name
        self.whole: Graph | None = None  # before the first step that makes it smaller

    def _path(self, name: str) -> Path:
        path = Path(name)
        return path if path.is_absolute() or path.exists() else self.base / path

    def run(self) -> Result:
        """All steps, then the check that the trained model is the deployed one."""
        result = Result(self.recipe.graph)
        self._note(result, "start", "as loaded", time.perf_counter())
        for i, (name, options) in enumerate(self.content["steps"], 1):
            start = time.perf_counter()
            with progress.inside(f"step {i} of {len(self.content['steps'])}: {name}"):
                words = self._run(i, name, options, result)
                self._note(result, f"{i} {name}", words, start)
        result.graph = self.recipe.finish(self._samples(2))
        return result

    def _run(self, i: int, name: str, options: Any, result: Result) -> str:
        recipe = self.recipe
        if name != "train" and self.whole is None:
            self.whole = to_graph(recipe.twin)
        if name == "prune":
            found = recipe.prune(data=self.train, **options)
            result.layers |= {
                k: (result.layers.get(k, v)[0], v[1]) for k, v in found.layers.items()
            }
            return str(found)
        if name == "sparsify":
            return str(recipe.sparsify(options))
        if name == "quantize":
            recipe.quantize(self._samples(self.content.get("calibration", CALIBRATION)), **options)
            return ", ".join(f"{k} {v}" for k, v in options.items()) or "8 bits"
        how = {k: v for k, v in options.items() if k not in TEACHING}
        kept = None if self.folder is None else self.folder / f"{i:02}-train.pt"
        loss = self._loss(options)
        history = recipe.train(self.train, Training(**how), checkpoint=kept, **loss)
        losses = history.loss
        return f"{len(losses)} epochs, loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else ""

    def _loss(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if "teacher" not in options:
            if extra := [k for k in TEACHING if k in options]:
                raise BadInput(f"{extra[0]} is for distillation; give teacher: model.onnx too")
            return {}
        from intaglio.compress.distill import Distillation, Logits, Teacher

        named = options["teacher"]
        models = [named] if isinstance(named, str) else named
        teachers = [Teacher(self._teacher(m)) for m in models]
        method = Logits(temperature=float(options.get("temperature", 4.0)))
        return {"loss": Distillation(teachers, [method], float(options.get("labels", 0.1)))}

    def _teacher(self, name: str) -> Graph:
        if name != "self":
            return intaglio.load(self._path(name))
        if self.whole is None:
            raise BadInput(
                "teacher: self is the model before it was pruned or quantised; no such step came "
                "before this training; name a model file"
            )
        return self.whole

    def _samples(self, count: int) -> list[dict[str, Any]]:
        at = np.linspace(0, len(self.train) - 1, min(count, len(self.train))).astype(int)
        return [{self.input: self.train.floats(self.train.x[i : i + 1]).numpy()} for i in at]

    def _note(self, result: Result, name: str, words: str, start: float) -> None:
        graph = self.recipe.twin.source
        size = complexity(graph)
        top = None if self.test is None else self.recipe.accuracy(self.test)
        took = time.perf_counter() - start
        result.stages.append(Stage(name, words, size.macs, size.parameters, top, took))


def _channel_axis(shape: tuple[int, ...]) -> int:
    """The axis of channels: the second, or the last of a picture that ends in 1, 3 or 4."""
    if len(shape) == 4 and shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4):
        return 3
    return 1


__all__ = ["Labelled", "Result", "Runner", "Stage", "load"]
