"""The partition report of a package: what runs on the NPU, and why other nodes do not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from intaglio.ir import Node
from intaglio.ops.quantized import INTEGERS

QUANTISED = ("quantize_linear", "dequantize_linear")  # present only in quantised models
# Ops that stay on the CPU because others do.
CONSEQUENCES = (*QUANTISED, "reshape", "result")
IN_A_PACKAGE = "a package (NAME.itg) holds them too: its CPU computes them"
SHOWN = 12  # modules and reasons that a summary lists


@dataclass(frozen=True)
class Module:
    """Nodes that run together: one NPU program, or the CPU nodes between two programs."""

    kind: str  # "npu" or "cpu"
    name: str
    nodes: int
    macs: int
    microseconds: float  # estimated
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class OnCpu:
    """A node that stays on the CPU."""

    op: str
    name: str
    type: str
    why: str
    remedy: str  # change to the model that would move it to the NPU; empty: none known
    microseconds: float  # estimated
    share: float  # of the time of all modules
    inputs: str = ""  # shapes


@dataclass(frozen=True)
class Partition:
    """The modules of a model, and why some nodes are not on the NPU."""

    chip: str
    modules: list[Module]
    on_cpu: list[OnCpu]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Partition:
        return cls(
            plain["chip"],
            [Module(**m) for m in plain["modules"]],
            [OnCpu(**row) for row in plain["on_cpu"]],
        )

    @property
    def npu_share(self) -> float:
        """The NPU's share of all multiply-accumulates."""
        total = sum(m.macs for m in self.modules)
        on_npu = sum(m.macs for m in self.modules if m.kind == "npu")
        return on_npu / total if total else 0.0

    def __str__(self) -> str:
        """The modules and reasons as text."""
        programs = [m for m in self.modules if m.kind == "npu"]
        nodes = sum(m.nodes for m in programs)
        lines = [
            f"{self.chip}: {_count(len(programs), 'NPU program')} with {nodes} of "
            f"{nodes + len(self.on_cpu)} ops, {self.npu_share:.1%} of all "
            "multiply-accumulates"
        ]
        lines += [
            f"  {m.name:6} {m.nodes:5} ops {m.macs / 1e6:10,.1f} million MACs "
            f"{m.bytes_in:>11,} B in {m.bytes_out:>11,} B out"
            for m in self.modules[:SHOWN]
        ]
        if len(self.modules) > SHOWN:
            lines.append(f"  and {len(self.modules) - SHOWN} other modules")
        groups: dict[tuple[str, str, str], list[OnCpu]] = {}
        for row in self.on_cpu:
            groups.setdefault((row.op, row.why, row.remedy), []).append(row)
        floats = any("units work on integers" in row.why for row in self.on_cpu)
        if floats and not programs and not any(row.op in QUANTISED for row in self.on_cpu):
            lines.append(f"the model computes in floats; quantise it for {self.chip} first")
        if groups:
            lines.append("on the CPU, by estimated share of the run time:")
        order = sorted(groups.items(), key=lambda g: -sum(r.share for r in g[1]))
        for (op, why, remedy), rows in order[:SHOWN]:
            share = sum(r.share for r in rows)
            lines.append(
                f"  {share:6.1%}  {len(rows):3} x {op} ({rows[0].name}"
                f"{', ...' if len(rows) > 1 else ''}): {why}"
            )
            if remedy:
                lines.append(f"                to run it on the NPU: {remedy}")
        if len(order) > SHOWN:
            lines.append(f"  and {len(order) - SHOWN} other reasons")
        return "\n".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def why_and_remedy(node: Node, words: str, done: Collection[str] = ()) -> tuple[str, str]:
    """A reason, and a change to the model that would move the node to the NPU, if one is known.

    `done` is what the user has done already, "quantise" or "compile it in f16": no remedy says it.
    """
    why, _, remedy = words.partition(": ")
    if limit := LIMIT.fullmatch(why):
        return why, f"use {limit[1]} of {limit[2] or ''}{limit[3]}"
    if "between CPU ops" in why:
        return why, "move its neighbours to the NPU"
    read = node.inputs[0] if node.inputs else None
    if node.op == "quantize_linear" and read is not None and read.producer is not None:
        return why, _of_neighbour(read.producer, "which makes this tensor in floats")
    if node.op == "dequantize_linear":
        readers = [u for u in node.outputs[0].uses if u.op != "result"]
        if readers:
            return why, _of_neighbour(readers[0], "which reads floats")
    remedy = REMEDIES.get(node.op, remedy)
    left = [r for r in remedy.split(", or ") if not any(r.startswith(d) for d in done)]
    return why, ", or ".join(left)


def _of_neighbour(node: Node, what: str) -> str:
    """The remedy of a conversion: that of the op for which it converts."""
    return f"see {node.op} '{node.origin or node.outputs[0].name}', {what}"


def what_is_done(nodes: Iterable[Node], precision: str) -> list[str]:
    """What a user who compiles these nodes in this precision has done, as remedies begin."""
    quantised = any(
        n.op in QUANTISED
        or n.op.startswith("qlinear_")
        or (n.op.startswith("npu.") and n.inputs[0] is not None and n.inputs[0].dtype in INTEGERS)
        for n in nodes
    )
    return ["quantise"] * quantised + ["compile it in f16"] * (precision == "f16")


# The form of a chip's refusal for an attribute beyond a unit's limit.
LIMIT = re.compile(r"(\w+) is [\d]+; \w+ does (at most )?(.*)")
REMEDIES = {
    "quantize_linear": "feed the model uint8: quantize with input_type='uint8'",
    "dequantize_linear": "use the integer tensor as output",
    "softmax": "end the model before it, or use an activation without exponentials",
    "qlinear_softmax": "end the model before it, or use an activation without exponentials",
    "argmax": "use the scores as output",
    "qlinear_resize": "resize by an integer factor with mode 'nearest'",
    "transpose": "keep the layout NCHW between layers",
}
