"""Weight-only quantisation: the matrices of products and the looked-up tables become integers.

The model still computes in f32; the weights take a quarter or an eighth of the memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.errors import BadInput, option
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.ops import add, dequantize_linear, gather, matmul
from intaglio.quant.samples.synthetic_text import padding_masks
from intaglio.quant.weight_only.matrix import quantize_matrix
from intaglio.quant.weights.second_moments import grams

ROWS_PER_INPUT = 16  # rows of a layer's input that weights and scales are fitted to, per input
COMPARED = 8  # samples on which layers are compared


def weight_only(
    graph: Graph,
    dtype: str = "i8",
    group: int = 0,
    symmetric: bool = True,
    keep: Collection[str] = (),
    samples: Sequence[Mapping[str, Array]] = (),
    wide: float = 0.0,
) -> Graph:
    """The graph with integer weight matrices; it still computes in f32.

    `group` rows of a column share a scale (0: whole columns). Embedding tables become i8 with a
    scale per row. `keep` names layers, by origin or output, that are not quantised. With `samples`
    weights are fitted to the layers' inputs, which helps 4 bits most. Up to a share `wide` of all
    weights become i8 per column instead: those of the layers with the greatest output error per
    weight on the samples.
    """
    if wide and not len(samples):
        raise BadInput(f"{option('wide')} needs samples: it chooses layers by their output error")
    if wide:
        worst = _worst(graph, dtype, group, symmetric, keep, samples, wide)
        graph = weight_only(graph, dtype, group, symmetric, {*keep, *worst}, samples)
        return weight_only(graph, keep=keep)
    result = graph.copy()
    quantize_tables(result, keep)
    todo = [n for n in result.nodes() if not is_kept(n, keep) and constant_matrix(n) is not None]
    places = padding_masks(graph, samples)
    while todo:  # layers with a common input together; the layers before it are rounded already
        nodes = [n for n in todo if n.inputs[0] is todo[0].inputs[0]]
        todo = [n for n in todo if n not in nodes]
        seen = [n for n in nodes if _seen(n, len(samples))]
        found = grams(result, seen[:1], samples, places=places, rows=ROWS_PER_INPUT)
        moments = {n: gram[0] for n, gram in found}
        for node in nodes:
            gram = moments.get(seen[0]) if node in seen else None
            _replace(result, node, dtype, group, symmetric, gram)
    return result


def _replace(
    made: Graph, node: Node, dtype: str, group: int, symmetric: bool, gram: Array | None
) -> None:
    """Replace `node` by a product with integer weights."""
    w = constant_matrix(node)
    assert w is not None
    q, scale, zero = quantize_matrix(w, dtype, group, symmetric, gram)
    real = dequantize_linear(
        constant(q),
        constant(scale),
        None if zero is None else constant(zero),
        axis=0 if group else 1,
        block_size=min(group, w.shape[0]),
    )
    y: Value = matmul(node.inputs[0], real, origin=node.origin)
    c = addend(node)
    made.replace(node.outputs[0], y if c is None else add(y, c, origin=node.origin))


def _seen(node: Node, samples: int) -> bool:
    """Do the samples give at least twice as many rows as the product has inputs?"""
    x = node.inputs[0]
    assert x is not None
    return samples * x.type.size >= 2 * x.shape[-1] ** 2


def _worst(
    graph: Graph,
    dtype: str,
    group: int,
    symmetric: bool,
    keep: Collection[str],
    samples: Sequence[Mapping[str, Array]],
    share: float,
) -> list[str]:
    """The layers with the greatest output error per weight, up to a share of all weights."""
    sizes = {
        n.origin or n.outputs[0].name: w.size
        for n in graph.nodes()
        if not is_kept(n, keep) and (w := constant_matrix(n)) is not None
    }
    some = samples[:: max(1, len(samples) // COMPARED)]

    def outputs(g: Graph) -> list[Array]:
        with intaglio.open(intaglio.compile(g)) as session:
            return [y for s in some for y in session.run(dict(s)).values()]

    want = outputs(graph)
    hurt = {}
    for name, size in sizes.items():
        others = {*keep, *(n for n in sizes if n != name), *_tables(graph)}
        got = outputs(weight_only(graph, dtype, group, symmetric, others))
        hurt[name] = (
            sum(
                float(np.square(g.astype(np.float64) - w).sum() / max(np.square(w).sum(), 1e-30))
                for g, w in zip(got, want, strict=True)
                if dtypes.is_float(dtypes.name_of(w.dtype))
            )
            / size
        )
    left, found = share * sum(sizes.values()), []
    for name in sorted(hurt, key=lambda n: (-hurt[n], n)):
        if sizes[name] <= left:
            left -= sizes[name]
            found.append(name)
    return found


def _tables(graph: Graph) -> list[str]:
    return [n.origin or n.outputs[0].name for n in graph.nodes() if looked_up_table(n) is not None]


def quantize_tables(graph: Graph, keep: Collection[str]) -> None:
    for node in list(graph.nodes()):
        table = None if is_kept(node, keep) else looked_up_table(node)
        if table is None:
            continue
        q, scale, _ = quantize_matrix(np.ascontiguousarray(table.T))
        real = dequantize_linear(constant(np.ascontiguousarray(q.T)), constant(scale), axis=0)
        result = gather(real, node.inputs[1], axis=0, origin=node.origin)
        graph.replace(node.outputs[0], result)


def is_kept(node: Node, keep: Collection[str]) -> bool:
    return any(name in keep for name in (node.origin, node.outputs[0].name) if name)


def constant_matrix(node: Node) -> Array | None:
    """The constant weight matrix [k, n] of a product, or None."""
    if node.op not in ("matmul", "gemm"):
        return None
    w, x, a = node.inputs[1], node.inputs[0], node.attrs
    if w is None or x is None or w.data is None or w.dtype != "f32" or w.type.rank != 2:
        return None
    if x.data is not None or not w.type.size:
        return None
    if node.op == "gemm" and (a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1):
        return None
    return w.data.T if node.op == "gemm" and a["trans_b"] else w.data


def addend(node: Node) -> Value | None:
    return node.inputs[2] if node.op == "gemm" else None


def looked_up_table(node: Node) -> Array | None:
    """The constant table that a gather reads, or None."""
    if node.op != "gather" or node.attrs["axis"] != 0:
        return None
    w, at = node.inputs[0], node.inputs[1]
    if w is None or at is None or w.data is None or at.data is not None or w.dtype != "f32":
        return None
    return w.data if w.type.rank == 2 and w.type.size else None
