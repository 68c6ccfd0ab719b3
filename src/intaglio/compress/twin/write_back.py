"""From a twin back to a graph: its parameters as constants of the graph's own types."""

from __future__ import annotations

import numpy as np
import torch

from intaglio import dtypes, ops
from intaglio.compress.twin import scales
from intaglio.compress.twin.module import Twin
from intaglio.compress.twin.rounding import Rounding, Weights
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value, constant


@torch.no_grad()
def to_graph(twin: Twin) -> Graph:
    """A copy of the twin's graph with the trained constants."""
    was, place = twin.training, twin.device
    twin.eval().to("cpu")
    try:
        return _Writer(twin).graph
    finally:
        twin.train(was).to(place)


class _Writer:
    def __init__(self, twin: Twin):
        self.twin, self.graph = twin, twin.source.copy()
        self._made: dict[object, Value] = {}
        pairs = list(zip(twin.source.nodes(), list(self.graph.nodes()), strict=True))
        for old, new in pairs:
            self._products(old, new)
            self._floats(old, new)
        for old, new in pairs:
            self._scales(old, new)
        for old, new in pairs:
            self._bounds(old, new)
        self.graph.tidy()

    def _once(self, key: object, array: Array, name: str) -> Value:
        if key not in self._made:
            if not np.isfinite(np.asarray(array, np.float64)).all():
                raise BadInput(
                    f"constant '{name}' is NaN or infinite after training; a lower learning rate "
                    "keeps it finite; go on from the last checkpoint"
                )
            self._made[key] = constant(np.ascontiguousarray(array), name)
        return self._made[key]

    def _products(self, old: Node, new: Node) -> None:
        key = (old.inputs[3], old.inputs[4]) if len(old.inputs) > 4 else (None, None)
        layer = self.twin.of_weights.get(key)  # type: ignore[arg-type]
        if layer is None:
            return
        w, ws, wz = old.inputs[3:6]
        assert w is not None
        assert ws is not None
        assert wz is not None
        integers = layer.integers() + layer._column(layer.zero, layer.weight)
        stored = integers.numpy().astype(dtypes.numpy_of(w.dtype))
        for i, v, array in (
            (3, w, stored),
            (4, ws, layer.scale.numpy()),
            (5, wz, layer.zero.numpy()),
        ):
            array = array.astype(dtypes.numpy_of(v.dtype)).reshape(v.shape)
            Graph.set_input(new, i, self._once((layer, i), array, v.name))
        if old in self.twin.of_bias:
            b = old.inputs[8]
            assert b is not None
            step = self.twin.slots[old, 1].scale.double() * layer.scale.double()
            real = (self.twin.bias(old) / step).round().clamp(-(2.0**30), 2.0**30)
            Graph.set_input(new, 8, self._once((old, 8), real.numpy().astype(np.int32), b.name))

    def _floats(self, old: Node, new: Node) -> None:
        for i, v in enumerate(old.inputs):
            if v is not None and v in self.twin.constants:
                array = self.twin.value(v).contiguous().numpy()
                Graph.set_input(new, i, self._once((v,), array.reshape(v.shape), v.name))

            if v is not None and v in self.twin.statistics:
                array = self.twin.statistics[v].numpy()
                Graph.set_input(new, i, self._once((v,), array.reshape(v.shape).copy(), v.name))

    def _scales(self, old: Node, new: Node) -> None:
        slots = [(s, z) for _, s, z in scales.READS.get(old.op, ())]
        slots += [scales.MAKES[old.op]] if old.op in scales.MAKES else []
        for scale, zero in slots:
            r = self.twin.slots.get((old, scale))
            if r is None or not r.free:
                continue
            s, z = old.inputs[scale], old.inputs[zero]
            assert s is not None
            array = r.scale.numpy().astype(np.float32).reshape(s.shape)
            Graph.set_input(new, scale, self._once((r, "scale", s.shape), array, s.name))
            if z is not None:
                array = r.zero.numpy().astype(dtypes.numpy_of(z.dtype)).reshape(z.shape)
                Graph.set_input(new, zero, self._once((r, "zero", z.shape, z.dtype), array, z.name))

    def _bounds(self, old: Node, new: Node) -> None:
        """A clamp behind a node whose integers have fewer bits than their type."""
        r = self.twin.slots.get((old, scales.MAKES[old.op][0])) if old.op in scales.MAKES else None
        if r is None or old not in self.twin.bounds:
            return
        bounds = self.twin.bounds[old]
        low, high = max(bounds[0], r.bounds[0]), min(bounds[1], r.bounds[1])
        if (low, high) == tuple(map(float, r.limits)):
            return
        y, readers = new.outputs[0], list(new.outputs[0].uses)
        name, y.name = y.name, f"{y.name}_unclamped" if y.name else ""
        if len(readers) == 1 and readers[0].op == "clip":
            readers[0].attrs.update(lo=low, hi=high)
            return
        result = ops.clip(y, lo=low, hi=high, origin=new.origin)
        result.name = name
        for n in readers:
            Graph.replace_input(n, y, result)


__all__ = ["Rounding", "Weights", "to_graph"]
