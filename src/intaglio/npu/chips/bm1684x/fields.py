"""One command as bits: pack named fields, unpack them, and find a command's form by its head."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from intaglio.errors import BadInput
from intaglio.npu.chips.bm1684x import tables

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

    def find(self, engine: str, head: int) -> Form | None:
        """The form of a command whose first 64 bits are `head`; None: unknown."""
        if engine == "tiu":
            short, kind, special = head & 1, head >> 41 & 15, head >> 45 & 31
        elif self.chip == "sg2260":
            short, kind, special = head >> 3 & 1, head >> 32 & 31, head >> 37 & 7
        else:
            short, kind, special = head >> 3 & 1, head >> 32 & 15, head >> 36 & 7
        forms = self._by_head.get((engine, short, kind), [])
        return next((f for f in forms if special in f.kinds), forms[0] if forms else None)


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


def _forms() -> Forms:
    forms: dict[str, Form] = {}

    def add(name: str, engine: str, text: str, of: tuple[int, str], short: int | None) -> None:
        bits, total = layout(text)
        values = {n: v for n, v in DEFAULTS.items() if n in bits}
        forms[name] = Form(name, engine, bits, total // 8, of[0], short, _kinds(of[1]), values)

    for name, of in tables.TIU_KINDS.items():
        if name in tables.TIU_SHORT:  # one form only
            add(name, "tiu", tables.TIU_SHORT[name], of, None)
            continue
        add(name, "tiu", tables.FULL, of, 0)
        short = "&".join(f"s{part}" for part in name.split("&"))
        if short in tables.TIU_SHORT:
            add(short, "tiu", tables.TIU_SHORT[short], of, 1)
    for name, text in tables.DMA_FORMS.items():
        kinds = tables.DMA_KINDS[SHORT.sub("", name)]
        add(name, "dma", text, kinds, int(name[0] == "s"))
    return Forms("bm1684x", forms)


def _of_bm1688(forms: Forms) -> Forms:
    """The forms of BM1688: commands have no number of their own, and wait for 24-bit numbers."""
    found: dict[str, Form] = {}
    for name, form in forms.by_name.items():
        bits = {n: at for n, at in form.bits.items() if n not in ("cmd_id", "cmd_id_en")}
        bits["cmd_id_dep"] = (17, 24) if form.engine == "tiu" else (64, 24)
        if name in ("sCONV", "sPorD"):
            bits |= {"res0_sign": (55, 1), "opd5_const": (3, 1)}
            bits |= {"opd4_const": (2, 1)} if name == "sCONV" else {}
        elif name == "sRQ&sDQ":
            bits |= {"opd2_n_str": (67, 7), "res0_addr": (74, 26)}
        defaults = {n: v for n, v in form.defaults.items() if n in bits}
        found[name] = replace(form, bits=bits, defaults=defaults)
    return Forms("bm1688", found)


def _of_sg2260(forms: Forms) -> Forms:
    """The forms of SG2260: a bit says whether a command waits, and DDR has 45-bit addresses."""
    found: dict[str, Form] = {}
    for name, form in forms.by_name.items():
        bits = dict(form.bits)
        if form.engine == "tiu":
            bits |= {"cmd_id_dep": (17, 20), "cmd_id_dep_en": (37, 1)}
        else:
            moved = {"cmd_type": (32, 5), "cmd_special_function": (37, 3)}
            moved |= {"fill_constant_en": (40, 1), "src_data_format": (41, 4)}
            bits |= {n: at for n, at in moved.items() if n in bits}
            bits |= {"cmd_id_dep": (64, 20), "cmd_id_dep_en": (84, 1)}
            for side in ("src", "dst"):
                if at := bits.pop(f"{side}_start_addr_h8", None):
                    bits[f"{side}_start_addr_h13"] = at[0], 13
        if name == "sAR":
            bits["res0_sign"] = 56, 1
        found[name] = replace(form, bits=bits, defaults={**form.defaults, "cmd_id_dep_en": 1})
    return Forms("sg2260", found)


_BM1684X = _forms()
_BM1688 = _of_bm1688(_BM1684X)
FORMS = {"bm1684x": _BM1684X, "bm1688": _BM1688, "sg2260": _of_sg2260(_BM1688)}
COMMANDS = FORMS["bm1684x"].by_name
