"""Convolutions of the RK3588 as register commands: tasks that fit the buffer, word by word.

A task reads rows of the input into data banks of the buffer, weights into the others, multiplies,
adds a bias per channel, scales, and writes rows of the output. An input that does not fit is
split by rows; every task reads the rows that its results need. Feature maps lie as
[channels / 16][height][width][16] bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from intaglio.errors import Unsupported
from intaglio.npu.chips.rockchip.words import ENABLE, NUMBERS, Word

BANKS, BANK_BYTES, ENTRY = 12, 32 << 10, 64  # of the buffer; an entry is what a row is rounded to
BANK_ENTRIES = BANK_BYTES // ENTRY
ATOM = 16  # channels side by side in memory
SURFACE_PIXELS = 4  # to which blocks of channels between layers are rounded up
CHANNEL_BYTES = 8  # bias, zero point of the weights, multiplier
PICTURE_CHANNELS = 4  # inputs of up to these are read as pictures: channels last, no blocks
PICTURE_BYTES = {1: 4, 3: 16, 4: 16}  # of a pixel of a picture in the buffer
MOST_KERNEL_BYTES = 3072  # of one output channel
STREAMED_KERNELS = 64  # that the buffer holds while weights are read again for every task
ALONE, ADDS = 0x383, 0x904202C0  # EW_CFG: no second map, or a map of bytes that is added
CONVOLUTION_BLOCKS = 0x1D  # CNA, CORE, DPU and DPU_RDMA
LARGEST = {"width": 2047, "height": 2047, "channels": 8191, "kernel": 31, "stride": 7, "pad": 15}


@dataclass(frozen=True, slots=True)
class Added:
    """A second map of the output's shape that is added to the scaled sums before the last scale."""

    zero: int
    scale: int  # with `shift`: from its bytes to units of the scaled sums
    shift: int


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

    @property
    def picture(self) -> bool:
        return not self.depthwise and self.channels <= PICTURE_CHANNELS

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


@dataclass(slots=True)
class Task:
    """Commands, and which of them hold addresses: word -> (tensor, offset)."""

    words: list[Word]
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)


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
    if not conv.depthwise and conv.kernel_bytes > MOST_KERNEL_BYTES:
        words = f"the weights of one output take {conv.kernel_bytes} bytes"
        return f"{words}; the unit takes at most {MOST_KERNEL_BYTES}"
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


def encode(conv: Convolution) -> list[Task]:
    """The tasks of a convolution, in order; each ends without naming the next one."""
    if reason := why_not(conv):
        raise Unsupported(f"rockchip: a convolution of {conv.channels} channels: {reason}")
    if conv.depthwise and data_banks(conv, conv.height) > BANKS - weight_banks(conv)[0]:
        return _by_channels(conv)
    return _by_rows(conv)


def _by_channels(conv: Convolution) -> list[Task]:
    """A depthwise convolution whose input does not fit: as many channels at a time as do."""
    block = conv.out_block
    fitting = [
        count
        for count in range(block, conv.channels, block)
        if data_banks(_of_channels(conv, count), conv.height) <= BANKS - 1
    ]
    step = max(fitting, default=block)
    rows = split(_of_channels(conv, min(step, conv.channels)))
    banks = data_banks(_of_channels(conv, min(step, conv.channels)), rows[0].count)
    if len(rows) > 1:
        banks = BANKS - 1
    alone = conv.channels <= step  # one set of weights, which stays
    return [
        _task(_of_channels(conv, min(step, conv.channels - first)), part, banks, reuse, first)
        for number, part in enumerate(rows)
        for first in range(0, conv.channels, step)
        for reuse in [alone and number > 0]
    ]


def _of_channels(conv: Convolution, count: int) -> Convolution:
    return replace(conv, channels=count, outputs=count)


def _by_rows(conv: Convolution) -> list[Task]:
    parts = split(conv)
    needed, stay = weight_banks(conv)
    banks = data_banks(conv, parts[0].count) if len(parts) == 1 else BANKS - needed
    return [_task(conv, rows, banks, stay and number > 0, 0) for number, rows in enumerate(parts)]


