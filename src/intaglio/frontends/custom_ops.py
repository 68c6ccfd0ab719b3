"""Custom operators in model files: which one a name means, and how its node becomes ours."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from intaglio.custom.definition import plain_attribute
from intaglio.errors import BadInput
from intaglio.ir import Value
from intaglio.ops.registry import CUSTOM_NAMES, Op


def prepare() -> None:
    """Load the plug-ins that INTAGLIO_PLUGINS lists, before a model is read."""
    if os.environ.get("INTAGLIO_PLUGINS"):
        from intaglio.custom.discover import from_environment

        from_environment()


def registered(format: str, name: str) -> Op | None:
    """The custom operator that this format calls `name`, if it is registered."""
    return CUSTOM_NAMES.get((format, name))


def search(format: str, name: str) -> Op | None:
    """The same, for an operator that nothing else knows: installed plug-ins are searched for it."""
    from intaglio.custom import find

    return find(format, name)


def remedy(format: str, name: str) -> str:
    """How to add an operator, for the error of one that is not known."""
    called = name.removeprefix("::")  # ONNX's own domain
    return f'register a class with {format} = "{called}" (docs/custom-operators.md)'


def make_nodes(op: Op, inputs: Sequence[Value | None], given: Mapping[str, Any]) -> list[Value]:
    """The results of a custom operator, with the attributes that a file gives."""
    parameters = op.signature.parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    attrs = {}
    for name, value in given.items():
        if name not in op.attr_names and not takes_all:
            raise BadInput(
                f"attribute '{name}' is no parameter of custom operator {op.name}, which has "
                f"{', '.join(op.attr_names) or 'no attributes'}; add it after the * of its methods"
            )
        default = parameters[name].default if name in op.attr_names else None
        attrs[name] = _like(plain_attribute(op.name, name, value), default)
    for name in op.attr_names:
        if name not in attrs and parameters[name].default is inspect.Parameter.empty:
            raise BadInput(f"attribute '{name}' is missing; custom operator {op.name} needs it")
    return op.node(*inputs, **attrs).outputs


def _like(value: Any, default: Any) -> Any:
    """A value as the type of a parameter's default: formats have no bool, and may lack lists."""
    if isinstance(default, bool) and isinstance(value, int):
        return bool(value)
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    return (value,) if isinstance(default, tuple) and not isinstance(value, tuple) else value
