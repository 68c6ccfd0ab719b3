"""How a chip lays out constants, temporary results and DDR: what tiling has to know of an encoder.

Tiling, placement and the order of instructions are one for all chips. An encoder of real commands
gives its own ChipLayout, and turns the instructions that come out into the chip's commands.
"""

from __future__ import annotations

from intaglio.npu.layers import Layer
from intaglio.npu.weight_packing import Constants, constants
from intaglio.targets.chip import Chip


class ChipLayout:
    """The layout of Intaglio's own instruction set; encoders of real chips override it."""

    planar = False  # maps between groups lie in DDR as plain C x H x W, not in blocks of channels
    # Windows and tables read and write every row of their maps that a band holds, because the chip
    # derives strides from the number of rows.
    exact_rows = False
    spread = 1  # bytes of SRAM for each byte of a map: chips may keep bytes in words
    loads_ahead = 1  # layers by which weights may be loaded early, if there is SRAM for them
    # Extra cost of a nanosecond of DDR transfers, on top of the time that a group takes. The next
    # one is tried if groups move more bytes than single layers do.
    traffic_weights: tuple[float, ...] = (3.0, 12.0)

    def constants(self, layer: Layer, chip: Chip) -> Constants | None:
        """The constants of a layer; None if it has none."""
        return constants(layer, chip)

    def scratch(self, layer: Layer, rows: int) -> int:
        """Bytes of SRAM that the layer needs while it computes `rows` rows of its result."""
        return 0

    def overwrites(self, layer: Layer) -> bool:
        """Whether the result of a layer may lie where an operand of its size does."""
        return True

    def cycles(self, layer: Layer, rows: int, chip: Chip) -> float | None:
        """Cycles of `rows` rows of a layer's result; None: by the rates of the chip file."""
        return None
