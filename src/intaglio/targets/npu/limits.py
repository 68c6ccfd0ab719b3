"""What the units of a chip can do: None, or in words why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from intaglio.ir import Node, Value
from intaglio.targets.chip import Chip, Unit
from intaglio.targets.npu import kpu, rknpu, sophgo

UNITS = {
    "npu.conv": "conv", "npu.depthwise": "depthwise", "npu.pool": "pool", "npu.lut": "lut",
    "npu.eltwise": "eltwise", "npu.resize": "resize", "npu.matmul": "matmul",
    "npu.concat": "copy", "npu.slice": "copy",
}  # fmt: skip
FAMILIES: dict[str, Callable[[Chip, Node], str | None]] = {
    "rknpu": rknpu.why_not, "kpu": kpu.why_not, "sophgo": sophgo.why_not,
}  # fmt: skip
KIND = {
    "u8": "i8",
    "f32": "i8",
    "i32": "i8",
}  # bytes are bytes; sums leave the unit of bytes that made them


def why_not(chip: Chip) -> Callable[[Node], str | None]:
    """For the ops of NPUs: None where a unit of `chip` does this node, else the reason."""
    family = FAMILIES[chip.family]

    def reason(node: Node) -> str | None:
        if node.op == "npu.program":
            return next((why for n in node.attrs["body"].nodes() if (why := reason(n))), None)
        name = UNITS.get(node.op)
        if name is None:
            return f"no unit of {chip.name} does {node.op}"
        unit = chip.units.get(name)
        if unit is None:
            return f"{chip.name} has no unit for {name}"
        return _types(chip, unit, node) or _sizes(chip, unit, node) or family(chip, node)

    return reason


def _images(node: Node) -> Iterator[Value]:
    """The images that a node reads and makes, without weights and tables."""
    count = {"npu.conv": 1, "npu.depthwise": 1, "npu.lut": 1, "npu.eltwise": 2}.get(node.op)
    read = node.inputs if count is None else node.inputs[:count]
    residual = node.inputs[4:5] if node.op in ("npu.conv", "npu.depthwise") else []
    yield from (v for v in (*read, *residual, *node.outputs) if v is not None)


def _types(chip: Chip, unit: Unit, node: Node) -> str | None:
    for v in _images(node):
        kind = KIND.get(v.dtype, v.dtype)
        if kind not in unit.rate or kind not in chip.c2:
            return f"{unit.name} of {chip.name} does not work on {v.dtype}"
    return None


def _numbers(node: Node) -> Iterator[tuple[str, int]]:
    """What units set limits to."""
    a: dict[str, Any] = node.attrs
    if node.op in ("npu.conv", "npu.depthwise", "npu.pool"):
        kernel = a["kernel"] if node.op == "npu.pool" else node.inputs[1].shape[2:]  # type: ignore[union-attr]
        yield from (("kernel", k) for k in kernel)
        yield "area", kernel[0] * kernel[1]
        yield from ((name, n) for name in ("stride", "pad", "dilation") for n in a[name])
    if node.op == "npu.resize":
        yield from (("factor", n) for n in a["factor"])
    if node.op != "npu.matmul":
        for v in _images(node):
            yield from zip(("batch", "channels", "height", "width"), v.shape, strict=True)
    else:
        yield "channels", node.inputs[0].shape[1]  # type: ignore[union-attr]


def _sizes(chip: Chip, unit: Unit, node: Node) -> str | None:
    for name, value in _numbers(node):
        if name in unit.limits and (why := unit.why_not(name, value)):
            return why
    table = node.inputs[{"npu.lut": 1, "npu.eltwise": 2}.get(node.op, 5) :][:1]
    if not table or table[0] is None or node.op == "npu.concat":
        return None
    tables = chip.units.get("lut")
    if tables is None:
        return f"{chip.name} has no tables"
    return tables.why_not("entries", table[0].type.size) if "entries" in tables.limits else None
