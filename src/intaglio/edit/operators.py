"""Operators by name, from ONNX's schemas and the model's functions, and their attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.edit.constants import as_array, make_tensor
from intaglio.edit.node_expression import Word
from intaglio.edit.state import State
from intaglio.errors import BadInput, did_you_mean
from intaglio.frontends.onnx.schema import find_schema

NEW_DOMAINS = {"com.microsoft": 1}  # operators of onnxruntime, of which onnx has no schemas
_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 6, 7, 8  # kinds


@dataclass(frozen=True)
class Operator:
    """What is known about an operator: names of operands and attributes."""

    name: str
    domain: str
    schema: Any  # None for functions of the model and for unknown domains
    operands: tuple[str, ...] | None  # None: unknown
    attributes: tuple[str, ...] | None
    most_operands: int
    most_results: int


def find_operator(state: State, op: str, domain: str) -> Operator:
    """The operator; BadInput with the nearest name if there is none."""
    for f in state.head.functions:
        if (f.name, f.domain) == (op, domain):
            attributes = (*f.attribute, *(a.name for a in f.attribute_proto))
            return Operator(
                op, domain, None, tuple(f.input), attributes, len(f.input), len(f.output)
            )
    opset = state.opset(domain)
    if opset is None:
        opset = _import_domain(state, op, domain)
    schema = find_schema(op, opset, domain)
    if schema is not None:
        return Operator(
            op,
            domain,
            schema,
            tuple(i.name for i in schema.inputs),
            tuple(schema.attributes),
            schema.max_input,
            schema.max_output,
        )
    if domain in ("", "ai.onnx.ml"):
        raise _unknown(op, domain, opset)
    return Operator(op, domain, None, None, None, 1 << 30, 1 << 30)


def _import_domain(state: State, op: str, domain: str) -> int:
    import onnx

    versions = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
    if not versions and domain not in NEW_DOMAINS:
        known = sorted({o.domain for o in state.head.opset_import if o.domain} | NEW_DOMAINS.keys())
        near = did_you_mean(domain, known) or f"; known are {', '.join(known)}"
        raise BadInput(f"operator '{domain}.{op}': the model imports no domain '{domain}'{near}")
    version = NEW_DOMAINS.get(domain) or max(versions)
    state.head.opset_import.add(domain=domain, version=version)
    return version


def _unknown(op: str, domain: str, opset: int) -> BadInput:
    import onnx

    schemas = [s for s in onnx.defs.get_all_schemas() if s.domain == domain and not s.deprecated]
    later = [s.since_version for s in schemas if s.name == op and s.since_version > opset]
    if later:
        return BadInput(
            f"operator '{op}' needs opset {min(later)}, the model has {opset}; use another operator"
        )
    return BadInput(f"no operator is called '{op}'{did_you_mean(op, [s.name for s in schemas])}")


def refuse_attribute(operator: Operator, key: str) -> BadInput:
    known = [*(operator.attributes or ()), *(operator.operands or ())]
    near = did_you_mean(key, known) or f"; it has {', '.join(known) or 'none'}"
    return BadInput(f"{operator.name} has no attribute or operand '{key}'{near}")


def make_attribute(operator: Operator, key: str, value: Any) -> Any:
    """An AttributeProto of the type that the schema asks for."""
    import onnx

    if isinstance(value, onnx.AttributeProto):
        return value
    if isinstance(value, onnx.TensorProto | onnx.GraphProto):
        return onnx.helper.make_attribute(key, value)
    value = _plain(value)
    kind = 0
    if operator.schema is not None:
        kind = int(operator.schema.attributes[key].type.value)
    try:
        made = _converted(kind, key, value)
    except (TypeError, ValueError, OverflowError):
        words = {_INT: "a whole number", _FLOAT: "a number", _STRING: "a text"}
        lists = {_INTS: "a list of whole numbers", _FLOATS: "a list of numbers"}
        lists[_STRINGS] = "a list of texts"
        what = {**words, **lists, _TENSOR: "an array"}.get(kind, "a number, a text or a list")
        raise BadInput(f"attribute '{key}' of {operator.name} is {value!r}; give {what}") from None
    return (
        made if kind == _TENSOR else onnx.helper.make_attribute(key, made, attr_type=kind or None)
    )


def _plain(value: Any) -> Any:
    """A value with texts as str."""
    if isinstance(value, Word):
        return value.text
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _converted(kind: int, key: str, value: Any) -> Any:
    """ValueError or TypeError if the value is not of this kind."""
    import onnx

    if kind == _TENSOR:
        return onnx.helper.make_attribute(key, make_tensor(key, as_array(value, key)))
    if kind in (_INTS, _FLOATS, _STRINGS):
        if not isinstance(value, list):
            raise TypeError
        one = {_INTS: _INT, _FLOATS: _FLOAT, _STRINGS: _STRING}[kind]
        return [_converted(one, key, v) for v in value]
    if kind == _STRING and not isinstance(value, str):
        raise TypeError
    if kind in (_INT, _FLOAT) and isinstance(value, str | list):
        raise TypeError
    if kind == _INT:
        if not math.isfinite(value) or int(value) != value:
            raise ValueError
        return int(value)
    if kind == _FLOAT:
        return float(value)
    return int(value) if isinstance(value, bool) else value
