"""The TIU commands of compute instructions: convolutions, pools, sums, tables, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from intaglio.npu.chips.cv18xx.arithmetic import of_sum
from intaglio.npu.chips.cv18xx.constants import MIN_DOUBLE_INPUTS, depthwise_window, input_channels
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Feature, Instruction

CONV, WINDOW, ELEMENTWISE = 0, 1, 3  # tsk_typ
MAX_POOL, DEPTHWISE = 0, 2  # tsk_eu_typ of WINDOW
MUL, MAC, ADD, COPY, LOOKUP = 0, 1, 2, 10, 12  # tsk_eu_typ of ELEMENTWISE


def relu(layer: Layer) -> int:
    """Whether a result of i8 is clamped at 0."""
    return int(layer.attrs["low"] == 0 and layer.dst.map.dtype == "i8")


def _window(i: Instruction, x: Local, y: Local) -> Fields:
    """Padding, stride and dilation. Rows and columns beyond the last window are not read."""
    up, left = i.fields["pad"]
    kernel, stride, dilation = (i.fields[k] for k in ("kernel", "stride", "dilation"))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    down = (y.height - 1) * stride[0] + reach[0] - up - x.height
    right = (y.width - 1) * stride[1] + reach[1] - left - x.width
    return {
        "conv_opd0_up_pad": up,
        "conv_opd0_dn_pad": max(down, 0),
        "conv_opd0_lf_pad": left,
        "conv_opd0_rt_pad": max(right, 0),
        "conv_op_y_str": stride[0],
        "conv_op_x_str": stride[1],
        "conv_opd1_y_ins0": dilation[0] - 1,
        "conv_opd1_x_ins0": dilation[1] - 1,
        "opd1_h": kernel[0],
        "opd1_w": kernel[1],
    }


def _product(i: Instruction, layer: Layer, lanes: int) -> tuple[Local, Local, Fields]:
    """Source, result, and the fields that all convolutions have in common."""
    x, y = (Local.of(i.fields[k], lanes) for k in ("src", "dst"))
    return (
        x,
        y,
        {
            "tsk_opd_num": 3,
            "opt_res_shift": 0,
            "opt_relu_typ": relu(layer),
            "opd0_ins_val": layer.attrs["x_zero"] & 0xFFFF,
            "opd1_addr": i.fields["weights"] // lanes,
            "opd1_c": y.channels,
            "opt_chl_quan": 1,
            "opd2_addr": i.fields["params"] // lanes,
            "opd2_c": y.channels,
            "opd2_h": 1,
            "opd2_w": 1,
            "opt_opd2_seg": 1,
            "short_opd2_str": 2,
            "opd2_b_str": 0,
            **_window(i, x, y),
            **y.place("res0"),
        },
    )


def conv(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    x, _, fields = _product(i, layer, lanes)
    inputs = input_channels(layer)
    double = inputs % 2 == 0 and inputs >= MIN_DOUBLE_INPUTS
    operand = x.place("opd0") | {"short_opd0_str": 0, "opd0_c": inputs}
    strides = [k for k in operand if k.startswith("opd0_") and k.endswith("_str")]
    operand = {k: v for k, v in operand.items() if k not in strides}
    yield {
        "tsk_typ": CONV,
        "double_conv": int(double),
        "opd1_n": inputs,
        "short_opd1_str": 1,
        **fields,
        **operand,
    }


def depthwise(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    x, _, fields = _product(i, layer, lanes)
    fields["opd1_h"], fields["opd1_w"] = depthwise_window(layer)
    fields["conv_opd1_y_ins0"] = fields["conv_opd1_x_ins0"] = 0
    yield {"tsk_typ": WINDOW, "tsk_eu_typ": DEPTHWISE, **fields, **x.place("opd0")}


def pool(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """A max pool: padding is the smallest number."""
    x, y = (Local.of(i.fields[k], lanes) for k in ("src", "dst"))
    lowest = -128 if x.signed else 0
    yield {
        "tsk_typ": WINDOW,
        "tsk_eu_typ": MAX_POOL,
        "tsk_opd_num": 1,
        "opt_res_shift": 0,
        "opt_shift_typ": int(x.signed),
        "opd0_ins_val": lowest & 0xFFFF,
        **_window(i, x, y),
        **_default_strides("res0", y),
        **_default_strides("opd0", x),
    }


def _default_strides(name: str, t: Local) -> Fields:
    """A tensor whose strides the TIU derives from its size."""
    sign = {f"{name}_addr": t.address, f"opt_{name}_sign": int(t.signed)}
    return sign | t.shape(name) | {f"short_{name}_str": 0}


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


def eltwise(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
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
        yield _copied(_moved(y, low, signed=False), y)


def _moved(t: Local, address: int, signed: bool) -> Local:
    return Local(address, t.channels, t.height, t.width, t.channel, t.row, t.pixel, signed, t.lanes)


def _copied(x: Local, y: Local) -> Fields:
    return {
        **_elementwise(COPY, y, 1),
        "opt_shift_typ": 0,
        **x.place("opd0"),
        **y.place("res0"),
        "opt_opd0_sign": 0,
        "opt_res0_sign": 0,
    }


def copy(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    yield _copied(*(Local.of(i.fields[k], lanes) for k in ("src", "dst")))


def lut(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    x, y = (Local.of(i.fields[k], lanes) for k in ("src", "dst"))
    yield {
        "tsk_typ": ELEMENTWISE,
        "tsk_eu_typ": LOOKUP,
        "tsk_opd_num": 2,
        "opt_shift_typ": 0,
        "opt_res_shift": 0,
        **_default_strides("res0", y),
        **_default_strides("opd0", x),
        "opt_res0_sign": 0,
        "opt_opd0_sign": 0,
        "opd1_addr": i.fields["table"] // lanes,
        "opt_opd1_sign": 0,
        "opd1_n": 1,
        "opd1_c": lanes,
        "opd1_h": 16,
        "opd1_w": 16,
        "short_opd1_str": 0,
    }


def resize(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """Each pixel repeated: one copy for every place that a pixel has in its block."""
    (fy, fx), phase = i.fields["factor"], i.fields["phase"][0]
    src: Feature = i.fields["src"]
    dst: Feature = i.fields["dst"]
    x, y = Local.of(src, lanes), Local.of(dst, lanes)
    for top in range(min(fy, y.height)):
        rows = -(-(y.height - top) // fy)
        first = (top + phase) // fy
        for left in range(fx):
            size = y.channels, rows, x.width
            start = y.address + top * y.row + left
            source = x.address + first * x.row
            yield _copied(
                Local(source, *size, x.channel, x.row, 1, False, lanes),
                Local(start, *size, y.channel, y.row * fy, fx, False, lanes),
            )


OPS: dict[str, Callable[[Instruction, Layer, int], Iterator[Fields]]] = {
    "conv": conv,
    "depthwise": depthwise,
    "pool": pool,
    "eltwise": eltwise,
    "copy": copy,
    "lut": lut,
    "resize": resize,
}
