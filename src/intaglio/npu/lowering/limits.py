"""The limits of a chip's units: why a unit cannot do an NPU node, or None if it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from intaglio import dtypes
from intaglio.ir import Node, Value
from intaglio.npu.lowering import kpu, rknpu, sophgo
from intaglio.npu.lowering.builder import table_input
from intaglio.targets.chip import Chip, Unit

UNITS = {
    "npu.conv": "conv",
    "npu.depthwise": "depthwise",
    "npu.pool": "pool",
    "npu.lut": "lut",
    "npu.eltwise": "eltwise",
    "npu.resize": "resize",
    "npu.depth_to_space": "copy",  # copies with a stride, one for each phase
    "npu.matmul": "matmul",
    "npu.concat": "copy",
    "npu.slice": "copy",
    "npu.float_conv": "conv",
    "npu.float_depthwise": "depthwise",
    "npu.float_pool": "pool",
}
WINDOWED = ("npu.conv", "npu.depthwise", "npu.pool")
FLOAT_WINDOWED = ("npu.float_conv", "npu.float_depthwise", "npu.float_pool")
FAMILIES: dict[str, Callable[[Chip, Node], str | None]] = {
    "rknpu": rknpu.why_not,
    "kpu": kpu.why_not,
    "sophgo": sophgo.why_not,
}
# The element type whose figures apply: u8 works like i8; f32 and i32 are results of i8 products.
RATE_TYPE = {"u8": "i8", "f32": "i8", "i32": "i8"}


Limit = Callable[[Node], str | None]  # None: within the limits; else the reason


def why_not(chip: Chip, also: Limit | None = None) -> Limit:
    """A function of an NPU node: None if a unit of `chip` can do it, else the reason.

    `also` are limits of an encoder of the chip's commands.
    """
    family = FAMILIES[chip.family]

    def reason(node: Node) -> str | None:
        if node.op == "npu.program":
            return next((why for n in node.attrs["body"].nodes() if (why := reason(n))), None)
        name = UNITS.get(node.op)
        if name is None:
            return f"no unit of {chip.name} does {node.op}"
        unit = chip.units.get(name)
        if node.op == "npu.depth_to_space":
            unit = chip.units.get("depth_to_space", unit)
        if unit is None:
            return f"{chip.name} has no unit for {name}"
        return (
            _types(chip, unit, node)
            or _sizes(chip, unit, node)
            or family(chip, node)
            or _row_memory(chip, node)
            or (also(node) if also else None)
        )

    return reason


def _feature_maps(node: Node) -> Iterator[Value]:
    """The feature maps that a node reads and makes, without weights and tables."""
    count = {"npu.conv": 1, "npu.depthwise": 1, "npu.lut": 1, "npu.eltwise": 2}.get(node.op)
    count = 1 if node.op in FLOAT_WINDOWED else count
    read = node.inputs if count is None else node.inputs[:count]
    residual = node.inputs[4:5] if node.op in ("npu.conv", "npu.depthwise") else []
    yield from (v for v in (*read, *residual, *node.outputs) if v is not None)


def _types(chip: Chip, unit: Unit, node: Node) -> str | None:
    for v in _feature_maps(node):
        kind = RATE_TYPE.get(v.dtype, v.dtype)
        if kind not in unit.rate or kind not in chip.c2:
            return f"{unit.name} of {chip.name} does not work on {v.dtype}"
    return None


def _row_memory(chip: Chip, node: Node) -> str | None:
    """Why a core's memory cannot hold the operands of one row of a windowed result."""
    if node.op == "npu.concat":
        return _row_of_parts(chip, node)
    if node.op == "npu.matmul":
        return _second_operand(chip, node)
    if node.op not in (*WINDOWED, *FLOAT_WINDOWED):
        return None
    y = node.outputs[0]
    maps = _bytes_of_rows(chip, y, 1) + _rows_read(chip, node)
    if maps > chip.sram:
        return (
            f"one row of its result needs {maps} bytes of on-chip memory; "
            f"a core of {chip.name} has {chip.sram}"
        )
    if node.op != "npu.conv":
        return None
    outputs, weights = _least_weights(chip, node)
    if maps + weights <= chip.sram:
        return None
    return (
        f"one row of its result and the weights of {outputs} channels need {maps + weights} bytes "
        f"of on-chip memory; a core of {chip.name} has {chip.sram}"
    )


