"""A library of replacement rules that turn ops a target lacks into ops it has.

A name here is a rule, or a function that makes the rule for the limits of a unit. A target lists
the rules it needs in its `lower`, which run at every level, and the rules it prefers in its
`replace`, which run at level 3. Rules that say "exact" keep every bit except the sign of zero; the
other rules reorder sums.
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
    """The same rules, tried only at nodes for which `test` is true."""
    return tuple(_OnlyWhere(r, test) for r in rules)


def where_refused(why_not: Callable[[Node], str | None], *rules: Rule) -> tuple[Rule, ...]:
    """The same rules, tried only at nodes that the target does not support."""
    return only_where(why_not, *rules)


class _OnlyWhere(Rule):
    def __init__(self, rule: Rule, test: Callable[[Node], object]):
        self.__dict__.update(vars(rule))
        self.test = test

    def apply(self, graph: Any, node: Node) -> Any:
        return super().apply(graph, node) if self.test(node) else None


UNCHANGED = "unchanged"


def estimated(pays: Callable[[Node], bool], *rules: Rule) -> tuple[Rule, ...]:
    """The same rules as algorithm choices; the estimate is that they are faster where `pays` is
    true.
    """
    return tuple(_Estimated(r, pays) for r in rules)


class _Estimated(Rule):
    def __init__(self, rule: Rule, pays: Callable[[Node], bool]):
        self.__dict__.update(vars(rule))
        self.pays = pays

    def apply(self, graph: Any, node: Node) -> Any:
        new = super().apply(graph, node)
        if not isinstance(new, list):
            return new
        guess = self.name if self.pays(node) else UNCHANGED
        if self.pick(self.name, node, (UNCHANGED, self.name), guess) == self.name:
            return new
        for v in new:
            release(v.producer)
        return no("the unchanged op is as fast")


# With the limits of common units. Some rules undo each other: no target uses all.
REPLACE: list[Rule] = [*LINEAR, *CONVOLUTIONS, *POOLINGS, *UPSAMPLING, *RANKS, *MOVES, *ACTIVATIONS]
