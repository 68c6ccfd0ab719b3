"""Training: loss falls, checkpoints resume after a kill, distillation, whole recipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.compress.small_nets import build, labelled, samples, with_softmax

import intaglio
from intaglio.catalogue.builder import Builder
from intaglio.errors import BadInput, IntaglioError, RunError, Unsupported
from intaglio.ir import Graph

torch = pytest.importorskip("torch", reason="needs torch: pip install .[train]")

from intaglio.compress import (  # noqa: E402
    Attention,
    Distillation,
    GroupLasso,
    Hints,
    Labelled,
    Logits,
    Recipe,
    Relations,
    Teacher,
    Trainer,
    Training,
    Twin,
    prune,
    quantized_twin,
)
from intaglio.compress.train import accuracy, cross_entropy  # noqa: E402
from intaglio.compress.twin.write_back import to_graph  # noqa: E402
from intaglio.quant.prepare import prepare  # noqa: E402

torch.set_num_threads(1)


def data(count: int = 256, seed: int = 0) -> Labelled:
    return Labelled(*labelled(count, seed))


def weights(twin: Twin) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in twin.parameters()])


def test_a_recipe_from_floats_to_a_package(tmp_path: Path):
    recipe = Recipe(with_softmax(build("residual")))
    recipe.train(data(), Training(epochs=6, batch=32, rate=0.01))
    trained = recipe.accuracy(data())
    assert trained > 60
    pruned = recipe.prune(macs=0.6, criterion="taylor", data=data(64), round_to=4)
    assert pruned.after.macs < 0.61 * pruned.before.macs
    recipe.train(data(), Training(epochs=3, batch=32, rate=0.003))
    recipe.quantize(samples(16), weights=4, fast=True)
    recipe.train(data(), Training(epochs=2, batch=32, rate=0.002))
    assert recipe.accuracy(data()) > 50
    graph = recipe.finish()
    package = intaglio.compile(graph)
    package.save(tmp_path / "small.itg")
    with intaglio.open(tmp_path / "small.itg") as session:
        x = data().x[:1]
        want = intaglio.interpret(graph, {"input": x})["scores"]
        assert np.allclose(session.run({"input": x})["scores"], want, atol=1e-6)
    with pytest.raises(BadInput, match="integers are the last step"):
        recipe.prune(macs=0.5)


def test_a_live_module_takes_its_weights_back():
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    )  # fmt: skip
    recipe = Recipe(module, torch.zeros(1, 3, 12, 12))
    recipe.train(data(64), Training(epochs=1, batch=32))
    before = module[0].weight.detach().clone()
    recipe.write_back(module)
    assert not torch.equal(before, module[0].weight)
    x = torch.from_numpy(data(4, 1).x)
    assert torch.allclose(module(x), recipe.twin(x), atol=1e-4)
    recipe.prune(macs=0.5, round_to=1)
    with pytest.raises(Unsupported, match="is for float weights of unchanged shape"):
        recipe.write_back(module)


KILLED = """
import sys, torch
torch.set_num_threads(1)
from tests.compress.test_train import data
from tests.compress.small_nets import build
from intaglio.compress import Trainer, Training, Twin
from intaglio.quant.prepare import prepare
twin = Twin(prepare(build("plain")))
trainer = Trainer(twin, data(64), Training(epochs=400, batch=16, every=3), checkpoint=sys.argv[1])
print("ready", flush=True)
trainer.run()
"""


def test_a_killed_run_goes_on_with_the_same_numbers(tmp_path: Path):
    path = tmp_path / "run.pt"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=env
    )
    assert process.stdout.readline() == b"ready\n"
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait(30)

    def trainer(checkpoint: Path | None, epochs: int = 400) -> Trainer:
        how = Training(epochs=epochs, batch=16, every=3)
        return Trainer(Twin(prepare(build("plain"))), data(64), how, checkpoint=checkpoint)

    resumed, straight = trainer(path), trainer(None)
    assert resumed.epoch + resumed.step > 0
    goal = resumed.epoch + 2
    for one in (resumed, straight):
        while one.epoch < goal:
            one._epoch()
    assert np.array_equal(weights(resumed.twin), weights(straight.twin))
    assert resumed.history.loss == straight.history.loss
    with pytest.raises(BadInput, match="was written with another epochs"):
        trainer(path, 3)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IntaglioError, match="is no checkpoint of this training"):
        trainer(path)


def test_a_loss_that_is_not_finite_ends_with_the_checkpoint_intact(tmp_path: Path):
    path = tmp_path / "run.pt"
    twin = Twin(prepare(build("plain")))
    Trainer(twin, data(64), Training(epochs=1, batch=32), checkpoint=path).run()
    before = path.read_bytes()
    broken = data(64)
    broken.x[3] = np.nan
    again = Trainer(twin, broken, Training(epochs=1, batch=32))
    again.path = path
    with pytest.raises(RunError, match=r"the loss is nan in epoch 1, step .* the last checkpoint"):
        again.run()
    assert path.read_bytes() == before


def test_methods_of_distillation():
    teacher = Twin(prepare(build("residual", 1)))
    Trainer(teacher, data(), Training(epochs=4, batch=32, rate=0.01)).run()
    student = prepare(build("plain", 2))
    names = [n.outputs[0].name for n in student.nodes() if n.op in ("conv", "relu")][:1]
    theirs = [n.outputs[0].name for n in teacher.source.nodes() if n.op == "relu"][:1]
    pair = (names[0], theirs[0])
    sizes = {v.name: v.shape[1] for g in (student, teacher.source) for v in g.values() if v.shape}
    loss = Distillation(
        [Teacher(teacher), Teacher(build("residual", 3))],
        [
            Logits(),
            Hints([pair], [(sizes[pair[0]], sizes[pair[1]])]),
            Attention((pair,)),
            Relations(),
        ],
    )
    adapters = [p.detach().clone() for p in loss.adapters.parameters()]
    trainer = Trainer(
        Twin(student), data(), Training(epochs=2, batch=32), loss=loss, more=loss.adapters
    )
    history = trainer.run()
    assert history.loss[1] < history.loss[0]
    assert all(
        not torch.equal(a, b) for a, b in zip(adapters, loss.adapters.parameters(), strict=True)
    )
    assert not any(p.requires_grad for p in teacher.parameters())


def test_group_lasso_shrinks_whole_groups():
    twins = [Twin(prepare(build("residual"))) for _ in range(2)]
    losses = [cross_entropy, GroupLasso(3e-3)]
    for twin, loss in zip(twins, losses, strict=True):
        Trainer(twin, data(), Training(epochs=6, batch=16, rate=0.01), loss=loss).run()
    small = [prune(to_graph(t), macs=0.6, round_to=4, spread="global").graph for t in twins]
    penalties = [float(losses[1].penalty(twin).detach()) for twin in twins]
    assert penalties[1] < 0.97 * penalties[0]
    without, with_lasso = (accuracy(Twin(graph), data()) for graph in small)
    assert with_lasso > without + 10
    with pytest.raises(BadInput, match="weight is 0"):
        GroupLasso(0)
    quantized = quantized_twin(build("plain"), samples(4), fast=True)
    with pytest.raises(BadInput, match="no channels can be pruned"):
        losses[1].penalty(quantized)


@pytest.mark.parametrize(("pattern", "share"), [("2:4 in", 0.67), ("16:4", 0.37)])
def test_all_sparse_layers_are_sparse_on_the_chip(pattern: str, share: float):
    b = Builder("random")
    x = b.input(12)
    source = b.graph(x, b.classifier(b.conv(b.conv(x, 32, 3), 64, 3), 32), "sparse")

    def made(recipe: Recipe) -> tuple[Graph, intaglio.Package]:
        recipe.quantize(samples(8), fast=True)
        recipe.train(data(64), Training(epochs=1, batch=16))
        graph = recipe.finish()
        return graph, intaglio.compile(graph, target="rk3576")

    recipe = Recipe(source, target="rk3576")
    sparse = recipe.sparsify(pattern)
    assert list(sparse.dense) == ["conv1"]  # its three inputs fill no unit
    graph, small = made(recipe)
    _, dense = made(Recipe(source, target="rk3576"))
    moved = [{r.layer: r.bytes for r in p.performance().layers if r.op == "conv"}
             for p in (small, dense)]  # fmt: skip
    assert len(moved[0]) == len(sparse.layers) + 1
    for layer in list(moved[0])[1:]:
        assert moved[0][layer] < share * moved[1][layer] + 8 * 64  # scales and biases stay
    assert small.memory().modules[0].weights < dense.memory().modules[0].weights
    (feeds,) = samples(1, 5)
    with intaglio.open(small) as session:  # the simulator reads them
        (found,) = session.run(feeds).values()
    (want,) = intaglio.interpret(graph, feeds).values()
    assert np.array_equal(found, want)


def test_labels_that_are_no_classes_are_one_line():
    x, y = labelled(8)
    for wrong, words in (
        (np.eye(10)[y], "one class number for each sample"),
        (y + 0.5, "one class number for each sample"),
        (y - 20, "classes are counted from 0"),
        (y[:3], "8 inputs and 3 labels"),
    ):
        with pytest.raises(BadInput, match=words):
            Labelled(x, wrong)


def test_a_teacher_of_another_shape_is_one_line():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, 7))
    loss = Distillation([Teacher(module)], [Logits()])
    with pytest.raises(BadInput, match="the teacher has 7 outputs, the student 10") as e:
        Trainer(Twin(prepare(build("plain"))), data(64), Training(epochs=1), loss=loss).run()
    assert "\n" not in str(e.value)
    wrong = Distillation([Teacher(build("plain"))], [Attention((("nowhere", "conv1"),))])
    with pytest.raises(BadInput, match="the student has no tensor 'nowhere'"):
        Trainer(Twin(prepare(build("plain"))), data(64), Training(epochs=1), loss=wrong).run()
