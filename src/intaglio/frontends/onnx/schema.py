"""Operator schemas of the onnx package, and the check of nodes against them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intaglio import dtypes
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.frontends.onnx.importer import OnnxNode

_KINDS = (
    "?",
    "FLOAT",
    "INT",
    "STRING",
    "TENSOR",
    "GRAPH",
    "FLOATS",
    "INTS",
    "STRINGS",
    "TENSORS",
    "GRAPHS",
    "SPARSE_TENSOR",
    "SPARSE_TENSORS",
    "TYPE_PROTO",
    "TYPE_PROTOS",
)

TYPE_NAMES = {  # of schemas -> ours
    f"tensor({spelled})": name
    for spelled, name in {
        "float": "f32",
        "double": "f64",
        "float16": "f16",
        "bfloat16": "bf16",
        "bool": "bool",
        "float8e4m3fn": "f8e4m3fn",
        "float8e4m3fnuz": "f8e4m3fnuz",
        "float8e5m2": "f8e5m2",
        "float8e5m2fnuz": "f8e5m2fnuz",
        "float8e8m0": "f8e8m0fnu",
        "float4e2m1": "f4e2m1fn",
        **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
        **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    }.items()
}
_NEWEST = 1 << 30


@functools.cache
def find_schema(op_type: str, opset: int, domain: str) -> Any:
    """The OpSchema of an op in this opset; None if there is none."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except Exception:  # onnx has its own exception type for unknown ops
        return None


def accepts(parameters: Sequence[Any], i: int, dtype: str) -> bool:
    """Whether operand or result `i` of a schema may have this element type."""
    if i >= len(parameters):
        last = parameters[-1] if parameters else None
        if last is None or last.option != type(last.option).Variadic:
            return False
        i = len(parameters) - 1
    return not dtype or dtype in {TYPE_NAMES.get(t) for t in parameters[i].types}


@dataclass
class _Rules:
    """The parts of an OpSchema that nodes are checked against."""

    operands: list[str]  # names of required operands, "" for optional ones
    types: list[frozenset[str]]  # allowed element types per operand; the last repeats
    attrs: dict[str, tuple[int, bool]]  # type, and whether it is required


@functools.cache
def _rules(op_type: str, opset: int, domain: str) -> _Rules | None:
    schema = find_schema(op_type, opset, domain)
    if schema is None:
        return None
    optional = type(schema).FormalParameterOption.Optional
    operands = ["" if i.option == optional else i.name for i in schema.inputs]
    types = [{TYPE_NAMES.get(t, "") for t in i.types} for i in schema.inputs]
    newest = find_schema(op_type, _NEWEST, domain)  # newer opsets only add element types
    for mine, i in zip(types, newest.inputs if newest else (), strict=False):
        mine |= {TYPE_NAMES.get(t, "") for t in i.types}
    return _Rules(
        operands[: schema.min_input],
        [frozenset(t - {""}) for t in types],
        {a.name: (int(a.type.value), a.required) for a in schema.attributes.values()},
    )


def check_schema(n: OnnxNode) -> None:
    """BadInput if the node violates its schema, so that importers need not check."""
    rules = _rules(n.op_type, n.opset, n.domain)
    if rules is None:
        return
    for i, name in enumerate(rules.operands):
        if name and n.input(i) is None and n.sequence(i) is None:
            raise BadInput(f"operand {i} ({name}) is missing; {n.op_type} needs it")
    for i, v in enumerate(n.inputs if rules.types else ()):
        allowed = rules.types[min(i, len(rules.types) - 1)]
        if v is not None and allowed and v.dtype not in allowed:
            shown = ", ".join(d for d in dtypes.TABLE if d in allowed)
            raise BadInput(f"operand {i} is {v.type}; {n.op_type} takes {shown}")
    for name in n.protos:
        if name not in rules.attrs:
            n.unsupported(f"attribute '{name}' does not exist in opset {n.opset}")
    for name, (kind, required) in rules.attrs.items():
        given = n.protos.get(name)
        if given is None and required:
            raise BadInput(f"attribute '{name}' is missing; {n.op_type} needs it")
        if given is not None and given.type not in (0, kind):
            got = _KINDS[given.type] if given.type < len(_KINDS) else "unknown"
            raise BadInput(f"attribute '{name}' has type {got}; {_KINDS[kind]} is needed")
