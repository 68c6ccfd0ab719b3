"""A convolution on Rockchip's NPU: sizes, what of it fits the buffer, and its split into tasks.

A task reads rows of the input into data banks of the buffer and weights into the others. Feature
maps lie as [channels / 16][height][width][16] bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

SURFACE_PIXELS = 4  # to which blocks of channels between layers are rounded up
CHANNEL_BYTES = 8  # bias, zero point of the weights, multiplier
WEIGHT_CHANNELS = 16  # to which the inputs of a kernel are filled up
PICTURE_CHANNELS = 4  # inputs of up to these are read as pictures: channels last, no blocks
PICTURE_BYTES = {1: 4, 3: 16, 4: 16}  # of a pixel of a picture in the buffer
MOST_KERNEL_BYTES = 3072  # of one output channel, before the vendor's compiler splits a layer
LARGEST = {"width": 2047, "height": 2047, "channels": 8191, "kernel": 31, "stride": 7, "pad": 15}
MOST_APART = 8  # rows or columns from pixel to pixel of a transposed convolution


@dataclass(frozen=True, slots=True)
class Design:
    """What differs between the NPUs of one family."""

    registers: str  # the chip that first had these places and meanings of registers
    atom: int  # channels side by side in memory
    outputs: int  # that are computed at a time; a depthwise convolution computes twice as many
    banks: int  # of the buffer
    bank_bytes: int = 32 << 10
    entry: int = 64  # bytes to which a row in the buffer is rounded up
    group: int = 8  # channels that stand together in their table
    pairs: int = 0  # weights of a depthwise convolution, before as many zero points; 0: none
    least_banks: int = 1  # of input, even if it needs less
    weight_banks: int = 1  # that are kept for weights, at least
    streamed: int = 64  # kernels that are kept while weights are read again for every task
    least_streamed: int = 2  # banks that these have
    keeps: bool = False  # whether a task finds rows in the buffer that the one before has read
    even: bool = False  # whether the number of kernels is


RK3588 = Design("rk3588", atom=16, outputs=32, banks=12, even=True)
RK356X = Design(
    "rk3566", atom=8, outputs=16, banks=8, entry=32, group=4, streamed=16, least_streamed=1
)
RV110X = Design("rv1106", 16, 16, banks=8, entry=32, group=4, pairs=1, streamed=16)
RK3576 = Design(
    "rk3576",
    16,
    32,
    banks=8,
    bank_bytes=64 << 10,
    pairs=2,
    least_banks=4,
    weight_banks=3,
    keeps=True,
    even=True,
)
RK3562 = Design("rk3562", 16, 16, banks=8, group=4, pairs=2, streamed=28, keeps=True, even=True)
DESIGNS = {"rk3562": RK3562, "rk3588": RK3588, "rk3566": RK356X, "rk3568": RK356X, "rk3576": RK3576}
DESIGNS |= {"rv1103": RV110X, "rv1106": RV110X}
ATOM = RK3588.atom


@dataclass(frozen=True, slots=True)
class Added:
    """A second map of the output's shape that is added to the scaled sums before the last scale."""

    zero: int
    scale: int  # with `shift`: from its bytes to units of the scaled sums
    shift: int


