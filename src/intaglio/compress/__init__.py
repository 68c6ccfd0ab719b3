"""Compression: prune, sparsify, distil and train quantised; trained equals deployed.

recipe = compress.Recipe("model.onnx")
recipe.prune(macs=0.5)
recipe.train(data)
recipe.quantize(samples, weights=4)
recipe.train(data)
graph = recipe.finish()                # refuses unless it equals the interpreter in every byte
intaglio.compile(graph).save("model.itg")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.compress.data import Labelled as Labelled
    from intaglio.compress.distill import Attention as Attention
    from intaglio.compress.distill import Distillation as Distillation
    from intaglio.compress.distill import Hints as Hints
    from intaglio.compress.distill import Logits as Logits
    from intaglio.compress.distill import Relations as Relations
    from intaglio.compress.distill import Teacher as Teacher
    from intaglio.compress.lasso import GroupLasso as GroupLasso
    from intaglio.compress.pruning import prune as prune
    from intaglio.compress.pruning import pruned_steps as pruned_steps
    from intaglio.compress.pruning import sensitivity as sensitivity
    from intaglio.compress.qat import quantized_twin as quantized_twin
    from intaglio.compress.recipe import Recipe as Recipe
    from intaglio.compress.sparsity import sparsify as sparsify
    from intaglio.compress.train import Trainer as Trainer
    from intaglio.compress.train import Training as Training
    from intaglio.compress.train import run_together as run_together
    from intaglio.compress.twin import Twin as Twin

# public name -> its module, imported when first used; all but pruning and sparsity need torch
_LAZY = {
    **dict.fromkeys(("prune", "pruned_steps", "sensitivity"), "pruning"),
    **dict.fromkeys(("Trainer", "Training", "run_together"), "train"),
    **dict.fromkeys(
        ("Attention", "Distillation", "Hints", "Logits", "Relations", "Teacher"), "distill"
    ),
    "GroupLasso": "lasso",
    "Labelled": "data",
    "Recipe": "recipe",
    "Twin": "twin",
    "quantized_twin": "qat",
    "sparsify": "sparsity",
}
__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio.compress' has no attribute {name!r}")
    from intaglio.errors import IntaglioError
    from intaglio.extras import install_command

    try:
        module = importlib.import_module(f"intaglio.compress.{_LAZY[name]}")
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise IntaglioError(
            f"compress.{name} needs PyTorch, which is not installed; {install_command('train')}"
        ) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
