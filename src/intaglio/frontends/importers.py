"""The importers of a framework, by the names of its ops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from intaglio.ops.registry import Op, named

Import = TypeVar("Import", bound=Callable[..., Any])


class Importers(dict[str, Import]):
    """Functions for ops that differ from ours, and `same` for those that we have by another name.

    `framework` is the key of `Op.names`; `same` is called with the op of ours and what an importer
    is called with, if the op `suits`.
    """

    def __init__(
        self,
        framework: str = "",
        same: Callable[..., Any] | None = None,
        suits: Callable[[Op], bool] = lambda op: True,
    ):
        super().__init__()
        self._framework, self._import_same, self._suits = framework, same, suits

    def register(self, *names: str) -> Callable[[Import], Import]:
        """Register the function below as the meaning of these ops."""

        def keep(function: Import) -> Import:
            for name in names:
                if name in self:
                    raise ValueError(f"two importers for {name}")
                self[name] = function
            return function

        return keep

    def find(self, name: str) -> Import | None:
        """The importer of an op, or the op of ours that is the same."""
        if name in self or self._import_same is None or name not in self._same:
            return self.get(name)
        return functools.partial(self._import_same, self._same[name])  # type: ignore[return-value]

    @functools.cached_property
    def _same(self) -> dict[str, Op]:
        return {name: op for name, op in named(self._framework).items() if self._suits(op)}
