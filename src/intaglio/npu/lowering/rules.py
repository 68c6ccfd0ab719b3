"""All rules that turn neutral ops into the NPU ops of a chip, and why some ops stay on the CPU.

Ops of f16 become f16 NPU ops. Ops of f32 do if the user asked for f16; products of f32 also if the
model rounds both operands to f16. Their results are cast back to f32, and the next NPU op reads the
f16 value before the cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intaglio import dtypes
from intaglio.ir import Graph, Node, release
from intaglio.npu.lowering import limits
from intaglio.npu.lowering.builder import Builder
from intaglio.npu.lowering.convolutions import convolution_rules
from intaglio.npu.lowering.data_movement import data_movement_rules
from intaglio.npu.lowering.elementwise import elementwise_rules
from intaglio.npu.lowering.f16_attention import f16_attention_rules
from intaglio.npu.lowering.f16_elementwise import f16_elementwise_rules
from intaglio.npu.lowering.f16_operands import F16Casts
from intaglio.npu.lowering.f16_products import f16_product_rules
from intaglio.npu.lowering.f16_rows import f16_row_rules
from intaglio.npu.lowering.matmul import matmul_rules
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, Rule
from intaglio.targets.chip import Chip

EMPTY_GRAPH = Graph([], [])
RECURRENT = ("lstm", "gru", "rnn")


def lowering_rules(
    chip: Chip, f32_as_f16: bool = False, also: limits.Limit | None = None, attention: bool = True
) -> tuple[Rule, ...]:
    """Every rule by which nodes become those of `chip`; `f32_as_f16` computes f32 in f16.

    Without `attention`, attention in f16 and the choice of tokens are ops of the CPU.
    """
    make = Builder(limits.why_not(chip, also))
    of_f16: tuple[Rule, ...] = ()
    if "f16" in chip.types:
        casts = F16Casts(make, f32_as_f16)
        of_f16 = (
            *f16_product_rules(make, chip, casts),
            *f16_row_rules(make, casts, attention),
            *(f16_attention_rules(make, casts) if attention else ()),
            *f16_elementwise_rules(make, casts),
        )
    return (
        *convolution_rules(make, chip),
        *matmul_rules(make),
        *elementwise_rules(make),
        *of_f16,
        *data_movement_rules(make),
    )


def why_not(
    chip: Chip, rules: Sequence[Rule], also: limits.Limit | None = None
) -> Callable[[Node], str | None]:
    """A function of a node: None if a unit of the chip does it as it is, else the reason."""
    by_op: dict[str, list[Rule]] = {}
    of_any = [r for r in rules if not r.pattern.ops]
    for r in rules:
        for op in r.pattern.ops:
            by_op.setdefault(op, []).append(r)
    of_units = limits.why_not(chip, also)

    def reason(node: Node) -> str | None:
        if node.op.startswith("npu."):
            return of_units(node)
        for r in [*by_op.get(node.op, ()), *of_any]:
            found = r.apply(EMPTY_GRAPH, node)
            if isinstance(found, No):
                return str(found)
            for v in found or ():
                release(v.producer)
        return _why_no_rule(chip, node)

    return reason


def why_not_lowered(chip: Chip, rules: Sequence[Rule]) -> Callable[[Node], str | None]:
    """A function of a neutral node: None if a rule lowers it, else the reason."""

    def reason(node: Node) -> str | None:
        refusal = None
        for r in rules:
            if r.pattern.ops and node.op not in r.pattern.ops:
                continue
            found = r.apply(EMPTY_GRAPH, node)
            if isinstance(found, list):
                for v in found:
                    release(v.producer)
                return None
            refusal = refusal or found
        return str(refusal or _why_no_rule(chip, node))

    return reason


def _why_no_rule(chip: Chip, node: Node) -> str:
    """Why no rule lowers such an op."""
    if REGISTRY[node.op].custom:
        return "it is a custom operator, which has kernels for CPUs only"
    if node.op == "quantize_linear":
        return "it quantises floats; units read integers only"
    if node.op == "dequantize_linear":
        return "it turns integers into floats; units work on integers"
    if node.op == "cast":
        return "it converts between the element types of CPU and NPU"
    if node.op in RECURRENT:
        return (
            f"no unit of {chip.name} keeps a state from step to step: "
            "unroll its steps into products and functions"
        )
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.data is None]
    floats = [t for t in types if dtypes.is_float(t)]
    if floats and "f16" in chip.types and floats[0] == "f32":
        return (
            "it computes in f32; units work on integers and f16: quantise it, or compile it in f16"
        )
    if floats and floats[0] not in chip.types:
        known = "integers and f16" if "f16" in chip.types else "integers"
        return f"it computes in {floats[0]}; units work on {known}: quantise it"
    return f"no unit of {chip.name} does {node.op}"
