"""Binary layers: weights and inputs of convolutions become +1 and -1.

Each channel of the weights has one factor (XNOR-Net, Rastegari et al., arXiv 1603.05279), and each
layer gets a shortcut around itself that carries full numbers (Bi-Real Net, Liu et al., arXiv
1808.00278). ReLUs before binary layers go: they would make every input +1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.compress.pruning.groups import label
from intaglio.errors import BadInput
from intaglio.ir import Graph, Node, Value, constant

PRODUCTS = ("conv", "matmul", "gemm")
BEFORE = ("relu", "clip", "prelu", "leaky_relu")  # activations that go
ABOVE_ZERO = np.float32(1e-30)  # added before the sign: 0 becomes +1


def binarize(graph: Graph, leave: Sequence[str] = ()) -> dict[str, str]:
    """Make convolutions binary, in place; the weights' names by layer.

    The first and the last product, depthwise and strided 1x1 convolutions stay, as does `leave`.
    """
    products = [n for n in graph.nodes() if n.op in PRODUCTS and _constant(n)]
    known = {label(n) for n in products}
    for name in leave:
        if name not in known:
            some = ", ".join(sorted(known)[:6])
            raise BadInput(f"no layer is called '{name}'; the model has {some}")
    found = {}
    for n in products[1:-1]:
        if _suits(n) and label(n) not in leave:
            w = n.inputs[1]
            assert w is not None
            w.name = f"{label(n)}/signs"  # a name that nothing else takes
            found[label(n)] = w.name
            _binarize(graph, n)
    if not found:
        raise BadInput(
            "no layer can be binary: it takes convolutions without groups between the first and "
            "the last layer; choose another model"
        )
    graph.tidy()
    return found


def _constant(n: Node) -> bool:
    w = n.inputs[1]
    return w is not None and w.data is not None


def _suits(n: Node) -> bool:
    if n.op != "conv" or n.attrs["groups"] != 1:
        return False
    w = n.inputs[1]
    assert w is not None
    return max(w.shape[2:]) > 1 or max(n.attrs["stride"]) == 1


def _binarize(graph: Graph, n: Node) -> None:
    x = n.inputs[0]
    assert x is not None
    while x.producer is not None and x.producer.op in BEFORE and x.producer.inputs[0] is not None:
        x = x.producer.inputs[0]
    signs = ops.sign(ops.add(x, constant(ABOVE_ZERO)), origin=f"{label(n)}/sign")
    Graph.set_input(n, 0, signs)
    y = n.outputs[0]
    if len(y.uses) == 1 and next(iter(y.uses)).op == "batch_norm":
        y = next(iter(y.uses)).outputs[0]
    around = _shortcut(x, y)
    if around is None:
        return
    readers = list(y.uses)
    if len(readers) == 1 and readers[0].op == "add":
        total = readers[0]
        other = 1 if total.inputs[0] is y else 0
        v = total.inputs[other]
        if v is not None and v.data is None and v.shape == y.shape:
            Graph.set_input(total, other, around)
            return
    result = ops.add(y, around)
    for reader in readers:
        Graph.replace_input(reader, y, result)
    graph.outputs[:] = [result if v is y else v for v in graph.outputs]


def _shortcut(x: Value, y: Value) -> Value | None:
    """What carries full numbers around a layer; None: the shapes do not allow it."""
    if x.shape == y.shape:
        return x
    few, many = x.shape[1], y.shape[1]
    step = [a // b for a, b in zip(x.shape[2:], y.shape[2:], strict=True)]
    even = all(a == b * s for a, b, s in zip(x.shape[2:], y.shape[2:], step, strict=True))
    if not even or many % few or max(step) < 1:
        return None
    if max(step) > 1:
        flat = (0,) * (2 * len(step))
        x = ops.avg_pool(x, kernel=step, stride=step, pad=flat, dilation=(1,) * len(step))
    return x if many == few else ops.concat(*[x] * (many // few), axis=1)
