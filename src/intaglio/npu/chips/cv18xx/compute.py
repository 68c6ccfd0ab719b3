"""The TIU commands of compute instructions: convolutions, pools, tables, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from intaglio.npu.chips.cv18xx.average import average, is_average
from intaglio.npu.chips.cv18xx.constants import MIN_DOUBLE_INPUTS, depthwise_window, input_channels
from intaglio.npu.chips.cv18xx.elementwise import ELEMENTWISE, copied, eltwise, relu
from intaglio.npu.chips.cv18xx.matmul_commands import matmul
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Feature, Instruction

CONV, WINDOW = 0, 1  # tsk_typ
MAX_POOL, DEPTHWISE = 0, 2  # tsk_eu_typ of WINDOW
LOOKUP = 12  # tsk_eu_typ of ELEMENTWISE


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
            "opd1_addr": i.fields["weights"] // lanes,
            "opd2_addr": i.fields["params"] // lanes,
            **_requantized(layer, y),
            **_window(i, x, y),
            **y.place("res0"),
        },
    )


def _requantized(layer: Layer, y: Local) -> Fields:
    """A result with a bias, a multiplier and a shift for each channel."""
    return {
        "tsk_opd_num": 3,
        "opt_res_shift": 0,
        "opt_relu_typ": relu(layer),
        "opd0_ins_val": layer.attrs["x_zero"] & 0xFFFF,
        "opd1_c": y.channels,
        "opt_chl_quan": 1,
        "opd2_c": y.channels,
        "opd2_h": 1,
        "opd2_w": 1,
        "opt_opd2_seg": 1,
        "short_opd2_str": 2,
        "opd2_b_str": 0,
    }


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
    """A max pool: padding is the smallest number. An average pool: some depthwise convolutions."""
    if is_average(layer):
        for source, result, fields in average(i, layer, lanes):
            yield _averaged(i, layer, source, result) | fields
        return
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


def _averaged(i: Instruction, layer: Layer, x: Local, y: Local) -> Fields:
    """A depthwise convolution with one weight for all taps."""
    return {
        "tsk_typ": WINDOW,
        "tsk_eu_typ": DEPTHWISE,
        "opt_opd1_sign": 0,
        **_requantized(layer, y),
        **_window(i, x, y),
        **y.place("res0"),
        **x.place("opd0"),
    }


def _default_strides(name: str, t: Local) -> Fields:
    """A tensor whose strides the TIU derives from its size."""
    sign = {f"{name}_addr": t.address, f"opt_{name}_sign": int(t.signed)}
    return sign | t.shape(name) | {f"short_{name}_str": 0}


def copy(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    yield copied(*(Local.of(i.fields[k], lanes) for k in ("src", "dst")))


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
            yield copied(
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
    "matmul": matmul,
}