@dataclass(frozen=True, slots=True)
class Table:
    """Bytes by integers: the entry of `first`, of the integer 2^bits further, and so on.

    Integers between two entries have a number between theirs.
    """

    first: int
    entries: tuple[int, ...]
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Convolution:
    """An int8 convolution or depthwise convolution, and how its sums become bytes again."""

    channels: int
    height: int
    width: int
    outputs: int
    kernel: tuple[int, int]  # height, width
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilations: tuple[int, int] = (1, 1)
    depthwise: bool = False
    zero_in: int = 0
    zero_out: int = 0
    scale: int = 1 << 14  # of all channels, beside their own multipliers
    shift: int = 14
    relu: bool = False
    limit: int = 0  # of a relu with an upper end, in units of the scaled sums; 0: none
    added: Added | None = None
    in_surface: int = 0  # pixels from one block of channels to the next; 0: height * width
    relu_after: bool = False  # the relu stands behind the addition
    blocks: bool = False  # few channels lie in a block of 16, not as a picture
    table: Table | None = None  # that makes the bytes; the scale makes its arguments
    apart: tuple[int, int] = (1, 1)  # rows and columns from pixel to pixel; zeros lie between them
    design: Design = RK3588

    @property
    def picture(self) -> bool:
        return not self.depthwise and not self.blocks and self.channels <= PICTURE_CHANNELS

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that a kernel spans."""
        (ky, kx), (dy, dx) = self.kernel, self.dilations
        return (ky - 1) * dy + 1, (kx - 1) * dx + 1

    @property
    def steps(self) -> tuple[int, int]:
        """Strides; 1 where the kernel is as large as the map and has one place."""
        sy, sx = self.strides
        down = self.height == self.reach[0] and self.out_height == 1
        across = self.width == self.reach[1] and self.out_width == 1
        return 1 if down else sy, 1 if across else sx

    @property
    def out_height(self) -> int:
        rows = (self.height - 1) * self.apart[0] + 1
        return (rows + self.pads[0] + self.pads[2] - self.reach[0]) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        columns = (self.width - 1) * self.apart[1] + 1
        return (columns + self.pads[1] + self.pads[3] - self.reach[1]) // self.strides[1] + 1

    @property
    def stored_channels(self) -> int:
        return round_up(self.channels, self.design.atom)

    @property
    def kernel_bytes(self) -> int:
        """Bytes of one output channel; of all channels of a depthwise convolution."""
        return self.kernel[0] * self.kernel[1] * kernel_channels(self)

    @property
    def out_surface(self) -> int:
        """Pixels from one block of output channels to the next."""
        return surface_pixels(self.out_height, self.out_width)

    @property
    def out_block(self) -> int:
        """Channels that are computed at a time."""
        return self.design.outputs * (2 if self.depthwise else 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one task: of the input from `first`, and of the output from `out_first`."""

    first: int
    count: int
    out_first: int
    out_count: int
    pad_top: int
    held: int = 0  # rows that the buffer still holds from the task before


