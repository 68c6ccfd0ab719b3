"""A library of replacements: from it a target picks what turns ops it lacks into ops it has.

A rule is a name here, or what a function of that name makes for the limits of a unit. A target puts
what it needs into its `lower`, where it runs at every level, and what it merely prefers into its
`replace`, for level 3. Rules that say "exact" keep every bit, but for the sign of a zero; the
others reorder sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intaglio.ir import Node, release
from intaglio.rewrite import Rule, no
from intaglio.targets.replace.activation import *  # noqa: F403
from intaglio.targets.replace.activation import ACTIVATIONS
from intaglio.targets.replace.conv import *  # noqa: F403
from intaglio.targets.replace.conv import CONVOLUTIONS
from intaglio.targets.replace.data_movement import *  # noqa: F403
from intaglio.targets.replace.data_movement import MOVES
from intaglio.targets.replace.matmul_conv import *  # noqa: F403
from intaglio.targets.replace.matmul_conv import LINEAR
from intaglio.targets.replace.pool import *  # noqa: F403
from intaglio.targets.replace.pool import POOLINGS
from intaglio.targets.replace.rank import *  # noqa: F403
from intaglio.targets.replace.rank import RANKS
from intaglio.targets.replace.upsample import *  # noqa: F403
from intaglio.targets.replace.upsample import UPSAMPLING


def only_where(test: Callable[[Node], object], *rules: Rule) -> tuple[Rule, ...]:
    """The same rules, tried only at nodes of which `test` is true."""
    return tuple(_OnlyWhere(r, test) for r in rules)


def where_refused(why_not: Callable[[Node], str | None], *rules: Rule) -> tuple[Rule, ...]:
    """The same rules, tried only at nodes that the target does not run as they are."""
    return only_where(why_not, *rules)


class _OnlyWhere(Rule):
    def __init__(self, rule: Rule, test: Callable[[Node], object]):
        self.__dict__.update(vars(rule))
        self.test = test

    def apply(self, graph: Any, node: Node) -> Any:
        return super().apply(graph, node) if self.test(node) else None


PLAIN = "as it is"


def estimated(pays: Callable[[Node], bool], *rules: Rule) -> tuple[Rule, ...]:
    """The same rules, for where they are faster: by estimate where `pays` is true."""
    return tuple(_Estimated(r, pays) for r in rules)


class _Estimated(Rule):
    def __init__(self, rule: Rule, pays: Callable[[Node], bool]):
        self.__dict__.update(vars(rule))
        self.pays = pays

    def apply(self, graph: Any, node: Node) -> Any:
        new = super().apply(graph, node)
        if not isinstance(new, list):
            return new
        guess = self.name if self.pays(node) else PLAIN
        if self.pick(self.name, node, (PLAIN, self.name), guess) == self.name:
            return new
        for v in new:
            release(v.producer)
        return no("as it is, it is as fast")


# With limits of the most usual units. Some undo each other: no target takes all.
REPLACE: list[Rule] = [*LINEAR, *CONVOLUTIONS, *POOLINGS, *UPSAMPLING, *RANKS, *MOVES, *ACTIVATIONS]
