"""`accuracy_analysis`: every layer against the float model, as text files and a table.

golden: the float model. simulator: the quantised model, in the arithmetic of the chip's integers.
"entire" compares a layer in the whole model, "single" a layer alone on golden inputs. With a
target there is also runtime: what the simulator of that chip computes, as it stands for the board.
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
LONGEST = 200  # characters of a file's name
RUNTIME = """\
# runtime_error: error of each layer of the runtime, which is the simulator of the target.
#      entire: in the whole model, against the float model.
#      single_sim: of the layer alone, against the simulator: the same arithmetic.
"""
SAME = (1.0, 0.0)  # cosine and distance of equal tensors
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


def analyse(model: Quantized, sample: Sample, folder: Path, runtime: bool = False) -> str:
    """Compare all layers on one normalised sample; write the files into `folder`: the table."""
    rows, values = compare(model, sample)
    text = report(rows, runtime)
    _write(folder, sample, values, text, runtime)
    return text


def analyse_float(
    graph: Graph,
    built: Graph,
    sample: Sample,
    keywords: dict[str, Any],
    folder: Path,
    runtime: bool = False,
) -> str:
    """The same of a model in float16: all layers become outputs of a package for the chip.

    `built` is the graph whose weights the chip has, `graph` the golden one.
    """
    golden = intaglio.optimize(graph, level=FLOAT_LEVEL)
    other = golden if built is graph else intaglio.optimize(built, level=FLOAT_LEVEL)
    theirs = {v.name: v for v in _tensors(other)}
    tensors = [v for v in _tensors(golden) if _activation(v) is None and v.name in theirs]
    names = [f"layer{i}" for i in range(len(tensors))]
    rows, values = [], {}
    with Probe(golden, tensors, images_last=False) as probe:
        x = {v: a.copy() for v, a in probe.run(sample).items()}
    whole = Graph(other.inputs, [theirs[v.name] for v in tensors], names)
    with intaglio.open(intaglio.compile(whole, **keywords)) as session:
        y = session.run(sample)
    for v, name in zip(tensors, names, strict=True):
        rows.append(Row(_op(v), v.name, _figures(x[v], y[name]), None))
        values[v.name] = (x[v], y[name])
    text = report(rows, runtime)
    _write(folder, sample, values, text, runtime)
    return text


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


def report(rows: list[Row], runtime: bool = False) -> str:
    """The table of `error_analysis.txt`; with columns of the runtime if there is a target."""
    width = max(len(r.title) for r in rows) + 2
    pair, parts = "cos      euc", ["entire", "single"]
    above = "simulator_error".ljust(44)
    if runtime:
        parts += ["entire", "single_sim"]
        above += "runtime_error"
    lines = [
        "layer_name".ljust(width) + above,
        " " * width + "".join(p.ljust(22) for p in parts),
        " " * width + "".join(pair.ljust(22) for _ in parts),
        "-" * (width + 22 * len(parts)),
    ]
    for r in rows:
        figures = [_pair(r.entire), "" if r.single is None else _pair(r.single)]
        figures += [_pair(r.entire), _pair(SAME)] if runtime else []
        lines.append(r.title.ljust(width) + "".join(f.ljust(22) for f in figures))
    return HEAD + RUNTIME * runtime + "\n" + "\n".join(x.rstrip() for x in lines) + "\n"


def _pair(found: tuple[float, float]) -> str:
    return f"{found[0]:.5f} | {found[1]:.5g}"


def _write(folder: Path, sample: Sample, values: Values, text: str, runtime: bool) -> None:
    """The table, all tensors as text (one value a line), and which file holds which tensor."""
    parts = ("golden", "simulator", "runtime")
    for part in parts:
        if (folder / part).is_dir():
            shutil.rmtree(folder / part)
    names, taken = [], set[str]()
    pairs = {**{n: (x, x) for n, x in sample.items()}, **values}
    for part in parts[: 2 + runtime]:
        (folder / part).mkdir(parents=True)
    for name, (golden, other) in pairs.items():
        file = _file_name(name, taken)
        names.append(f"{name}\t{file}\n")
        for part, array in zip(parts[: 2 + runtime], (golden, other, other), strict=False):
            (folder / part / file).write_bytes(number_lines(np.asarray(array, np.float32)))
    (folder / NAMES).write_text("".join(names))
    (folder / REPORT).write_text(text)


def _file_name(name: str, taken: set[str]) -> str:
    """NAME.txt, as scripts read it; other characters than those of names become '_'."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LONGEST]
    found, count = plain, 0
    while found in taken:
        count += 1
        found = f"{plain}_{count}"
    taken.add(found)
    return f"{found}.txt"
