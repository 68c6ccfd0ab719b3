"""One model with open dimensions from two models of fixed sizes.

Both models must have the same nodes. A constant that differs between them must be a shape that
follows from the operand's own extents; it is written as 0, -1, a scale or a computed shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from intaglio.export.onnx.model_proto import Tensors
from intaglio.export.onnx.shape import TO_THE_END
from intaglio.frontends.onnx.open_extents import (
    Target,
    expand_target,
    reshape_target,
    resize_scales,
    slice_stops,
)
from intaglio.ir import Array

Assembled = tuple[Any, Tensors, list[str]]
Pair = tuple[int, int]


class DiffersBySize(Exception):
    """Nodes that are not the same at both sizes, by their origin, with the reason."""

    def __init__(self, found: Mapping[str, str]):
        super().__init__("; ".join(f"'{k}': {v}" for k, v in list(found.items())[:3]))
        self.found = dict(found)


def merge_sizes(
    first: Assembled,
    second: Assembled,
    symbols: Mapping[Pair, str],
    declared: Mapping[str, Any],
    tiny: Mapping[str, Any],
) -> tuple[Any, Tensors]:
    """The model with open dimensions, without its constants, and its constants.

    `symbols` names the dimensions by their extents at both sizes. `declared` has the shapes of
    inputs and outputs in the original file, `tiny` those of outputs at a third size.
    """
    merge = _Merge(first, second)
    merge.run()
    _open_infos(merge, symbols, declared, tiny)
    return merge.model, merge.tensors


class _Merge:
    def __init__(self, first: Assembled, second: Assembled):
        self.model, self.tensors, self.sources = first
        self.other, self.other_tensors, self.other_sources = second
        self.same: dict[str, str] = {}  # names of the first model and those of the second
        self.shapes = (_shapes(self.model), _shapes(self.other))
        self.found: dict[str, str] = {}
        self.nodes: list[Any] = []
        self.extents: dict[tuple[Any, ...], str] = {}  # computed extents, by tensor and axes

    def run(self) -> None:
        ours, theirs = self.model.graph, self.other.graph
        self.same = {a.name: b.name for a, b in zip(ours.input, theirs.input, strict=True)}
        for n, m, source in zip(ours.node, theirs.node, self.sources, strict=False):
            if (n.op_type, n.domain, len(n.input), len(n.output)) != (
                (m.op_type, m.domain, len(m.input), len(m.output))
            ):
                self.found[source] = f"{n.op_type} at one size, {m.op_type} at another"
                break
            self._node(n, m, source)
        if not self.found and len(ours.node) != len(theirs.node):
            self.found[self.sources[-1]] = "the number of nodes depends on the size"
        if self.found:
            raise DiffersBySize(self.found)
        del ours.node[:]
        ours.node.extend(self.nodes)
        used = _names_read(ours)
        self.tensors.arrays = {k: a for k, a in self.tensors.arrays.items() if k in used}

    def _node(self, n: Any, m: Any, source: str) -> None:
        if not self._same_attributes(n, m):
            self.found[source] = f"attributes of {n.op_type} depend on the size"
        for k, (a, b) in enumerate(zip(list(n.input), m.input, strict=True)):
            ours, theirs = self.tensors.arrays.get(a), self.other_tensors.arrays.get(b)
            if ours is None or theirs is None:
                if self.same.get(a, a) != b or (ours is None) != (theirs is None):
                    self.found[source] = f"operands of {n.op_type} depend on the size"
            elif not _equal(ours, theirs) and not self._opened(n, k, (a, b), ours, theirs, m):
                self.found[source] = f"a constant of {n.op_type} depends on the size"
        for a, b in zip(n.output, m.output, strict=True):
            self.same[a] = b
        self.nodes.append(n)

    # ---- constants that differ ----
    def _opened(self, n: Any, k: int, at: tuple[str, str], a: Array, b: Array, m: Any) -> bool:
        """Make operand `k` valid for all sizes; False if that is not possible."""
        x, y = self._shape(n.input[0], 0), self._shape(m.input[0], 1)
        if n.domain or x is None or y is None or a.ndim != 1 or a.shape != b.shape:
            return False
        mine, theirs = a.tolist(), b.tolist()
        if n.op_type == "Reshape" and k == 1:
            return self._reshape(n, reshape_target(x, y, mine, theirs, bool(n.attribute)))
        made: Any = None
        if n.op_type == "Expand" and k == 1:
            made = expand_target(x, y, mine, theirs)
        elif n.op_type == "Slice" and k == 2 and len(n.input) > 3:
            axes = self.tensors.arrays[n.input[3]].tolist()
            made = slice_stops(x, y, axes, mine, theirs, TO_THE_END)
        elif n.op_type == "Resize" and k == 3 and not n.input[2]:
            made = resize_scales(x, y, mine, theirs)
            if made is not None:
                n.input[2] = self._constant(np.array(made, np.float32), n)
                del n.input[3]
            return made is not None
        if made is not None:
            n.input[k] = self._constant(np.array(made, np.int64), n)
        return made is not None

    def _reshape(self, n: Any, target: Target | None) -> bool:
        """The shape of a Reshape: 0 keeps an axis, other axes of the operand are computed."""
        if target is None or n.attribute:
            return False
        entries = [0 if d == (i,) else d for i, d in enumerate(target)]
        parts = []
        for computed, group in itertools.groupby(entries, lambda d: isinstance(d, tuple)):
            numbers = [d[0] if isinstance(d, tuple) else d for d in group]
            if computed:
                parts.append(self._extents(n.input[0], numbers))
            else:
                parts.append(self._constant(np.array(numbers, np.int64), n))
        n.input[1] = parts[0] if len(parts) == 1 else self._add("Concat", parts, n, axis=0)
        return True

    def _extents(self, x: str, axes: list[int]) -> str:
        """Extents of `x` at run time; of an input of the model that has them, if there is one."""
        pairs = [(self._shape(x, 0)[a], self._shape(self.same.get(x, x), 1)[a]) for a in axes]  # type: ignore[index]
        for info in self.model.graph.input:
            own = list(zip(self.shapes[0][info.name], self.shapes[1][info.name], strict=True))
            if all(p in own for p in pairs):
                x, axes = info.name, [own.index(p) for p in pairs]
                break
        key = (x, *axes)
        if key not in self.extents:
            if (x,) not in self.extents:
                self.extents[(x,)] = self._add("Shape", [x], x)
            at = self.tensors.add(np.array(axes, np.int64), f"{x}_axes")
            self.extents[key] = self._add("Gather", [self.extents[(x,)], at], x)
        return self.extents[key]

    def _add(self, op_type: str, inputs: list[str], near: Any, **attrs: Any) -> str:
        hint = near if isinstance(near, str) else near.output[0]
        name = self.tensors.names.new(f"{hint}_{op_type.lower()}")
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attrs))
        return name

    def _constant(self, array: Array, n: Any) -> str:
        return self.tensors.add(array, f"{n.output[0]}_constant")

    def _shape(self, name: str, which: int) -> list[int] | None:
        array = (self.tensors, self.other_tensors)[which].arrays.get(name)
        return list(array.shape) if array is not None else self.shapes[which].get(name)

    # ---- attributes and sub-graphs ----
    def _same_attributes(self, n: Any, m: Any) -> bool:
        if len(n.attribute) != len(m.attribute):
            return False
        return all(
            self._same_graph(a.g, b.g)
            if a.HasField("g") and b.HasField("g")
            else a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
            for a, b in zip(n.attribute, m.attribute, strict=True)
        )

    def _same_graph(self, a: Any, b: Any) -> bool:
        """Whether two bodies are equal; names of the outer graph are compared as they map."""
        for x, y in zip(a.input, b.input, strict=True):
            self.same[x.name] = y.name
        if len(a.node) != len(b.node) or len(a.output) != len(b.output):
            return False
        for n, m in zip(a.node, b.node, strict=True):
            alike = n.op_type == m.op_type and len(n.input) == len(m.input)
            if not alike or not self._same_attributes(n, m):
                return False
            if not all(self._same_operand(x, y) for x, y in zip(n.input, m.input, strict=True)):
                return False
            self.same.update(zip(n.output, m.output, strict=True))
        return all(self.same.get(x.name) == y.name for x, y in zip(a.output, b.output, strict=True))

    def _same_operand(self, a: str, b: str) -> bool:
        ours, theirs = self.tensors.arrays.get(a), self.other_tensors.arrays.get(b)
        if ours is None or theirs is None:
            return self.same.get(a, a) == b and ours is theirs
        return _equal(ours, theirs)


def _equal(a: Array, b: Array) -> bool:
    if a is b:
        return True
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _shapes(model: Any) -> dict[str, list[int]]:
    """The declared shapes without open extents, by name."""
    made = {}
    for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        dims = info.type.tensor_type.shape.dim
        if all(d.HasField("dim_value") for d in dims):
            made[info.name] = [d.dim_value for d in dims]
    return made


def _names_read(graph: Any) -> set[str]:
    """The names that nodes of the graph and of bodies read, and the outputs."""
    found = {o.name for o in graph.output}
    for n in graph.node:
        found.update(n.input)
        for a in n.attribute:
            for body in [a.g] if a.HasField("g") else a.graphs:
                found |= _names_read(body)
    return found


# ---- declared shapes -----------------------------------------------------------------------------
def _open_infos(
    merge: _Merge, symbols: Mapping[Pair, str], declared: Mapping[str, Any], tiny: Mapping[str, Any]
) -> None:
    """Replace extents that differ between the sizes by the symbols of their dimensions.

    Inner tensors are not declared: an extent that is equal at two sizes may be limited at a third.
    """
    graph = merge.model.graph
    del graph.value_info[:]
    for is_input, info in [(True, i) for i in graph.input] + [(False, o) for o in graph.output]:
        other = merge.shapes[1].get(merge.same.get(info.name, info.name)) or ()
        dims = info.type.tensor_type.shape.dim
        names = declared.get(info.name) or ("",) * len(dims)
        third = tiny.get(info.name) or [d.dim_value for d in dims]
        for i, d in enumerate(dims):
            pair = (d.dim_value, other[i] if len(other) == len(dims) else -1)
            if pair[0] == pair[1] == third[i]:
                continue
            d.ClearField("dim_value")
            own = names[i] if len(names) == len(dims) and isinstance(names[i], str) else ""
            known = symbols.get(pair, "")
            if name := (own or known) if is_input else (known or own):
                d.dim_param = name
