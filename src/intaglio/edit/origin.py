"""Where each tensor of the edited model comes from, so that both models can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from intaglio import dtypes
from intaglio.edit.formula import Formula
from intaglio.errors import BadInput
from intaglio.ir import Array


@dataclass(frozen=True)
class Rearranged:
    """The axes of a tensor were rearranged by a formula."""

    formula: Formula
    undone_by: Formula | None  # None if open dimensions were merged

    def forward(self, array: Array) -> Array:
        return self.formula.apply(array)

    def backward(self, array: Array) -> Array:
        assert self.undone_by is not None, "inputs are only rearranged by invertible formulas"
        return self.undone_by.apply(array)


@dataclass(frozen=True)
class Converted:
    """The element type of a tensor was changed."""

    before: str
    after: str

    def forward(self, array: Array) -> Array:
        return array.astype(dtypes.numpy_of(self.after))

    def backward(self, array: Array) -> Array:
        return array.astype(dtypes.numpy_of(self.before))


Step = Rearranged | Converted


@dataclass(frozen=True)
class View:
    """A tensor of the original model, and how its value becomes that of the edited model."""

    tensor: str
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> View:
        return replace(self, steps=(*self.steps, step))

    def forward(self, array: Array) -> Array:
        """The value in the edited model for one in the original."""
        for step in self.steps:
            array = step.forward(array)
        return array

    def backward(self, array: Array) -> Array:
        """The value in the original model for one in the edited model."""
        for step in reversed(self.steps):
            array = step.backward(array)
        return array

    def converted(self, array: Array, name: str) -> Array:
        """As `forward`; BadInput if the new element type cannot hold the values."""
        made = self.forward(array)
        if any(isinstance(s, Converted) for s in self.steps):
            again = self.backward(made)
            if not np.array_equal(again, array, equal_nan=again.dtype.kind == "f"):
                raise BadInput(
                    f"data of '{self.tensor}' cannot be stored as {made.dtype} without loss, which "
                    f"input '{name}' now takes; give data that fits, such as whole numbers"
                )
        return made


@dataclass
class Origin:
    """What is known about the tensors of the edited model, by name."""

    views: dict[str, View] = field(default_factory=dict)
    # Tensors whose computation was changed on purpose. Those that depend on them change too.
    altered: set[str] = field(default_factory=set)
    # Values of original inputs that became constants.
    bound: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(names: Iterable[str]) -> Origin:
        return Origin({name: View(name) for name in names})

    def copy(self) -> Origin:
        return Origin(dict(self.views), set(self.altered), dict(self.bound))

    def move(self, old: str, new: str) -> None:
        """The tensor `old` is now called `new`."""
        if old in self.views:
            self.views[new] = self.views.pop(old)
        if old in self.altered:
            self.altered.remove(old)
            self.altered.add(new)

    def is_same(self, name: str, other: str) -> None:
        """`name` now has the value of `other`."""
        self.views.pop(name, None)
        if other in self.views:
            self.views[name] = self.views[other]
        if other in self.altered:
            self.altered.add(name)
        else:
            self.altered.discard(name)