def _rows_read(chip: Chip, node: Node) -> int:
    """The bytes of the rows that one row of a windowed result reads."""
    x, a = node.inputs[0], node.attrs
    assert x is not None
    kernel = a["kernel"] if "kernel" in a else node.inputs[1].shape[2:]  # type: ignore[union-attr]
    return _bytes_of_rows(chip, x, min(x.shape[2], (kernel[0] - 1) * a["dilation"][0] + 1))


def _least_weights(chip: Chip, node: Node) -> tuple[int, int]:
    """The output channels that a convolution makes at once, and the bytes of their weights."""
    w, y = node.inputs[1], node.outputs[0]
    assert w is not None
    outputs = min(w.shape[0], chip.c2.get(y.dtype) or chip.c2["i8"])
    return outputs, w.type.bytes // w.shape[0] * outputs


def _second_operand(chip: Chip, node: Node) -> str | None:
    """Why a core's memory cannot hold the second operand of a product, which each row reads."""
    a, b, y = node.inputs[0], node.inputs[1], node.outputs[0]
    assert a is not None
    assert b is not None
    need = sum(_bytes_of_rows(chip, v, n) for v, n in ((a, 1), (b, b.shape[2]), (y, 1)))
    if need <= chip.sram:
        return None
    return (
        f"its second operand and one row of the others need {need} bytes of on-chip memory; "
        f"a core of {chip.name} has {chip.sram}"
    )


def _row_of_parts(chip: Chip, node: Node) -> str | None:
    """Why a core's memory cannot hold a row of all channels, into which convolutions write theirs.

    A layer with more outputs than the unit makes is several convolutions, such as the last one of
    a language model. Each of them holds the whole row.
    """
    row, most = _bytes_of_rows(chip, node.outputs[0], 1), 0
    for v in node.inputs:
        maker = v.producer if v is not None else None
        if maker is not None and maker.op in (*WINDOWED, *FLOAT_WINDOWED):
            weights = _least_weights(chip, maker)[1] if maker.op == "npu.conv" else 0
            most = max(most, row + _rows_read(chip, maker) + weights)
    if most <= chip.sram:
        return None
    return (
        f"one row of its {node.outputs[0].shape[1]} channels and its operands need {most} bytes of "
        f"on-chip memory; a core of {chip.name} has {chip.sram}"
    )


def _bytes_of_rows(chip: Chip, v: Value, rows: int) -> int:
    """The bytes of `rows` rows of a feature map in a core's memory."""
    item = dtypes.TABLE[v.dtype].numpy.itemsize
    c2 = chip.c2.get(v.dtype) or max(chip.c2["i8"] // item, 1)
    row = v.shape[3] * c2 * item
    if not chip.packed:
        row = -(-row // chip.align) * chip.align
    block = -(-rows * row // chip.align) * chip.align
    return -(-v.shape[1] // c2) * block


def _limited_numbers(node: Node) -> Iterator[tuple[str, int]]:
    """The numbers of a node that a unit may limit, by the limit's name."""
    a: dict[str, Any] = node.attrs
    if node.op in (*WINDOWED, *FLOAT_WINDOWED):
        kernel = a["kernel"] if "kernel" in a else node.inputs[1].shape[2:]  # type: ignore[union-attr]
        yield from (("kernel", k) for k in kernel)
        yield "area", kernel[0] * kernel[1]
        yield from ((name, n) for name in ("stride", "pad", "dilation") for n in a[name])
    if node.op == "npu.resize":
        yield from (("factor", n) for n in a["factor"])
    if node.op != "npu.matmul":
        for v in _feature_maps(node):
            yield from zip(("batch", "channels", "height", "width"), v.shape, strict=True)
    else:
        yield "channels", node.inputs[0].shape[1]  # type: ignore[union-attr]


def _sizes(chip: Chip, unit: Unit, node: Node) -> str | None:
    for name, value in _limited_numbers(node):
        if name in unit.limits and (why := unit.why_not(name, value)):
            return why
    table = node.inputs[table_input(node.op) :][:1]
    if not table or table[0] is None or node.op == "npu.concat":
        return None
    tables = chip.units.get("lut")
    if tables is None:
        return f"{chip.name} has no lookup tables"
    return tables.why_not("entries", table[0].type.size) if "entries" in tables.limits else None
