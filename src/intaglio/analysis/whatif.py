"""What-if analysis: predict speed and memory with other figures of the chip or the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import intaglio
from intaglio.analysis import vendor_performance, vendor_style
from intaglio.analysis.memory import Report, lives
from intaglio.analysis.memory import memory as memory_of
from intaglio.analysis.performance import Performance, performance
from intaglio.errors import BadInput, Unsupported, option
from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.lowering.target import npu_target
from intaglio.npu.memory import Memory
from intaglio.npu.predict import vendor
from intaglio.npu.predict.element_types import as_bytes, dtype_of, size_of
from intaglio.npu.sparse_weights import BY_NAME as SPARSE
from intaglio.npu.sparse_weights import best_mask
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.plan import Tensor
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

PRODUCTS = ("conv", "matmul", "gemm", "qlinear_conv", "qlinear_matmul")
THROUGH = (
    "dequantize_linear",
    "quantize_linear",
    "transpose",
)  # ops that may stand between weights and a product
WEIGHTS = {"qlinear_conv": 3, "qlinear_matmul": 3}  # the index of the weights; else 1


@dataclass(frozen=True)
class WhatIf:
    """Changed figures of the chip or the model; None keeps its own."""

    clock: float | None = None  # MHz
    ddr: float | None = None  # bytes per nanosecond
    sram: int | None = None  # bytes of a core
    cores: int = 1
    batch: int | None = None
    dtype: str | None = None  # int8, int16, fp16, ...: the type of the products
    sparse: str | None = None  # "2:4 in", "2:4 out", "16:4": prune the weights to this form
    core_mask: str | None = None  # the cores that run it: "0,1"

    @property
    def recompiles(self) -> bool:
        """Does it need another program?"""
        return replace(self, clock=None, ddr=None, core_mask=None) != WhatIf()

    @property
    def in_commands(self) -> bool:
        """Can a vendor's file be written for it? Else only a program of our own can."""
        only = replace(self, clock=None, ddr=None, sram=None, batch=None)
        return replace(only, dtype=None) == WhatIf() and self.dtype in (None, "int8", "i8")

    def check(self) -> None:
        """BadInput if a figure is impossible on every chip."""
        for name, v in asdict(self).items():
            if isinstance(v, (int, float)) and not 0 < v < math.inf:
                least = "above 0" if name in ("clock", "ddr") else "at least 1"
                raise BadInput(f"{name} is {v:g}; it must be {least}")
        if self.dtype is not None:
            dtype_of(self.dtype)
        if self.sparse is not None and self.sparse not in SPARSE:
            raise BadInput(f"sparse is '{self.sparse}'; it is one of {', '.join(SPARSE)}")

    def __str__(self) -> str:
        usual = asdict(WhatIf())
        return " ".join(f"{k}={v}" for k, v in asdict(self).items() if v != usual[k])


