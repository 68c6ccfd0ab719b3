"""How neutral integer ops become those of a chip's units, and in words why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intaglio import dtypes
from intaglio.ir import Graph, Node, release
from intaglio.rewrite import No, Rule
from intaglio.targets.chip import Chip
from intaglio.targets.npu import limits
from intaglio.targets.npu.elementwise import elementwise
from intaglio.targets.npu.making import Maker
from intaglio.targets.npu.matmul import matmuls
from intaglio.targets.npu.moves import moves
from intaglio.targets.npu.products import products

NOWHERE = Graph([], [])


def lowering(chip: Chip) -> tuple[Rule, ...]:
    """Every rule by which nodes become those of `chip`."""
    make = Maker(limits.why_not(chip))
    return (*products(make, chip), *matmuls(make), *elementwise(make), *moves(make))


def why_not(chip: Chip, rules: Sequence[Rule]) -> Callable[[Node], str | None]:
    """None where a unit of the chip does the node as it is; else the reason, in words."""
    by_op: dict[str, list[Rule]] = {}
    for r in rules:
        for op in r.pattern.ops:
            by_op.setdefault(op, []).append(r)
    of_units = limits.why_not(chip)

    def reason(node: Node) -> str | None:
        if node.op.startswith("npu."):
            return of_units(node)
        for r in by_op.get(node.op, ()):
            found = r.apply(NOWHERE, node)
            if isinstance(found, No):
                return str(found)
            for v in found or ():
                release(v.producer)
        return _in_general(chip, node)

    return reason


def _in_general(chip: Chip, node: Node) -> str:
    """Why no unit does such an op."""
    if node.op == "quantize_linear":
        return "it makes integers of real numbers, which units do not read"
    if node.op == "dequantize_linear":
        return "it makes real numbers of integers, with which units do not work"
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.data is None]
    floats = [t for t in types if dtypes.is_float(t)]
    if floats:
        return f"it computes in {floats[0]}, units work on integers: quantise it"
    return f"no unit of {chip.name} does {node.op}"
