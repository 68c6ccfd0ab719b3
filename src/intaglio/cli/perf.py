"""`intaglio perf`: how fast a chip would run a model, without the chip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from intaglio.cli import options
from intaglio.errors import BadInput


@click.command("perf")
@click.argument("model", type=click.Path())
@click.option("--target", help="Chip, where MODEL is no package [default: the package's].")
@click.option("--chips", help="Compare chips side by side: names with commas, or all.")
@click.option("--clock", type=float, metavar="MHZ", help="What if its units ran at this clock?")
@click.option("--ddr", type=float, metavar="GB/S", help="What if its memory were that fast?")
@click.option("--sram", type=int, metavar="BYTES", help="What if a core had that much memory?")
@click.option("--cores", type=int, default=1, show_default=True, help="Cores that share the work.")
@click.option("--by-layer", is_flag=True, help="Run each layer by itself, as vendors' tools do.")
@click.option(
    "--sweep", metavar="NAME=1,2,3", help="Predict for several of clock, ddr, sram, cores."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write the report as a page.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write the timeline as a picture.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write it for chrome://tracing.")
@options.model_options
def command(model: str, target: str | None, chips: str | None, clock: float | None,
            ddr: float | None, sram: int | None, cores: int, by_layer: bool, sweep: str | None,
            as_json: bool, html: str | None, svg: str | None, trace: str | None,
            **model_options: Any) -> None:  # fmt: skip
    """Predict how fast a chip runs MODEL: a package (.itg), or a quantised model.

    \b
    intaglio perf model.itg                                   each layer, and what bounds it
    intaglio perf model.int8.onnx --target rk3588             compiles it first
    intaglio perf model.int8.onnx --chips rk3588,k230,bm1684x side by side
    intaglio perf model.itg --clock 600 --ddr 6.4             what if?
    intaglio perf model.int8.onnx --target rk3588 --sweep cores=1,2,3
    """
    from intaglio.analysis import performance_text
    from intaglio.analysis.performance import Performance
    from intaglio.files import write_atomically

    source = _Source(model, by_layer, options.load_arguments(**model_options))
    what_if = {"clock": clock, "ddr": ddr, "sram": sram, "cores": cores}
    if chips or sweep:
        if html or svg or trace:
            raise BadInput("--html, --svg and --trace are for one prediction, not for a comparison")
        rows = _chips(source, chips, what_if) if chips else _sweep(source, target, sweep, what_if)
        _compare(rows, as_json)
        return
    found: Performance = source.predict(target, what_if)
    for path, text in ((html, performance_text.page), (svg, performance_text.picture)):
        if path:
            write_atomically(path, text(found).encode())
    if trace:
        write_atomically(trace, found.trace().encode())
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        click.echo(performance_text.text(found))
        _difference(source, target, found, what_if)


class _Source:
    """What is predicted for: a package, or a model that is compiled as often as needed."""

    def __init__(self, model: str, by_layer: bool, load: dict[str, Any]):
        self.model, self.by_layer, self.load = model, by_layer, load
        self.package: Any = None
        self.graph: Any = None
        try:
            with Path(model).open("rb") as file:
                packed = file.read(4) == b"ITG1"
        except OSError as e:
            raise BadInput(f"cannot read {model}: {(e.strerror or str(e)).lower()}") from None
        if packed:
            from intaglio.package import Package

            self.package = Package.load(model)

    def predict(self, target: str | None, what_if: dict[str, Any]) -> Any:
        from intaglio.analysis.performance import performance

        rates = {k: what_if.get(k) for k in ("clock", "ddr")}
        if self.package is not None:
            if what_if.get("sram") or what_if.get("cores", 1) != 1 or self.by_layer or target:
                raise BadInput("a package is compiled already: --target, --sram, --cores and "
                               "--by-layer need the model itself")  # fmt: skip
            return performance(self.package, **rates)
        if target is None:
            raise BadInput("which chip? give --target NAME; `intaglio targets` lists them")
        package, chip = self._compiled(target, what_if)
        return performance(package, chip=chip, **rates)

    def _compiled(self, target: str, what_if: dict[str, Any]) -> tuple[Any, Any]:
        import intaglio
        from intaglio.targets import chip as chips
        from intaglio.targets import npu

        if self.graph is None:
            self.graph = intaglio.load(self.model, **self.load)
        chip = chips.load(target)
        if what_if.get("sram"):
            chip = replace(chip, sram=int(what_if["sram"]))
        cores = int(what_if.get("cores") or 1)
        target_of = npu.target(chip)
        made = intaglio.compile(self.graph, target=target_of, cores=cores, by_layer=self.by_layer)
        return made, chip


def _chips(source: _Source, names: str, what_if: dict[str, Any]) -> list[tuple[str, Any]]:
    from intaglio.errors import IntaglioError
    from intaglio.targets import chip

    known = chip.names() if names == "all" else tuple(names.split(","))
    rows: list[tuple[str, Any]] = []
    for name in known:
        chip.load(name)  # a wrong name is an error, a chip that is too small a line of the table
        try:
            rows.append((name, source.predict(name, what_if)))
        except IntaglioError as e:
            rows.append((name, e))
    return rows


def _sweep(source: _Source, target: str | None, sweep: str | None,
           what_if: dict[str, Any]) -> list[tuple[str, Any]]:  # fmt: skip
    name, _, values = (sweep or "").partition("=")
    if name not in what_if or not values:
        raise BadInput(f"--sweep {sweep}: it is clock, ddr, sram or cores = values with commas")
    try:
        numbers = [float(v) if name in ("clock", "ddr") else int(v) for v in values.split(",")]
    except ValueError:
        raise BadInput(f"--sweep {sweep}: these are no numbers") from None
    return [(f"{name}={n:g}", source.predict(target, what_if | {name: n})) for n in numbers]


def _compare(rows: list[tuple[str, Any]], as_json: bool) -> None:
    from intaglio.analysis.performance import Performance
    from intaglio.analysis.performance_text import aligned

    good = [(n, p) for n, p in rows if isinstance(p, Performance)]
    if as_json:
        plain = [p.to_dict() if isinstance(p, Performance) else {"failed": str(p)} for _, p in rows]
        named = [d | {"case": n} for d, (n, _) in zip(plain, rows, strict=True)]
        click.echo(json.dumps(named, indent=1))
        return
    most = max((p.fps for _, p in good), default=1.0)
    table = [("", "ms", "frames/s", "NPU ms", "CPU ms", "MB moved", "")]
    table += [(n, f"{p.milliseconds:.3f}", f"{p.fps:.1f}", f"{p.npu_milliseconds:.3f}",
               f"{p.cpu_milliseconds:.3f}", f"{p.bytes / 1e6:.2f}",
               "#" * max(1, round(30 * p.fps / most))) for n, p in good]  # fmt: skip
    for line in aligned(table, range(1, 6)):
        click.echo(line)
    for n, why in rows:
        if not isinstance(why, Performance):
            click.echo(f"{n}: {why}")


def _difference(source: _Source, target: str | None, found: Any, what_if: dict[str, Any]) -> None:
    """Beside the chip as it is, where something was changed."""
    if all(v is None for k, v in what_if.items() if k != "cores"):
        return
    usual = source.predict(target, {"cores": what_if["cores"]})
    faster = usual.milliseconds / found.milliseconds
    click.echo(f"as the chip is: {usual.milliseconds:.3f} ms, which makes that {faster:.2f} "
               "times as fast")  # fmt: skip
