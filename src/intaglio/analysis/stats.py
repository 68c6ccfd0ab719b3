"""Statistics of a model: parameters, multiply-accumulates, memory access, arithmetic intensity."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import intaglio
from intaglio import dtypes
from intaglio.analysis.step_names import short
from intaglio.ir import Graph, Node, Value
from intaglio.ops.complexity import all_nodes, complexity
from intaglio.ops.registry import REGISTRY
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip
from intaglio.targets.cost import FREE
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table

MOST_STEPS = 6  # from a layer to the first tensor with a name
ROUNDINGS = ("quantize_linear", "dequantize_linear")
FEW, LITTLE_WORK = 100_000, 10_000_000  # parameters and MACs that are shown in smaller units
TABLES = (256, 65536)  # entries of functions of 8-bit and 16-bit integers
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
                short(n.name),
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
        held, moved = self.parameter_bytes, self.bytes
        scale, letter = (1e9, "G") if self.macs >= LITTLE_WORK else (1e6, "M")
        count = f"{self.parameters / 1e6:.2f} M"
        if self.parameters < FEW:
            count = f"{self.parameters:,}"
        return (
            f"{self.name or 'model'}: {count} parameters ({_size(held)}), "
            f"{self.macs / scale:.3f} {letter}MACs ({self.flops / scale:.3f} {letter}FLOPs), "
            f"{_size(moved)} moved, {self.intensity:.1f} MACs per byte"
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
    """The statistics of a model file or a graph; keywords are for `intaglio.load`.

    In quantised models the weights of a layer are its integers, scales are no parameters, and
    tensors are moved as the integers that they are stored as.
    """
    graph = model if isinstance(model, Graph) else intaglio.load(model, **load)
    nodes = list(all_nodes(graph))
    fixed: set[Value] = set()  # computed from constants alone
    for n in nodes:
        if n.inputs and all(v is None or v.data is not None or v in fixed for v in n.inputs):
            fixed.update(n.outputs)
    computed = [n for n in nodes if not (n.outputs and set(n.outputs) <= fixed)]
    layers = [_layer(n, fixed) for n in computed]
    every = {id(v): v for n in computed for v in _parameters(n, fixed)}.values()
    counted = Counter(n.name for n in layers)
    seen: Counter[str] = Counter()
    named = []
    for layer in layers:
        seen[layer.name] += 1
        name = f"{layer.name} #{seen[layer.name]}" if counted[layer.name] > 1 else layer.name
        named.append(replace(layer, name=name))
    sizes = sum(v.type.size for v in every), sum(v.type.bytes for v in every)
    return Stats(graph.name, named, *sizes, complexity(graph).macs)


def _layer(node: Node, fixed: set[Value]) -> LayerStats:
    out = node.outputs[0] if node.outputs else None
    constants = _parameters(node, fixed)
    given = [_stored(v) for v in node.inputs if v is not None and v.data is None and v not in fixed]
    moved = {id(v): v for v in (*constants, *given)}.values()
    return LayerStats(
        _name(node),
        node.op,
        tuple(out.shape) if out is not None else (),
        sum(v.type.size for v in constants),
        REGISTRY[node.op].macs(node),
        0 if _is_free(node) else sum(_bytes(v) for v in (*moved, *map(_rounded, node.outputs))),
        _is_depthwise(node),
    )


def _name(node: Node) -> str:
    """The node's name in the model file, else that of the tensor that its result becomes."""
    v = node.outputs[0] if node.outputs and not node.origin else None
    for _ in range(MOST_STEPS):
        if v is None or v.name:
            break
        reader = next(iter(v.uses)) if len(v.uses) == 1 else None
        v = reader.outputs[0] if reader is not None and reader.outputs else None
    return node.origin or (v.name if v is not None else "") or node.op


def _parameters(node: Node, fixed: set[Value]) -> list[Value]:
    """The constants that a node reads, each once; of quantised weights the integers."""
    found: dict[int, Value] = {}
    todo = [] if node.op in ROUNDINGS else [v for v in node.inputs if v is not None]
    todo = [v for v in todo if not _is_table(v)]
    while todo:
        v = todo.pop()
        if v.data is not None:
            found[id(v)] = v
        elif v in fixed and v.producer is not None:
            above = v.producer.inputs
            todo += [
                x for x in (above[:1] if v.producer.op in ROUNDINGS else above) if x is not None
            ]
    return list(found.values())


def _is_table(v: Value) -> bool:
    """Whether a constant holds the results of a function for every integer: no parameters."""
    return v.data is not None and v.data.ndim == 1 and _integers(v) and v.data.size in TABLES


def _integers(v: Value) -> bool:
    return v.dtype in ("i8", "u8", "i16", "u16")


def _size(n: int) -> str:
    return f"{n / 1e6:.2f} MB" if n >= FEW else f"{n / 1e3:.1f} kB"


def _stored(v: Value) -> Value:
    """The integers that a tensor is stored as, if it is quantised."""
    made = v.producer
    before = made.inputs[0] if made is not None and made.op == "dequantize_linear" else None
    return v if before is None else before


def _rounded(v: Value) -> Value:
    """The integers that a result becomes, if nothing else reads it."""
    reader = next(iter(v.uses)) if len(v.uses) == 1 else None
    return reader.outputs[0] if reader is not None and reader.op == "quantize_linear" else v


def _is_free(node: Node) -> bool:
    """Whether a node moves nothing: a view, or a rounding that is part of the layers around it."""
    if node.op == "quantize_linear":
        return node.inputs[0] is not None and node.inputs[0].producer is not None
    return node.op in FREE or (node.op == "dequantize_linear" and bool(node.outputs[0].uses))


def _bytes(v: Value) -> int:
    return v.type.size * dtypes.itemsize(v.dtype)


def _is_depthwise(node: Node) -> bool:
    return node.op == "conv" and node.attrs["groups"] == node.outputs[0].shape[1] > 1
