"""Padding: inputs of other shapes than those that a package lists run in the next larger plan.

Inputs are padded with zeros at the end of their axes, and outputs are cut to the size that they
would have had. That gives the same results only for some models: images of a batch are independent,
and tokens are if the model masks them. The compiler finds out by running the model both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.ir import Array, Type

Shape = tuple[int, ...]
Types = Mapping[str, Type]
Links = dict[
    str, dict[int, tuple[str, int]]
]  # output -> axis -> the input and axis with its extent


@dataclass(frozen=True)
class Padding:
    """How the inputs of a package with several plans are padded."""

    plans: list[list[Shape]]  # shapes of the inputs of each plan, the smallest plan first
    links: Links
    names: list[str]  # of the inputs

    @classmethod
    def of(cls, meta: Mapping[str, Any], plans: Sequence[Types]) -> Padding | None:
        """The padding that the metadata of a package allows; None if it allows none."""
        stored = meta.get("padding")
        if not isinstance(stored, dict) or len(plans) < 2:
            return None
        links = {
            out: {int(axis): (str(name), int(of)) for axis, (name, of) in axes.items()}
            for out, axes in stored.items()
        }
        return cls([[t.shape for t in p.values()] for p in plans], links, list(plans[0]))

    def larger(self, shapes: Sequence[Shape]) -> list[Shape] | None:
        """The shapes of the smallest plan that these inputs fit into; None if none is larger."""
        for plan in self.plans:
            if all(
                len(a) == len(b) and all(x <= y for x, y in zip(a, b, strict=True))
                for a, b in zip(shapes, plan, strict=True)
            ):
                return plan
        return None

    def crop(self, outputs: Mapping[str, Array], shapes: Sequence[Shape]) -> dict[str, Array]:
        """Outputs without what belongs to the padding of inputs that had these shapes."""
        given = dict(zip(self.names, shapes, strict=True))
        result = {}
        for name, a in outputs.items():
            cut = [slice(None)] * a.ndim
            for axis, (of, place) in self.links.get(name, {}).items():
                cut[axis] = slice(given[of][place])
            result[name] = np.ascontiguousarray(a[tuple(cut)])
        return result


def pad(arrays: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
    """The arrays with zeros behind them, up to these shapes."""
    padded = []
    for a, shape in zip(arrays, shapes, strict=True):
        whole = np.zeros(shape, a.dtype)
        whole[tuple(slice(d) for d in a.shape)] = a
        padded.append(whole)
    return padded
