"""The table of importers of a framework, by the names of its operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from intaglio.ops.registry import Op, named

Import = TypeVar("Import", bound=Callable[..., Any])


class Importers(dict[str, Import]):
    """Functions that import an operator; `same` imports operators that we have one to one.

    `framework` is the key of `Op.names`. `same` is called with our op and the arguments of an
    importer, for every op that `suits`.
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
        """Register the decorated function as the importer of these operators."""

        def keep(function: Import) -> Import:
            for name in names:
                if name in self:
                    raise ValueError(f"two importers for {name}")
                self[name] = function
            return function

        return keep

    def find(self, name: str) -> Import | None:
        """The importer of an operator, or None; a 1:1 operator is imported by `same`."""
        if name in self or self._import_same is None or name not in self._same:
            return self.get(name)
        return functools.partial(self._import_same, self._same[name])  # type: ignore[return-value]

    @functools.cached_property
    def _same(self) -> dict[str, Op]:
        return {name: op for name, op in named(self._framework).items() if self._suits(op)}
