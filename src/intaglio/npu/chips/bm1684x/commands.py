"""Streams of commands: one for the TIU (computes), one for the GDMA (moves data)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips.bm1684x.fields import FORMS, SHORTEST, Form

ALIGN = 128  # bytes of a stream
UNKNOWN = "unknown"  # 16 bytes that begin as no known command does
ENGINES = ("tiu", "dma")
ENDS = {
    "bm1684x": {
        "tiu": ("SYSID", {"tsk_eu_typ": 31}),
        "dma": ("sDMA_sys", {"cmd_special_function": 0}),
    },
    "bm1688": {
        "tiu": ("SYS", {"tsk_eu_typ": 31}),
        "dma": ("sDMA_sys", {"cmd_special_function": 0}),
    },
}
ENDS["bm1690"] = ENDS["bm1688"]  # streams of the BM1684 have none
SENDS = {"SYS": 8, "sDMA_sys": 3}  # kinds of commands that send a message to all cores
WAITS = {"SYS": 9, "sDMA_sys": 4}  # and that wait for those of all cores
DEPENDENCY = {"bm1690": (1 << 20) - 1}  # bits of a dependency that are a number


@dataclass(slots=True)
class Command:
    """One command of an engine ("tiu" or "dma"), by its name in `fields.COMMANDS`."""

    engine: str
    name: str
    fields: dict[str, int] = field(default_factory=dict)  # absent: the default
    number: int = 0  # in its engine, from 1
    depends: int = 0  # number of the other engine's command that must have ended
    layer: int = -1  # for reports; not encoded


def form_of(command: Command, chip: str = "bm1684x") -> Form | None:
    """The bits of a command; None: it is unknown."""
    return FORMS[chip].by_name.get(command.name)


def kind_of(command: Command, chip: str = "bm1684x") -> str:
    """What a command does, in a word."""
    form = form_of(command, chip)
    if form is None:
        return UNKNOWN
    special = "tsk_eu_typ" if form.engine == "tiu" else "cmd_special_function"
    number = command.fields.get(special, 0)
    return form.kinds.get(number, f"kind {number}")


def is_end(command: Command, chip: str = "bm1684x") -> bool:
    """Whether a command ends its stream."""
    if chip not in ENDS:
        return False
    name, fields = ENDS[chip][command.engine]
    if command.name != name:
        return False
    return all(command.fields.get(k, 0) == v for k, v in fields.items())


def encode(commands: Iterable[Command], chip: str = "bm1684x") -> tuple[bytes, bytes]:
    """The streams of the TIU and of the GDMA, with their end commands and padding."""
    streams = {engine: bytearray() for engine in ENGINES}
    last: dict[str, Command] = {}
    for c in commands:
        streams[c.engine] += _bytes(c, chip)
        last[c.engine] = c
    for engine, stream in streams.items():
        final = last.get(engine)
        if chip in ENDS and (final is None or not is_end(final, chip)):
            name, fields = ENDS[chip][engine]
            number = final.number + 1 if final else 1
            stream += _bytes(Command(engine, name, fields, number), chip)
        stream += bytes(-len(stream) % ALIGN)
    return bytes(streams["tiu"]), bytes(streams["dma"])


def _bytes(c: Command, chip: str) -> bytes:
    form = form_of(c, chip)
    if form:
        return form.pack(c.fields, c.number, c.depends)
    if c.name != UNKNOWN:
        raise BadInput(f"{chip} has no command '{c.name}'")
    return b"".join(c.fields[f"word{i}"].to_bytes(4, "little") for i in range(SHORTEST // 4))


def decode_stream(data: bytes, engine: str, chip: str = "bm1684x") -> list[Command]:
    """The commands of one stream with its end; what is unknown comes as words."""
    found: list[Command] = []
    forms, at = FORMS[chip], 0
    while at < len(data):
        if found and is_end(found[-1], chip) and not any(data[at:]):
            break
        form = forms.find(engine, int.from_bytes(data[at : at + 8], "little"))
        if form is None:
            words = data[at : at + SHORTEST].ljust(SHORTEST, b"\0")
            fields = {
                f"word{i}": int.from_bytes(words[4 * i : 4 * i + 4], "little")
                for i in range(SHORTEST // 4)
            }
            found.append(Command(engine, UNKNOWN, fields))
            at += SHORTEST
            continue
        if at + form.size > len(data):
            raise BadFile(
                f"{chip}: command {form.name} at byte {at} has {form.size} bytes; "
                f"the stream has {len(data)}"
            )
        fields, number, depends = form.unpack(data[at : at + form.size])
        if not forms.numbered:
            number = len(found) + 1
        found.append(Command(engine, form.name, fields, number, depends))
        at += form.size
    return found


def decode(tiu: bytes, dma: bytes, chip: str = "bm1684x") -> list[Command]:
    """The commands of both streams, in an order in which they may run one after another."""
    return in_order(decode_stream(tiu, "tiu", chip), decode_stream(dma, "dma", chip), chip)


def in_order(tiu: list[Command], dma: list[Command], chip: str = "bm1684x") -> list[Command]:
    """Both streams as one; BadFile where each waits for the other."""
    mask = DEPENDENCY.get(chip, -1)
    queues = {"tiu": tiu, "dma": dma}
    at = dict.fromkeys(ENGINES, 0)
    done = dict.fromkeys(ENGINES, 0)
    order: list[Command] = []
    while any(at[e] < len(queues[e]) for e in ENGINES):
        before = len(order)
        for engine, other in (("dma", "tiu"), ("tiu", "dma")):
            queue, i = queues[engine], at[engine]
            while i < len(queue) and queue[i].depends & mask <= done[other]:
                done[engine] = max(done[engine], queue[i].number)
                order.append(queue[i])
                i += 1
            at[engine] = i
        if len(order) == before:
            stuck = next(queues[e][at[e]] for e in ENGINES if at[e] < len(queues[e]))
            raise BadFile(
                f"command {stuck.number} of the {stuck.engine} waits for command {stuck.depends} "
                "of the other engine, which never ends"
            )
    return order


def is_one_of(c: Command, kinds: dict[str, int]) -> bool:
    """Whether a command is one of `SENDS` or `WAITS`."""
    kind = c.fields.get("tsk_eu_typ" if c.engine == "tiu" else "cmd_special_function")
    return c.name in kinds and kind == kinds[c.name]


def between_barriers(program: list[Command]) -> list[list[Command]]:
    """The commands of a core before, between and after its barriers."""
    parts: list[list[Command]] = [[]]
    waits = {"tiu": 0, "dma": 0}
    for c in program:
        if is_one_of(c, WAITS):
            waits[c.engine] += 1
            if waits[c.engine] == len(parts):
                parts.append([])
        parts[-1].append(c)
    return parts
