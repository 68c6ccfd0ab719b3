"""Whether two outputs of one shape mean the same: what is computed behind the last products."""

from __future__ import annotations

from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY

MOVES = {  # operations that move values, or round them
    *("transpose", "reshape", "concat", "slice", "split", "squeeze", "unsqueeze", "expand"),
    *("cast", "bitcast", "pad", "gather", "identity", "depth_to_space", "space_to_depth"),
    *("quantize_linear", "dequantize_linear"),
}
# With one computed input these fold into the product before them.
AFFINE = {"add", "sub", "mul", "div", "neg", "batch_norm"}
LIMITED = {"relu", "clip", "minimum", "maximum", "min", "max"}  # a rounding stands for these


def why_not_comparable(a: Value, b: Value) -> str:
    """Why two outputs of one shape hold different things; empty if nothing says so.

    They do if one has all the functions behind its last products that the other has, and more:
    decoded boxes and raw offsets, probabilities and logits. Two different sets of functions may be
    two spellings of one.
    """
    ours, theirs = functions(a), functions(b)
    if ours < theirs or theirs < ours:
        more, whose = (ours - theirs, "golden") if theirs < ours else (theirs - ours, "other")
        return f"'{a.name}': the {whose} model applies {', '.join(sorted(more))} as well"
    return ""


def functions(v: Value) -> set[str]:
    """The functions between an output and the products that it comes from."""
    found: set[str] = set()
    todo, seen = [v], {v}
    while todo:
        node = todo.pop().producer
        if node is None or (node.op in REGISTRY and REGISTRY[node.op].macs(node)):
            continue
        computed = [x for x in node.inputs if x is not None and not _constant(x)]
        if not (
            node.op in MOVES or (len(computed) == 1 and node.op in AFFINE) or node.op in LIMITED
        ):
            found.add(node.op)
        for x in computed:
            if x not in seen:
                seen.add(x)
                todo.append(x)
    return found


def _constant(v: Value) -> bool:
    """Whether a tensor is computed from constants by roundings and moves."""
    node: Node | None = v.producer
    while v.data is None and node is not None and node.op in MOVES and node.inputs[0] is not None:
        v = node.inputs[0]
        node = v.producer
    return v.data is not None
