"""What tiling has to know of CV18xx: constants, temporary results, DDR and cycles."""

from __future__ import annotations

from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.chips.cv18xx.constants import constants
from intaglio.npu.chips.cv18xx.cycles import cycles
from intaglio.npu.chips.cv18xx.matmul import scratch_planes
from intaglio.npu.chips.cv18xx.product import of_product
from intaglio.npu.chips.cv18xx.window_sum import is_window_sum
from intaglio.npu.layers import Layer
from intaglio.npu.weight_packing import Constants
from intaglio.targets.chip import Chip


class LaneLayout(ChipLayout):
    """How a chip with so many lanes lays out constants, temporary results and DDR."""

    planar = True
    exact_rows = True  # the TIU derives the strides of a window's operand from its size
    traffic_weights = (0.3, 3.0, 12.0)  # most layers compute longer than they load

    def constants(self, layer: Layer, chip: Chip) -> Constants | None:
        return constants(layer, chip.c2["i8"])

    def scratch(self, layer: Layer, rows: int) -> int:
        """A sum has 16 bits while it is made: the high bytes. A product has two terms of them.

        Products of matrices add one block of channels in 32 bits.
        """
        if layer.op == "matmul":
            return scratch_planes(layer) * layer.dst.map.plane(rows)
        if layer.op != "eltwise" or is_window_sum(layer):
            return 0
        assert layer.node is not None
        fm, planes = layer.dst.map, 1
        if layer.attrs["kind"] == "mul":
            p = of_product(layer.node)
            planes = 0 if p.is_alone else 4 if p.left_zero or p.right_zero else 2
        return planes * -(-layer.dst.channels // fm.c2) * fm.plane(rows)

    def overwrites(self, layer: Layer) -> bool:
        """Windows may read an operand after its place is written."""
        return not is_window_sum(layer)

    def cycles(self, layer: Layer, rows: int, chip: Chip) -> float:
        return cycles(layer, rows, chip.c2["i8"])
