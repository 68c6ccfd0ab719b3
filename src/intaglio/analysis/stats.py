"""Statistics of a model: parameters, multiply-accumulates, memory access, arithmetic intensity."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import intaglio
from intaglio import dtypes
from intaglio.ir import Graph, Node, Value
from intaglio.ops.complexity import all_nodes, complexity
from intaglio.ops.registry import REGISTRY
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip
from intaglio.targets.cost import FREE
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table

TITLES = ("layer", "op", "output", "params", "MMACs", "share", "KB moved", "MACs/byte")


@dataclass(frozen=True)
class LayerStats:
    """One operation. Bytes are those of its inputs, weights and outputs, each moved once."""

    name: str
    op: str
    shape: tuple[int, ...]
    parameters: int
    macs: int
    bytes: int
    depthwise: bool = False

    @property
    def intensity(self) -> float:
        """Multiply-accumulates per byte."""
        return self.macs / self.bytes if self.bytes else 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape), "intensity": self.intensity}


@dataclass(frozen=True)
class Stats:
    """A model's layers and totals; parameters that layers share count once in the total."""

    name: str
    layers: list[LayerStats]
    parameters: int
    parameter_bytes: int
    macs: int

    @property
    def flops(self) -> int:
        """Floating-point operations of the products: two for each multiply-accumulate."""
        return 2 * self.macs

    @property
    def bytes(self) -> int:
        """Bytes that all layers move, if nothing stays in a cache between them."""
        return sum(n.bytes for n in self.layers)

    @property
    def intensity(self) -> float:
        return self.macs / self.bytes if self.bytes else 0.0

    def least_ms(self, chip: str | Chip, scale: float | None = None) -> float:
        """A lower bound of the time on one core of a chip in int8: the products at the peak of the
        units, or the weights at DDR speed, whichever is longer.
        """
        c = chips.load(chip) if isinstance(chip, str) else chip
        scale = 0.25 if scale is None else scale  # bytes of int8 / bytes of f32
        total = 0.0
        for n in self.layers:
            unit = c.units.get("depthwise" if n.depthwise else "conv") or c.units["conv"]
            rate = unit.rate.get("i8") or max(unit.rate.values())
            total += n.macs / (rate * c.clock * 1e6)
        total = max(total, self.parameter_bytes * scale / (c.ddr * 1e9))
        return total * 1e3

    def to_dict(self) -> dict[str, Any]:
        """The statistics as JSON data."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "parameter_bytes": self.parameter_bytes,
            "macs": self.macs,
            "flops": self.flops,
            "bytes": self.bytes,
            "intensity": self.intensity,
            "layers": [n.to_dict() for n in self.layers],
        }

    def rows(self, every: bool = True) -> list[tuple[str, ...]]:
        """Cells by layer; without `every`, of layers with parameters or products."""
        total = self.macs or 1
        return [
            (
                n.name,
                n.op,
                "x".join(map(str, n.shape)),
                f"{n.parameters:,}" if n.parameters else "",
                f"{n.macs / 1e6:.3f}" if n.macs else "",
                f"{n.macs / total:.1%}" if n.macs else "",
                f"{n.bytes / 1e3:.1f}",
                f"{n.intensity:.1f}" if n.macs else "",
            )
            for n in self.layers
            if every or n.macs or n.parameters
        ]

    def summary(self) -> str:
        return (
            f"{self.name or 'model'}: {self.parameters / 1e6:.2f} M parameters "
            f"({self.parameter_bytes / 1e6:.2f} MB), {self.macs / 1e9:.3f} GMACs "
            f"({self.flops / 1e9:.3f} GFLOPs), {self.bytes / 1e6:.2f} MB moved, "
            f"{self.intensity:.1f} MACs per byte"
        )

    def text(self, every: bool = False) -> str:
        """The table of layers and the totals."""
        table = aligned([TITLES, *self.rows(every)], range(3, 8), drop=(6, 7, 5))
        return "\n".join([*table, self.summary()])

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.summary())
        for title in TITLES:
            table.add_column(title, overflow="fold")
        for row in self.rows(False):
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        return html_table(self.summary(), TITLES, self.rows(False))


def stats(model: str | Path | Graph, **load: Any) -> Stats:
    """The statistics of a model file or a graph; keywords are for `intaglio.load`."""
    graph = model if isinstance(model, Graph) else intaglio.load(model, **load)
    layers = [_layer(n) for n in all_nodes(graph) if not _is_constant(n)]
    total = complexity(graph)
    counted = Counter(n.name for n in layers)
    seen: Counter[str] = Counter()
    named = []
    for n in layers:
        seen[n.name] += 1
        name = f"{n.name} #{seen[n.name]}" if counted[n.name] > 1 else n.name
        named.append(replace(n, name=name))
    return Stats(graph.name, named, total.parameters, total.parameter_bytes, total.macs)


def _layer(node: Node) -> LayerStats:
    out = node.outputs[0] if node.outputs else None
    constants = {id(v): v for v in node.inputs if v is not None and v.data is not None}
    macs = REGISTRY[node.op].macs(node)
    moved = {id(x): x for x in node.inputs if x is not None}.values()
    return LayerStats(
        node.origin or (out.name if out is not None else "") or node.op,
        node.op,
        tuple(out.shape) if out is not None else (),
        sum(v.type.size for v in constants.values()),
        macs,
        0 if node.op in FREE else sum(_bytes(v) for v in (*moved, *node.outputs)),
        _is_depthwise(node),
    )


def _bytes(v: Value) -> int:
    return v.type.size * dtypes.itemsize(v.dtype)


def _is_constant(node: Node) -> bool:
    return bool(node.inputs) and all(v is None or v.data is not None for v in node.inputs)


def _is_depthwise(node: Node) -> bool:
    return node.op == "conv" and node.attrs["groups"] == node.outputs[0].shape[1] > 1
