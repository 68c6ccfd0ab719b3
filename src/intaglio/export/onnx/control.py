"""ONNX forms of control flow, whose bodies read outer values by name, and of recurrent layers."""

from __future__ import annotations

from typing import Any

from intaglio.export.onnx.expression import Body, Onnx, make, writes
from intaglio.frontends.onnx.recurrent import ALPHA, BETA
from intaglio.ir import Node


@writes("if")
def if_(n: Node) -> Onnx:
    cond, *captures = n.inputs
    then, other = (Body(n.attrs[k], tuple(captures)) for k in ("then_graph", "else_graph"))
    return make("If", cond, then_branch=then, else_branch=other)


@writes("loop")
def loop(n: Node) -> Onnx:
    inside = 2 + n.attrs["carried"]
    body = Body(n.attrs["body"], tuple(n.inputs[inside:]))
    return make("Loop", *n.inputs[:inside], body=body)


@writes("scan")
def scan(n: Node) -> Onnx:
    a = n.attrs
    inside = a["states"] + a["scans"]
    outputs = len(n.outputs) - a["states"]
    return make(
        "Scan",
        *n.inputs[:inside],
        body=Body(a["body"], tuple(n.inputs[inside:])),
        num_scan_inputs=a["scans"],
        scan_input_directions=_directions(a["reverse_in"], a["scans"]),
        scan_output_directions=_directions(a["reverse_out"], outputs),
    )


def _directions(bits: int, count: int) -> list[int] | None:
    return [bits >> i & 1 for i in range(count)] if bits else None


# ---- recurrent -----------------------------------------------------------------------------------
_DEFAULT = {"rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh")}


@writes("rnn", "gru", "lstm")
def recurrent(n: Node) -> Onnx:
    a = n.attrs
    names = a["activations"]
    own = _DEFAULT[n.op] * (len(names) // len(_DEFAULT[n.op]))
    more: dict[str, Any] = {"clip": a["clip"] or None, "layout": a["layout"] or None}
    if names != own:
        more["activations"] = names
    for key, takers in (("activation_alpha", ALPHA), ("activation_beta", BETA)):
        numbers = [v for name, v in zip(names, a[key], strict=True) if name in takers]
        more[key] = numbers or None
    for key in ("linear_before_reset", "input_forget"):
        more[key] = a.get(key) or None
    return make(
        n.op.upper(), *n.inputs, hidden_size=a["hidden_size"], direction=a["direction"], **more
    )
