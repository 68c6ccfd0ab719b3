"""The TIU commands of sums, products and copies: element-wise, in 8 and 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from intaglio.npu.chips.cv18xx.arithmetic import of_sum
from intaglio.npu.chips.cv18xx.constants import UNITS
from intaglio.npu.chips.cv18xx.product import Product, of_product
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.chips.cv18xx.window_sum import is_window_sum, window_sum
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction

ELEMENTWISE = 3  # tsk_typ
MUL, MAC, ADD, COPY = 0, 1, 2, 10  # tsk_eu_typ


def relu(layer: Layer) -> int:
    """Whether a result of i8 is clamped at 0."""
    return int(layer.attrs["low"] == 0 and layer.dst.map.dtype == "i8")


def eltwise(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """The sum or the product of two maps."""
    if is_window_sum(layer):
        yield from window_sum(i, layer, relu(layer), lanes)
    else:
        yield from (product if layer.attrs["kind"] == "mul" else total)(i, layer, lanes)


def _elementwise(kind: int, y: Local, operands: int) -> Fields:
    """The fields of an element-wise command; every operand has the extents of the result."""
    shapes = [y.shape(name) for name in ("opd0", "opd1", "opd2")]
    merged = {k: v for one in shapes for k, v in one.items()}
    strides = {f"short_{name}_str": 3 for name in ("opd0", "opd1", "opd2", "res0")}
    return {
        "tsk_typ": ELEMENTWISE,
        "tsk_eu_typ": kind,
        "tsk_opd_num": operands,
        "opt_res_shift": 0,
        **merged,
        **strides,
    }


def _constant(value: int, bits: int) -> Fields:
    return {"opt_opd1_const": 1, "opd1_addr": value & ((1 << bits) - 1), "opt_opd1_sign": 1}


def total(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """A sum: a * left, plus the offset, plus b * right. The low bytes lie below the high ones."""
    assert layer.node is not None
    a, b, y = (Local.of(i.fields[k], lanes) for k in ("src", "other", "dst"))
    s, temporary = of_sum(layer.node), i.scratch // lanes
    left, right = s.left, s.right
    if b.address == y.address:  # the first product overwrites y: it has to be that of b
        a, b, left, right = b, a, right, left
    low, high = min(y.address, temporary), max(y.address, temporary)
    wide = _moved(y, low, signed=True)
    distance = {"res0_b_str": high - low}
    result = {"opt_res0_seg": 0, **wide.place("res0"), **distance}
    yield {**_elementwise(MUL, y, 2), **a.place("opd0"), **_constant(left, 8), **result}
    if s.offset:
        again = {"opt_opd0_seg": 0, **wide.place("opd0"), "opd0_b_str": high - low}
        added = {"opt_opd1_seg": 0, **_constant(s.offset, 16)}
        yield {**_elementwise(ADD, y, 2), **again, **added, **result}
    last = {"opt_res0_seg": 1, "opt_res0_sign": int(y.signed), "opt_relu_typ": relu(layer)}
    yield {
        **_elementwise(MAC, y, 2),
        "opt_res_add": 1,
        "opt_left_shift": 0,
        **b.place("opd0"),
        **_constant(right, 8),
        **result,
        **last,
        "opt_res_shift": s.shift,
    }
    if low != y.address:
        yield copied(_moved(y, low, signed=False), y)


def _moved(t: Local, address: int, signed: bool) -> Local:
    return Local(address, t.channels, t.height, t.width, t.channel, t.row, t.pixel, signed, t.lanes)


def copied(x: Local, y: Local) -> Fields:
    return {
        **_elementwise(COPY, y, 1),
        "opt_shift_typ": 0,
        **x.place("opd0"),
        **y.place("res0"),
        "opt_opd0_sign": 0,
        "opt_res0_sign": 0,
    }


# ---- products ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Wide:
    """Numbers of 16 bits in local memory: the low bytes, and how far away the high ones are."""

    low: Local
    high: int

    def place(self, name: str) -> Fields:
        return {f"opt_{name}_seg": 0, **self.low.place(name), f"{name}_b_str": self.high}


def product(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """A product: a * b, a * -b_zero and b * -a_zero in 16 bits, added up and shifted.

    Terms of a zero point of 0 have no commands. The term of b has the extents of b, of which one
    row or one pixel may be repeated.
    """
    assert layer.node is not None
    a, b, y = (Local.of(i.fields[k], lanes) for k in ("src", "other", "dst"))
    p = of_product(layer.node)
    result = {**y.place("res0"), "opt_relu_typ": relu(layer)}
    if p.is_alone:
        yield {**_elementwise(MUL, y, 2), **_scaled(p, a, b), **b.place("opd1"), **result}
        return
    plane = -(-y.height * y.width // UNITS) * UNITS
    start, size = i.scratch // lanes, plane * -(-y.channels // lanes)
    full = replace(y, address=start, channel=plane, row=y.width, pixel=1, signed=True)
    sums = Wide(full, size)
    term = Wide(replace(full, address=start + 2 * size), size)
    signs = {"opt_res0_sign": int(a.signed or b.signed)}
    yield {
        **_elementwise(MUL, y, 2),
        **_scaled(p, a, b),
        **b.place("opd1"),
        **sums.place("res0"),
        **signs,
    }
    if p.right_zero:
        yield _term(p, a, -p.right_zero, term)
        yield {**_added(sums, term), **sums.place("res0")}
    result |= {"opt_res_shift": p.shift}
    if not p.left_zero:
        yield {**_added(sums, p.offset), **result}
        return
    once = replace(b, height=b.height if b.row else 1, width=b.width if b.pixel else 1)
    few = -(-once.height * once.width // UNITS) * UNITS
    own = replace(once, address=term.low.address, channel=few, row=once.width, pixel=1, signed=True)
    small = Wide(own, size)
    yield _term(p, once, -p.left_zero, small)
    if p.offset:
        yield {**_added(small, p.offset), **small.place("res0")}
    repeated = replace(
        own, height=y.height, width=y.width, row=b.row and own.row, pixel=b.pixel and 1
    )
    yield {**_added(sums, Wide(repeated, size)), **result}


def _scaled(p: Product, a: Local, b: Local | None) -> Fields:
    """A map as the first operand of a product that is multiplied by 31 bits."""
    is_signed = a.signed or b is None or b.signed
    quant = {"opt_chl_quan": 1, "quan_m": p.multiplier, "opt_res_shift": p.product_shift}
    return {**a.place("opd0"), **quant, "opt_shift_typ": int(is_signed)}


def _term(p: Product, x: Local, factor: int, to: Wide) -> Fields:
    """A map times a number of nine bits, which are negative or not."""
    is_signed = x.signed or factor < 0
    return {
        **_elementwise(MUL, to.low, 2),
        **_scaled(p, x, None),
        "opt_shift_typ": int(is_signed),
        "opt_opd1_const": 1,
        "opd1_addr": factor & 0xFF,
        "opt_opd1_sign": int(factor < 0),
        **to.place("res0"),
        "opt_res0_sign": int(is_signed),
    }


def _added(a: Wide, b: Wide | int) -> Fields:
    """The sum of numbers of 16 bits; `b` may be one number for all."""
    right = {"opt_opd1_seg": 0, **_constant(b, 16)} if isinstance(b, int) else b.place("opd1")
    return {**_elementwise(ADD, a.low, 2), **a.place("opd0"), **right}
