"""From a model to a smaller graph, step by step: `compress.Recipe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import intaglio
from intaglio.compress import qat
from intaglio.compress.binary import binarize
from intaglio.compress.data import Labelled
from intaglio.compress.float_graph import float_graph
from intaglio.compress.pruning import Pruned, prune
from intaglio.compress.pruning.criteria import WITH_GRADIENTS
from intaglio.compress.pruning.heads import split_projections
from intaglio.compress.sparsity import Sparse, sparsify
from intaglio.compress.train import History, Trainer, Training, accuracy, cross_entropy
from intaglio.compress.twin import Twin, verify
from intaglio.compress.twin.write_back import to_graph
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Graph, Value
from intaglio.quant.prepare import name_tensors

if TYPE_CHECKING:
    from torch import nn

CHECKED = 2  # samples that `finish` compares with the interpreter
GRADIENT_BATCHES = 8  # of data, for criteria that need gradients


class Recipe:
    """A model on its way to the target: prune, sparsify, quantise, train, finish.

    `model` is a live PyTorch module with an `example` of its input, a model file, or a Graph.
    Every step starts from the weights of the step before. Batch norms are folded into the layers
    before them. With `fold=False` they stay until `quantize`: better for many epochs.
    """

    def __init__(
        self, model: Any, example: Any = None, *, target: str = "cpu", fold: bool = True,
        **load: Any,
    ):  # fmt: skip
        if isinstance(model, Graph):
            graph = model
        else:
            given = {} if example is None else {"inputs": example}
            graph = intaglio.load(model, **given, **load)
        self.target, self.model = target, model
        self.fold = fold
        self.graph = float_graph(graph, fold)
        self._places = parameter_places(model, self.graph)
        self.steps: list[Pruned | Sparse | History] = []
        self._twin: Twin | None = None
        self.quantized = False
        self._held = False
        self._binary: frozenset[str] = frozenset()  # names of weights

    @property
    def twin(self) -> Twin:
        """The module that is trained: of floats, or after `quantize` of the target's integers."""
        if self._twin is None:
            self._twin = Twin(self.graph, binary=self._binary)
            if self._held:
                self._twin.hold_zeros()
        return self._twin

    def prune(self, *, data: Labelled | None = None, **options: Any) -> Pruned:
        """Remove channels (see `compress.prune`). Taylor and movement need `data`."""
        self._floats_only("prune")
        self._settle()
        split_projections(self.graph)
        if options.get("criterion") in WITH_GRADIENTS:
            if data is None:
                raise BadInput(f"criterion '{options['criterion']}' needs data=, labelled samples")
            options["gradients"] = gradients(self.graph, data)
        result = prune(self.graph, target=self.target, **{"fold": self.fold, **options})
        self.graph = float_graph(result.graph, self.fold)
        self.steps.append(result)
        return result

    def sparsify(self, pattern: str | float, permute: bool = False) -> Sparse:
        """Set weights to 0 that stay 0 in training (see `compress.sparsify`)."""
        self._floats_only("sparsify")
        self._settle()
        target = None if self.target == "cpu" or not isinstance(pattern, str) else self.target
        result = sparsify(self.graph, pattern, target, permute, self.fold)
        self.graph, self._held = result.graph, True
        self.steps.append(result)
        return result

    def binarize(self, leave: Sequence[str] = ()) -> list[str]:
        """Make inner convolutions binary: weights and inputs are +1 or -1. The layers' names."""
        self._floats_only("binarize")
        self._settle()
        found = binarize(self.graph, leave)
        name_tensors(self.graph)
        self._binary |= frozenset(found.values())
        return list(found)

    def quantize(self, data: Any, **options: Any) -> Twin:
        """Go on in the target's integers (see `compress.quantized_twin`)."""
        self._floats_only("quantize")
        self._settle()
        self._twin = qat.quantized_twin(self.graph, data, target=self.target, **options)
        self.quantized = True
        if self._held:
            self._twin.hold_zeros()
        return self._twin

    def train(
        self,
        data: Labelled,
        how: Training | None = None,
        *,
        test: Labelled | None = None,
        loss: Any = cross_entropy,
        checkpoint: str | Path | None = None,
    ) -> History:
        """Train the twin. A `checkpoint` lets a killed run go on where it was."""
        trainer = self.trainer(data, how, test=test, loss=loss, checkpoint=checkpoint)
        history = trainer.run()
        self.steps.append(history)
        return history

    def trainer(
        self, data: Labelled, how: Training | None = None, *, loss: Any = cross_entropy,
        **options: Any,
    ) -> Trainer:  # fmt: skip
        """A trainer of the twin, for `run_together`."""
        more = getattr(loss, "adapters", None)
        return Trainer(self.twin, data, how or Training(), loss=loss, more=more, **options)

    def accuracy(self, data: Labelled) -> float:
        """Top-1 accuracy in percent, in the arithmetic of the target."""
        return accuracy(self.twin, data)

    def finish(self, samples: Sequence[Mapping[str, Array]] | None = None) -> Graph:
        """The graph to compile. RunError unless the twin equals the interpreter byte for byte."""
        graph = to_graph(self.twin)
        if self.quantized:
            verify(self.twin, graph, samples or _random(graph))
        return graph

    def write_back(self, module: nn.Module, tolerance: float = 1e-3) -> None:
        """Put trained float weights into the module that the model was loaded from."""
        if self.quantized or any(isinstance(s, Pruned) for s in self.steps):
            raise Unsupported(
                "write_back() is for float weights of unchanged shape; this model is pruned or "
                "quantised; save finish() with intaglio.save_onnx"
            )
        known = dict(module.named_parameters())
        before = {k: p.detach().clone() for k, p in known.items()}
        with torch.no_grad():
            for i, v in enumerate(constants_of(self.twin.source)):
                if v in self.twin.constants and i in self._places:
                    name, turned = self._places[i]
                    if name in known:
                        value = self.twin.value(v)
                        known[name].copy_(value.T if turned else value)
        self._compare(module, known, before, tolerance)

    def _compare(
        self, module: nn.Module, known: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor], tolerance: float,
    ) -> None:  # fmt: skip
        """Restore the module and refuse if it does not compute what the twin computes."""
        feeds = [torch.from_numpy(next(iter(f.values()))) for f in _random(self.graph)]
        was = module.training
        module.eval()
        self.twin.eval()
        with torch.no_grad():
            far = max(float((module(x) - self.twin(x)).abs().max()) for x in feeds)
            if far > tolerance:
                for name, p in before.items():
                    known[name].copy_(p)
        module.train(was)
        if far > tolerance:
            raise Unsupported(
                f"the module would differ from the trained model by {far:.3g}: batch norms are "
                "folded, or layers merged; the module is unchanged; save finish() with "
                "intaglio.save_onnx"
            )

    def _floats_only(self, what: str) -> None:
        if self.quantized:
            raise BadInput(f"{what}() after quantize(): integers are the last step; call it before")

    def _settle(self) -> None:
        """Take over the weights of the twin, which the next step starts from."""
        if self._twin is not None:
            self.graph, self._twin = to_graph(self._twin), None


