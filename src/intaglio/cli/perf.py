"""`intaglio perf`: predict the speed of a model on a chip, without the chip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from intaglio import progress
from intaglio.cli import (
    fitted,
    key_options,
    model_files,
    options,
    progress_line,
    runs_on,
    vendor_files,
)
from intaglio.cli.chip_names import CHIP, CHIPS
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable

SWEPT = {
    "clock": float,
    "ddr": float,
    "sram": int,
    "cores": int,
    "batch": int,
    "dtype": str,
    "sparse": str,
}
COMPARED = ("milliseconds", "fps", "bytes")  # figures in JSON of the chip without assumptions


BAND = "in brackets: where 80 % of published speeds lay of networks that no figure was fitted to"

GROUPS = {  # of --help
    "Chips": "--target --chips --cores --core-mask --by-layer --as-vendor",
    "Assumptions": "--clock --ddr --sram --batch --dtype --sparse --sweep --payoff",
    "Output": "--explain --json --html --svg --trace",
    **key_options.GROUP,
}


@click.command("perf", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option("--target", type=CHIP, help="Chip; required unless MODEL is a package.")
@click.option("--chips", type=CHIPS, help="Chips to compare: names separated by commas, or all.")
@click.option("--clock", type=float, metavar="MHZ", help="Assume this clock of the NPU.")
@click.option("--ddr", type=float, metavar="GB/S", help="Assume this memory bandwidth.")
@click.option("--sram", type=int, metavar="BYTES", help="Assume this much on-chip memory per core.")
@click.option(
    "--cores", type=int, default=1, show_default=True, help="Number of cores that share the work."
)
@runs_on.core_mask
@click.option("--batch", type=int, metavar="N", help="Assume a batch of N samples.")
@click.option("--dtype", metavar="TYPE", help="Assume products in int8, int16, fp16, ...")
@click.option("--sparse", metavar="FORM", help="Assume pruned weights: 2:4 in, 16:4, ...")
@click.option("--by-layer", is_flag=True, help="Compile each layer into its own program.")
@click.option(
    "--as-vendor",
    is_flag=True,
    help="Predict the program of the vendor's compiler, to compare with published speeds.",
)
@click.option(
    "--sweep",
    metavar="NAME=1,2,3",
    help=f"Predict for several values of one of {', '.join(SWEPT)}; --svg draws a plot.",
)
@click.option(
    "--payoff", is_flag=True, help="Print the speed-up by more cores, batches and sparse weights."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Name the three largest costs and what would change them, instead of all layers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write the report as an HTML page.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False),
    help="Write the timeline, or the plot of --sweep, as SVG.",
)
@click.option(
    "--trace", type=click.Path(dir_okay=False), help="Write the timeline for chrome://tracing."
)
@key_options.package_options
@options.model_options
def command(
    model: str,
    target: str | None,
    chips: str | None,
    clock: float | None,
    ddr: float | None,
    sram: int | None,
    cores: int,
    core_mask: str | None,
    batch: int | None,
    dtype: str | None,
    sparse: str | None,
    by_layer: bool,
    as_vendor: bool,
    sweep: str | None,
    payoff: bool,
    explain: bool,
    as_json: bool,
    html: str | None,
    svg: str | None,
    trace: str | None,
    **model_options: Any,
) -> None:
    """Predict the speed of MODEL, a package (.itg), a vendor's file or a model file, on a chip.

    Nothing is measured: times come from a model of the chip, without the chip itself.

    A float model is first quantised for the chip with random samples, which is enough for speed.

    \b
    intaglio perf model.itg                             time of each layer
    intaglio perf model.itg --as-vendor --explain       the three largest costs
    intaglio perf model.onnx --target rk3588            compiles it first
    intaglio perf m.bmodel                              a vendor's file
    intaglio perf model.onnx --chips rk3588,k230        compares chips
    intaglio perf model.itg --core-mask 0,1             on two of its cores
    intaglio perf model.itg --clock 600 --ddr 6.4       another clock and memory
    intaglio perf model.onnx --target rk3588 --batch 4 --dtype fp16
    intaglio perf model.onnx --target rk3588 --sweep cores=1,2,3 --svg cores.svg
    intaglio perf model.onnx --target rk3576 --payoff   more cores, larger batches
    """
    from intaglio.analysis.whatif import WhatIf

    what = WhatIf(clock, ddr, sram, cores, batch, dtype, sparse, core_mask)
    what.check()
    refuse_unwritable(html, svg, trace)
    source = _Source(model, by_layer, as_vendor, options.load_arguments(**model_options))
    if sum(map(bool, (chips, sweep, payoff))) > 1:
        raise BadInput("--chips, --sweep and --payoff exclude each other; give one of them")
    if (chips or sweep or payoff) and (html or trace or (svg and not sweep)):
        raise BadInput("--html, --svg and --trace are for one prediction; leave them out here")
    if explain and (chips or sweep or payoff):
        raise BadInput("--explain is for one prediction; leave it out here")
    if chips and target:
        raise BadInput("--chips names the chips; leave out --target")
    if payoff and what != WhatIf():
        raise BadInput(f"--payoff makes its own assumptions; leave out {what}")
    if (chips or payoff) and (source.package is not None or source.vendor is not None):
        raise BadInput("a package is for one chip; --chips and --payoff need the model file")
    if payoff:
        _payoff(source, source.chip(target), as_json)
    elif sweep:
        _sweep(source, target, sweep, what, as_json, svg)
    elif chips:
        _compare(_chips(source, chips, what), as_json)
    else:
        _one(source, target, what, explain, as_json, html, svg, trace)


def _one(
    source: _Source,
    target: str | None,
    what: Any,
    explain: bool,
    as_json: bool,
    html: str | None,
    svg: str | None,
    trace: str | None,
) -> None:
    from intaglio.analysis import explain as explaining
    from intaglio.analysis import performance_page, performance_text
    from intaglio.analysis.whatif import WhatIf
    from intaglio.files import write_atomically

    source.compare([what, WhatIf()])
    with progress_line.shown():
        found = source.predict(target, what)
        usual = source.predict(target, WhatIf()) if what != WhatIf() else None
        costs = (
            explaining.explain(found, lambda other: source.predict(target, other), what)
            if explain
            else []
        )
    words = "" if usual is None else _difference(usual, found, what)
    if html:
        write_atomically(html, performance_page.page(found, words).encode())
    if svg:
        write_atomically(svg, performance_page.picture(found).encode())
    if trace:
        write_atomically(trace, found.trace().encode())
    if as_json:
        plain = found.to_dict()
        if usual is not None:
            plain |= {"what_if": str(what), "usual": {k: getattr(usual, k) for k in COMPARED}}
        if explain:
            plain["explain"] = explaining.to_list(costs)
        click.echo(json.dumps(plain, indent=1))
        return
    if explain:
        fitted.echo("\n".join([*performance_text.summary(found), "", explaining.text(costs), ""]))
    else:
        click.echo(performance_text.text(found))
    fitted.echo(f"times come from {found.source}")
    fitted.echo(f"{runs_on.PREDICTED}; no part of this ran on {found.chip}")
    fitted.echo(BAND)
    if words:
        fitted.echo(f"\n{words}")


class _Source:
    """The subject of a prediction: a package, or a model that is compiled for each question."""

    def __init__(self, path: str, by_layer: bool, as_vendor: bool, load: dict[str, Any]):
        self.path, self.by_layer, self.as_vendor, self.load = path, by_layer, as_vendor, load
        self.package: Any = None
        self._model: Any = None
        self.vendor = vendor_files.find(path)
        if self.vendor is None and model_files.is_package(path):
            self.package = model_files.load_package(path)

    def compare(self, whats: list[Any]) -> None:
        """Predict all of these in the same way: from commands only if a file can have them."""
        if self.package is None and self.vendor is None and not all(w.in_commands for w in whats):
            self.model.own_program = True

    def predict(self, target: str | None, what: Any) -> Any:
        from intaglio.analysis import vendor_style
        from intaglio.analysis.performance import performance

        if self.vendor is not None:
            return self._vendor_file(target, what)
        if self.package is None:
            found = self.model.performance(self.chip(target), what)
            found.name = Path(self.path).stem
            return found
        if self.by_layer or target or (what.recompiles and not self.as_vendor):
            raise BadInput(
                "a package is compiled already; --target, --sram, --cores, --batch, --dtype, "
                "--sparse and --by-layer need the model file"
            )
        if self.as_vendor:
            found = vendor_style.of_package(self.package, what)
        else:
            figures = {"clock": what.clock, "ddr": what.ddr, "core_mask": what.core_mask}
            found = performance(self.package, **figures)
        found.name = Path(self.path).stem
        return found

    def _vendor_file(self, target: str | None, what: Any) -> Any:
        """The prediction of a vendor's file, from its commands."""
        from intaglio.analysis import vendor_performance

        assert self.vendor is not None
        if self.vendor is vendor_files.RKNN:
            vendor_files.RKNN.functions().refuse(self.path)
        if what.recompiles or self.by_layer or self.as_vendor or target or what.core_mask:
            raise BadInput(
                f"a {self.vendor.name} is compiled already; only --clock and --ddr change it"
            )
        data = vendor_files.load(self.path)
        found = vendor_performance.READERS[self.vendor.name](data, what.clock, what.ddr)
        found.name = Path(self.path).stem
        return found

    def chip(self, target: str | None) -> str:
        if target is None:
            raise BadInput("no chip is given; add --target NAME; `intaglio targets` lists them")
        return target

    @property
    def model(self) -> Any:
        if self.package is not None or self.vendor is not None:
            raise BadInput("a package is compiled already; this needs the model file")
        if self._model is None:
            self._model = model_files.integer_model(
                self.path, self.load, self.by_layer, self.as_vendor
            )
        return self._model