class Model:
    """A quantised model, compiled once per set of figures that needs another program.

    `graph` may be a function from a chip's name to the graph quantised for that chip. `floats` is
    the graph that it was quantised from; vendors' compilers that know f16 begin with it.
    """

    def __init__(
        self,
        graph: Graph | Callable[[str], Graph],
        by_layer: bool = False,
        as_vendor: bool = False,
        floats: Graph | None = None,
    ):
        self.floats = floats
        self.graph_for = (lambda target: graph) if isinstance(graph, Graph) else graph
        self.by_layer, self.as_vendor = by_layer, as_vendor
        self.own_program = by_layer or as_vendor  # predict from it, not from a vendor's commands
        self._made: dict[tuple[Any, ...], tuple[Package, Chip]] = {}
        self._parts: dict[tuple[Any, ...], tuple[vendor.Part, Chip]] = {}

    def compiled(self, target: str, what: WhatIf) -> tuple[Package, Chip]:
        """The package and its chip; cached, since clock and DDR speed do not change the program."""
        what.check()
        key = (target, replace(what, clock=None, ddr=None, core_mask=None))
        if key not in self._made:
            chip = chips.load(target)
            if what.sram is not None:
                chip = replace(chip, sram=what.sram)
            chip = as_bytes(chip, dtype_of(what.dtype or "int8"))
            chip = vendor.as_used(chip) if self.as_vendor else chip
            result = intaglio.compile(
                self._graph(target, what, chip),
                target=npu_target(chip),
                cores=what.cores,
                by_layer=self.by_layer or self._is_serial(chip),
                npu_code="own",
            )
            self._made[key] = result, chip
        return self._made[key]

    def _is_serial(self, chip: Chip) -> bool:
        """Does the vendor's runtime run layers strictly one after the other?"""
        return self.as_vendor and not vendor.GROUPS_LAYERS[chip.family]

    def _graph(self, target: str, what: WhatIf, chip: Chip) -> Graph:
        """The graph with the assumptions that change it."""
        return self._changed(self.graph_for(target), what, chip)

    def _changed(self, graph: Graph, what: WhatIf, chip: Chip) -> Graph:
        if what.batch is not None:
            graph = batched(graph, what.batch)
        return graph if what.sparse is None else pruned(graph, what.sparse, chip)

    def vendor_part(self, target: str, what: WhatIf) -> tuple[vendor.Part, Chip]:
        """The network in the style of the vendor's compiler; cached as `compiled` is."""
        key = (target, replace(what, clock=None, ddr=None))
        if key not in self._parts:
            chip = chips.load(target)
            if what.sram is not None:
                chip = replace(chip, sram=what.sram)
            dtype = dtype_of(what.dtype or "int8")
            if self.floats is not None and dtype == "f16" and vendor.FLOAT_UNITS[chip.family]:
                graph = self._changed(self.floats, what, chip)
                made = vendor_style.float_part(graph, chip, what.cores)
            else:
                graph = self._graph(target, what, chip)
                made = vendor_style.part(graph, chip, dtype, what.cores)
            self._parts[key] = made, chip
        return self._parts[key]

    def performance(self, target: str, what: WhatIf) -> Performance:
        """From the commands of the vendor's file, if the chip has one that holds the network."""
        if self.as_vendor:
            return self._as_vendor(target, what)
        why = ""
        timed = vendor_performance.has_times(chips.load(target))
        if not self.own_program and what.in_commands and timed:
            try:
                return self._of_commands(target, what)
            except Unsupported as e:
                why = f"; no {chips.load(target).file} holds this network: {e}"
        found = self._of_program(target, what)
        found.source += why
        return found

    def _as_vendor(self, target: str, what: WhatIf) -> Performance:
        what.check()
        if what.core_mask is not None:
            raise BadInput(
                f"{option('core_mask', what.core_mask)} is for programs of Intaglio; a vendor's "
                f"program is compiled for a number of cores: give {option('cores')}"
            )
        one, chip = self.vendor_part(target, what)
        return vendor_style.performance(
            [one], vendor_style.with_figures(chip, what), what.batch or 1
        )

    def _of_commands(self, target: str, what: WhatIf) -> Performance:
        what.check()
        chip = chips.load(target)
        if what.sram is not None:
            chip = replace(chip, sram=what.sram)
        graph = self.graph_for(target)
        if what.batch is not None:
            graph = batched(graph, what.batch)
        found = vendor_performance.of_graph(graph, chip, what.clock, what.ddr)
        found.batch = what.batch or 1
        return found

    def _of_program(self, target: str, what: WhatIf) -> Performance:
        package, chip = self.compiled(target, what)
        dtype = dtype_of(what.dtype or "int8")
        size = size_of(dtype)
        ddr = None if what.ddr is None else what.ddr / size
        found = performance(package, chip=chip, clock=what.clock, ddr=ddr, core_mask=what.core_mask)
        found.batch = what.batch or 1
        return found if size == 1 else _in_elements(found, dtype, size)

    def memory(self, target: str, what: WhatIf) -> Report:
        found, dtype = memory_of(self.compiled(target, what)[0]), dtype_of(what.dtype or "int8")
        assert isinstance(found, Report)  # of a chip
        if (size := size_of(dtype)) != 1:
            plan = self.compiled(target, what)[0].plan
            steps = [s for s in plan.steps if s.op == "npu.run"]
            found.modules = [
                _memory_in_elements(m, dtype, size, _f32_bytes(s.inputs), _f32_bytes(s.outputs))
                for m, s in zip(found.modules, steps, strict=True)
            ]
            found.lives = [lives(m) for m in found.modules]
        return found


def _in_elements(p: Performance, dtype: str, size: float) -> Performance:
    """A prediction made with 1-byte elements, converted to elements of `size` bytes."""
    p.ddr *= size
    p.layers = [
        r
        if r.unit == "CPU"
        else replace(r, dtype=dtype, bytes=round(r.bytes * size), near=round(r.near * size))
        for r in p.layers
    ]
    return p


def _memory_in_elements(m: Memory, dtype: str, size: float, read: int, made: int) -> Memory:
    """A memory report converted in the same way; commands and f32 tensors keep their size."""
    same = {"inputs": read, "outputs": made, "traffic": read + made, "least_traffic": read + made}
    names = ("weights", "internal", "shared", "sram", "peak", *same)
    maps = [
        r
        if r.dtype == "f32"
        else replace(
            r,
            dtype=dtype,
            start=round(r.start * size),
            size=round(r.size * size),
            hit=round(r.hit * size),
        )
        for r in m.maps
    ]
    figures: dict[str, Any] = {}
    for n in names:
        still = same.get(n, 0)
        figures[n] = round((getattr(m, n) - still) * size) + still
    return replace(m, **figures, maps=maps)


