"""`accuracy_analysis`: every layer against the float model, as text files and a table.

golden: the float model. simulator: the quantised model, in the arithmetic of the chip's integers.
"entire" compares a layer in the whole model, "single" a layer alone on golden inputs.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.analysis.accuracy import with_layers
from intaglio.compat.rknn.dataset import Sample
from intaglio.compat.rknn.number_text import number_lines
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.quant import Quantized
from intaglio.quant.ranges.observe import Probe
from intaglio.quant.search.output_error import Match

REPORT, NAMES = "error_analysis.txt", "map_name_to_file.txt"
FLOAT_LEVEL = 2  # of the optimiser: layers keep their meaning in floats
HEAD = """\
# simulator_error: error of each layer of the simulator, against the float model ('golden').
#      entire: in the whole model; errors of the layers before it are included.
#      single: of the layer alone, computed from golden inputs.
#      cos: cosine similarity, 1 is best. euc: Euclidean distance, 0 is best.
"""


@dataclass(frozen=True)
class Row:
    """One layer: cosine and Euclidean distance, in the whole model and alone."""

    op: str
    name: str
    entire: tuple[float, float]
    single: tuple[float, float] | None

    @property
    def title(self) -> str:
        return f"[{self.op}] {self.name}"


Values = dict[str, tuple[Array, Array]]  # by tensor: golden and simulator


def analyse(model: Quantized, sample: Sample, folder: Path) -> list[Row]:
    """Compare all layers on one normalised sample; write the files into `folder`."""
    rows, values = compare(model, sample)
    _write(folder, sample, values, report(rows))
    return rows


def analyse_float(
    graph: Graph, sample: Sample, keywords: dict[str, Any], folder: Path
) -> list[Row]:
    """The same of a model in float16: all layers become outputs of a package for the chip."""
    golden = intaglio.optimize(graph, level=FLOAT_LEVEL)
    tensors = [v for v in _tensors(golden) if _activation(v) is None]
    names = [f"layer{i}" for i in range(len(tensors))]
    rows, values = [], {}
    with Probe(golden, tensors, images_last=False) as probe:
        x = {v: a.copy() for v, a in probe.run(sample).items()}
    whole = Graph(golden.inputs, tensors, names)
    with intaglio.open(intaglio.compile(whole, **keywords)) as session:
        y = session.run(sample)
    for v, name in zip(tensors, names, strict=True):
        rows.append(Row(_op(v), v.name, _figures(x[v], y[name]), None))
        values[v.name] = (x[v], y[name])
    _write(folder, sample, values, report(rows))
    return rows


def compare(model: Quantized, sample: Sample) -> tuple[list[Row], Values]:
    """Every layer on one normalised sample, and the tensors themselves."""
    golden, simulated = model.float_graph, model.bare_graph
    theirs = {v.name: v for v in _tensors(simulated)}
    joined = [(v, theirs[v.name]) for v in _tensors(golden) if v.name in theirs]
    known = {v for v, _ in joined}
    joined = [(v, q) for v, q in joined if _activation(v) not in known]
    if not joined:
        raise BadInput("no layer of the model is quantised; there is nothing to compare")
    alone, layers = with_layers(golden, [(v.name, q) for v, q in joined])
    own = [v for v, _ in joined if v.name in layers]
    with (
        Probe(golden, [v for v, _ in joined], images_last=False) as a,
        Probe(simulated, [q for _, q in joined], images_last=False) as b,
        Probe(alone, [layers[v.name] for v in own], images_last=False) as c,
    ):
        x, y, z = a.run(sample), b.run(sample), c.run(sample)
        rows: list[Row] = []
        values: Values = {}
        for v, q in joined:
            single = _figures(x[v], z[layers[v.name]]) if v.name in layers else None
            rows.append(Row(_op(v), v.name, _figures(x[v], y[q]), single))
            values[v.name] = (x[v].copy(), y[q].copy())
    return rows, values


def _tensors(graph: Graph) -> list[Value]:
    """Named float results of nodes, with fixed shapes, that others read or that are outputs."""
    return [
        v
        for n in graph.nodes()
        for v in n.outputs
        if v.name and dtypes.is_float(v.dtype) and not v.type.dynamic
    ]


def _activation(v: Value) -> Value | None:
    """The result of the activation that is fused with the layer of `v`, if there is one."""
    if len(v.uses) != 1 or v.producer is None or _elementwise(v.producer):
        return None
    node = next(iter(v.uses))
    computed = [x for x in node.inputs if x is not None and x.data is None]
    return node.outputs[0] if _elementwise(node) and len(computed) == 1 else None


def _elementwise(node: Node) -> bool:
    return node.op in REGISTRY and REGISTRY[node.op].elementwise


def _op(v: Value) -> str:
    """The operator of a layer, with a fused activation: ConvRelu."""
    if v.producer is None:
        return "Input"
    ops = [v.producer.op]
    for x in v.producer.inputs:
        if x is not None and x.producer is not None and _activation(x) is v:
            ops.insert(0, x.producer.op)
    return "".join(op[:1].upper() + op[1:] for op in ops)


def _figures(golden: Array, other: Array) -> tuple[float, float]:
    found = Match()
    found.add(golden, other)
    return found.cosine, float(np.sqrt(found.off))


def report(rows: list[Row]) -> str:
    """The table of `error_analysis.txt`."""
    width = max(len(r.title) for r in rows) + 2
    lines = [
        "layer_name".ljust(width) + "simulator_error",
        " " * width + "entire".ljust(22) + "single",
        " " * width + "cos      euc".ljust(22) + "cos      euc",
        "-" * (width + 44),
    ]
    for r in rows:
        single = "" if r.single is None else _pair(r.single)
        lines.append(f"{r.title.ljust(width)}{_pair(r.entire).ljust(22)}{single}".rstrip())
    return HEAD + "\n" + "\n".join(lines) + "\n"


def _pair(found: tuple[float, float]) -> str:
    return f"{found[0]:.5f} | {found[1]:.5g}"


def _write(folder: Path, sample: Sample, values: Values, text: str) -> None:
    """The table, all tensors as text (one value a line), and which file holds which tensor."""
    for part in ("golden", "simulator"):
        if (folder / part).is_dir():
            shutil.rmtree(folder / part)
        (folder / part).mkdir(parents=True)
    names = []
    pairs = {**{n: (x, x) for n, x in sample.items()}, **values}
    for i, (name, both) in enumerate(pairs.items()):
        file = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}_{i}.txt"
        names.append(f"{name}\t{file}\n")
        for part, array in zip(("golden", "simulator"), both, strict=True):
            (folder / part / file).write_bytes(number_lines(np.asarray(array, np.float32)))
    (folder / NAMES).write_text("".join(names))
    (folder / REPORT).write_text(text)
