"""Constants and scratch memory of f32 layers and matrix products, in bytes of a lane."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.bm1684x.float_ops import EXP_SERIES
from intaglio.npu.chips.bm1684x.rounding import Rounding, lanes_of
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.layers import FLOAT_KINDS, Layer

OPS = (*FLOAT_KINDS, "matmul")


def table(layer: Layer, chip: Variant) -> bytes:
    """What every lane needs of a layer's constants, lane by lane."""
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
    aligned = chip.aligned
    numbers = aligned(4 * rows * layer.dst.map.width)
    match layer.op:
        case "layer_norm":  # centred numbers of all blocks; means and deviations
            return numbers, 0, 2 * numbers, chip.blocks(layer.dst.channels)
        case "softmax":
            return 3 * numbers, 0, numbers if len(layer.reads) > 1 else 0, 0
        case "quantize":
            attrs = layer.attrs
            last = Rounding(attrs["dtype"], attrs["y_zero"])
            return numbers, last.scratch(rows * layer.dst.map.width, chip), 0, 0
        case "float_matmul":
            return numbers, 0, 0, 1
        case "matmul":  # sums of one block; ones, and the sums of the rows of b
            spare = Rounding.of(layer.attrs).scratch(rows * layer.dst.map.width, chip)
            ones = chip.blocks(layer.reads[0].channels) * chip.eu_bytes
            columns = 0 if chip.weight_zeros else numbers
            return numbers, spare, ones + aligned(4) + columns, 1
    return 0, 0, 0, 0