def _chips(source: _Source, names: str, what: Any) -> list[tuple[str, Any]]:
    from intaglio.errors import IntaglioError
    from intaglio.targets import chip

    known = chip.names() if names == "all" else tuple(names.split(","))
    rows: list[tuple[str, Any]] = []
    for name in known:
        chip.load(name)  # an unknown chip is an error; a chip that is too small is a row
    with progress_line.shown():
        for i, name in enumerate(known):
            with progress.inside("predicting for chip", i, len(known)):
                try:
                    rows.append((name, source.predict(name, what)))
                except IntaglioError as e:
                    rows.append((name, e))
    return rows


def _sweep(
    source: _Source, target: str | None, text: str, what: Any, as_json: bool, svg: str | None
) -> None:
    from intaglio.analysis.payoff import plot
    from intaglio.analysis.performance import Performance
    from intaglio.analysis.whatif import WhatIf
    from intaglio.errors import IntaglioError
    from intaglio.files import write_atomically

    name, _, listed = text.partition("=")
    if name not in SWEPT or not listed:
        raise BadInput(f"--sweep takes NAME=1,2,3 with NAME of {', '.join(SWEPT)}, not {text}")
    try:
        values = [SWEPT[name](v) for v in listed.split(",")]
    except ValueError:
        raise BadInput(f"--sweep takes numbers for {name}, not {listed}") from None
    if getattr(what, name) != getattr(WhatIf(), name):
        raise BadInput(f"--sweep {text} and --{name} are given; leave out one of them")
    for v in values:
        replace(what, **{name: v}).check()
    rows: list[tuple[Any, Any]] = []
    source.compare([replace(what, **{name: v}) for v in values])
    with progress_line.shown():
        for i, v in enumerate(values):
            with progress.inside(f"predicting for value of {name}", i, len(values)):
                try:
                    rows.append((v, source.predict(target, replace(what, **{name: v}))))
                except IntaglioError as e:
                    if len(values) == 1 or source.package is not None or target is None:
                        raise
                    rows.append((v, e))
    good = [(v, p) for v, p in rows if isinstance(p, Performance)]
    if svg and good:
        title = f"{Path(source.path).stem} on {good[0][1].chip}"
        write_atomically(svg, plot(title, name, good).encode())
    _compare([(f"{name}={v}", p) for v, p in rows], as_json)