def constants_of(graph: Graph) -> list[Value]:
    """The constants of a graph, in the order in which its nodes read them."""
    return [v for v in graph.values() if v.data is not None]


def parameter_places(module: Any, graph: Graph) -> dict[int, tuple[str, bool]]:
    """The parameter of a live module that each constant is, and whether it is transposed."""
    named = getattr(module, "named_parameters", None)
    found: dict[int, tuple[str, bool]] = {}
    for i, v in enumerate(constants_of(graph) if named else []):
        for name, p in named():  # type: ignore[misc]
            array = p.detach().numpy()
            for turned in (False, True):
                same = array.T if turned else array
                if v.data is not None and np.array_equal(same, v.data):
                    found.setdefault(i, (name, turned))
    return found


def _random(graph: Graph) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [
        {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
        for _ in range(CHECKED)
    ]


def gradients(graph: Graph, data: Labelled, batch: int = 32) -> dict[Value, Array]:
    """Mean gradients of the loss by the constants of a graph, over a few batches."""
    twin = Twin(graph)
    twin.eval()
    for i, (x, y) in enumerate(data.batches(batch)):
        if i == GRADIENT_BATCHES:
            break
        with torch.enable_grad():
            cross_entropy(twin, x, y).backward()
    pairs = zip(graph.values(), twin.source.values(), strict=True)
    found = {}
    for mine, theirs in pairs:
        p = twin.constants.get(theirs)
        if p is not None and p.grad is not None:
            found[mine] = p.grad.numpy() / np.float32(twin.units[theirs])
    return found
