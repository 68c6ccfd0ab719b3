"""Nodes from expressions: keywords become operands or attributes, constants get their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from intaglio import dtypes
from intaglio.edit.constants import as_array, fits, make_tensor
from intaglio.edit.inference import Types
from intaglio.edit.lookup import nearest
from intaglio.edit.node_expression import NodeExpression, Place, Word
from intaglio.edit.operators import Operator, find_operator, make_attribute, refuse_attribute
from intaglio.edit.state import State
from intaglio.edit.tensor_types import dtype_of
from intaglio.errors import BadInput
from intaglio.frontends.onnx.input_binding import bound_array
from intaglio.frontends.onnx.schema import TYPE_NAMES


class Builder:
    """Builds nodes in a state; constants that they need are added to it."""

    def __init__(self, state: State, types: Types):
        self.state, self.types = state, types
        self._constants: dict[Any, str] = {}  # of this builder, so that equal ones are one

    def node(
        self,
        e: NodeExpression,
        name: str,
        places: Sequence[str],
        results: Sequence[str],
        take_all: bool = False,
    ) -> Any:
        """A NodeProto. `places` are the tensors that `_`, `_1`, ... stand for.

        With `take_all`, an expression without operands reads all of them.
        """
        import onnx

        operator = find_operator(self.state, e.op, e.domain)
        operands, attributes = _sorted_out(operator, e, bool(places))
        if take_all and not e.operands and operands == [Place(0)]:
            operands = [Place(i) for i in range(min(len(places), operator.most_operands))]
        if len(operands) > operator.most_operands:
            raise BadInput(
                f"{e.op} takes {operator.most_operands} operands, {len(operands)} are given; leave "
                "some out"
            )
        made = onnx.NodeProto(op_type=e.op, domain=e.domain, name=name, output=results)
        made.input.extend(self._operands(operator, operands, places, name))
        for key, value in attributes.items():
            made.attribute.append(make_attribute(operator, key, value))
        return made

    def _operands(
        self, operator: Operator, operands: Sequence[Any], places: Sequence[str], name: str
    ) -> list[str]:
        names: list[str | None] = [self._tensor(o, places) for o in operands]
        for i, (o, found) in enumerate(zip(operands, names, strict=True)):
            if found is None:
                shown = operator.operands[i] if i < len(operator.operands or ()) else f"constant{i}"  # type: ignore[index]
                names[i] = self.constant(f"{name}_{shown}", o, self._dtype(operator, i, names))
        while names and not names[-1]:
            names.pop()
        return [n or "" for n in names]

    def _tensor(self, operand: Any, places: Sequence[str]) -> str | None:
        """The name of a tensor that an operand means; None for a constant."""
        if operand is None:
            return ""
        if isinstance(operand, Place):
            if operand.index < len(places):
                return places[operand.index]
            raise BadInput(f"'_{operand.index}': the node has {len(places)} operands, from _0 on")
        if not isinstance(operand, Word):
            return None
        known = self.state.tensor_names()
        if operand.text in known:
            return operand.text
        if operand.text.endswith(".npy"):
            return None
        raise BadInput(f"the model has no tensor '{operand.text}'{nearest(operand.text, known)}")

    def _dtype(self, operator: Operator, i: int, names: Sequence[str | None]) -> str | None:
        """The element type that constant operand `i` must have, by the operands beside it."""
        if operator.schema is None:
            own = dtype_of(self.types.get(names[0] or "")) if names else None
            return own if own and dtypes.is_float(own) else None
        formal = operator.schema.inputs
        mine = formal[min(i, len(formal) - 1)]
        for k, other in enumerate(names):
            if other and formal[min(k, len(formal) - 1)].type_str == mine.type_str:
                return dtype_of(self.types.get(other))
        allowed = {TYPE_NAMES.get(t) for t in mine.types}
        return next((d for d in ("f32", "i64", "i32", "bool") if d in allowed), None)

    def constant(self, name: str, value: Any, dtype: str | None) -> str:
        """Add an initialiser; returns its name."""
        array = as_array(value, name)
        if dtype is None or not fits(array, dtype):
            dtype = dtypes.name_of(array.dtype)
        array = bound_array(name, array, dtype, None)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name = self.state.fresh(name)
            self.state.add_tensor(make_tensor(name, array))
        return self._constants[key]


def _sorted_out(
    operator: Operator, e: NodeExpression, placed: bool
) -> tuple[list[Any], Mapping[str, Any]]:
    """Operands and attributes: a keyword is one or the other, by the operator's schema.

    If `_` is not written, it is the first operand that is not given.
    """
    operands, attributes = list(e.operands), {}
    implied = placed and not any(isinstance(o, Place) for o in (*operands, *e.keywords.values()))
    if implied and operands:
        operands.insert(0, Place(0))
    for key, value in e.keywords.items():
        if operator.attributes is None or key in operator.attributes:
            attributes[key] = value
        elif key in (operator.operands or ()):
            i = (operator.operands or ()).index(key)
            operands += [None] * (i + 1 - len(operands))
            if operands[i] is not None:
                raise BadInput(f"{e.op}: operand '{key}' is given twice; give it once")
            operands[i] = value
        else:
            raise refuse_attribute(operator, key)
    if implied and not e.operands:
        free = next((i for i, o in enumerate(operands) if o is None), len(operands))
        operands[free : free + 1] = [Place(0)]
    return operands, attributes
