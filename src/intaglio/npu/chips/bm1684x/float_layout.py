"""Constants and scratch memory of f32 layers and matrix products, in bytes of a lane."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import float_functions
from intaglio.npu.chips.bm1684x.float_ops import EXP_SERIES
from intaglio.npu.chips.bm1684x.rounding import Rounding, lanes_of
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.layers import FLOAT_INSTRUCTIONS, FLOAT_KINDS, Layer

OPS = (*FLOAT_KINDS, "matmul")
PRODUCTS = ("npu.float_conv", "npu.float_depthwise")
SHARE = {"f16": 2, "bf16": 2, "f32": 64}  # of the bytes that are multiplied side by side


def is_float(layer: Layer) -> bool:
    """Whether a layer works on floats, or is a product of two activations."""
    return layer.op in OPS or (layer.node is not None and layer.node.op in FLOAT_INSTRUCTIONS)


def inputs_at_once(dtype: str, chip: Variant) -> int:
    """Input channels that lie side by side in the weights of a convolution of floats."""
    return max(1, chip.inputs_at_once // SHARE[dtype])


def table(layer: Layer, chip: Variant) -> bytes:
    """What every lane needs of a layer's constants, lane by lane."""
    if layer.op == "function":
        return float_functions.table(layer.attrs, chip)
    if layer.op == "softmax":
        return lanes_of(EXP_SERIES.tobytes(), chip)
    if layer.op != "layer_norm":
        return b""
    assert layer.node is not None
    blocks = chip.blocks(layer.dst.channels)
    step = chip.aligned(4 * blocks)
    result = np.zeros((chip.lanes, 2 * step), np.uint8)
    for k, v in enumerate(layer.node.inputs[1:3]):
        assert v is not None
        assert v.data is not None
        each = np.zeros(blocks * chip.lanes, np.float32)
        each[: v.type.size] = v.data
        by_lane: Array = np.ascontiguousarray(each.reshape(blocks, chip.lanes).T)
        result[:, k * step : k * step + 4 * blocks] = by_lane.view(np.uint8)
    return result.tobytes()


def scratch(layer: Layer, rows: int, chip: Variant) -> tuple[int, int, int, int]:
    """Sums, spare memory of a block, memory of the layer, and blocks (0: as many as are useful)."""
    aligned, fm = chip.aligned, layer.dst.map
    numbers = aligned(4 * rows * fm.width)
    partial = rows < fm.height
    own = aligned(fm.item * rows * fm.width) if partial else 0  # a result that begins anywhere
    match layer.op:
        case "conv":
            return own, 0, 0, 0
        case "depthwise":
            return own, 0, _source(layer, rows, fm.item, chip) if partial else 0, 0
        case "pool" if layer.attrs["kind"] == "max":
            places = aligned(2 * rows * fm.width) if chip.pool_indices else 0
            return own, places, _source(layer, rows, fm.item, chip) if partial else 0, 0
        case "pool":  # its operand in f32
            many = 1 if partial or fm.item < 4 else 0
            return numbers, 0, many * _source(layer, rows, 4, chip), 1
        case "arithmetic" if layer.reads[1].channels < layer.dst.channels:
            other = layer.reads[1].map
            return 0, 0, aligned(other.item * min(rows, other.height) * other.width), 0
        case "function":
            return float_functions.places(layer.attrs) * numbers, 0, 0, 0
        case "layer_norm":  # centred numbers of all blocks; means and deviations
            return numbers, 0, 2 * numbers, chip.blocks(layer.dst.channels)
        case "softmax":
            return 3 * numbers, 0, numbers if len(layer.reads) > 1 else 0, 0
        case "quantize":
            attrs = layer.attrs
            last = Rounding(attrs["dtype"], attrs["y_zero"])
            return numbers, last.scratch(rows * layer.dst.map.width, chip), 0, 0
        case "float_matmul":
            return aligned(fm.item * rows * fm.width), 0, 0, 1
        case "matmul":  # sums of one block; ones, and the sums of the rows of b
            spare = Rounding.of(layer.attrs).scratch(rows * layer.dst.map.width, chip)
            ones = chip.blocks(layer.reads[0].channels) * chip.eu_bytes
            columns = 0 if chip.weight_zeros else numbers
            return numbers, spare, ones + aligned(4) + columns, 1
    return 0, 0, 0, 0


def _source(layer: Layer, rows: int, item: int, chip: Variant) -> int:
    """Bytes of a lane for the rows of one block of the operand that `rows` rows depend on."""
    reach = (layer.kernel[0] - 1) * layer.dilation[0] + 1
    fm = layer.reads[0].map
    seen = min((rows - 1) * layer.stride[0] + reach, fm.height)
    return chip.aligned(item * seen * fm.width)
