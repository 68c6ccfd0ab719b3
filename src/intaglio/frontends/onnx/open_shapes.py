"""Imports of a model with open dimensions: shapes stay computed at run time.

A graph has fixed shapes, so the model is imported at two sizes. An extent that differs between them
is open. Whatever is computed from an open extent must not become a constant: `Shape` stays a node,
and a node that needs the value of such a tensor is kept as it is in the file (the op `onnx.node`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio.errors import RunError, Unsupported, option
from intaglio.frontends.onnx.open_extents import expand_target, reshape_target, resize_scales
from intaglio.frontends.onnx.schema import find_schema
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import REGISTRY, evaluate_node, op

MAX_ELEMENTS = 4096  # of a tensor that may be part of a shape computation
SAME_PADDING = (b"SAME_UPPER", b"SAME_LOWER")
WRITABLE = range(17, 29)  # opsets of the writer
GRAPH, GRAPHS = 5, 10  # types of attributes
# Ops that move elements of their first operand; `concat` moves those of all.
MOVES = {"reshape", "transpose", "slice", "gather", "expand", "cast", "tile"}


# Operators that newer opsets only extend, and the version from which they do.
EXTENDED_SINCE = {
    "AveragePool": 7,
    "Concat": 4,
    "ConstantOfShape": 9,
    "Conv": 1,
    "ConvTranspose": 1,
    "Expand": 8,
    "Flatten": 1,
    "Gather": 1,
    "GlobalAveragePool": 1,
    "MaxPool": 8,
    "OneHot": 9,
    "Pad": 11,
    "Range": 11,
    "Reshape": 5,
    "Resize": 11,
    "Shape": 1,
    "Size": 1,
    "Slice": 10,
    "Squeeze": 13,
    "Tile": 6,
    "TopK": 10,
    "Transpose": 1,
    "Unsqueeze": 13,
}


def means_the_same(op_type: str, since: int, opset: int) -> bool:
    """Whether a node of the version `since` of an operator is valid, and equal, in `opset`."""
    schema = find_schema(op_type, opset, "")
    if schema is None or schema.deprecated:
        return False
    return bool(schema.since_version == since) or since >= EXTENDED_SINCE.get(op_type, 1 << 30)


@dataclass(frozen=True)
class Seen:
    """One node at one size: types of operands and results, and the values of small constants."""

    shapes: tuple[tuple[int, ...] | None, ...]
    values: tuple[Array | None, ...]
    results: list[Type | None] = field(default_factory=list)
    constants: list[Array | None] = field(default_factory=list)  # small results that are constant

    def add_results(self, results: Sequence[Value | None]) -> None:
        for v in results:
            small = v is not None and v.type.size <= MAX_ELEMENTS
            self.results.append(None if v is None else v.type)
            self.constants.append(v.data if v is not None and small else None)


class NeedsOpenValue(Unsupported):
    """A node needs the value of an operand that is computed from open extents."""


def _types(*inputs: Value | None, types: tuple[Type, ...], **attrs: Any) -> list[Type]:
    return list(types)


@op(_types, name="onnx.node", foldable=False)
def onnx_node(
    *inputs: Array,
    op_type: str,
    attributes: tuple[bytes, ...],
    types: tuple[Type, ...],
    places: tuple[int, ...],
    since: int,
) -> Array:
    """A node of the file, written as it is. `types` are those of its results at one size."""
    raise RunError(f"onnx: {op_type} is kept for writing; it cannot be computed here")


class OpenShapes:
    """One import of a model with open dimensions, with what imports at fixed sizes saw.

    `here` is the import at this size, `there` at another. `tiny` is one at a third, small size: an
    extent that only it has is limited (`x[:, :100]`); nodes that read it are kept.
    """

    def __init__(
        self,
        here: Mapping[str, Seen],
        there: Mapping[str, Seen],
        tiny: Mapping[str, Seen],
        kept: frozenset[str] = frozenset(),
    ):
        self.here, self.there, self.tiny, self.kept = here, there, tiny, kept
        # Tensors that are computed from shapes: value at this size, and which elements are open.
        self.known: dict[Value, tuple[Array, Array]] = {}

    def open_axes(self, origin: str, operand: int = 0) -> list[int]:
        """The axes of an operand whose extents are open; all of them if that is not known."""
        a = self.here[origin].shapes[operand] or ()
        others = [self._there(origin), *([self.tiny[origin]] if origin in self.tiny else [])]
        found = set()
        for other in others:
            b = other.shapes[operand]
            same_rank = b is not None and len(a) == len(b)
            found |= {i for i in range(len(a)) if not same_rank or a[i] != b[i]}  # type: ignore[index]
        return sorted(found)

    def _reads_limited(self, n: Any) -> bool:
        """Whether an operand has an extent or value that differs at the third size only."""
        if not self.tiny:
            return False
        if n.origin not in self.tiny:
            return True
        here, there, tiny = self.here[n.origin], self._there(n.origin), self.tiny[n.origin]
        return any(
            x == y != z
            for a, b, c in zip(here.shapes, there.shapes, tiny.shapes, strict=True)
            for x, y, z in zip(a or (), b or (), c or (), strict=False)
        )

    def _there(self, origin: str) -> Seen:
        if origin not in self.there:
            raise Unsupported(
                f"onnx: node '{origin}' exists at one size only; the model's structure depends on "
                "its open dimensions"
            )
        return self.there[origin]

    # ---- nodes that stay as they are ----
    def must_keep(self, n: Any) -> bool:
        """Whether the import of this node would fix an open extent."""
        if n.origin in self.kept or self._reads_limited(n):
            return True
        if not n.domain and n.op_type in ("Shape", "Size"):
            taken = range(len(self.here[n.origin].shapes[0] or ()))
            part = taken[slice(n.attr("start", 0), n.attr("end"))]
            return any(axis in part for axis in self.open_axes(n.origin))
        padded = n.protos.get("auto_pad")
        if (padded is not None and padded.s in SAME_PADDING) or n.attr("ceil_mode", 0):
            return any(axis > 1 for axis in self.open_axes(n.origin))
        return n.op_type == "Split" and self._splits_open_axis(n)

    def _splits_open_axis(self, n: Any) -> bool:
        rank = len(self.here[n.origin].shapes[0] or ())
        return n.attr("axis", 0) % max(rank, 1) in self.open_axes(n.origin)

    def keep(self, n: Any) -> list[Value | None]:
        """The node as an `onnx.node`, with the result types of the fixed import."""
        schema = None if n.domain else find_schema(n.op_type, n.opset, "")
        writable = schema is not None and any(
            means_the_same(n.op_type, schema.since_version, v) for v in WRITABLE
        )
        if (
            schema is None
            or not writable
            or any(a.type in (GRAPH, GRAPHS) for a in n.protos.values())
        ):
            raise Unsupported(
                f"onnx: node '{n.origin}' ({n.op_type}) depends on open dimensions; it must be "
                "fixed, because it has a sub-graph or no form in opset 17 or newer; bind the "
                f"dimensions with {option('dims')} or {option('shapes')}"
            )
        results = self.here[n.origin].results
        places = tuple(i for i, t in enumerate(results) if t is not None and n.proto.output[i])
        node = REGISTRY["onnx.node"].node(
            *n.inputs,
            origin=n.origin,
            op_type=n.op_type,
            attributes=tuple(n.protos[k].SerializeToString() for k in sorted(n.protos)),
            types=tuple(results[i] for i in places),
            places=places,
            since=schema.since_version,
        )
        made: list[Value | None] = [None] * n.n_outputs
        for place, v in zip(places, node.outputs, strict=True):
            made[place] = v
            value = self.here[n.origin].constants[place]
            if value is not None:  # it is computed from shapes and constants
                self.known[v] = value, self._open_elements(n, value)
        return made

    def _open_elements(self, n: Any, value: Array) -> Array:
        """Which elements of a result are open: of Shape, those of open axes; of others, all."""
        if n.op_type != "Shape":
            return np.ones(value.shape, np.int64)
        is_open = np.zeros(len(self.here[n.origin].shapes[0] or ()), np.int64)
        is_open[self.open_axes(n.origin)] = 1
        return is_open[slice(n.attr("start", 0), n.attr("end"))]

    def same_types(self, n: Any, results: Sequence[Value | None]) -> bool:
        """Whether results have the types of the import at a fixed size: no run-time extents."""
        want = self.here[n.origin].results
        return all(v is None or v.type == t for v, t in zip(results, want, strict=False))

    # ---- values that are computed from shapes ----
    def follow(self, node: Node) -> tuple[Array, ...] | None:
        """The results of a new node if they are constant; notes those that are open."""
        inputs = [v for v in node.inputs if v is not None]
        if not any(v in self.known for v in inputs) or node.bodies():
            return None
        if any(v.data is None and v not in self.known for v in inputs):
            return None
        small = all(v.type.size <= MAX_ELEMENTS for v in (*inputs, *node.outputs))
        if not small or not REGISTRY[node.op].foldable:
            return None
        values = [None if v is None else self._value(v) for v in node.inputs]
        made = evaluate_node(node, values)
        marks = self._marks(node, values)
        if not any(m.any() for m in marks):
            return made
        for v, a, m in zip(node.outputs, made, marks, strict=True):
            self.known[v] = a, m
        return None

    def _value(self, v: Value) -> Array:
        return v.data if v.data is not None else self.known[v][0]

    def _mark(self, v: Value) -> Array:
        return np.zeros(v.shape, np.int64) if v.data is not None else self.known[v][1]

    def _marks(self, node: Node, values: Sequence[Array | None]) -> list[Array]:
        """Which elements of the results depend on open extents."""
        marks = [None if v is None else self._mark(v) for v in node.inputs]
        shapes = [v.shape for v in node.outputs]
        everything = [np.full(s, 1, np.int64) for s in shapes]
        moved = node.op == "concat" or (
            node.op in MOVES and not any(m is not None and m.any() for m in marks[1:])
        )
        if moved:
            body, all_moved = REGISTRY[node.op].body, node.op == "concat"
            first = [*marks] if all_moved else [marks[0], *values[1:]]
            attrs = {**node.attrs, "dtype": "i64"} if node.op == "cast" else node.attrs
            return [np.asarray(body(*first, **attrs))]
        if not REGISTRY[node.op].elementwise and len(shapes) == 1:
            return everything
        try:
            return [np.broadcast_to(sum(m for m in marks if m is not None), s) for s in shapes]
        except ValueError:
            return everything

    # ---- operands that must be constant ----
    def constant(self, n: Any, i: int, v: Value) -> Array | None:
        """The value of an operand at this size, if the writer can express it for all sizes.

        None if it is not computed from shapes; NeedsOpenValue if the node must stay as it is.
        """
        if v not in self.known:
            return None
        if not self._expressible(n, i):
            raise NeedsOpenValue(f"operand {i} of '{n.origin}' is open")
        return self.known[v][0]

    def _expressible(self, n: Any, i: int) -> bool:
        """Whether one target describes the operand at all sizes that were seen."""
        targets = [self._target(n, i, self._there(n.origin))]
        if n.origin in self.tiny:
            targets.append(self._target(n, i, self.tiny[n.origin]))
        return targets[0] is not None and all(t == targets[0] for t in targets)

    def _target(self, n: Any, i: int, other: Seen) -> Any:
        here = self.here[n.origin]
        a, b, x, y = here.values[i], other.values[i], here.shapes[0], other.shapes[0]
        if n.domain or a is None or b is None or x is None or y is None:
            return None
        mine, theirs = a.tolist(), b.tolist()
        if n.op_type == "Reshape" and i == 1:
            return reshape_target(x, y, mine, theirs, bool(n.attr("allowzero")))
        if n.op_type == "Expand" and i == 1:
            return expand_target(x, y, mine, theirs)
        plain = not {"axes", "keep_aspect_ratio_policy"} & set(n.attrs)
        if n.op_type == "Resize" and i == 3 and plain:
            return resize_scales(x, y, mine, theirs)
        return None


def seen_node(n: Any, force: Any) -> Seen:
    """The operands of a node, for a later import with open dimensions."""
    small = [v if v is not None and v.type.size <= MAX_ELEMENTS else None for v in n.inputs]
    return Seen(
        tuple(None if v is None else v.shape for v in n.inputs),
        tuple(None if v is None else force(v) for v in small),
    )
