"""The layer types of kmodel 3, and the fields of their bodies: the structs of the SDK's kpu.h.

A field is `name:form` with a form of `struct`; without one it is a u32. Addresses that end in
`main_in`, `main_in_a`, `main_in_b` and `main_out` are bytes of main memory, `kpu_out` a line.
"""

from __future__ import annotations

from typing import NamedTuple

CONV = 10240
UPLOAD = 10243
MAIN_MEM_OUT = 1  # flag of a convolution

_WINDOW = (
    "flags main_in main_out in_width in_height in_channels out_width out_height out_channels "
    "kernel_width kernel_height stride_width stride_height pad_width pad_height"
)
_RESIZE = "flags main_in main_out in_width in_height in_channels out_width out_height align_corners"


class LayerType(NamedTuple):
    """A layer type: its name and the fields of its body."""

    name: str
    fields: tuple[tuple[str, str], ...]


def _type(name: str, fields: str) -> LayerType:
    pairs = (f.split(":") if ":" in f else [f, "I"] for f in fields.split())
    return LayerType(name, tuple((a, b) for a, b in pairs))


TYPES = {
    1: _type("add", "flags main_in_a main_in_b main_out count"),
    2: _type(
        "quantized_add",
        "flags main_in_a main_in_b main_out count in_a_offset:i in_a_mul:i in_a_shift:i "
        "in_b_offset:i in_b_mul:i in_b_shift:i out_offset:i out_mul:i out_shift:i",
    ),
    5: _type("global_average_pool2d", "flags main_in main_out kernel_size channels"),
    8: _type("quantized_max_pool2d", _WINDOW),
    9: _type("average_pool2d", _WINDOW + " act"),
    11: _type("quantize", "flags main_in main_out count scale:f bias:f"),
    12: _type("dequantize", "flags main_in main_out count scale:f bias:f"),
    13: _type("requantize", "flags main_in main_out count table:256s"),
    14: _type("l2_normalization", "flags main_in main_out channels"),
    15: _type("softmax", "flags main_in main_out channels"),
    16: _type("concat", "flags main_out count"),
    17: _type("quantized_concat", "flags main_out count"),
    18: _type("fully_connected", "flags main_in main_out in_channels out_channels act"),
    20: _type("tensorflow_flatten", "flags main_in main_out width height channels"),
    22: _type("resize_nearest_neighbor", _RESIZE),
    23: _type("quantized_resize_nearest_neighbor", _RESIZE),
    24: _type("channelwise_dequantize", "flags main_in main_out channels channel_size"),
    25: _type("logistic", "flags main_in main_out channels"),
    CONV: _type("k210_conv", "flags main_out layer weights norm curve"),
    10241: _type("k210_add_padding", "flags main_in kpu_out channels"),
    10242: _type("k210_remove_padding", "flags main_in main_out channels"),
    UPLOAD: _type("k210_upload", "flags main_in kpu_out width height channels"),
}
NUMBERS = {t.name: number for number, t in TYPES.items()}