def _payoff(source: _Source, target: str, as_json: bool) -> None:
    from intaglio.analysis import payoff

    source.model.own_program = True  # of which more cores can be had
    with progress_line.shown():
        found = payoff.payoff(source.model, target)
    click.echo(json.dumps(payoff.to_dict(found), indent=1) if as_json else payoff.text(found))


def _compare(rows: list[tuple[str, Any]], as_json: bool) -> None:
    from intaglio.analysis.performance import Performance
    from intaglio.text_table import aligned

    good = [(n, p) for n, p in rows if isinstance(p, Performance)]
    if as_json:
        plain = [p.to_dict() if isinstance(p, Performance) else {"failed": str(p)} for _, p in rows]
        named = [d | {"case": n} for d, (n, _) in zip(plain, rows, strict=True)]
        click.echo(json.dumps(named, indent=1))
        return
    most = max((p.fps for _, p in good), default=1.0)
    table = [("", "ms", "(80 %)", "frames/s", "speed-up", "NPU ms", "CPU ms", "MB moved", "")]
    table += [
        (
            n,
            f"{p.milliseconds:.3f}",
            str(p.band),
            f"{p.fps:.1f}",
            f"{p.fps / good[0][1].fps:.2f}",
            f"{p.npu_milliseconds:.3f}",
            f"{p.cpu_milliseconds:.3f}",
            f"{p.bytes / 1e6:.2f}",
            "#" * max(1, round(30 * p.fps / most)),
        )
        for n, p in good
    ]
    for line in aligned(table, range(1, 8), (8, 7)):
        click.echo(line)
    for n, why in rows:
        if not isinstance(why, Performance):
            fitted.echo(f"{n}: {why}")
    if good:
        click.echo(f"times are {runs_on.PREDICTED}")
        fitted.echo(BAND)


def _difference(usual: Any, found: Any, what: Any) -> str:
    """The prediction compared with that for the chip and model without assumptions."""
    return (
        f"with {what}: {usual.fps:.1f} -> {found.fps:.1f} frames per second "
        f"({found.fps / usual.fps:.2f} times); {usual.milliseconds:.3f} -> "
        f"{found.milliseconds:.3f} ms per run, {usual.bytes / 1e6:.2f} -> "
        f"{found.bytes / 1e6:.2f} MB of memory traffic"
    )
