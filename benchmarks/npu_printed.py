"""Compare the cycle model with the layer tables that Rockchip prints.

python -m benchmarks.npu_printed

The tables are from different chips and versions of the vendor's tools, which count differently.
`FIGURES` says which chip and which way of counting reproduces each. Each row is a single layer in
the vendor's order: rows of the input that fit in some banks of the convolution buffer, then all
weights for them. Weights that do not fit in the other banks are read again for each part.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from intaglio.npu.own.isa import Feature, Instruction, Program
from intaglio.npu.predict.cycles import costs
from intaglio.targets import chip
from intaglio.targets.chip import Chip

GUIDE = "Rockchip RKNPU user guide, RKNN SDK 2.3.2"
BANK = 32768


@dataclass(frozen=True)
class Figure:
    """A printed table: its chip, and how its tool counts."""

    name: str
    chip: str
    clock: float  # MHz, of the cycles in which bytes are counted
    read: float  # bytes per cycle
    write: float  # cost of writing a byte, relative to reading one
    banks: tuple[int, int]  # of the convolution buffer: for the input, for weights
    steps: int = 4
    pixels: int = 16
    atoms: bool = True  # products are counted in whole atoms
    c2: int = 16
    sparse: float = 1.0  # counted bytes of sparse weights, relative to dense ones
    why: str = ""

    def target(self) -> Chip:
        """The chip, with constants that count as this table does."""
        c = chip.load(self.chip)
        conv = c.units["conv"]
        if not self.atoms:
            one = {"i8": 1}
            conv = replace(conv, in_atom=one, out_atom=one)
        full = {name: 1.0 for name in c.timing if name.startswith("use.")}  # no unit waits
        timing = {
            **c.timing,
            **full,
            "efficiency": 1.0,
            "write": self.write,
            "steps": self.steps,
            "pixels": self.pixels,
        }
        units = {**c.units, "conv": conv}
        both = self.read * 2 / (1 + self.write)  # bytes per cycle with equal reads and writes
        return replace(
            c, clock=self.clock, ddr=both * self.clock / 1000, units=units, timing=timing
        )


FIGURES = {
    "5-17": Figure(
        "5-17",
        "rk3576",
        1000,
        7.47,
        1,
        (7, 4),
        sparse=0.0,
        why="at compile time: sparse weights are not counted, writes cost as much as reads",
    ),
    "5-18": Figure(
        "5-18",
        "rk3576",
        1000,
        25.15,
        2,
        (7, 4),
        sparse=0.625,
        why="at run time: 16.9 bytes per cycle at 1 GHz, writes cost twice, 2 bits per sparse byte",
    ),
    "8-3": Figure("8-3", "rk3562", 900, 7.4, 2, (6, 2), why="at run time: writes cost twice"),
    "8-4": Figure("8-4", "rk3562", 900, 7.4, 2, (6, 2), why="as 8-3"),
    "8-6": Figure(
        "8-6",
        "rk3566",
        900,
        6.55,
        1,
        (6, 2),
        steps=1,
        pixels=1,
        atoms=False,
        why="an older tool: products / 512 without atoms, writes cost as much as reads",
    ),
}


@dataclass(frozen=True)
class Row:
    """A convolution in a table."""

    figure: str
    layer: int
    channels: tuple[int, int]  # in, out
    size: tuple[int, int]  # of the input
    kernel: int
    stride: int
    npu: int  # cycles, as printed
    ddr: int
    sparse: bool = False
    residual: bool = False

    @property
    def made(self) -> tuple[int, int]:
        return -(-self.size[0] // self.stride), -(-self.size[1] // self.stride)


def _resnet(
    layer: int,
    channels: tuple[int, int],
    size: int,
    kernel: int,
    stride: int,
    npu: int,
    compiled: int,
    run: int,
    residual: bool = False,
    sparse: bool = True,
) -> list[Row]:
    return [
        Row(f, layer, channels, (size, size), kernel, stride, npu, ddr, sparse, residual)
        for f, ddr in (("5-17", compiled), ("5-18", run))
    ]


def _rows() -> list[Row]:
    add = True
    resnet = [
        *_resnet(1, (3, 64), 224, 7, 2, 1229312, 129458, 70436, sparse=False),
        *_resnet(3, (64, 64), 56, 1, 1, 25088, 53807, 24118),
        *_resnet(4, (64, 64), 56, 3, 1, 112896, 53532, 24846),
        *_resnet(5, (64, 256), 56, 1, 1, 100352, 134568, 72375),
        *_resnet(6, (64, 256), 56, 1, 1, 100352, 242112, 104319, add),
        *_resnet(7, (256, 64), 56, 1, 1, 50176, 134362, 48494),
        *_resnet(8, (64, 64), 56, 3, 1, 112896, 53532, 24903),
        *_resnet(9, (64, 256), 56, 1, 1, 100352, 242112, 104336, add),
        *_resnet(10, (256, 64), 56, 1, 1, 50176, 134362, 48522),
        *_resnet(11, (64, 64), 56, 3, 1, 112896, 53532, 24931),
        *_resnet(12, (64, 256), 56, 1, 1, 100352, 242112, 104338, add),
        *_resnet(13, (256, 128), 56, 1, 1, 100352, 161179, 64949),
        *_resnet(14, (128, 128), 56, 3, 2, 112896, 66118, 31355),
        *_resnet(15, (128, 512), 28, 1, 1, 50176, 67215, 37642),
        *_resnet(16, (256, 512), 56, 1, 2, 100352, 214540, 81157, add),
        *_resnet(17, (512, 128), 28, 1, 1, 50176, 66804, 25689),
        *_resnet(18, (128, 128), 28, 3, 1, 112896, 25789, 15434),
        *_resnet(19, (128, 512), 28, 1, 1, 50176, 120988, 53704, add),
        *_resnet(20, (512, 128), 28, 1, 1, 50176, 66804, 25694),
        *_resnet(21, (128, 128), 28, 3, 1, 112896, 25789, 15508),
        *_resnet(22, (128, 512), 28, 1, 1, 50176, 120988, 53765, add),
        *_resnet(23, (512, 128), 28, 1, 1, 50176, 66804, 25728),
        *_resnet(24, (128, 128), 28, 3, 1, 112896, 25789, 15655),
        *_resnet(25, (128, 512), 28, 1, 1, 50176, 120988, 53772, add),
        *_resnet(26, (512, 256), 28, 1, 1, 100352, 79835, 35358),
        *_resnet(27, (256, 256), 28, 3, 2, 119808, 112894, 35572, sparse=False),
    ]
    large, half, quarter = (480, 640), (240, 320), (120, 160)
    return [
        *sorted(resnet, key=lambda r: r.figure),
        Row("8-3", 1, (3, 32), large, 3, 2, 1382400, 794117),
        Row("8-3", 2, (32, 64), half, 3, 2, 691200, 665207),
        Row("8-3", 3, (64, 32), quarter, 1, 1, 153600, 332036),
        Row("8-3", 4, (64, 32), quarter, 1, 1, 153600, 332036),
        Row("8-3", 5, (32, 32), quarter, 1, 1, 153600, 248988),
        Row("8-3", 6, (32, 32), quarter, 3, 1, 345600, 250087),
        Row("8-3", 9, (64, 64), quarter, 1, 1, 307200, 497258),
        Row("8-3", 10, (64, 128), quarter, 3, 2, 691200, 401854),
        Row("8-3", 11, (128, 64), (60, 80), 1, 1, 76800, 167682),
        Row("8-4", 118, (128, 128), (60, 80), 3, 1, 1382400, 327096),
        Row("8-4", 119, (128, 128), (60, 80), 3, 1, 1382400, 327096),
        Row("8-4", 120, (128, 4), (60, 80), 1, 1, 19200, 103405),
        Row("8-4", 121, (128, 1), (60, 80), 1, 1, 19200, 103345),
        Row("8-6", 1, (3, 3), (300, 300), 1, 1, 1582, 261543),
        *(Row("8-6", k, (1, 8), (300, 300), 7, 2, 17226, 275553) for k in (3, 4, 5)),
        Row("8-6", 7, (24, 64), (150, 150), 1, 1, 67500, 329723),
        Row("8-6", 10, (64, 64), (75, 75), 1, 1, 45000, 110676),
        Row("8-6", 12, (64, 192), (75, 75), 3, 1, 1215000, 253595),
        Row("8-6", 16, (192, 32), (38, 38), 1, 1, 17328, 50564),
        Row("8-6", 18, (192, 64), (38, 38), 1, 1, 34656, 58609),
        Row("8-6", 20, (64, 96), (38, 38), 3, 1, 155952, 43855),
        Row("8-6", 22, (96, 96), (38, 38), 3, 1, 233928, 55095),
        Row("8-6", 24, (192, 64), (38, 38), 1, 1, 34656, 58609),
    ]


ROWS = _rows()


def program(row: Row) -> Program:
    """The program of the layer in the vendor's order."""
    figure = FIGURES[row.figure]
    target = figure.target()
    conv, c2 = target.units["conv"], figure.c2
    ins, outs = conv.in_atom["i8"], conv.out_atom["i8"]
    (inputs, outputs), (height, width), (made, wide) = row.channels, row.size, row.made
    picture = row.layer == 1  # the 8-bit input image has interleaved channels
    c = inputs if picture else c2

    def box(space: str, channels: int, rows: int, columns: int, c2: int = c2) -> Feature:
        line = columns * c2
        return Feature(space, 0, "i8", channels, rows, columns, c2, rows * line, line, c2)

    size = -(-inputs // c) * c * width  # bytes of a row
    most = max(figure.banks[0] * BANK // size, row.kernel)
    part = max((most - row.kernel) // row.stride + 1, 1) if most < height else made
    weights = outputs * inputs * row.kernel**2
    stored = int(weights * figure.sparse) if row.sparse else weights
    again = -(-weights // BANK) > figure.banks[1]
    moves = []

    def load(source: Feature) -> None:
        moves.append(Instruction("load", {"src": source, "dst": replace(source, space="sram")}))

    for first in range(0, made, part):
        rows = min(part, made - first)
        if stored and (again or not first):
            load(Feature("weights", 0, "u8", 1, 1, stored, 1, stored, stored, 1))
        load(
            box("internal", inputs, min(rows * row.stride, height), width, c)
        )  # overlapping rows count once
        result = box("internal", outputs, rows, wide)
        if row.residual:
            load(result)
        moves.append(Instruction("store", {"src": replace(result, space="sram"), "dst": result}))
    fields = {
        "src": box("sram", inputs, height, width, c),
        "dst": box("sram", outputs, made, wide),
        "kernel": (row.kernel, row.kernel),
        "stride": (row.stride, row.stride),
        "dilation": (1, 1),
        "in_atom": ins,
        "out_atom": outs,
    }
    instructions = [
        *moves,
        Instruction("conv", fields),
    ]  # the tables count compute of the whole layer
    return Program(target.name, 1, target.sram, 1 << 24, 1 << 24, [], [], instructions)


def cycles(row: Row) -> tuple[float, float]:
    """Modelled cycles of the convolution unit and of DDR."""
    made = costs(program(row), FIGURES[row.figure].target())
    return float(made.work[made.queue == 1].sum()), float(made.ddr.sum())


def main() -> int:
    print(f"Cycles of convolutions as printed ({GUIDE}) and as modelled\n")
    for f in FIGURES.values():
        print(
            f"figure {f.name}: {f.chip} at {f.clock:.0f} MHz, {f.read:g} bytes per cycle; {f.why}"
        )
    print(
        "\nfigure layer  shape                         NPU printed    ours   error"
        "     DDR printed    ours   error"
    )
    worst = [0.0, 0.0]
    for row in ROWS:
        npu, ddr = cycles(row)
        errors = npu / row.npu - 1, ddr / row.ddr - 1
        worst = [max(w, abs(e)) for w, e in zip(worst, errors, strict=True)]
        (i, o), (h, w) = row.channels, row.size
        what = f"{i}x{h}x{w} -> {o}, {row.kernel}x{row.kernel}/{row.stride}"
        what += " + add" if row.residual else ""
        print(
            f"{row.figure:6} {row.layer:5}  {what:30}{row.npu:10} {npu:9.0f} {errors[0]:+7.1%}"
            f"{row.ddr:14} {ddr:9.0f} {errors[1]:+7.1%}"
        )
    print(f"\n{len(ROWS)} rows; largest error: NPU {worst[0]:.1%}, DDR {worst[1]:.1%}")
    return int(worst[0] > 0.02 or worst[1] > 0.15)


if __name__ == "__main__":
    sys.exit(main())
