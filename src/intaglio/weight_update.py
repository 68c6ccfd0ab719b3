"""`Package.with_weights`: the same plan with the weights of another training.

Constants are folded, fused and packed when a model is compiled. So the new model is compiled with
the options and choices of the package, and its plan is compared with the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio import compiler, recipe
from intaglio.arguments import described
from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.package import Package
from intaglio.package.plan_text import difference


def with_weights(
    package: Package,
    new: str | Path | Graph | Mapping[str, Any],
    *,
    model: str | Path | Graph | None = None,
    **keywords: Any,
) -> Package:
    """A package with the plan of `package` and the weights of `new`.

    `new` is the model of another training in any form that `compile` takes, or a table of arrays by
    the names of the constants of `model`, from which all other constants come. The options are
    those that `package` was compiled with; `keywords` replace some. BadInput says where the plan
    would differ, and why this is another model.
    """
    constants: Mapping[str, Any] | None = None
    if isinstance(new, Mapping):
        if model is None:
            raise BadInput(
                "with_weights got arrays by name, and no model that they belong to; give "
                f"{option('model', 'model.onnx')}"
            )
        constants, new = new, model
    elif model is not None:
        raise BadInput(f"{option('model')} belongs to a table of arrays, got {described(new)}")
    known = recipe.options_of(package.meta)
    if known is None:
        raise BadInput(
            "package does not say how it was compiled (it is stripped, or of an older version); "
            "compile the new model instead"
        )
    options, load = known
    if isinstance(new, Graph):
        load = {}  # it is loaded already
    elif left := [n for n in recipe.missing_of(package.meta) if n not in keywords]:
        raise BadInput(
            f"package was compiled with {option(left[0])}, which it does not keep; give it"
        )
    options["isa"] = package.contents.isa
    target = keywords.pop("target", package.meta.get("target", "cpu"))
    again = compiler.Again(recipe.choices_of(package.meta), constants)
    made = compiler.trace(new, target, again=again, **(load | options | keywords)).package
    if words := difference(package.plans, made.plans):
        raise BadInput(
            f"new weights need another plan: {words}; the package cannot keep its plan; compile "
            "the new model instead"
        )
    made.weight_files = package.weight_files
    return made
