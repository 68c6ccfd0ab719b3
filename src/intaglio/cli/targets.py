"""`intaglio targets`: list the chips, or show the figures of one with their sources."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import Any

import click

from intaglio.cli import fitted, runs_on
from intaglio.cli.chip_names import TARGET
from intaglio.targets import chip
from intaglio.targets.chip import ESTIMATE, Chip
from intaglio.targets.chipfile import HOST
from intaglio.text_table import terminal_width

UNITS = {  # figures of a chip: title, unit
    "cores": ("cores", ""),
    "clock": ("clock", "MHz"),
    "sram": ("SRAM of a core", "bytes"),
    "banks": ("SRAM banks", ""),
    "align": ("SRAM alignment", "bytes"),
    "shared": ("shared SRAM", "bytes"),
    "ddr": ("DDR bandwidth", "bytes/ns"),
    "burst": ("shortest transfer", "bytes"),
    "c2": ("channel block", "channels"),
    "packed": ("rows packed", ""),
    "sparse": ("sparse weights", ""),
}


MATMUL = {  # figures of stand-alone matrix products: title, unit
    "types": ("types A,B,C", ""),
    "k": ("K multiple of", ""),
    "n": ("N multiple of", ""),
    "most_k": ("K at most", ""),
    "most_n": ("N at most", ""),
    "a": ("native A", "adjacent columns"),
    "b": ("native B", "columns and rows of a block"),
    "c": ("native C", "adjacent columns"),
    "segment": ("B in parts of", "rows"),
    "transposed": ("B transposed", ""),
}


@click.command("targets")
@click.argument("name", required=False, type=TARGET)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the chips for --target, or show NAME: a chip, or a TOML file that describes one.

    \b
    intaglio targets                  one line per chip
    intaglio targets rk3588           every figure with its unit and source
    intaglio targets ./mychip.toml    check your own description of a chip
    """
    if name is None:
        _list(as_json)
    elif name == "cpu":
        _cpu(as_json)
    else:
        _explain(chip.load(name), as_json)


def facts(c: Chip) -> dict[str, Any]:
    """The figures of a chip, for JSON."""
    return {
        "name": c.name,
        "title": c.title,
        "family": c.family,
        "compatible": c.compatible,
        "estimate": c.estimate,
        "tops": round(c.tops(), 3),
        "types": list(c.types),
        **{k: getattr(c, k) for k in UNITS},
        "units": {
            u.name: {
                "rate": u.rate,
                "in_atom": u.in_atom,
                "out_atom": u.out_atom,
                "limits": u.limits,
            }
            for u in c.units.values()
        },
        "matmul": asdict(c.matmul) if c.matmul else None,
        "host": asdict(c.host),
        "timing": c.timing,
        "estimates": list(c.estimates),
        "sources": c.sources,
    }


def _list(as_json: bool) -> None:
    chips = [chip.load(n) for n in chip.names()]
    if as_json:
        long = ("units", "host", "timing", "sources")
        rows = [{k: v for k, v in facts(c).items() if k not in long} for c in chips]
        click.echo(json.dumps(rows, indent=1))
        return
    click.echo("name     family cores  TOPS  SRAM/core + shared  GB/s  types")
    click.echo("cpu      cpu    this machine's instruction set, or `compile --isa`")
    for c in sorted(chips, key=lambda c: (c.family, c.name)):
        memory = f"{_bytes(c.sram)} + {_bytes(c.shared)}" if c.shared else _bytes(c.sram)
        note = " (estimated)" if c.estimate else ""
        click.echo(
            f"{c.name:8} {c.family:6} {c.cores:5} {c.tops():5.2f}  {memory:18} "
            f"{c.ddr:5.1f}  {' '.join(c.types)}{note}"
        )
    click.echo(f"\n{runs_on.TARGETS}")
    click.echo("TOPS: int8, a multiply-add counts as two. Sources: `intaglio targets NAME`")


def _cpu(as_json: bool) -> None:
    from intaglio.cpu_isa import NAMES

    isas = list(NAMES)
    if as_json:
        click.echo(json.dumps({"name": "cpu", "isas": isas}, indent=1))
    else:
        fitted.echo(
            f"cpu         instruction sets {', '.join(isas)}; features combine, as in "
            "avx512-vnni-bf16-vbmi: see `intaglio compile --isa`"
        )


def _explain(c: Chip, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts(c), indent=1))
        return
    guess = " (all figures estimated)" if c.estimate else ""
    click.echo(f"{c.name}: {c.title}, family {c.family}{guess}")
    alike = [n for n in chip.names() if n != c.name and chip.load(n).compatible == c.compatible]
    fitted.echo(f"  compatible with   {', '.join(alike) or 'no other chip'}")
    fitted.echo(
        "  peak of all cores " + ", ".join(f"{c.tops(t):.2f} {t}" for t in c.types) + "  (TOPS)"
    )
    for key, (title, unit) in UNITS.items():
        if f"chip.{key}" in c.sources:
            _figure(c, f"chip.{key}", title, _words(getattr(c, key)), unit)
    for u in c.units.values():
        work = "products" if u.in_atom or u.name == "matmul" else "elements"
        click.echo(f"  {u.name}")
        _figure(c, f"units.{u.name}.rate", "  " + work, _words(u.rate), "per cycle")
        if u.in_atom:
            _figure(c, f"units.{u.name}.in_atom", "  reads", _words(u.in_atom), "channels at once")
            _figure(
                c, f"units.{u.name}.out_atom", "  writes", _words(u.out_atom), "channels at once"
            )
        if u.limits:
            _figure(c, f"units.{u.name}.limits", "  at most", _words(u.limits), "")
    if c.matmul:
        click.echo("  stand-alone matmul")
        for key, (title, unit) in MATMUL.items():
            if value := getattr(c.matmul, key):
                _figure(c, f"matmul.{key}", f"  {title}", _words(value), unit)
            elif f"matmul.{key}" in c.sources:
                _figure(c, f"matmul.{key}", f"  {title}", "no", "")
    click.echo("  CPU")
    for key in HOST:
        unit = {"cores": "", "clock": "MHz"}.get(key, "per cycle and core")
        _figure(c, f"host.{key}", "  " + key, _words(getattr(c.host, key)), unit)
    by_type: dict[str, dict[str, float]] = {}
    for key, value in c.timing.items():
        name, _, kind = key.partition(".")
        if kind:
            by_type.setdefault(name, {})[kind] = value
        else:
            _figure(c, f"timing.{key}", f"timing {key}", _words(value), "")
    for name, values in by_type.items():
        _figure(c, f"timing.{name}", f"timing {name}", _words(values), "")


def _figure(c: Chip, key: str, title: str, value: str, unit: str) -> None:
    fitted.echo(f"  {title:20}{value} {unit}".rstrip())
    source = c.sources[key]
    mark = "estimate: " if source.startswith(ESTIMATE) else "from "
    text = mark + source.removeprefix(ESTIMATE)
    click.echo(
        textwrap.fill(
            text, terminal_width() or 100, initial_indent=" " * 24, subsequent_indent=" " * 26
        )
    )


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items() if k != "u8")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "|".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _bytes(n: int) -> str:
    return f"{n / 1024:.0f} KiB" if n < 1 << 20 else f"{n / (1 << 20):.4g} MiB"
