"""Choices of an earlier compilation, made again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from intaglio.ir import Node
from intaglio.tune import Decision, Decisions


class Replayed(Decisions):
    """Chooses what was chosen before; for nodes that were not there, the estimated best."""

    def __init__(self, choices: Sequence[Sequence[str]]):
        """`choices` are rule, origin and choice of each node, in their order."""
        super().__init__()
        self._left: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for rule, origin, choice in choices:
            self._left[rule, origin].append(choice)

    def pick(self, rule: str, node: Node, names: Sequence[str], estimate: str) -> str:
        if (rule, node) not in self._made:
            left = self._left[rule, node.origin]
            choice = left.popleft() if left else estimate
            choice = choice if choice in names else estimate
            self._made[rule, node] = Decision(rule, node.origin, choice, estimate)
        return self._made[rule, node].choice
