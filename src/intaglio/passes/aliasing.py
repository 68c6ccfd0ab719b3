"""Aliasing: which values may share bytes: views, concat operands, in-place results, loop states.

Every value starts in its own region. Joining two regions fixes the distance between their values.
It is done only if no two values that would overlap are live at the same time, unless they hold
equal bytes where they overlap.
"""

from __future__ import annotations

import math

from intaglio import dtypes, native
from intaglio.ir import Graph, Node, Value
from intaglio.passes.liveness import Control, Lifetimes

MAX_REGION_VALUES = 512  # larger regions take too long to check
MAX_VIEW_DEPTH = 100  # views of views; deeper ones are copied


class Region:
    """Values at fixed distances from each other; `at` counts bytes from an arbitrary origin."""

    __slots__ = ("at", "high", "low", "memory", "slot")

    def __init__(self, v: Value):
        self.at: dict[Value, int] = {v: 0}
        self.low, self.high = 0, v.type.bytes
        self.memory, self.slot = "arena", 0

    def take(self, other: Region, shift: int) -> None:
        """Add the values of `other`, shifted by `shift` bytes."""
        for v, at in other.at.items():
            self.at[v] = at + shift
        self.low = min(self.low, other.low + shift)
        self.high = max(self.high, other.high + shift)


Piece = tuple[int, int, Value, int]  # first byte, end byte, value that owns the bytes, offset in it


class Sharing:
    """The regions, the origin of every value's bytes, and values that are the same tensor."""

    def __init__(self, graph: Graph, life: Lifetimes):
        self.life = life
        self.region = {v: Region(v) for v in life.spans}
        self.size = {v: v.type.bytes for v in life.spans}
        self.hull = {v: (spans[0][0], spans[-1][1]) for v, spans in life.spans.items()}
        self.pieces: dict[
            Value, list[Piece]
        ] = {}  # of views: the bytes that belong to other values
        self.depth: dict[Value, int] = {}  # of views of views
        self.same: dict[Value, Value] = {}  # to the value that is the same tensor
        self.exempt: set[tuple[Value, Value]] = set()  # may overlap at the step between them
        self.apart: set[tuple[Value, Value]] = set()  # must not overlap
        for slot, v in enumerate(graph.inputs):
            self.region[v].memory, self.region[v].slot = "input", slot

    def tensor_of(self, v: Value) -> Value:
        """The value that represents `v` in the plan."""
        while v in self.same:
            v = self.same[v]
        return v

    def show(self, v: Value, of: Value, at: int = 0, where: int = 0) -> bool:
        """Make the bytes of `v` from `where` a view of `of` from byte `at`, if that is safe."""
        if of not in self.size or self.depth.get(of, 0) > MAX_VIEW_DEPTH:
            return False  # a constant, or too deep a chain of views
        size = min(self.size[v] - where, self.size[of] - at)
        before = self.pieces.get(v)
        self.pieces[v] = [*(before or []), (where, where + size, of, at)]
        joined = self._join(of, v, at - where)
        if joined:
            self.depth[v] = max(self.depth.get(v, 0), self.depth.get(of, 0) + 1)
        else:
            if before is None:
                del self.pieces[v]
            else:
                self.pieces[v] = before
        return joined

    def follow(self, before: Value, after: Value) -> bool:
        """Put `after` at the address of `before`; both may be live at the step between them."""
        pairs = ((before, after), (after, before))
        added = [p for p in pairs if p not in self.exempt]
        self.exempt.update(added)
        joined = self._join(before, after, 0)
        if not joined:
            self.exempt.difference_update(added)
        return joined

    def _join(self, a: Value, b: Value, distance: int) -> bool:
        """Put `b` at `distance` bytes behind `a`, if no two values conflict."""
        one, two = self.region[a], self.region[b]
        shift = one.at[a] + distance - two.at[b]
        if one is two:
            return shift == 0 and (b, a) not in self.apart and self._agree(a, 0, b, distance)
        if len(one.at) + len(two.at) > MAX_REGION_VALUES or not self._fits(one, two, shift):
            return False
        if self._clash(one, two, shift):
            return False
        if two.memory != "arena" or (one.memory == "arena" and len(one.at) < len(two.at)):
            one, two, shift = two, one, -shift
        one.take(two, shift)
        for v in two.at:
            self.region[v] = one
        return True

    def _fits(self, one: Region, two: Region, shift: int) -> bool:
        """The caller's buffers have a fixed size."""
        if one.memory != "arena":
            inside = one.low <= two.low + shift and two.high + shift <= one.high
            return inside and two.memory == "arena"
        if two.memory != "arena":
            return two.low + shift <= one.low and one.high <= two.high + shift
        return True

    def _clash(self, one: Region, two: Region, shift: int) -> bool:
        size, hull = self.size, self.hull
        for w, there in two.at.items():
            low, (start, end) = there + shift, hull[w]
            high = low + size[w]
            for v, at in one.at.items():
                if low >= at + size[v] or at >= high:
                    continue
                if (v, w) in self.apart:
                    return True
                first, last = hull[v]
                if first > end or start > last or not self._meet(v, w):
                    continue
                if (low != at or (v, w) not in self.exempt) and not self._agree(v, at, w, low):
                    return True
        return False

    def _meet(self, v: Value, w: Value) -> bool:
        spans = self.life.spans
        return any(a <= d and c <= b for a, b in spans[v] for c, d in spans[w])

    def _agree(self, v: Value, at: int, w: Value, there: int) -> bool:
        """Do two overlapping values hold the same bytes where they overlap?"""
        for a, b, whose, first in self._content(v):
            for c, d, other, second in self._content(w):
                same = whose is other and at + a - first == there + c - second
                if not same and at + a < there + d and there + c < at + b:
                    return False
        return True

    def _content(self, v: Value) -> list[Piece]:
        """The bytes of `v`, split by the value whose step writes them."""
        if v not in self.pieces:
            return [(0, self.size[v], v, 0)]
        found, covered = [], 0
        for low, high, of, at in sorted(self.pieces[v], key=lambda p: p[0]):
            if covered < low:
                found.append((covered, low, v, covered))
            for a, b, whose, first in self._content(of):
                a, b, first = a - at + low, b - at + low, first
                c, d = max(a, low), min(b, high)
                if c < d:
                    found.append((c, d, whose, first + c - a))
            covered = high
        if covered < self.size[v]:
            found.append((covered, self.size[v], v, covered))
        return found


