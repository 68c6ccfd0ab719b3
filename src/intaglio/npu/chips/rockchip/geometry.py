"""A convolution on the RK3588: sizes, what of it fits the buffer, and its split into tasks.

A task reads rows of the input into data banks of the buffer and weights into the others. Feature
maps lie as [channels / 16][height][width][16] bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

BANKS, BANK_BYTES, ENTRY = 12, 32 << 10, 64  # of the buffer; an entry is what a row is rounded to
BANK_ENTRIES = BANK_BYTES // ENTRY
ATOM = 16  # channels side by side in memory
SURFACE_PIXELS = 4  # to which blocks of channels between layers are rounded up
CHANNEL_BYTES = 8  # bias, zero point of the weights, multiplier
PICTURE_CHANNELS = 4  # inputs of up to these are read as pictures: channels last, no blocks
PICTURE_BYTES = {1: 4, 3: 16, 4: 16}  # of a pixel of a picture in the buffer
MOST_KERNEL_BYTES = 3072  # of one output channel, before the vendor's compiler splits a layer
STREAMED_KERNELS = 64  # that the buffer holds while weights are read again for every task
LARGEST = {"width": 2047, "height": 2047, "channels": 8191, "kernel": 31, "stride": 7, "pad": 15}


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

    @property
    def picture(self) -> bool:
        return not self.depthwise and not self.blocks and self.channels <= PICTURE_CHANNELS

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that a kernel spans."""
        (ky, kx), (dy, dx) = self.kernel, self.dilations
        return (ky - 1) * dy + 1, (kx - 1) * dx + 1

    @property
    def out_height(self) -> int:
        return (self.height + self.pads[0] + self.pads[2] - self.reach[0]) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        return (self.width + self.pads[1] + self.pads[3] - self.reach[1]) // self.strides[1] + 1

    @property
    def stored_channels(self) -> int:
        return round_up(self.channels, ATOM)

    @property
    def kernel_bytes(self) -> int:
        """Bytes of one output channel; of all channels of a depthwise convolution."""
        channels = entry_channels(self.channels) if self.depthwise else self.stored_channels
        return self.kernel[0] * self.kernel[1] * channels

    @property
    def out_surface(self) -> int:
        """Pixels from one block of output channels to the next."""
        return surface_pixels(self.out_height, self.out_width)

    @property
    def out_block(self) -> int:
        """Channels that are computed at a time."""
        return 64 if self.depthwise else 32


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one task: of the input from `first`, and of the output from `out_first`."""

    first: int
    count: int
    out_first: int
    out_count: int
    pad_top: int


def round_up(value: int, to: int) -> int:
    return -(-value // to) * to


def surface_pixels(height: int, width: int) -> int:
    """Pixels of a block of channels between layers, with what rounds them up."""
    return round_up(height * width, SURFACE_PIXELS) if height * width > 1 else 1


def entry_channels(channels: int) -> int:
    """Channels that a pixel takes in the buffer: 3 atoms in an entry take the room of 4."""
    atoms = -(-channels // ATOM)
    return (atoms + 1 if atoms % 4 == 3 else atoms) * ATOM


def row_entries(conv: Convolution) -> int:
    """Entries of the buffer that a row of the input takes."""
    return -(-conv.width * entry_channels(conv.channels) // ENTRY)


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
    if conv.picture and conv.channels not in PICTURE_BYTES:
        return f"a picture has 1, 3 or 4 channels, not {conv.channels}"
    if not conv.depthwise and weight_banks(conv)[0] >= BANKS:
        words = f"the weights of one output take {conv.kernel_bytes} bytes"
        return f"{words}; {STREAMED_KERNELS} of them do not fit the buffer"
    if rows_that_fit(conv, BANKS - weight_banks(conv)[0]) < conv.reach[0]:
        return f"{conv.reach[0]} rows of the input do not fit the buffer"
    return None


def weight_banks(conv: Convolution) -> tuple[int, bool]:
    """Banks that are kept for weights, and whether all weights stay in them between tasks."""
    kernels = 1 if conv.depthwise else conv.outputs
    whole = -(-kernels * conv.kernel_bytes // BANK_BYTES)
    if whole < BANKS and rows_that_fit(conv, BANKS - whole) >= conv.reach[0]:
        return whole, True
    return STREAMED_KERNELS * conv.kernel_bytes // BANK_BYTES + 1, False


def rows_that_fit(conv: Convolution, banks: int) -> int:
    """Rows of the input that so many banks hold."""
    if conv.picture:
        return banks * BANK_BYTES // (conv.width * PICTURE_BYTES[conv.channels])
    return banks * BANK_ENTRIES // row_entries(conv)


def data_banks(conv: Convolution, rows: int) -> int:
    """Banks that rows of the input need."""
    if conv.picture:
        return -(-rows * conv.width * PICTURE_BYTES[conv.channels] // BANK_BYTES)
    return -(-rows * row_entries(conv) // BANK_ENTRIES)


def split(conv: Convolution) -> list[Rows]:
    """The rows of each task: all at once, or as many as fit beside the weights."""
    stride, top = conv.strides[0], conv.pads[0]
    reach = max(conv.reach[0], stride)  # rows that no kernel touches are read, too
    most = rows_that_fit(conv, BANKS - weight_banks(conv)[0])
    parts, done = [], 0
    while done < conv.out_height:
        first = done * stride - top
        pad, start = max(0, -first), max(0, first)
        outs = conv.out_height - done
        count = min((outs - 1) * stride + reach - pad, conv.height - start)
        if count > most:
            outs = (most + pad - reach) // stride + 1
            count = (outs - 1) * stride + reach - pad
        parts.append(Rows(start, count, done, outs, pad))
        done += outs
    return parts
