"""Units of promotion: layers that get a wider precision together, and the time that costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from intaglio.ir import Graph
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.formats import Formats
from intaglio.quant.placement.place import PRODUCTS, Placement, layer, place
from intaglio.quant.placement.shared_rounding import SharedRoundings
from intaglio.quant.ranges.assign import precision_of
from intaglio.quant.search.policy import POLICY, Policy
from intaglio.targets.precision import Precision


@dataclass(frozen=True)
class Point:
    """One point of the trade-off between accuracy and time."""

    layers: tuple[str, ...]  # layers in a wider precision
    share: float  # of the model's multiplications that these layers are
    cosine: float  # of the worst part of an output
    measured: bool
    time: float = 1.0  # of all products by the target's costs; 1: every layer in int8
    kept: bool = False  # the model was built with these layers

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": list(self.layers),
            "share": self.share,
            "time": self.time,
            "cosine": self.cosine,
            "measured": self.measured,
            "kept": self.kept,
        }


@dataclass(frozen=True)
class Unit:
    """Layers that are promoted together because they read one tensor."""

    tensor: str
    layers: frozenset[str]
    frees: frozenset[str]  # tensors that are no longer rounded to 8 bits


class Promotions:
    """The layers of a model that can be promoted, and what a promotion costs on the target.

    `fixed` names tensors and layers that the user decided; `wanted` is the precision of the latter.
    """

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        how: Formats,
        wanted: Mapping[str, str],
        fixed: Collection[str],
        policy: Policy = POLICY,
    ):
        self.graph, self.placement, self.how = graph, placement, how
        self.wanted, self.fixed, self.policy = wanted, set(fixed), policy
        self.products = {layer(n): n for n in graph.nodes() if n.op in PRODUCTS}
        self.macs = {name: REGISTRY[n.op].macs(n) for name, n in self.products.items()}
        self.work = {  # a layer with few MACs still has to write its output
            name: max(macs, policy.macs_per_output * self.products[name].outputs[0].type.size)
            for name, macs in self.macs.items()
        }
        self.level = how.wider[0] if how.wider else None  # None: the target has no wider precision

    def units(self, roundings: SharedRoundings, tensors: Collection[str]) -> list[Unit]:
        """Every tensor whose readers can be promoted, with the roundings that this removes."""
        results: dict[frozenset[str], Unit] = {}
        by_name = {v.name: v for v in self.placement.tensors}
        for name, members in roundings.items():
            uses = [n for m in members if m not in roundings.before for n in by_name[m].uses]
            readers = frozenset(layer(n) for n in uses if n in self.placement.nodes)
            fixed = not self.fixed.isdisjoint({*members, *readers})
            if not readers or readers in results or fixed:
                continue
            left = self.quantized(dict.fromkeys(readers, self.level or ""))
            frees = {n for n in tensors if left.get(n) != self.how.precision}
            results[readers] = Unit(name, readers, frozenset(frees))
        return list(results.values())

    def quantized(self, layers: Mapping[str, str]) -> dict[str, str]:
        """The tensors that are still quantised with these precisions, and the precision of each."""
        wanted = {**self.wanted, **layers}
        placed = place(self.graph, wanted, self.placement.chip, self.how.precision)
        return {v.name: precision_of(v, placed) for v in placed.tensors}

    def share(self, layers: Iterable[str]) -> float:
        """The share of the model's multiplications that these layers are."""
        return sum(self.macs.get(name, 0) for name in layers) / (sum(self.macs.values()) or 1)

    def time(self, layers: Mapping[str, str]) -> float:
        """Time of all products with these precisions; 1 with all in the usual precision."""
        chip = self.placement.chip
        usual = chip.in_precision(self.how.precision)

        def takes(name: str, p: Precision) -> float:
            return self.work[name] * p.takes(self.products[name])

        whole = sum(takes(name, usual) for name in self.work)
        more = sum(
            takes(name, chip.in_precision(p)) - takes(name, usual)
            for name, p in layers.items()
            if name in self.work
        )
        return 1 + more / (whole or 1)

    def price(self, layers: Iterable[str]) -> float:
        """Time that promoting these layers adds, with the conversions around them."""
        return self.time(dict.fromkeys(layers, self.level or "")) - 1 + self.policy.conversion
