"""Custom operators as RKNN-Toolkit2 has them, over `intaglio.custom`.

An object with `op_type`, `shape_infer(node, in_shapes, in_dtypes)` and `compute(node, inputs)`; a
node is an ONNX NodeProto.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import custom, dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array


def get_node_attr(node: Any, name: str) -> Any:
    """The value of an attribute of an ONNX node; None if the node lacks it."""
    from onnx import helper

    for attribute in node.attribute:
        if attribute.name == name:
            value = helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                return value.decode()
            return (
                list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value
            )
    return None


class CustomOperators:
    """The operators of one RKNN object, registered while it lives."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}  # by op_type
        self.names: set[str] = set()  # in intaglio.custom

    def add(self, operator: Any) -> None:
        """BadInput if the object lacks something."""
        if inspect.isclass(operator):
            raise BadInput(
                f"custom_op is the class {operator.__name__}; give an object: {operator.__name__}()"
            )
        op_type = getattr(operator, "op_type", None)
        if not isinstance(op_type, str) or not op_type.isidentifier():
            raise BadInput(
                f"op_type of {type(operator).__name__} is {op_type!r}; it is the operator's name "
                "in the ONNX file, such as op_type = 'cstSoftmax'"
            )
        for method, arguments in (
            ("shape_infer", ("node", "in_shapes", "in_dtypes")),
            ("compute", ("node", "inputs")),
        ):
            function = getattr(operator, method, None)
            if not callable(function):
                raise BadInput(
                    f"'{op_type}' has no method {method}; write {method}(self, "
                    f"{', '.join(arguments)})"
                )
            taken = tuple(inspect.signature(function).parameters)
            if taken != arguments:
                raise BadInput(
                    f"'{op_type}': {method} takes ({', '.join(taken)}); write {method}(self, "
                    f"{', '.join(arguments)})"
                )
        _refuse_standard(op_type)
        self.given[op_type] = operator

    def prepare(self, path: Path) -> None:
        """Register the operators with the attributes that they have in an ONNX file."""
        if not self.given:
            return
        import onnx

        try:
            proto = onnx.load(str(path), load_external_data=False)
        except Exception as e:
            raise BadFile(f"'{path}' is no valid ONNX file ({type(e).__name__})") from e
        found: dict[tuple[str, str], set[str]] = {}
        for node in proto.graph.node:
            if node.op_type in self.given:
                at = found.setdefault((node.domain, node.op_type), set())
                at.update(a.name for a in node.attribute)
        for (domain, op_type), attributes in found.items():
            name = f"rknn.{op_type}"
            if name in custom.registered():
                custom.unregister(name)
            custom.register(_Adapter(name, domain, self.given[op_type], sorted(attributes)))
            self.names.add(name)

    def forget(self) -> None:
        for name in self.names & set(custom.registered()):
            custom.unregister(name)
        self.names.clear()
        self.given.clear()


def _refuse_standard(op_type: str) -> None:
    import onnx

    if onnx.defs.has(op_type):
        raise BadInput(
            f"op_type is '{op_type}', an operator of ONNX; choose another name, such as "
            f"'cst{op_type}', in the model too"
        )


class _Adapter:
    """A custom operator as `intaglio.custom.register` takes it."""

    def __init__(self, name: str, domain: str, operator: Any, attributes: list[str]):
        self.name, self.operator = name, operator
        self.onnx = f"{domain}::{operator.op_type}" if domain else operator.op_type
        kinds = inspect.Parameter
        signature = inspect.Signature(
            [
                kinds("inputs", kinds.VAR_POSITIONAL),
                *(kinds(a, kinds.KEYWORD_ONLY, default=None) for a in attributes),
            ]
        )
        self.shape = _signed(self._shape, signature)
        self.compute = _signed(self._compute, signature)

    def _node(self, count: int, attributes: dict[str, Any]) -> Any:
        from onnx import helper

        names = [f"input{i}" for i in range(count)]
        given = {k: v for k, v in attributes.items() if v is not None}
        return helper.make_node(self.operator.op_type, names, ["output0"], **given)

    def _shape(self, *inputs: Any, **attributes: Any) -> list[tuple[Any, tuple[int, ...]]]:
        shapes = [list(x.shape) for x in inputs if x is not None]
        kinds = [dtypes.numpy_of(x.dtype) for x in inputs if x is not None]
        made, types = self.operator.shape_infer(self._node(len(inputs), attributes), shapes, kinds)
        return [(np.dtype(t), tuple(int(d) for d in s)) for s, t in zip(made, types, strict=True)]

    def _compute(self, *inputs: Array, **attributes: Any) -> list[Array]:
        node = self._node(len(inputs), attributes)
        results = self.operator.compute(node, [np.asarray(x) for x in inputs if x is not None])
        return [np.asarray(r) for r in results]


def _signed(method: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    def call(*inputs: Any, **attributes: Any) -> Any:
        return method(*inputs, **attributes)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