def share(
    graph: Graph, order: dict[Graph, list[Node]], life: Lifetimes
) -> tuple[Sharing, set[Node]]:
    """Join regions, the largest savings first. Also returns the nodes that need no step."""
    sharing = Sharing(graph, life)
    done: set[Node] = set()
    nodes = [n for g in order for n in order[g]]
    for control in life.controls:
        _keep_apart(control, sharing)
        for outside, inside in control.captures:
            _capture(outside, inside, sharing)
    for node in nodes:
        if node.op == "concat" and _parts(node, sharing):
            done.add(node)
    for node in nodes:
        if _view(node, sharing):
            done.add(node)
    for control in life.controls:
        _carry(control, sharing)
    for node in nodes:
        _in_place(node, sharing)
    return sharing, done


# ---- views ---------------------------------------------------------------------------------------
def is_fixed(node: Node) -> bool:
    """Are all its shapes static?"""
    return all(v.type.fixed for v in (*node.inputs, *node.outputs) if v is not None)


def _view(node: Node, sharing: Sharing) -> bool:
    """Make reshapes and contiguous slices views. True if the node needs no step."""
    x = node.inputs[0] if node.inputs else None
    if x is None or x.data is not None:
        return False
    distance = None
    if flags(node) & native.VIEW and x.type.bytes == node.outputs[0].type.bytes:
        distance = 0
    elif node.op == "slice" and is_fixed(node):
        distance = contiguous_slice(node)
    step = not is_fixed(node)  # it computes the actual shape
    varies = any(v.type.dynamic for v in (x, *node.outputs))
    if distance is None or (varies and sharing.region[x].memory == "input"):
        return False  # it must not write to the caller's input
    return sharing.show(node.outputs[0], x, distance) and not step