def _task(conv: Convolution, rows: Rows, banks: int, reuse: bool, first_channel: int) -> Task:
    settings = _settings(conv, rows, banks, reuse)
    task = Task([Word(NUMBERS[block], register, value) for block, register, value in settings])
    pixels = ATOM if not conv.picture else conv.channels
    start = first_channel * (conv.in_surface or conv.height * conv.width)
    addresses = {
        0x1070: ("input", start + rows.first * conv.width * pixels),
        0x1110: ("weights", first_channel * conv.kernel[0] * conv.kernel[1]),
        0x4020: (
            "output",
            first_channel * conv.out_surface + rows.out_first * conv.out_width * ATOM,
        ),
        0x5020: ("channels", first_channel * CHANNEL_BYTES),
    }
    if conv.added:
        row = rows.out_first * conv.out_width * ATOM
        addresses[0x5018] = ("added", row)
        addresses[0x5038] = ("added", row + conv.out_surface * ATOM)
    for index, word in enumerate(task.words):
        if word.register in addresses:
            task.addresses[index] = addresses[word.register]
    return task


def _settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value, in the order of the vendor's compiler."""
    buffer = reuse << 13 | (BANKS - banks) << 4 | banks
    mode = 3 if conv.depthwise else 0
    if conv.picture:  # non-aligned reads, rows without groups, and the format of a pixel
        mode = 3 << 29 | (7 + conv.channels) << 12
    return [
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1104, 0),
        ("CNA", 0x1100, 0),
        ("CNA", 0x100C, mode),
        ("DPU", 0x4004, 0xE),  # registers of two tasks in turn
        ("DPU_RDMA", 0x5004, 0xE),
        *_input(conv, rows, banks, buffer, mode),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        ("PC", 0x0010, 0),
        ("PC", 0x0014, 0),
        ("SYNC", 0x0000, 0),
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def _input(
    conv: Convolution, rows: Rows, banks: int, buffer: int, mode: int
) -> list[tuple[str, int, int]]:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.strides, conv.dilations
    size = conv.width << 16 | rows.count
    real = (conv.channels - 1) % 64 if not conv.picture else conv.channels - 1
    kernels = 1 if conv.depthwise else round_up(conv.outputs, 2)
    grains = min(rows.count + ky + conv.pads[0], rows_that_fit(conv, banks))
    if conv.picture:
        entries, line = rows.count * conv.width, conv.width
    else:
        entries, line = row_entries(conv), 4 * conv.width
    surface = (conv.in_surface or conv.height * conv.width) - line
    zero = conv.zero_in & 0xFFFFFFFF
    if conv.depthwise:  # in both bytes of 16 bits
        zero = (conv.zero_in & 0xFF) * 0x101 | (0xFFFF0000 if conv.zero_in < 0 else 0)
    return [
        ("CNA", 0x100C, mode),
        ("CNA", 0x1010, grains << 4),
        ("CNA", 0x1014, (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x1020, size),
        ("CNA", 0x1024, real << 16 | conv.stored_channels),
        ("CNA", 0x1028, conv.out_width),
        ("CNA", 0x102C, conv.out_width * rows.out_count),
        ("CNA", 0x1030, kernels * conv.kernel_bytes),
        ("CNA", 0x1034, conv.kernel_bytes),
        ("CNA", 0x1038, kx << 24 | ky << 16 | kernels),
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1044, entries),
        ("CNA", 0x104C, 0xB),  # bytes are signed and not converted
        *(("CNA", 0x1050 + 4 * i, 1 << 16) for i in range(4)),
        ("CNA", 0x1060, 0),
        ("CNA", 0x1064, 0),
        ("CNA", 0x1068, conv.pads[1] << 4 | rows.pad_top),
        ("CNA", 0x1070, 0),
        ("CNA", 0x1074, 0),
        ("CNA", 0x1078, 0xF000F),  # longest bursts
        ("CNA", 0x107C, line),
        ("CNA", 0x1080, surface & 0xFFFFFFF),
        ("CNA", 0x1084, size),
        ("CNA", 0x1088, conv.stored_channels),
        ("CNA", 0x1100, 0),
        ("CNA", 0x1104, 0),
        ("CNA", 0x1110, 0),
        *(("CNA", 0x1140 + 4 * i, 0) for i in range(16)),
        ("CNA", 0x1180, 0),
        ("CNA", 0x1184, zero),
    ]


