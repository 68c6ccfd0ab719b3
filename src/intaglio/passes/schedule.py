"""Scheduling: an order of steps that keeps peak memory low."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from intaglio.ir import Graph, Node, Value

Order = dict[Graph, list[Node]]


def schedule(graph: Graph) -> Order:
    """The execution order of the graph's nodes, and of every body in it."""
    order = {graph: best_order(graph)}
    for node in order[graph]:
        for body in node.bodies():
            order.update(schedule(body))
    return order


def best_order(graph: Graph) -> list[Node]:
    """The order with the lowest peak memory of three: as written, heavy operands first, greedy."""
    written = list(graph.nodes())
    orders = [written, _heavy_first(graph, written), _greedy(graph, written)]
    return min(
        orders, key=lambda o: peak(graph, o)
    )  # the first of equals, so that it is reproducible


def peak(graph: Graph, order: Sequence[Node]) -> int:
    """The most bytes of intermediate tensors that are live at one time."""
    left = _readers(graph, order)
    live = most = 0
    for node in order:
        live += sum(v.type.bytes for v in node.outputs)
        most = max(most, live)
        live -= sum(v.type.bytes for v in node.outputs if not left[v])
        for v in _made(node):
            left[v] -= 1
            if not left[v]:
                live -= v.type.bytes
    return most


def _made(node: Node) -> dict[Value, None]:
    """The node's operands that other nodes make, each once."""
    return {v: None for v in node.inputs if v is not None and v.producer is not None}


def _readers(graph: Graph, order: Sequence[Node]) -> dict[Value, int]:
    """The number of readers of each value; a graph output has one more, which never finishes."""
    left = {v: 0 for node in order for v in node.outputs}
    for node in [*order, graph.result]:
        for v in _made(node):
            left[v] += 1
    return left


def _heavy_first(graph: Graph, written: Sequence[Node]) -> list[Node]:
    """Depth first; at each node, the operand that needs the most memory to compute goes first."""
    need: dict[Node, int] = {}  # bytes to compute the node, without sharing
    for node in written:
        held, most = 0, 0
        for v in sorted(_made(node), key=lambda v: v.type.bytes - need[v.producer]):  # type: ignore[index]
            most = max(most, held + need[v.producer])  # type: ignore[index]
            held += v.type.bytes
        need[node] = max(most, held + sum(v.type.bytes for v in node.outputs))
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[Node] = [graph.result]
    while stack:
        node = stack[-1]
        waiting = [v for v in _made(node) if v.producer not in done]
        if node in done or not waiting:
            stack.pop()
            if node not in done and node is not graph.result:
                order.append(node)
            done.add(node)
            continue
        waiting.sort(key=lambda v: need[v.producer] - v.type.bytes)  # type: ignore[index]
        stack.extend(v.producer for v in waiting)  # type: ignore[misc]
    return order


def _greedy(graph: Graph, written: Sequence[Node]) -> list[Node]:
    """Of the ready nodes, run the one that leaves the least memory live."""
    left = _readers(graph, written)
    place = {node: i for i, node in enumerate(written)}
    missing = {node: len({v.producer for v in _made(node)}) for node in written}
    version: dict[Node, int] = dict.fromkeys(written, 0)
    heap: list[tuple[int, int, int]] = []

    def push(node: Node) -> None:
        grows = sum(v.type.bytes for v in node.outputs if left[v])
        grows -= sum(v.type.bytes for v in _made(node) if left[v] == 1)
        version[node] += 1
        heapq.heappush(heap, (grows, place[node], version[node]))

    for node in written:
        if not missing[node]:
            push(node)
    order: list[Node] = []
    done: set[Node] = set()
    while heap:
        _, at, tag = heapq.heappop(heap)
        node = written[at]
        if node in done or tag != version[node]:
            continue  # an outdated entry
        done.add(node)
        order.append(node)
        for v in _made(node):
            left[v] -= 1
            if left[v] == 1:
                for user in v.uses:
                    if user in missing and user not in done and not missing[user]:
                        push(user)
        for user in {u: None for v in node.outputs for u in v.uses if u in missing}:
            missing[user] -= 1
            if not missing[user]:
                push(user)
    return order
