"""Reads a chip's TOML file; an invalid one gives one line that names the file and the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadFile
from intaglio.targets.chip import ESTIMATE, Chip, Host, Products, Unit

FAMILIES = ("rknpu", "kpu", "sophgo")
FILES = ("kmodel", "bmodel", "cvimodel", "rkjob")  # files of a chip's commands that Intaglio writes
UNITS = (
    "conv",
    "depthwise",
    "pool",
    "eltwise",
    "lut",
    "resize",
    "depth_to_space",
    "matmul",
    "copy",
)
PRODUCTS = ("conv", "depthwise")  # units with atoms of input and output channels
LIMITS = (
    "kernel",
    "area",
    "stride",
    "pad",
    "dilation",
    "channels",
    "height",
    "width",
    "entries",
    "factor",
)
SPARSE = ("2:4 in", "2:4 out", "16:4")
_HEAD = {
    "title": str,
    "family": str,
    "compatible": str,
    "file": str,
    "estimate": bool,
    "only_shifts": bool,
    "sources": dict,
    "chip": dict,
    "units": dict,
    "host": dict,
    "timing": dict,
    "matmul": dict,
}
_NEEDED = ("title", "family", "sources", "chip", "units", "host")

Check = Callable[[Any], str | None]  # of a value: None, or what is needed instead


def _whole(least: int, most: int = 1 << 40) -> Check:
    def check(value: Any) -> str | None:
        right = type(value) is int and least <= value <= most
        return None if right else f"a whole number from {least} to {most} is needed"

    return check


def _positive(most: float) -> Check:
    def check(value: Any) -> str | None:
        right = type(value) in (int, float) and 0 < value <= most
        return None if right else f"a number above 0 and up to {most:g} is needed"

    return check


def _share_up_to_one(value: Any) -> str | None:
    right = type(value) in (int, float) and 0 < value <= 1
    return None if right else "a number above 0 and up to 1 is needed"


def _share_below_one(value: Any) -> str | None:
    right = type(value) in (int, float) and 0 <= value < 1
    return None if right else "a number from 0 to below 1 is needed"


def _cost(value: Any) -> str | None:
    right = type(value) in (int, float) and 0 <= value <= 1e9
    return None if right else "a number from 0 to 1e9 is needed"


def _power_of_two(value: Any) -> str | None:
    right = type(value) is int and 1 <= value <= 65536 and value & (value - 1) == 0
    return None if right else "a power of two from 1 to 65536 is needed"


def _sparse_forms(value: Any) -> str | None:
    right = isinstance(value, list) and all(v in SPARSE for v in value)
    return None if right else f"a list of {', '.join(map(repr, SPARSE))} is needed"


def _triples(value: Any) -> str | None:
    right = isinstance(value, list) and all(isinstance(v, str) and _triple(v) for v in value)
    return None if right else "a list of element types of A, B and C, such as 'i8,i8,i32'"


def _triple(text: str) -> bool:
    return text.count(",") == 2 and all(t in dtypes.TABLE for t in text.split(","))


def _block(value: Any) -> str | None:
    right = isinstance(value, list) and len(value) == 2 and not any(map(_power_of_two, value))
    return None if right else "two powers of two are needed: columns and rows"


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false is needed"


def _limit(value: Any) -> str | None:
    values = value if isinstance(value, list) and value else [value]
    right = all(type(v) is int and v >= 0 for v in values)
    return None if right else "a whole number or a list of them is needed"


FIGURES: dict[str, Check] = {
    "cores": _whole(1, 64),
    "clock": _positive(10_000),  # MHz
    "sram": _whole(1024, 1 << 32),
    "banks": _whole(1, 4096),
    "align": _power_of_two,
    "shared": _whole(0, 1 << 32),
    "ddr": _positive(10_000),  # bytes per nanosecond
    "burst": _power_of_two,
}
HOST: dict[str, Check] = {  # the CPU of the chip; rates are per core and cycle
    "cores": _whole(1, 256),
    "clock": _positive(10_000),  # MHz
    "products": _positive(1024),
    "arithmetic": _positive(1024),
    "functions": _positive(1024),
    "moves": _positive(1024),
    "bytes": _positive(1024),
}
TIMING: dict[
    str, Check
] = {  # the constants of npu/predict/cycles.py; docs/targets.md explains them
    "efficiency": _share_up_to_one,
    "write": _positive(16),
    "port": _positive(1e6),
    "steps": _whole(1, 64),
    "pixels": _whole(1, 1024),
    "taps": _whole(0, 1),
    "apart": _cost,
    "fold": _whole(0, 64),
    "regroup": _whole(0, 64),
    "launch": _cost,
    "layer": _cost,
    "transfer": _cost,
    "alone": _share_below_one,
    "barrier": _cost,
    "start": _cost,
    "call": _cost,
    "turn": _cost,
    "exp": _cost,
    "images": _whole(1, 64),
}
BY_TYPE: dict[str, Check] = {"use": _share_up_to_one, "apart": _cost}

MATMUL: dict[str, Check] = {  # by element type; docs/matmul.md explains them
    "k": _power_of_two,
    "n": _power_of_two,
    "most_k": _whole(1),
    "most_n": _whole(1),
    "a": _power_of_two,
    "b": _block,
    "c": _power_of_two,
}
ONE = {"types": _triples, "segment": _whole(0), "transposed": _boolean}


class _File:
    """One chip file: reads values and reports errors with the key at fault."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.titles: dict[str, str] = {}
        self.sources: dict[str, str] = {}  # figure -> its source

    def fault(self, key: str, what: str) -> BadFile:
        return BadFile(f"{self.path}: {key}: {what}")

    def table(self, key: str, value: Any, known: Any) -> dict[str, Any]:
        """`value` as a table whose keys are all `known`."""
        if not isinstance(value, dict):
            raise self.fault(key, f"is {value!r}; a table is needed")
        for k in value:
            if k not in known:
                raise self.fault(
                    f"{key}.{k}" if key else k, f"is not known here; known are {', '.join(known)}"
                )
        return value

    def source(self, key: str, row: Any) -> dict[str, Any]:
        """The figure `key` without its source, which is added to `sources`."""
        if not isinstance(row, dict):
            raise self.fault(key, f"is {row!r}; {{ value = ..., source = ... }} is needed")
        given = [k for k in ("source", "estimate") if k in row]
        if len(given) != 1:
            raise self.fault(
                key,
                f"has {' and '.join(given) or 'no source'}; it needs either a source, which "
                "begins with a key of [sources], or an estimate, which gives the reason",
            )
        text = row[given[0]]
        if not isinstance(text, str) or not text.strip():
            raise self.fault(f"{key}.{given[0]}", f"is {text!r}; a text is needed")
        if given[0] == "estimate":
            self.sources[key] = ESTIMATE + text
        else:
            word = re.match(r"\w*", text)[0]  # type: ignore[index]  # matches any text
            if word not in self.titles:
                raise self.fault(
                    f"{key}.source", f"begins with '{word}', which is no key of [sources]"
                )
            self.sources[key] = self.titles[word] + text[len(word) :]
        return {k: v for k, v in row.items() if k != given[0]}

    def value(self, key: str, row: Any, check: Check) -> Any:
        """The value of a figure that is a number or a list."""
        rest = self.table(key, self.source(key, row), ("value",))
        if "value" not in rest:
            raise self.fault(f"{key}.value", "is missing")
        self.check(f"{key}.value", rest["value"], check)
        return rest["value"]

    def by_type(self, key: str, row: Any, check: Check) -> dict[str, Any]:
        """The values of a figure by element type; u8 has the value of i8."""
        rest = self.table(key, self.source(key, row), tuple(dtypes.TABLE))
        if not rest:
            raise self.fault(key, "has no element type")
        for t, value in rest.items():
            self.check(f"{key}.{t}", value, check)
        return rest if "i8" not in rest else {"u8": rest["i8"], **rest}

    def check(self, key: str, value: Any, check: Check) -> None:
        wrong = check(value)
        if wrong:
            raise self.fault(key, f"is {value!r}; {wrong}")

    def need(self, key: str, table: dict[str, Any], names: Any) -> None:
        for name in names:
            if name not in table:
                raise self.fault(f"{key}.{name}" if key else name, "is missing")


