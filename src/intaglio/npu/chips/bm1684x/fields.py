"""One command as bits: pack named fields, unpack them, and find a command's form by its head."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from intaglio.errors import BadInput
from intaglio.npu.chips.bm1684x import tables, tables_bm1684, tables_bm1688, tables_bm1690

HEAD = {"cmd_id", "cmd_id_dep", "cmd_short", "tsk_typ", "cmd_type"}  # not in Command.fields
OTHER = "other_bits"  # bits that are set but belong to no field
DEFAULTS = {
    "cmd_id_en": 1,
    "tsk_lane_num": (1 << 64) - 1,
    "localmem_mask_l32": (1 << 32) - 1,
    "localmem_mask_h32": (1 << 32) - 1,
}
SHORTEST = 16  # bytes
SHORT = re.compile(r"^s(?=[A-Z])")


@dataclass(frozen=True)
class Form:
    """The bits of one command."""

    name: str
    engine: str
    bits: Mapping[str, tuple[int, int]]  # lowest bit, number of bits
    size: int  # bytes
    type: int
    short: int | None  # None: the bit means nothing
    kinds: Mapping[int, str]
    defaults: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the fields that a Command has."""
        return tuple(n for n in self.bits if n not in HEAD)

    @cached_property
    def _known(self) -> int:
        return sum(((1 << n) - 1) << low for low, n in self.bits.values())

    def pack(self, values: Mapping[str, int], number: int, depends: int) -> bytes:
        """The bytes of a command; BadInput where a value does not fit its field."""
        head = {"cmd_id": number, "cmd_id_dep": depends, "tsk_typ": self.type}
        head |= {"cmd_type": self.type, "cmd_short": int(bool(self.short))}
        word = values.get(OTHER, 0)
        extra = values.keys() - self.bits.keys() - {OTHER}
        if extra:
            raise BadInput(f"{self.name}: there is no field '{min(extra)}'")
        for name, (low, bits) in self.bits.items():
            value = head[name] if name in HEAD else values.get(name, self.defaults.get(name, 0))
            if not 0 <= value < 1 << bits:
                raise BadInput(
                    f"{self.name}: field '{name}' is {value}; it has 0 to {(1 << bits) - 1}"
                )
            word |= value << low
        return word.to_bytes(self.size, "little")

    def unpack(self, data: bytes) -> tuple[dict[str, int], int, int]:
        """The fields of a command, its number and the number it depends on."""
        word = int.from_bytes(data[: self.size], "little")
        bits = self.bits
        values = {n: word >> bits[n][0] & (1 << bits[n][1]) - 1 for n in self.names}
        if rest := word & ~self._known:
            values[OTHER] = rest
        number, depends = (
            word >> bits[n][0] & (1 << bits[n][1]) - 1 if n in bits else 0
            for n in ("cmd_id", "cmd_id_dep")
        )
        return values, number, depends


@dataclass(frozen=True)
class Forms:
    """All commands of a chip, by name and by head."""

    chip: str
    by_name: Mapping[str, Form]

    @cached_property
    def _by_head(self) -> dict[tuple[str, int, int], list[Form]]:
        found: dict[tuple[str, int, int], list[Form]] = {}
        for form in self.by_name.values():
            for short in (0, 1) if form.short is None else (form.short,):
                found.setdefault((form.engine, short, form.type), []).append(form)
        return found

    @cached_property
    def numbered(self) -> bool:
        """Whether commands hold their numbers; else they are counted."""
        return "cmd_id" in self.by_name["DMA_tensor"].bits

    @cached_property
    def _type_bits(self) -> int:
        return self.by_name["DMA_tensor"].bits["cmd_type"][1]

    def find(self, engine: str, head: int) -> Form | None:
        """The form of a command whose first 64 bits are `head`; None: unknown."""
        if self.chip == "bm1684":
            places = FIRST_HEADS[engine]
        elif engine == "tiu":
            places = (0, 1), (41, 4), (45, 5)
        else:
            places = (3, 1), (32, self._type_bits), (36, 3)
        short, kind, special = (head >> low & (1 << bits) - 1 for low, bits in places)
        forms = self._by_head.get((engine, short, kind), [])
        return next((f for f in forms if special in f.kinds), forms[0] if forms else None)


# where short form, type and kind lie in commands of the BM1684; 0 bits: there is no such field
FIRST_HEADS = {"tiu": ((0, 0), (37, 4), (41, 5)), "dma": ((0, 0), (0, 0), (32, 3))}


def layout(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    """The fields of a description (see tables.py), and the number of bits."""
    fields: dict[str, tuple[int, int]] = {}
    at = 0
    for item in text.split():
        pattern, bits = item.rsplit(":", 1)
        for name in _expand(pattern):
            if name != "_":
                fields[name] = at, int(bits)
            at += int(bits)
    return fields, at


def _expand(pattern: str) -> Iterator[str]:
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(parts)]
    return ("".join(words) for words in itertools.product(*choices))


def _kinds(text: str) -> dict[int, str]:
    return {int(k): name for k, name in (item.split(":") for item in text.split())}


def _forms(chip: str, bits: Mapping[str, str], kinds: Mapping[str, tuple[int, str]]) -> Forms:
    """All commands of a chip; a key of `bits` names the commands that share them."""
    forms: dict[str, Form] = {}
    for names, text in bits.items():
        fields, total = layout(text)
        usual = DEFAULTS | tables_bm1684.DEFAULTS if chip == "bm1684" else DEFAULTS
        values = {n: v for n, v in usual.items() if n in fields}
        for name in names.split():
            long = SHORT.sub("", name)
            engine = "dma" if long.startswith("DMA_") else "tiu"
            long = "&".join(SHORT.sub("", part) for part in name.split("&"))
            if long not in kinds:
                continue
            kind, specials = kinds[long]
            one_form = long in ("LAR", "SYSID", "SYS", "SYS_TR_ACC") or chip == "bm1684"
            short = None if one_form else int(name != long)
            form = Form(name, engine, fields, total // 8, kind, short, _kinds(specials), values)
            forms[name] = form
    return Forms(chip, forms)


def _all() -> Iterator[Forms]:
    full = " ".join(name for name in tables.TIU_KINDS if name not in tables.TIU_SHORT)
    first = tables.TIU_KINDS | tables.DMA_KINDS
    yield _forms("bm1684", tables_bm1684.FORMS, tables_bm1684.KINDS)
    yield _forms("bm1684x", {full: tables.FULL, **tables.TIU_SHORT, **tables.DMA_FORMS}, first)
    kept = {k: v for k, v in first.items() if k not in ("TRANS&BC", "SYSID", "SEG")}
    second = kept | tables_bm1688.KINDS
    yield _forms("bm1688", tables_bm1688.FORMS, second)
    yield _forms("bm1690", tables_bm1690.FORMS, second | tables_bm1690.KINDS)


FORMS = {forms.chip: forms for forms in _all()}
COMMANDS = FORMS["bm1684x"].by_name
