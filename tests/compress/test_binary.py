"""Binary layers, batch norms that stay, and trainers side by side."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compress.small_nets import CLASSES, labelled

import intaglio
from intaglio.compiler import trace
from intaglio.errors import BadInput
from intaglio.ir import Graph

torch = pytest.importorskip("torch", reason="needs torch: pip install .[train]")

from intaglio.compress import (  # noqa: E402
    Distillation,
    Labelled,
    Logits,
    Recipe,
    Teacher,
    Trainer,
    Training,
    Twin,
    run_together,
)
from intaglio.compress.device import Samples  # noqa: E402
from intaglio.compress.train import cross_entropy  # noqa: E402

torch.set_num_threads(1)
EXAMPLE = torch.zeros(1, 3, 12, 12)


class Block(torch.nn.Module):
    def __init__(self, few: int, many: int, stride: int):
        super().__init__()
        self.one = torch.nn.Conv2d(few, many, 3, stride, 1, bias=False)
        self.two = torch.nn.Conv2d(many, many, 3, 1, 1, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(many) for _ in range(2))
        self.narrow = torch.nn.Conv2d(few, many, 1, stride) if stride > 1 else None

    def forward(self, x):
        y = self.norms[1](self.two(torch.relu(self.norms[0](self.one(x)))))
        return torch.relu(y + (x if self.narrow is None else self.narrow(x)))


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        Block(8, 8, 1), Block(8, 16, 2), torch.nn.AvgPool2d(6), torch.nn.Flatten(),
        torch.nn.Linear(16, CLASSES),
    ).eval()  # fmt: skip


def data(count: int = 256, seed: int = 0) -> Labelled:
    return Labelled(*labelled(count, seed))


def convolutions(graph: Graph, op: str) -> list[np.ndarray]:
    place = 3 if op == "qlinear_conv" else 1
    return [n.inputs[place].data for n in graph.nodes() if n.op == op]


def test_batch_norms_train_as_in_torch():
    net, recipe = module().train(), Recipe(module(), EXAMPLE, fold=False)
    twin, x, y = recipe.twin.train(), torch.from_numpy(data(32).x), torch.from_numpy(data(32).y)
    mine, theirs = cross_entropy(twin, x, y), torch.nn.functional.cross_entropy(net(x), y)
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-5)
    mine.backward()
    theirs.backward()

    def norms(m: torch.nn.Module) -> list[float]:
        return sorted(float(p.grad.norm()) for p in m.parameters())

    assert norms(twin) == pytest.approx(norms(net), rel=1e-3, abs=1e-5)
    net.eval()
    graph = recipe.finish()  # with the new statistics
    found = intaglio.interpret(graph, {graph.inputs[0].name: x[:1].numpy()})
    assert np.allclose(next(iter(found.values())), net(x[:1]).detach().numpy(), atol=1e-4)


def test_batch_norms_stay_through_pruning():
    recipe = Recipe(module(), EXAMPLE, fold=False)
    found = recipe.prune(macs=0.5, round_to=2, criterion="bn")
    assert found.after.macs <= 0.5 * found.before.macs
    recipe.sparsify("2:4 in")
    recipe.train(data(64), Training(epochs=1, batch=32))
    ops = [n.op for n in recipe.finish().nodes()]
    assert ops.count("batch_norm") == 5


def test_binary_layers_train_and_deploy_as_signs():
    recipe = Recipe(module(), EXAMPLE, fold=False)
    before = recipe.accuracy(data())
    layers = recipe.binarize()
    assert len(layers) == 4
    recipe.train(data(), Training(epochs=8, batch=32, rate=0.01))
    trained = recipe.accuracy(data())
    assert trained > max(before, 60)
    signs = [w for w in convolutions(recipe.finish(), "conv") if w.shape[2] == 3][1:]
    assert len(signs) == 4
    for w in signs:
        assert all(len(np.unique(np.abs(row))) == 1 for row in w)
    name = recipe.graph.inputs[0].name
    recipe.quantize([{name: x[None]} for x in data(32).x], fast=True)
    two = [w for w in convolutions(recipe.twin.source, "qlinear_conv") if len(np.unique(w)) == 2]
    assert len(two) == 4
    assert recipe.accuracy(data()) > trained - 5
    recipe.train(data(64), Training(epochs=1, batch=32, rate=1e-3))
    graph = recipe.finish()  # equal in every byte
    two = [w for w in convolutions(graph, "qlinear_conv") if len(np.unique(w)) == 2]
    assert len(two) == 4  # still signs
    feeds = {name: data().x[:1]}
    steps = [n.op for n in trace(graph, isa="scalar").graph.nodes()]
    assert steps.count("cpu.xnor_conv") == 4  # they run in bits
    with intaglio.open(intaglio.compile(graph)) as session:
        found, want = session.run(feeds), intaglio.interpret(graph, feeds)
    assert all(np.allclose(found[k], want[k], atol=1e-6) for k in want)


def test_what_cannot_be_binary_is_one_line():
    recipe = Recipe(module(), EXAMPLE, fold=False)
    with pytest.raises(BadInput, match="no layer is called 'nowhere'"):
        recipe.binarize(leave=["nowhere"])
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(432, CLASSES))
    with pytest.raises(BadInput, match="no layer can be binary"):
        Recipe(flat, EXAMPLE).binarize()


def test_trainers_side_by_side_have_the_results_of_each_alone():
    teacher = Teacher(Recipe(module(), EXAMPLE).graph)

    def trainer(epochs: int) -> Trainer:
        loss = Distillation([teacher], [Logits()])
        return Trainer(
            Twin(Recipe(module(), EXAMPLE).graph), data(64), Training(epochs, batch=32), loss=loss
        )

    together = run_together([trainer(1), trainer(3)])
    assert [h.loss for h in together] == [trainer(n).run().loss for n in (1, 3)]


def test_samples_are_moved_and_mirrored_as_told():
    x = np.arange(2 * 3 * 8 * 8, dtype=np.uint8).reshape(2, 3, 8, 8)
    samples = Samples(Labelled(x, np.array([0, 1])), torch.device("cpu"))
    seen = set()
    for seed in range(12):
        for made, label in samples.batches(1, np.random.default_rng(seed), True, 1):
            whole = np.pad(x[int(label)], ((0, 0), (1, 1), (1, 1)))
            ways = {
                (turned, a, b): np.flip(part, 2) if turned else part
                for turned in (False, True)
                for a in range(3)
                for b in range(3)
                for part in [whole[:, a : a + 8, b : b + 8]]
            }
            found = [k for k, v in ways.items() if np.array_equal(v, made[0].numpy())]
            assert found
            seen.add(found[0])
    assert len(seen) > 6


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(BadInput, match="device is 'gpu0'") as e:
        Trainer(Twin(Recipe(module(), EXAMPLE).graph), data(8), Training(device="gpu0"))
    assert "\n" not in str(e.value)