def _f32_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the f32 inputs or outputs of a program."""
    return sum(
        t.size for t in tensors if t is not None and t.data is None and t.type.dtype == "f32"
    )


# ---- batches -------------------------------------------------------------------------------------
def batched(graph: Graph, batch: int) -> Graph:
    """The graph for `batch` samples at once, along the first axis of its inputs.

    Shapes in the attributes of a node grow with its input.
    """
    WhatIf(batch=batch).check()
    new: dict[Value, Value] = {}
    for v in graph.inputs:
        if not v.type.rank or v.type.dynamic:
            raise BadInput(
                f"batch: input '{v.name}' is {v.type}; a first axis of fixed size is needed"
            )
        new[v] = Value(v.type.but(shape=(v.shape[0] * batch, *v.shape[1:])), v.name)
    for node in graph.nodes():
        inputs = [None if v is None else new.get(v, v) for v in node.inputs]
        result = _with_batch(node, inputs, batch)
        for old, v in zip(node.outputs, result.outputs, strict=True):
            v.name, new[old] = old.name, v
    outputs = [new.get(v, v) for v in graph.outputs]
    return Graph([new[v] for v in graph.inputs], outputs, graph.output_names, graph.name)


def _with_batch(node: Node, inputs: list[Value | None], batch: int) -> Node:
    op, attrs = REGISTRY[node.op], dict(node.attrs)
    shape = attrs.get("shape")
    read, first = node.inputs[0], inputs[0]
    grown = read is not None and first is not None and first.type.size > read.type.size
    if node.op in ("reshape", "expand") and shape and grown:
        attrs["shape"] = (shape[0] * batch, *shape[1:])
    if node.op == "slice" and read is not None and first is not None:
        ends = zip(
            attrs["stop"], read.shape, first.shape, strict=True
        )  # a slice of a whole axis stays whole
        attrs["stop"] = tuple(new if stop >= old else stop for stop, old, new in ends)
    if node.op == "concat" and any(v is not None and v.data is None for v in inputs):
        inputs = [_repeated(v, batch) for v in inputs]
    try:
        return op.node(*inputs, origin=node.origin, **attrs)
    except BadInput as e:
        raise BadInput(
            f"batch: {node.op} '{node.origin or node.outputs[0].name}' has a fixed batch ({e}); "
            f"export the model with a symbolic batch and give {option('dims')}"
        ) from None


def _repeated(v: Value | None, batch: int) -> Value | None:
    """A constant with a batch axis, repeated for each sample."""
    if v is None or v.data is None or v.type.rank < 2 or v.shape[0] != 1:
        return v
    from intaglio.ir import constant

    return constant(np.repeat(v.data, batch, 0), v.name)


# ---- sparse weights ------------------------------------------------------------------------------
def pruned(graph: Graph, form: str, chip: Chip) -> Graph:
    """The graph with its smallest weights set to zero to fit a sparse form; for speed only."""
    WhatIf(sparse=form).check()
    if form not in chip.sparse:
        known = f"it reads {', '.join(chip.sparse)}" if chip.sparse else "it reads none"
        raise BadInput(f"{chip.name} does not read {form} sparse weights; {known}")
    graph = graph.copy()
    for node in list(graph.nodes()):
        if node.op not in PRODUCTS or node.attrs.get("groups", 1) != 1:
            continue
        w = node.inputs[WEIGHTS.get(node.op, 1)]
        zero: Array | None = None
        turned = bool(node.attrs.get("trans_b", False))
        while w is not None and w.data is None and w.producer is not None:
            p = w.producer
            if p.op == "dequantize_linear" and len(p.inputs) > 2 and p.inputs[2] is not None:
                zero = p.inputs[2].data
            turned ^= p.op == "transpose"
            w = p.inputs[0] if p.op in THROUGH else None
        if node.op.startswith("qlinear"):
            zero = None if node.inputs[5] is None else node.inputs[5].data
        if w is not None and w.data is not None and w.type.rank in (2, 4):
            inputs = 1 if w.type.rank == 4 or turned else 0
            w.data = _prune(w.data, zero, inputs, form)
    return graph


def _prune(w: Array, zero: Array | None, inputs: int, form: str) -> Array:
    channels = 1 - inputs  # zero points are per output channel
    real = not np.issubdtype(w.dtype, np.integer)  # a weight that the graph quantises at run time
    off = np.zeros((), w.dtype) if zero is None or real else zero
    if off.size > 1:
        off = off.reshape([-1 if i == channels else 1 for i in range(w.ndim)])
    far = np.abs(w.astype(np.float32) - off.astype(np.float32))
    keep = best_mask(far, SPARSE[form]) if inputs == 1 else best_mask(far.T, SPARSE[form]).T
    return np.ascontiguousarray(np.where(keep, w, off.astype(w.dtype)))
