"""Convolutions of the RK3588 as register commands, word by word.

A task multiplies what lies in the buffer, adds a bias per channel, scales, and writes rows of the
output. An input that does not fit is split by rows; every task reads the rows that its results
need.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from intaglio.errors import Unsupported
from intaglio.npu.chips.rockchip.geometry import (
    ATOM,
    BANKS,
    CHANNEL_BYTES,
    Convolution,
    Rows,
    data_banks,
    split,
    weight_banks,
    why_not,
)
from intaglio.npu.chips.rockchip.settings import settings
from intaglio.npu.chips.rockchip.words import NUMBERS, Word


@dataclass(slots=True)
class Task:
    """Commands, and which of them hold addresses: word -> (tensor, offset)."""

    words: list[Word]
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)


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
    values = settings(conv, rows, banks, reuse)
    task = Task([Word(NUMBERS[block], register, value) for block, register, value in values])
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
        row = rows.out_first * conv.out_width * ATOM + first_channel * conv.out_surface
        addresses[0x5018] = ("added", row)
        addresses[0x5038] = ("added", row + conv.out_surface * ATOM)
    for index, word in enumerate(task.words):
        if word.register in addresses:
            task.addresses[index] = addresses[word.register]
    return task
