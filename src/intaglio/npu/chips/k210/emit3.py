"""From a graph of the KPU's layers to the layers of a kmodel 3.

The runtime uploads the input. Outputs are floats, as MaixPy expects them: the last layers
dequantise them. Rows and columns are exchanged in floats, which hold bytes exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from intaglio.errors import Unsupported
from intaglio.ir import Graph, Value
from intaglio.npu.chips.k210.emit import Emitter
from intaglio.npu.chips.k210.layer import MIN_EXTENT
from intaglio.npu.chips.k210.model import CpuLayer, Kmodel, Port, Range, Upload
from intaglio.npu.chips.k210.movements import PADDED, Shape, Where

DMA_BYTES = 8  # the KPU writes to main memory in such units


class Emitter3(Emitter):
    """Emits the layers of one graph; `scales` are those of its outputs."""

    version = 3
    write_unit = DMA_BYTES

    def __init__(self, graph: Graph, scales: list[tuple[float, int]]):
        super().__init__(graph)
        self.scales = scales
        self.results: list[tuple[Where, Where, Value]] = []

    def model(self) -> Kmodel:
        """The whole model."""
        made = super().model()
        ports = []
        for _, where, v in self.results:
            r = where()
            ports.append(Port(v.shape, Range(r.place, r.start, r.size, "f32")))
        made.main.outputs = ports
        made.header = {"flags": 1}
        return made

    def _ports(self) -> tuple[list[Port], list[Port]]:
        end = len(self.plan.nodes)
        for v in self.graph.outputs:
            source = self.buffer(v.type.bytes, 0, end)
            self.results.append((source, self.buffer(4 * v.type.bytes, end, end + 1), v))
        return super()._ports()

    def output_place(self, index: int, where: Range) -> Where:
        """Outputs are in main memory, as bytes, until the last layers dequantise them."""
        return self.results[index][0]

    def start(self) -> None:
        """The runtime uploads the input by itself."""

    def finish(self) -> None:
        """Dequantise the outputs."""
        for (source, target, v), (scale, zero) in zip(self.results, self.scales, strict=True):
            real = {"count": v.type.size, "scale": scale, "bias": -scale * zero}
            self._cpu("dequantize", source, target, **real)

    def copied(self, where: Where, target: Where, size: int) -> None:
        """Copy bytes: a concat of one operand."""

        self._joined(lambda: [(_address(where), size)], target)

    def _joined(self, items: Callable[[], list[tuple[int, int]]], target: Where) -> None:
        """Join bytes of main memory, given by address and size."""

        def layer() -> CpuLayer:
            chosen = [item for item in items() if item[1]]
            rest = struct.pack(f"<{2 * len(chosen)}I", *(n for item in chosen for n in item))
            fields = {"main_out": target().start, "count": len(chosen), "rest": rest}
            return CpuLayer("quantized_concat", fields)

        self.commands.append(layer)

    def upsampled(self, where: Where, target: Where, shape: Shape) -> None:
        """Repeat every pixel of a map in both directions."""
        _, c, h, w = shape
        sizes = {"in_width": w, "in_height": h, "in_channels": c}
        made = {"out_width": 2 * w, "out_height": 2 * h}

        def source() -> Range:
            _address(where)
            return where()

        self._cpu("quantized_resize_nearest_neighbor", source, target, **sizes, **made)

    def bordered(
        self,
        where: Where,
        fill: Where,
        target: Where,
        shape: Shape,
        keep: tuple[int, int],
        made: Shape,
    ) -> None:
        """Put pixels of a map into a larger one: a concat of its rows and of filling."""
        (_, c, h, w), (high, wide) = shape, keep

        def items() -> list[tuple[int, int]]:
            start, found = _address(where), []
            for i in range(c):
                for line in range(high):
                    found.append((start + (i * h + line) * w, wide))
                    found += _pieces(_address(fill), fill().size, made[3] - wide)
                found += _pieces(_address(fill), fill().size, (made[2] - high) * made[3])
            return found

        self._joined(items, target)

    def cropped(self, where: Where, target: Where, shape: Shape, made: Shape) -> None:
        """The top left pixels of a map: a concat of parts of its rows."""
        _, c, h, w = shape

        def items() -> list[tuple[int, int]]:
            lines = [i * h + line for i in range(c) for line in range(made[2])]
            return [(_address(where) + line * w, made[3]) for line in lines]

        self._joined(items, target)

    def transposed(self, where: Where, rows: int, columns: int) -> Where:
        """A copy of a matrix with rows and columns exchanged."""
        count = rows * columns
        reals, turned = (self.buffer(4 * count, self.step) for _ in range(2))
        target = self.buffer(count, self.step)
        same = {"count": count, "scale": 1.0, "bias": 0.0}
        self._cpu("dequantize", where, reals, **same)
        self._cpu("tensorflow_flatten", reals, turned, width=columns, height=1, channels=rows)
        self._cpu("quantize", turned, target, **same)
        return target

    def spread(self, where: Where, channels: int, line: int) -> None:
        """Upload one pixel as the first pixel of a map of 4x4."""
        self.commands.append(
            lambda: CpuLayer(
                "k210_add_padding",
                {"main_in": where().start, "kpu_out": line, "channels": channels},
            )
        )

    def spread_windows(self, where: Where, numbers: int, line: int) -> None:
        """Upload numbers as the top left 3x3 pixels of maps of 4x4: a concat of their rows."""
        channels = -(-numbers // 9)
        target = self.buffer(channels * PADDED, self.step)

        def items() -> list[tuple[int, int]]:
            start, found = _address(where), []
            for first in range(0, 9 * channels, 3):
                have = min(max(numbers - first, 0), 3)  # what fills the rest has no weight
                found.append((start + min(first, numbers - have), have))
                found.append((start, MIN_EXTENT - have + (MIN_EXTENT if first % 9 == 6 else 0)))
            return found

        self._joined(items, target)
        whole = (1, channels, MIN_EXTENT, MIN_EXTENT)
        self.commands.append(lambda: Upload(target(), line, whole))

    def gather(self, where: Where, target: Where, channels: int) -> None:
        """The first pixels of maps of 4x4."""
        self._cpu("k210_remove_padding", where, target, channels=channels)

    def _cpu(self, kind: str, source: Where, target: Where, **fields: Any) -> None:
        self.commands.append(
            lambda: CpuLayer(
                kind, {"main_in": source().start, "main_out": target().start, **fields}
            )
        )

    def conv_target(self, where: Where) -> Where:
        """Where a layer writes to main memory; its DMA has to reach it."""

        def checked() -> Range:
            r = where()
            if r.start % DMA_BYTES:
                raise Unsupported(
                    f"kmodel 3: a part of a map lies at byte {r.start} of main memory; layers "
                    f"write at multiples of {DMA_BYTES}: write a kmodel 5"
                )
            return r

        return checked


def _pieces(start: int, size: int, count: int) -> list[tuple[int, int]]:
    """`count` bytes of a place that has `size` equal ones."""
    return [(start, min(size, count - first)) for first in range(0, count, size)]


def _address(where: Where) -> int:
    """The address of a map in main memory."""
    r = where()
    if r.place == "input":
        raise Unsupported("kmodel 3: its input is in the KPU only: write a kmodel 5")
    return r.start
