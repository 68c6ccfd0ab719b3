"""The outline of a partitioned network: ops and shapes without numbers.

A package keeps it, because the program of another compiler cannot be derived from its own program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.npu.predict import vendor
from intaglio.npu.predict.leaky import without_tables
from intaglio.npu.predict.leftovers import Op, Others, others_of, pixels_of
from intaglio.targets.chip import Chip
from intaglio.targets.precision import name_of


def outline(graph: Graph, chip: Chip) -> dict[str, Any]:
    """The outline of a graph whose NPU layers are gathered in `npu.program` nodes, for JSON."""
    bodies = [without_tables(n.attrs["body"]) for n in graph.nodes() if n.op == "npu.program"]
    return {
        "bodies": [_body(b) for b in bodies],
        "others": [asdict(o) for o in others_of(graph, chip)],
        "pixels": pixels_of(graph),
    }


def part(
    plain: Mapping[str, Any], chip: Chip, dtype: str | None = None, cores: int = 1
) -> vendor.Part:
    """The network of an outline, compiled in the vendor's style.

    `dtype` replaces the type of the products of an int8 network.
    """
    try:
        bodies = [_graph(b) for b in plain["bodies"]]
        others = tuple(
            Others(o["after"], o["moved"], tuple(Op(**op) for op in o["ops"]))
            for o in plain["others"]
        )
        pixels = int(plain["pixels"])
    except (KeyError, TypeError, ValueError, IndexError) as e:
        raise BadFile(f"the outline of the network is damaged ({e}); compile it again") from None
    floats = sorted({v.dtype for b in bodies for v in b.values()} & {"f16", "bf16"})
    if not floats:
        return vendor.part_of(bodies, others, pixels, chip, dtype or "i8", cores)
    if dtype not in (None, floats[0]):
        raise BadInput(
            f"the package computes in {name_of(floats[0])}; another type needs the model file"
        )
    return vendor.part_of(bodies, others, pixels, chip, floats[0], cores, native=True)


# ---- writing -------------------------------------------------------------------------------------
def _body(body: Graph) -> dict[str, Any]:
    number = {v: i for i, v in enumerate(body.inputs)}
    nodes = []
    for node in body.nodes():
        read = [
            None if v is None else number[v] if v in number else _constant(v) for v in node.inputs
        ]
        made = [[v.dtype, list(v.shape), v.name] for v in node.outputs]
        attrs = {k: _plain(a) for k, a in node.attrs.items()}
        nodes.append([node.op, read, attrs, made, node.origin])
        number |= {v: len(number) + i for i, v in enumerate(node.outputs)}
    return {
        "inputs": [[v.dtype, list(v.shape), v.name] for v in body.inputs],
        "nodes": nodes,
        "outputs": [number[v] for v in body.outputs],
        "names": list(body.output_names),
        "name": body.name,
    }


def _constant(v: Value) -> list[Any]:
    """Type and shape, and what the size of packed constants depends on: their kind of numbers."""
    assert v.data is not None
    flat = v.data.reshape(-1)
    if v.type.rank == 4 and 2 * np.count_nonzero(flat) <= flat.size:
        return [v.dtype, list(v.shape), "sparse"]
    same = not flat.size or bool((flat == flat[0]).all())
    return [v.dtype, list(v.shape), "same" if same else "different"]


def _plain(a: Any) -> Any:
    if isinstance(a, float) and not math.isfinite(a):
        return str(a)  # JSON has no infinity
    if isinstance(a, (tuple, list)):
        return [_plain(x) for x in a]
    return a.item() if isinstance(a, np.generic) else a


# ---- reading -------------------------------------------------------------------------------------
def _graph(plain: Mapping[str, Any]) -> Graph:
    values = [Value(_type(d, s), name) for d, s, name in plain["inputs"]]
    inputs = list(values)
    for op, read, attrs, made, origin in plain["nodes"]:
        given = [
            None if r is None else values[r] if isinstance(r, int) else _filled(*r) for r in read
        ]
        kept = {k: _attribute(a) for k, a in attrs.items()}
        node = Node(op, given, kept, [_type(d, s) for d, s, _ in made], origin)
        for v, (_, _, name) in zip(node.outputs, made, strict=True):
            v.name = name
        values += node.outputs
    return Graph(inputs, [values[i] for i in plain["outputs"]], plain["names"], plain["name"])


def _type(dtype: str, shape: list[int]) -> Type:
    return Type(dtype, tuple(shape))


def _filled(dtype: str, shape: list[int], kind: str) -> Value:
    kept = dtypes.TABLE[dtype].numpy
    size = math.prod(shape)
    numbers: Array = np.zeros(size)
    if kind == "same":
        numbers = np.ones(size)
    elif kind == "different":
        numbers = np.arange(size) % 100 + 1.0
    return Value(_type(dtype, shape), "", numbers.astype(kept).reshape(shape))


def _attribute(a: Any) -> Any:
    if isinstance(a, list):
        return tuple(_attribute(x) for x in a)
    return float(a) if a in ("inf", "-inf", "nan") else a
