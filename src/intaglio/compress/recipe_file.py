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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import progress, quant, targets
from intaglio.compress import pruning, qat, sparsity
from intaglio.compress.data import Labelled, read
from intaglio.compress.deployed import Deployed, deployed
from intaglio.compress.lasso import GroupLasso
from intaglio.compress.recipe import Recipe
from intaglio.compress.train import Training, cross_entropy
from intaglio.compress.twin.write_back import to_graph
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.ir import Graph
from intaglio.ops.complexity import complexity

KEYS = ("model", "target", "data", "steps", "calibration", "channel", "fold")
STEPS = ("train", "prune", "sparsify", "binarize", "quantize")
CALIBRATION = 100  # samples
TEACHING = ("teacher", "temperature", "labels")
LOSS = (*TEACHING, "lasso")  # options of a training that choose its loss
TRAINING = (*(f.name for f in fields(Training)), *LOSS)
PRUNING = ("macs", "parameters", "ms", "criterion", "spread", "round_to", "least", "only", "leave")
SPARSIFYING = ("pattern", "permute")
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
    zeroed: dict[str, float] = field(default_factory=dict)  # share of weights kept, by layer
    target: str = "cpu"
    before: Deployed | None = None  # the model as loaded, quantised if the recipe quantises
    after: Deployed | None = None

    def to_dict(self) -> dict[str, Any]:
        """Values by name."""
        names = ("name", "words", "macs", "parameters", "accuracy", "seconds")
        return {
            "stages": [{n: getattr(s, n) for n in names} for s in self.stages],
            "layers": {k: list(v) for k, v in self.layers.items()},
            "weights_kept": self.zeroed,
            "before": None if self.before is None else asdict(self.before),
            "after": None if self.after is None else asdict(self.after),
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
    if not isinstance(content["steps"], list):
        raise BadInput(f"{path}: steps is {content['steps']!r}; give a list, such as - train: {{}}")
    content["steps"] = [_step(f"{path}: step {i}", s) for i, s in enumerate(content["steps"], 1)]
    _check_values(str(path), content)
    return content


def _check_keys(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; known are {', '.join(known)}"
            raise BadInput(f"{where}: no key is called '{key}'{hint}")


def _check_values(path: str, content: Mapping[str, Any]) -> None:
    """Refuse what a later step would refuse, before the first one runs for hours."""
    chip = targets.find(str(content.get("target", "cpu")))
    for key, least, most in (("calibration", 1, 1 << 20), ("channel", 1, 3)):
        value = content.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadInput(f"{path}: {key} is {value!r}; give a whole number from {least} on")
    if not isinstance(content.get("fold", True), bool):
        raise BadInput(f"{path}: fold is {content['fold']!r}; give true or false")
    _scaling(path, content.get("data"))
    integers = False
    for i, (name, options) in enumerate(content["steps"], 1):
        try:
            if integers and name != "train":
                raise BadInput(f"{name} after quantize; integers are the last step")
            _check_step(name, options, chip)
        except BadInput as e:
            raise BadInput(f"{path}: step {i}: {e}") from None
        integers = integers or name == "quantize"


def _check_step(name: str, options: Any, chip: targets.Target) -> None:
    if name == "train":
        Training(**{k: v for k, v in options.items() if k not in LOSS})
        for key in ("temperature", "labels", "lasso"):
            value = options.get(key, 1.0)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise BadInput(f"{key} is {value!r}; give a number of at least 0")
    elif name == "prune":
        pruning.check(**options)
        if "ms" in options and chip.name == "cpu":
            raise BadInput("ms: predictions are for chips; give target: rk3588, k230, ...")
    elif name == "sparsify":
        sparsity.check(**options, target=None if chip.name == "cpu" else chip.name)
    elif name == "binarize":
        leave = options.get("leave", [])
        if not isinstance(leave, list) or not all(isinstance(n, str) for n in leave):
            raise BadInput(f"leave is {leave!r}; give a list of names of layers")
    else:
        qat.check(chip, **{k: v for k, v in options.items() if k not in ("fast", "per")})


def _scaling(path: str, given: Any) -> dict[str, tuple[float, ...]]:
    """`mean` and `std` of a recipe as numbers."""
    if given is not None and not isinstance(given, dict):
        raise BadInput(f"{path}: data is {given!r}; give {{mean: [...], std: [...]}}")
    _check_keys(f"{path}: data", given or {}, ("mean", "std"))
    found = {}
    for key, value in (given or {}).items():
        numbers = np.ravel(np.asarray(value, object)).tolist()
        usual = [isinstance(x, int | float) and (key == "mean" or x > 0) for x in numbers]
        if not numbers or not all(usual):
            above = " above 0" if key == "std" else ""
            raise BadInput(f"{path}: data: {key} is {value!r}; give numbers{above}")
        found[key] = tuple(map(float, numbers))
    return found


def _step(where: str, step: Any) -> tuple[str, Any]:
    if not isinstance(step, dict) or len(step) != 1:
        raise BadInput(f"{where} is {step!r}; write one step, such as `- prune: {{macs: 0.5}}`")
    ((name, options),) = step.items()
    _check_keys(where, step, STEPS)
    known = {
        "train": TRAINING, "prune": PRUNING, "quantize": QUANTIZING, "sparsify": SPARSIFYING,
        "binarize": ("leave",),
    }[name]  # fmt: skip
    if name == "sparsify" and not isinstance(options, dict):
        options = {"pattern": options}
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
        self.recipe = Recipe(
            self._path(recipe["model"]), target=recipe.get("target", "cpu"),
            fold=recipe.get("fold", True),
        )  # fmt: skip
        (first, *more) = self.recipe.graph.inputs
        if more:
            raise BadInput(
                f"the model has the inputs {first.name} and {more[0].name}; recipes are for models "
                "with one; use intaglio.compress.Recipe from Python"
            )
        self.shape, scaling = first.shape, _scaling("recipe", recipe.get("data"))
        for _, options in recipe["steps"]:
            self._check_teachers(options)
        channel = recipe.get("channel", _channel_axis(self.shape))
        self.train = read(data, self.shape, channel, **scaling)
        self.test = None if test is None else read(test, self.shape, channel, **scaling)
        for what, found in (("data", self.train), ("test", self.test)):
            self._check_classes(what, found)
        self.input = first.name
        self.whole: Graph | None = None  # before the first step that makes it smaller

    def _path(self, name: str) -> Path:
        path = Path(name)
        return path if path.is_absolute() or path.exists() else self.base / path

    def _check_teachers(self, options: Any) -> None:
        named = options.get("teacher", "self") if isinstance(options, dict) else "self"
        for name in [named] if isinstance(named, str) else named:
            if name != "self" and not self._path(name).exists():
                raise BadFile(f"{name}: no such file; teacher is a model file, or self")

    def _check_classes(self, what: str, found: Labelled | None) -> None:
        count = int(np.prod(self.recipe.graph.outputs[0].shape[1:]))
        if found is not None and found.y.max() >= count:
            raise BadInput(
                f"{what}: a label is class {found.y.max()}, the model has {count} outputs; give "
                "labels of its own classes, counted from 0"
            )

    def run(self) -> Result:
        """All steps, then the check that the trained model is the deployed one."""
        result = Result(self.recipe.graph, target=self.recipe.target)
        with progress.inside("compiling the model as loaded"):
            result.before = deployed(self._as_deployed(), result.target)
        self._note(result, "start", "as loaded", time.perf_counter())
        for i, (name, options) in enumerate(self.content["steps"], 1):
            start = time.perf_counter()
            with progress.inside(f"step {i} of {len(self.content['steps'])}: {name}"):
                words = self._run(i, name, options, result)
                self._note(result, f"{i} {name}", words, start)
        result.graph = self.recipe.finish(self._samples(2))
        with progress.inside("compiling the result"):
            result.after = deployed(result.graph, result.target)
        return result

    def _as_deployed(self) -> Graph:
        """The model as loaded, in 8 bits if the recipe quantises: what the result replaces."""
        if not any(name == "quantize" for name, _ in self.content["steps"]):
            return self.recipe.graph
        found = quant.calibrate(
            self.recipe.graph.copy(), self._samples(self._calibration), accuracy=None, fast=True,
            target=self.recipe.target, warn=lambda words: None,
        )  # fmt: skip
        return found.graph

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
            sparse = recipe.sparsify(**options)
            result.zeroed |= sparse.layers | dict.fromkeys(sparse.dense, 1.0)
            return str(sparse)
        if name == "binarize":
            layers = recipe.binarize(**options)
            return f"{len(layers)} layers of +1 and -1"
        if name == "quantize":
            recipe.quantize(self._samples(self._calibration), **options)
            return ", ".join(f"{k} {v}" for k, v in options.items()) or "8 bits"
        how = {k: v for k, v in options.items() if k not in LOSS}
        kept = None if self.folder is None else self.folder / f"{i:02}-train.pt"
        loss = self._loss(options)
        history = recipe.train(self.train, Training(**how), checkpoint=kept, **loss)
        losses = history.loss
        return f"{len(losses)} epochs, loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else ""

    def _loss(self, options: Mapping[str, Any]) -> dict[str, Any]:
        found = self._teachers(options)
        if options.get("lasso"):
            found["loss"] = GroupLasso(float(options["lasso"]), found.get("loss", cross_entropy))
        return found

    def _teachers(self, options: Mapping[str, Any]) -> dict[str, Any]:
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

    @property
    def _calibration(self) -> int:
        return int(self.content.get("calibration", CALIBRATION))

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
