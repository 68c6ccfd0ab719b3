"""`npu.program`: a graph of NPU ops that runs as one program."""

from __future__ import annotations

from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.ops.control import body_macs, check_inputs
from intaglio.ops.registry import evaluate, op

MOST_RESULTS = 16  # of a step of the runtime: ITG_MAX_OUTPUTS


def _type(*inputs: Value, body: Graph) -> list[Type]:
    check_inputs("the NPU program", body, [v.type for v in inputs])
    return [v.type for v in body.outputs]


def _macs(node: Node) -> int:
    return body_macs(node.attrs["body"])


@op(_type, name="npu.program", foldable=False, macs=_macs)
def npu_program(*inputs: Array, body: Graph) -> tuple[Array, ...]:
    """The outputs of `body`, a graph of NPU ops."""
    return tuple(evaluate(body, inputs))