def contiguous_slice(node: Node) -> int | None:
    """The byte offset of a slice in its operand, if it is contiguous; else None."""
    x = node.inputs[0]
    assert x is not None
    out, start, partial = node.outputs[0].shape, 0, False
    cuts = zip(node.attrs["start"], node.attrs["stop"], node.attrs["step"], strict=True)
    for axis, cut in reversed(list(enumerate(cuts))):
        extent = x.shape[axis]
        first, _, step = slice(*cut).indices(extent)
        if partial and out[axis] != 1:
            return None
        if out[axis] != extent or first != 0:
            if out[axis] == 0 or (step != 1 and out[axis] != 1):
                return None
            partial = True
        start += first * math.prod(x.shape[axis + 1 :])
    return start * dtypes.itemsize(x.dtype)


def _parts(node: Node, sharing: Sharing) -> bool:
    """Write the operands of a concat directly into its result, if each part is contiguous."""
    out = node.outputs[0]
    axis = node.attrs["axis"] % out.type.rank
    if math.prod(out.shape[:axis]) != 1 or not is_fixed(node):
        return False
    at, joined = 0, 0
    for v in node.inputs:
        assert v is not None
        if v.type.size and v.producer is not None:
            joined += sharing.show(out, v, where=at)
        at += v.type.bytes
    return joined > 0


# ---- control flow --------------------------------------------------------------------------------
def _capture(outside: Value, inside: Value, sharing: Sharing) -> None:
    """A captured value is the same tensor inside the body."""
    if outside.type != inside.type:
        return
    if outside.data is not None or sharing.show(inside, outside):
        sharing.same[inside] = outside


def _keep_apart(control: Control, sharing: Sharing) -> None:
    """Forbid overlaps between states: the runtime copies new states to old ones one by one."""
    for _, inside, own, _ in control.carried:
        for _, _, other, _ in control.carried:
            result = control.node.attrs["body"].outputs[other]
            if other != own and result is not inside:
                sharing.apart.update([(inside, result), (result, inside)])


def _carry(control: Control, sharing: Sharing) -> None:
    """Alias loop states and branch results to avoid copies, if no other value is in the way."""
    life = sharing.life
    for first, inside, own, out in control.carried:
        if inside.type == out.type and sharing.show(out, inside):
            sharing.same[out] = inside
        if first is not None and first.data is None and first.type == inside.type:
            dead = life.spans[first][-1][1] == control.start
            if dead and sharing.follow(first, inside):
                sharing.same[inside] = first
        body: Graph = control.node.attrs["body"]
        result = body.outputs[own]
        node = result.producer
        if node is None or node.bodies() or result.type != inside.type:
            continue
        made = life.time[node]
        last = max((life.time.get(n, -1) for n in inside.uses), default=-1)
        free = last < made or (last == made and may_follow(node, inside))
        sharing.exempt.update([(result, out), (out, result)])  # they hold the same bytes at the end
        if free and body.result not in inside.uses and sharing.follow(inside, result):
            sharing.same[result] = inside
    if control.node.op == "if":
        for branch in control.node.bodies():
            for out, result in zip(control.node.outputs, branch.outputs, strict=True):
                plain = result.producer is not None and result.type == out.type
                if plain and result not in sharing.same and sharing.follow(result, out):
                    sharing.same[result] = out


# ---- in place ------------------------------------------------------------------------------------
def flags(node: Node) -> int:
    op = native.ops().get(node.op)
    return op.flags if op is not None else 0


def may_follow(node: Node, v: Value) -> bool:
    """May the node write its first output over its input `v`?"""
    out, allowed = node.outputs[0], flags(node)
    if not allowed & (native.INPLACE | native.INPLACE_FIRST) or v.type != out.type:
        return False
    if out.type.dynamic and sum(x is not None and x.type.rank > 0 for x in node.inputs) > 1:
        return False  # an axis of size one at run time would broadcast
    at = [i for i, x in enumerate(node.inputs) if x is v]
    return bool(allowed & native.INPLACE) or at == [0]


def _in_place(node: Node, sharing: Sharing) -> None:
    at = sharing.life.time[node]
    for v in node.inputs:
        if v is None or v.data is not None or not may_follow(node, v):
            continue
        if sharing.life.spans[v][-1][1] == at and sharing.follow(v, node.outputs[0]):
            return
