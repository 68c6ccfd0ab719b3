"""What tiling has to know of CV18xx: constants, temporary results, DDR and cycles."""

from __future__ import annotations

from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.chips.cv18xx.constants import constants
from intaglio.npu.chips.cv18xx.cycles import cycles
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
        """A sum has 16 bits while it is made: the high bytes."""
        if layer.op != "eltwise" or layer.attrs["kind"] != "add":
            return 0
        fm = layer.dst.map
        return -(-layer.dst.channels // fm.c2) * fm.plane(rows)

    def cycles(self, layer: Layer, rows: int, chip: Chip) -> float:
        return cycles(layer, rows, chip.c2["i8"])
