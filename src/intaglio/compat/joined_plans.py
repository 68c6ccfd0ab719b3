"""One package of several graphs: a model at several shapes, over one set of constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import intaglio
from intaglio import compiler
from intaglio.find_padding import find_padding
from intaglio.ir import Graph
from intaglio.package import Package
from intaglio.package.constant_pool import ConstantPool


def compiled(graphs: Sequence[Graph], keywords: dict[str, Any], pads: bool = False) -> Package:
    """The package; `pads` lets it take shapes between those of the graphs, where that is right."""
    if len(graphs) == 1:
        return intaglio.compile(graphs[0], **keywords)
    made = [compiler.trace(g, **keywords) for g in graphs]
    made.sort(key=lambda one: sum(t.size for t in one.plan.inputs if t is not None))
    pool = ConstantPool()
    for one in made:
        pool.share(one.plan)
    last, plans = made[-1].package, [m.plan for m in made]
    package = Package.build(plans, isa=last.contents.isa, meta=last.meta)
    if not pads or (links := find_padding(package)) is None:
        return package
    return Package.build(plans, isa=last.contents.isa, meta=last.meta | {"padding": links})