def read(path: Path) -> Chip:
    """The chip that `path` describes; BadFile with the key at fault if it is invalid."""
    file = _File(path)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise BadFile(f"{path}: cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BadFile(f"{path}: is not valid TOML: {e}") from e
    file.table("", data, _HEAD)
    file.need("", data, _NEEDED)
    for key, kind in _HEAD.items():
        if key in data and type(data[key]) is not kind:
            raise file.fault(key, f"is {data[key]!r}; a {kind.__name__} is needed")
    if data["family"] not in FAMILIES:
        raise file.fault("family", f"is '{data['family']}'; known are {', '.join(FAMILIES)}")
    if data.get("file", FILES[0]) not in FILES:
        raise file.fault("file", f"is '{data['file']}'; known are {', '.join(FILES)}")
    for word, text in data["sources"].items():
        if not isinstance(text, str) or not text.strip() or not word.isidentifier():
            raise file.fault(f"sources.{word}", f"is {text!r}; an identifier with a text is needed")
        file.titles[word] = text
    found = _figures(file, data["chip"])
    units = _units(file, data["units"])
    _check_consistency(file, found, units)
    timing = _timing(file, data.get("timing", {}))
    host = file.table("host", data["host"], HOST)
    file.need("host", host, HOST)
    cpu = Host(**{k: file.value(f"host.{k}", host[k], check) for k, check in HOST.items()})
    return Chip(
        name=path.stem,
        title=data["title"],
        family=data["family"],
        units=units,
        timing=timing,
        matmul=_matmul(file, data["matmul"]) if "matmul" in data else None,
        compatible=data.get("compatible", path.stem),
        file=data.get("file", ""),
        estimate=data.get("estimate", False),
        only_shifts=data.get("only_shifts", False),
        sources=file.sources,
        host=cpu,
        **found,
    )


def _figures(file: _File, table: dict[str, Any]) -> dict[str, Any]:
    file.table("chip", table, (*FIGURES, "c2", "packed", "sparse"))
    file.need("chip", table, (*FIGURES, "c2"))
    found = {k: file.value(f"chip.{k}", table[k], check) for k, check in FIGURES.items()}
    found["c2"] = file.by_type("chip.c2", table["c2"], _power_of_two)
    if "packed" in table:
        found["packed"] = file.value("chip.packed", table["packed"], _boolean)
    if "sparse" in table:
        found["sparse"] = tuple(file.value("chip.sparse", table["sparse"], _sparse_forms))
    return found


def _units(file: _File, table: dict[str, Any]) -> dict[str, Unit]:
    file.table("units", table, UNITS)
    file.need("units", table, ("conv", "copy"))
    return {name: _unit(file, name, row) for name, row in table.items()}


def _unit(file: _File, name: str, row: Any) -> Unit:
    key, atoms = f"units.{name}", ("in_atom", "out_atom")
    row = file.table(key, row, ("rate", *(atoms if name in PRODUCTS else ()), "limits"))
    file.need(key, row, ("rate", *(atoms if name in PRODUCTS else ())))
    rate = file.by_type(f"{key}.rate", row["rate"], _positive(1e7))
    of = {a: file.by_type(f"{key}.{a}", row[a], _power_of_two) for a in atoms if a in row}
    for atom, values in of.items():
        file.need(f"{key}.{atom}", values, rate)
    limits = {}
    if "limits" in row:
        rest = file.table(f"{key}.limits", file.source(f"{key}.limits", row["limits"]), LIMITS)
        for k, v in rest.items():
            file.check(f"{key}.limits.{k}", v, _limit)
            limits[k] = tuple(v) if isinstance(v, list) else v
    return Unit(name, rate, of.get("in_atom", {}), of.get("out_atom", {}), limits)


def _timing(file: _File, table: dict[str, Any]) -> dict[str, float]:
    file.table("timing", table, (*TIMING, *BY_TYPE))
    found: dict[str, float] = {}
    for k, row in table.items():
        if k in BY_TYPE and not (k in TIMING and isinstance(row, dict) and "value" in row):
            by_type = file.by_type(f"timing.{k}", row, BY_TYPE[k])
            found |= {f"{k}.{t}": v for t, v in by_type.items()}
        else:
            found[k] = file.value(f"timing.{k}", row, TIMING[k])
    return found


def _matmul(file: _File, table: dict[str, Any]) -> Products:
    file.table("matmul", table, (*ONE, *MATMUL))
    file.need("matmul", table, [k for k in (*ONE, *MATMUL) if not k.startswith("most")])
    one = {k: file.value(f"matmul.{k}", table[k], check) for k, check in ONE.items()}
    by: dict[str, Any]
    by = {
        k: file.by_type(f"matmul.{k}", table[k], check) if k in table else {}
        for k, check in MATMUL.items()
    }
    for triple in one["types"]:
        a, _, c = triple.split(",")
        for key, kind in (("k", a), ("n", a), ("a", a), ("b", a), ("c", c)):
            file.need(f"matmul.{key}", by[key], [kind])
    by["b"] = {t: tuple(v) for t, v in by["b"].items()}
    return Products(**{**one, "types": tuple(one["types"])}, **by)


def _check_consistency(file: _File, found: dict[str, Any], units: dict[str, Unit]) -> None:
    """Check figures against each other."""
    for t in units["conv"].rate:
        if t not in found["c2"]:
            raise file.fault(f"chip.c2.{t}", "is missing, but units.conv.rate has that type")
    if found["sram"] % found["banks"]:
        raise file.fault(
            "chip.banks",
            f"is {found['banks']}, which does not divide the {found['sram']} bytes of sram",
        )