def round_up(value: int, to: int) -> int:
    return -(-value // to) * to


def surface_pixels(height: int, width: int) -> int:
    """Pixels of a block of channels between layers, with what rounds them up."""
    return round_up(height * width, SURFACE_PIXELS) if height * width > 1 else 1


def entry_channels(channels: int, design: Design = RK3588) -> int:
    """Channels that a pixel takes in the buffer: 3 atoms in an entry of 4 take the room of 4."""
    atoms = -(-channels // design.atom)
    full = design.entry == 4 * design.atom and atoms % 4 == 3
    return (atoms + full) * design.atom


def kernel_channels(conv: Convolution) -> int:
    """Inputs of a kernel, with those that fill up."""
    if conv.depthwise and conv.design is RK3562:
        return round_up(conv.channels, conv.out_block)
    if conv.design is RK356X or (conv.depthwise and not conv.design.pairs):
        return entry_channels(conv.channels, conv.design)
    return round_up(conv.channels, WEIGHT_CHANNELS)


def row_entries(conv: Convolution) -> int:
    """Entries of the buffer that a row of the input takes."""
    return -(-conv.width * entry_channels(conv.channels, conv.design) // conv.design.entry)


def why_not(conv: Convolution) -> str | None:
    """Why the unit cannot do it in one pass over its weights; None: it can."""
    found = {
        "width": max(conv.width, conv.out_width),
        "height": max(conv.height, conv.out_height),
        "channels": max(conv.channels, conv.outputs),
        "kernel": max(conv.kernel),
        "stride": max(conv.strides),
        "pad": max(conv.pads[:2]),
    }
    for name, value in found.items():
        if value > LARGEST[name]:
            return f"its {name} is {value}; the register holds at most {LARGEST[name]}"
    if max(conv.apart) > MOST_APART:
        return f"its pixels are {max(conv.apart)} apart; the register holds at most {MOST_APART}"
    if conv.picture and conv.channels not in PICTURE_BYTES:
        return f"a picture has 1, 3 or 4 channels, not {conv.channels}"
    if not conv.depthwise and weight_banks(conv)[0] >= conv.design.banks:
        words = f"the weights of one output take {conv.kernel_bytes} bytes"
        return f"{words}; {conv.design.streamed} of them do not fit the buffer"
    rows = -(-conv.reach[0] // conv.apart[0])
    if rows_that_fit(conv, conv.design.banks - weight_banks(conv)[0]) < rows:
        return f"{rows} rows of the input do not fit the buffer"
    return None


def weight_banks(conv: Convolution) -> tuple[int, bool]:
    """Banks that are kept for weights, and whether all weights stay in them between tasks.

    On an RK3588 they stay if that leaves room for rows of the input, unless all rows fit beside a
    part of the weights. On the others a part is kept if the layer then takes fewer tasks.
    """
    design, size = conv.design, conv.design.bank_bytes
    kernels = 1 if conv.depthwise else conv.outputs
    whole = max(-(-kernels * conv.kernel_bytes // size), design.weight_banks)
    if conv.depthwise:
        return whole, True
    least = max(design.least_streamed, design.weight_banks)
    streamed = max(design.streamed * conv.kernel_bytes // size + 1, least)
    if streamed >= whole:
        most = (design.weight_banks - 1) * size  # of weights that stay, on an RK3576
        return whole, not most or kernels * conv.kernel_bytes <= most
    tasks, fewer = (len(rows_beside(conv, banks)) for banks in (whole, streamed))
    parts = not tasks or fewer == 1 < tasks or (design is not RK3588 and 0 < fewer < tasks)
    return (streamed, False) if parts else (whole, True)


def rows_that_fit(conv: Convolution, banks: int) -> int:
    """Rows of the input that so many banks hold."""
    if conv.picture:
        return banks * conv.design.bank_bytes // (conv.width * PICTURE_BYTES[conv.channels])
    return banks * conv.design.bank_bytes // (row_entries(conv) * conv.design.entry)


def data_banks(conv: Convolution, rows: int) -> int:
    """Banks that rows of the input need."""
    if conv.picture:
        return -(-rows * conv.width * PICTURE_BYTES[conv.channels] // conv.design.bank_bytes)
    needed = -(-rows * row_entries(conv) * conv.design.entry // conv.design.bank_bytes)
    return max(needed, conv.design.least_banks)


def split(conv: Convolution) -> list[Rows]:
    """The rows of each task: all at once, or as many as fit beside the weights."""
    return rows_beside(conv, weight_banks(conv)[0])


def rows_beside(conv: Convolution, weights: int) -> list[Rows]:
    """The rows of each task beside so many banks of weights; [] if the rows of none fit."""
    stride, top = conv.strides[0], conv.pads[0]
    reach = conv.reach[0]
    if conv.design is RK3588:  # rows that no kernel touches are read, too
        reach = max(reach, stride)
    most = rows_that_fit(conv, max(0, conv.design.banks - weights))
    if max(conv.apart) > 1:
        return _rows_apart(conv, most)
    if most < reach:
        return []
    parts: list[Rows] = []
    done = 0
    while done < conv.out_height:
        first = done * stride - top
        pad, start = max(0, -first), max(0, first)
        outs = conv.out_height - done
        whole = (outs - 1) * stride + reach - pad  # with padding below
        count = min(whole, conv.height - start)
        if count > most or (done and whole > most):
            outs = (most + pad - reach) // stride + 1
            count = (outs - 1) * stride + reach - pad
        held = max(0, parts[-1].first + parts[-1].count - start) if parts else 0
        parts.append(Rows(start, count, done, outs, pad, held if conv.design.keeps else 0))
        done += outs
    return parts


def _rows_apart(conv: Convolution, most: int) -> list[Rows]:
    """The rows of each task of a transposed convolution, of which at most so many fit."""
    parts: list[Rows] = []
    step, done = conv.apart[0], 0
    while done < conv.out_height:
        top = done - conv.pads[0]  # of the first window
        first = -(-max(0, top) // step)
        last = min(conv.height - 1, first + most - 1)
        # the next row after the last is not there: windows end before it
        outs = conv.out_height - done
        if last < conv.height - 1:
            outs = (last + 1) * step - conv.reach[0] - top + 1
        if outs < 1:
            return []
        below = max(first, min(last, (top + outs - 1 + conv.reach[0] - 1) // step))
        parts.append(Rows(first, below - first + 1, done, outs, first * step - top))
        done += outs
    return parts
