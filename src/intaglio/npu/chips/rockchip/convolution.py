"""Convolutions of Rockchip's NPU as register commands, word by word.

A task multiplies what lies in the buffer, adds a bias per channel, scales, and writes rows of the
output. An input that does not fit is split by rows; every task reads the rows that its results
need.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from intaglio.errors import Unsupported
from intaglio.npu.chips.rockchip import (
    settings,
    settings_rk356x,
    settings_rk3562,
    settings_rk3576,
    settings_rv110x,
)
from intaglio.npu.chips.rockchip.geometry import (
    CHANNEL_BYTES,
    RK356X,
    RK3562,
    RK3576,
    RK3588,
    Convolution,
    Rows,
    data_banks,
    rows_beside,
    split,
    weight_banks,
    why_not,
)
from intaglio.npu.chips.rockchip.words import NUMBERS, Word

LAYOUTS = {
    "rk3588": settings.settings,
    "rk3562": settings_rk3562.settings,
    "rk3566": settings_rk356x.settings,
    "rv1106": settings_rv110x.settings,
    "rk3576": settings_rk3576.settings,
}
INPUT, OUTPUT = 0x1070, 0x4020
CBUF_CON0, DATA_REUSE = 0x1040, 1 << 12
SHIFTS = 0x5024  # of an RK3576: where the bits behind the point of multipliers lie
TABLE_SCALE = 0x5030  # and the scale before a table
ELSEWHERE = {INPUT: 0x1088, OUTPUT: 0x4018}
ADDRESSES = {"rk3562": ELSEWHERE, "rk3576": ELSEWHERE}


@dataclass(slots=True)
class Task:
    """Commands, and which of them hold addresses: word -> (tensor, offset)."""

    words: list[Word]
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)


def encode(conv: Convolution) -> list[Task]:
    """The tasks of a convolution, in order; each ends without naming the next one."""
    if reason := why_not(conv):
        raise Unsupported(f"rockchip: a convolution of {conv.channels} channels: {reason}")
    alone = max(conv.apart) == 1  # no zeros lie between pixels
    most = conv.design.banks - weight_banks(conv)[0]
    if conv.depthwise and alone and data_banks(conv, conv.height) > most:
        return _by_channels(conv)
    pixels = conv.height * conv.width  # weights of a single one are used once
    if conv.design is RK356X and not conv.depthwise and max(conv.kernel) == 1 < pixels:
        banks = min(data_banks(conv, conv.height), RK356X.banks - 1)
        room = (RK356X.banks - banks) * RK356X.bank_bytes // conv.kernel_bytes
        if RK356X.outputs <= room < conv.outputs:
            return _by_kernels(conv, banks, room // RK356X.outputs * RK356X.outputs)
    return _by_rows(conv)


def _by_channels(conv: Convolution) -> list[Task]:
    """A depthwise convolution whose input does not fit: as many channels at a time as do."""
    block = conv.out_block
    fitting = [
        count
        for count in range(block, conv.channels, block)
        if data_banks(_of_channels(conv, count), conv.height)
        <= conv.design.banks - conv.design.weight_banks
    ]
    step = max(fitting, default=block)
    if conv.design is not RK3588:  # one block of channels after the other
        tasks = []
        for first in range(0, conv.channels, step):
            some = _of_channels(conv, min(step, conv.channels - first))
            rows = split(some)
            banks = data_banks(some, conv.height)
            if len(rows) > 1 or conv.design is RK3562:
                banks = conv.design.banks - conv.design.weight_banks
            tasks += [_task(some, part, banks, n > 0, first) for n, part in enumerate(rows)]
        return tasks
    rows = split(_of_channels(conv, min(step, conv.channels)))
    banks = data_banks(_of_channels(conv, min(step, conv.channels)), rows[0].count)
    if len(rows) > 1:
        banks = RK3588.banks - 1
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
    banks = conv.design.banks - needed
    alone = max(conv.apart) == 1 or conv.design is RK3576
    if len(parts) == 1 and alone and conv.design is not RK3562:
        banks = data_banks(conv, parts[0].count)
    return [_task(conv, rows, banks, stay and number > 0, 0) for number, rows in enumerate(parts)]


def _by_kernels(conv: Convolution, banks: int, room: int) -> list[Task]:
    """As many outputs at a time as their weights fit; rows of the input stay for the next ones."""
    tasks = []
    for part in rows_beside(conv, conv.design.banks - banks):
        for first in range(0, conv.outputs, room):
            some = replace(conv, outputs=min(room, conv.outputs - first))
            task = _task(some, part, banks, False, 0)
            more = {"weights": conv.kernel_bytes, "channels": CHANNEL_BYTES}
            more |= {"output": conv.out_surface, "added": conv.out_surface}
            for index, (name, offset) in task.addresses.items():
                task.addresses[index] = name, offset + first * more.get(name, 0)
            for index, word in enumerate(task.words):
                if first and word.register == CBUF_CON0 and word.block == "CNA":
                    task.words[index] = replace(word, value=word.value | DATA_REUSE)
            tasks.append(task)
    return tasks


def _task(conv: Convolution, rows: Rows, banks: int, reuse: bool, first_channel: int) -> Task:
    design = conv.design
    values = LAYOUTS[design.registers](conv, rows, banks, reuse)
    task = Task([Word(NUMBERS[block], register, value) for block, register, value in values])
    atom = conv.design.atom
    pixels = atom if not conv.picture else conv.channels
    start = first_channel * (conv.in_surface or conv.height * conv.width)
    pairs = conv.depthwise and design.pairs
    addresses = {
        INPUT: ("input", start + (rows.first + rows.held) * conv.width * pixels),
        0x1110: ("weights", first_channel * conv.kernel[0] * conv.kernel[1] * (2 if pairs else 1)),
        OUTPUT: (
            "output",
            first_channel * conv.out_surface + rows.out_first * conv.out_width * atom,
        ),
        0x5020: ("channels", first_channel * (CHANNEL_BYTES - 2 if pairs else CHANNEL_BYTES)),
    }
    if design.registers == "rk3576":
        addresses[SHIFTS] = ("shifts", 0)
        if conv.table:
            addresses[TABLE_SCALE] = ("table_scale", 0)
    for usual, other in ADDRESSES.get(design.registers, {}).items():
        addresses[other] = addresses.pop(usual)
    if conv.added:
        row = rows.out_first * conv.out_width * atom + first_channel * conv.out_surface
        addresses[0x5038] = ("added", row)
        if design is RK3588:  # two readers
            addresses |= {0x5018: ("added", row), 0x5038: ("added", row + conv.out_surface * atom)}
    for index, word in enumerate(task.words):
        if word.register in addresses:
            task.addresses[index] = addresses[word.register]
    return task
