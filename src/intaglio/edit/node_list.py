"""The nodes of the main graph in order, with an index of who computes and who reads a tensor."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from intaglio.errors import BadInput
from intaglio.frontends.onnx.topological_order import reads


class NodeList:
    """Nodes by label, the name by which edits call them. NodeProtos are replaced, never changed."""

    def __init__(self, nodes: dict[str, Any]):
        self._nodes = nodes
        self._producer: dict[str, str] = {}
        self._readers: dict[str, dict[str, None]] = {}  # sets that keep their order
        self._indexed = False

    def copy(self) -> NodeList:
        return NodeList(dict(self._nodes))

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, label: object) -> bool:
        return label in self._nodes

    def __getitem__(self, label: str) -> Any:
        return self._nodes[label]

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._nodes.items()

    def protos(self) -> Iterable[Any]:
        return self._nodes.values()

    def same(self, other: NodeList) -> bool:
        """Whether nothing was replaced, added, removed or moved."""
        pairs = zip(self._nodes.items(), other._nodes.items(), strict=False)
        return len(self) == len(other) and all(a[0] == b[0] and a[1] is b[1] for a, b in pairs)

    # ---- tensors ---------------------------------------------------------------------------------
    def producer(self, tensor: str) -> str | None:
        """The node that computes a tensor."""
        self._index()
        return self._producer.get(tensor)

    def readers(self, tensor: str) -> list[str]:
        """Nodes that read a tensor, also inside of their sub-graphs."""
        self._index()
        return list(self._readers.get(tensor, ()))

    def _index(self) -> None:
        if not self._indexed:
            self._indexed = True
            for label, proto in self._nodes.items():
                self._enter(label, proto)

    def _enter(self, label: str, proto: Any) -> None:
        for name in proto.output:
            if name:
                self._producer[name] = label
        for name in reads(proto):
            self._readers.setdefault(name, {})[label] = None

    def _leave(self, label: str) -> None:
        proto = self._nodes[label]
        for name in proto.output:
            if self._producer.get(name) == label:
                del self._producer[name]
        for name in reads(proto):
            self._readers[name].pop(label, None)

    # ---- changing --------------------------------------------------------------------------------
    def replace(self, label: str, proto: Any) -> None:
        self._index()
        self._leave(label)
        self._nodes[label] = proto
        self._enter(label, proto)

    def remove(self, label: str) -> None:
        self._index()
        self._leave(label)
        del self._nodes[label]

    def insert(
        self, protos: Iterable[Any], before: str | None = None, after: str | None = None
    ) -> None:
        """Add nodes with names, before or after another one, or at the beginning."""
        new = {p.name: p for p in protos}
        labels = list(self._nodes)
        at = 0
        if before is not None or after is not None:
            at = labels.index(before or after or "") + (before is None)
        self._reorder([*labels[:at], *new, *labels[at:]], new)
        if self._indexed:
            for label, proto in new.items():
                self._enter(label, proto)

    def _reorder(self, labels: Iterable[str], new: dict[str, Any] | None = None) -> None:
        nodes = {**self._nodes, **(new or {})}
        self._nodes = {label: nodes[label] for label in labels}

    def keep(self, wanted: Collection[str]) -> None:
        """Remove all other nodes."""
        for label in [label for label in self._nodes if label not in wanted]:
            self.remove(label)

    def sort(self) -> None:
        """Put producers first, otherwise keep the order; BadInput for a cycle."""
        labels = list(self._nodes)
        place = {label: i for i, label in enumerate(labels)}
        waits = [
            {place[p] for n in reads(proto) if (p := self.producer(n)) is not None}
            for proto in self._nodes.values()
        ]
        if all(not w or max(w) < i for i, w in enumerate(waits)):
            return
        followers: dict[int, list[int]] = {}
        for i, w in enumerate(waits):
            for k in w:
                followers.setdefault(k, []).append(i)
        ready = [i for i, w in enumerate(waits) if not w]
        order = []
        while ready:
            i = heapq.heappop(ready)
            order.append(labels[i])
            for k in followers.get(i, ()):
                waits[k].discard(i)
                if not waits[k]:
                    heapq.heappush(ready, k)
        if len(order) < len(labels):
            stuck = labels[next(i for i, w in enumerate(waits) if w)]
            raise BadInput(
                f"node '{stuck}' would read its own result; a model must be acyclic; choose a "
                "tensor that is computed before the node"
            )
        self._reorder(order)
