"""ONNX's own checks and type inference, run after every edit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intaglio.edit.node_names import copy_of
from intaglio.edit.sizes import imported_type
from intaglio.edit.state import State, keep_only
from intaglio.edit.tensor_types import shape_of, tensor_of
from intaglio.errors import BadInput, IntaglioError
from intaglio.frontends.onnx import OnnxModel
from intaglio.frontends.onnx.schema import find_schema

LARGE = 1 << 10  # bytes of a constant from which inference gets only its type
Types = dict[str, Any]  # TypeProto by name of tensor


class Inference:
    """ONNX's own checks and type inference, as far as the original model passes them."""

    def __init__(self, state: State, folder: Path | None = None):
        self.folder = folder  # of external data
        self.strict, self.possible = True, True
        self.inferred: set[str] = set()  # tensors whose types followed from the nodes
        self.checked = self._passes(state, self._check)
        self.strict = self._passes(state, self._infer)
        self.possible = self.strict or self._passes(state, self._infer)

    def types(self, state: State) -> Types:
        """Types of all tensors; BadInput if a node does not fit its operands."""
        if self.checked:
            self._check(state)
        if self.possible:
            return self._infer(state)
        self.inferred = set()
        return _declared(state)

    def _passes(self, state: State, test: Callable[[State], Any]) -> bool:
        try:
            test(state)
        except BadInput:
            return False
        return True

    def type_of(self, state: State, types: Types, name: str) -> Any:
        """The type of one tensor; if onnx does not know its shape, by importing the model."""
        found = types.get(name)
        if found is not None and shape_of(found) is not None:
            return found
        try:
            proto = state.proto()
            for info in (*proto.graph.output, *proto.graph.value_info):
                if info.name == name:
                    info.ClearField("type")  # it may be that of another tensor
            return imported_type(OnnxModel(proto, {}, self.folder), name)
        except IntaglioError:
            return found

    def _infer(self, state: State) -> Types:
        import onnx

        model, certain = _light(state), _certain(state)
        for output in model.graph.output:
            output.ClearField("type")
        keep_only(model.graph.value_info, lambda v: v.name in certain)
        try:
            made = onnx.shape_inference.infer_shapes(model, self.strict, self.strict, True)
        except Exception as e:  # onnx has its own exception types
            raise BadInput(_plain(str(e))) from None
        infos = (*made.graph.value_info, *made.graph.output)
        found = {i.name: _without_made_up(i.type) for i in infos if i.type.WhichOneof("value")}
        self.inferred = set(found)
        return _declared(state) | found

    def _check(self, state: State) -> None:
        import onnx

        model = _light(state)
        for output in model.graph.output:  # a shape that is not known need not be declared
            output.type.tensor_type.shape.SetInParent()
        try:
            onnx.checker.check_model(model)
        except Exception as e:
            raise BadInput(_plain(str(e))) from None


def _declared(state: State) -> Types:
    """The types that the file states."""
    graph = state.graph
    found = {i.name: i.type for i in (*graph.value_info, *graph.output, *graph.input)}
    return found | {t.name: tensor_of(t) for t in state.tensors.values()}


def _light(state: State) -> Any:
    """The model with large constants as inputs, so that checking it copies no weights."""
    made = copy_of(state.head)
    for label, proto in state.nodes.items():
        made.graph.node.add().CopyFrom(proto)
        made.graph.node[-1].name = label  # for messages
    listed = {i.name for i in made.graph.input}
    for t in state.tensors.values():
        if t.ByteSize() < LARGE and not t.external_data:
            made.graph.initializer.append(t)
        elif t.name not in listed:
            made.graph.input.add(name=t.name).type.CopyFrom(tensor_of(t))
    return made


def _without_made_up(type: Any) -> Any:
    """The type without symbols that onnx's inference made up."""
    for d in type.tensor_type.shape.dim:
        if re.fullmatch(r"unk__\d+", d.dim_param):
            d.ClearField("dim_param")
    return type


def _certain(state: State) -> set[str]:
    """Tensors whose declared types inference needs: pinned, or of operators without a schema."""
    functions = {(f.domain, f.name) for f in state.head.functions}
    unknown = [
        n
        for n in state.nodes.protos()
        if (n.domain, n.op_type) not in functions
        and find_schema(n.op_type, state.opset(n.domain) or 1, n.domain) is None
    ]
    return state.pinned | {name for n in unknown for name in n.output}


def _plain(message: str) -> str:
    """The first of onnx's complaints, in one line and without its prefixes."""
    line = " ".join(message.split())
    found = re.search(r"\(op_type:\s*(\w+)(?:, node name: ([^)]*))?\): *(.*)", line)
    if found:
        op, name, what = found[1], found[2], found[3]
        what = re.split(r"\(op_type:", what)[0]
        line = f"node '{name or op}' ({op}): {what}"
    line = re.sub(r"\[\w*(?:Error|error)\w*\]:? *", "", line)
    return re.split(r" ?==> Context:", line)[0].strip().rstrip(".;")