def _sums(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("CORE", 0x3010, 3 if conv.depthwise else 1),
        ("CORE", 0x3014, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3018, round_up(conv.outputs, conv.out_block) - 1),
        ("CORE", 0x301C, 0),
        ("CORE", 0x3030, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    """The DPU: bias, zero point and multiplier per channel, relu, scale, and the output."""
    channels = round_up(conv.outputs, conv.out_block) - 1
    surface = conv.out_surface * ATOM
    return [
        ("DPU", 0x400C, 0x1FC if conv.depthwise else 0x1E4),
        ("DPU", 0x4010, 0xE0),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4020, 0),
        ("DPU", 0x4024, surface),
        ("DPU", 0x4030, conv.out_width - 1),
        ("DPU", 0x4034, rows.out_count - 1),
        ("DPU", 0x4038, 0),
        ("DPU", 0x403C, (conv.outputs - 1) << 16 | channels),
        ("DPU", 0x4040, 0x20140),  # bias and multiplier from memory
        ("DPU", 0x4044, 0),
        ("DPU", 0x4048, 0xE01),  # multipliers have 14 bits behind the point
        ("DPU", 0x404C, 0),
        ("DPU", 0x4050, 0x36D if conv.depthwise else 0x125),
        ("DPU", 0x4054, 0),
        ("DPU", 0x4058, channels),
        ("DPU", 0x405C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("DPU", 0x4060, 0x92 if conv.limit else 0x12 if conv.relu else 0x53),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, 0),
        ("DPU", 0x406C, conv.limit),
        *_operand(conv.added),
        ("DPU", 0x407C, 0),
        ("DPU", 0x4080, conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, conv.scale),
        ("DPU", 0x4088, conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(8)),
        ("DPU", 0x40C0, surface * (4 if conv.depthwise else 2)),
        ("DPU", 0x40C4, 0),
        *(("DPU", 0x4100 + 4 * i, 0) for i in range(12)),
    ]


def _operand(added: Added | None) -> list[tuple[str, int, int]]:
    if added is None:
        return [("DPU", 0x4070, ALONE), ("DPU", 0x4074, 0), ("DPU", 0x4078, 1)]
    return [
        ("DPU", 0x4070, ADDS),
        ("DPU", 0x4074, -added.zero & 0xFFFFFFFF),
        ("DPU", 0x4078, added.shift << 16 | added.scale),
    ]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    """What the DPU reads: bias, zero point and multiplier of each channel, and a second map.

    Two readers take turns at the blocks of channels of that map: each skips the other's block.
    """
    surface = conv.out_surface * ATOM
    skipped = 2 * surface - rows.out_count * conv.out_width * ATOM if conv.added else 0
    mode = 0x7D00 if conv.added else 0x7816 if conv.depthwise else 0x7810
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, round_up(conv.outputs, conv.out_block) - 1),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0xE),
        *(("DPU_RDMA", register, 0) for register in (0x5020, 0x5028, 0x502C)),
        ("DPU_RDMA", 0x5034, 0x40000004 if conv.added else 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x5040, surface if conv.added else 0),
        ("DPU_RDMA", 0x5044, mode),
        ("DPU_RDMA", 0x5048, 0),
        ("DPU_RDMA", 0x504C, skipped),
        ("DPU_RDMA", 0x5064, 0),
        ("DPU_RDMA", 0x5068, 0x1010101),
        ("DPU_RDMA", 0x506C, skipped),
    ]
