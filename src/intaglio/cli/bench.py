"""`intaglio bench`: the latency of a model on this machine, in total and by layer."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import click

from intaglio import progress
from intaglio.cli import key_options, model_files, options, progress_line, runs_on


@click.command("bench", cls=options.ModelCommand, groups=key_options.GROUP)
@click.argument("model", type=click.Path())
@click.option(
    "--threads",
    default="1",
    show_default=True,
    metavar="N[,N...]",
    help="Thread counts to measure.",
)
@click.option(
    "--seconds",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.01, 600),
    help="Duration of each measurement.",
)
@click.option("--layers", is_flag=True, help="Show the time of every step.")
@runs_on.core_mask
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
@options.model_options
def command(
    model: str,
    threads: str,
    seconds: float,
    layers: bool,
    core_mask: str | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Measure the latency of MODEL (a package or a model file) on random inputs.

    \b
    intaglio bench model.itg                   minimum and median in 2 s
    intaglio bench model.itg --threads 1,2     one thread against two
    intaglio bench model.itg --layers          time of every step
    intaglio bench model.itg --dim seq=64      at this size of an open dimension

    A package for a CPU runs on the processor. A package for a chip with an NPU is simulated: its
    times are the simulator's, and the predicted time of the chip is printed beside them.
    """
    rows = []
    package = model_files.read_package(model, model_options)
    counts = options.thread_counts(threads)
    with progress_line.shown():
        for i, n in enumerate(counts):
            progress.report(f"measuring for {seconds:g} s, thread count", i, len(counts))
            sizes = model_files.run_sizes(model_options)
            rows.append(_measure(package, n, seconds, layers, sizes, core_mask))
    chip, predicted = runs_on.chip_of(package), runs_on.predicted_ms(package, core_mask)
    if as_json:
        where = {"simulated": chip is not None, "predicted_ms": predicted}
        click.echo(json.dumps([row | where for row in rows], indent=1))
        return
    if chip:
        click.echo(f"these are times of the simulator on this PC, not of {chip}")
    if predicted is not None:
        click.echo(f"{chip}: {predicted:.3f} ms, {runs_on.PREDICTED}")
    for row in rows:
        click.echo(
            f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}: "
            f"{row['min_ms']:.3f} ms min, {row['median_ms']:.3f} ms median over {row['runs']} runs"
            + (f", {row['gmacs']:.1f} GMAC/s" if row["gmacs"] else "")
        )
        _table(row.get("layers", []))


def _measure(
    package: Any,
    threads: int,
    seconds: float,
    layers: bool,
    sizes: dict[str, int],
    core_mask: str | None,
) -> dict[str, Any]:
    import intaglio
    from intaglio.analysis import choices, summary

    with intaglio.open(package, threads, profile=layers, core_mask=core_mask) as session:
        feeds = options.read_feeds([], session.inputs, "random", sizes=sizes)
        session.run(feeds)
        session.reset_profile()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            session.run(feeds)
            times.append((time.perf_counter() - start) * 1e3)
        steps = session.profile()
    whole = all(t.fixed for t in package.inputs.values()) and len(package.plans) == 1
    macs = summary.of_plan(package.plan)["macs"] if whole else 0  # else it depends on the size
    measured: dict[str, Any] = {
        "threads": threads,
        "runs": len(times),
        "min_ms": min(times),
        "median_ms": statistics.median(times),
        "gmacs": macs / min(times) / 1e6,
    }
    if layers:
        known = choices.labels(choices.of_package(package.meta))
        measured["layers"] = [
            {
                "origin": s.origin,
                "op": s.op,
                "way": choices.label_of(s, known),
                "isa": s.isa,
                "threads": s.threads,
                "microseconds": s.milliseconds / len(times) * 1e3,
                "gmacs": s.macs * s.calls / s.milliseconds / 1e6 if s.milliseconds else 0.0,
            }
            for s in steps
        ]
    return measured


def _table(layers: list[dict[str, Any]]) -> None:
    if not layers:
        return
    from intaglio.text_table import aligned

    total = sum(r["microseconds"] for r in layers) or 1.0
    rows = [("step", "op", "implementation", "mean µs", "share", "GMAC/s")]
    for r in layers:
        rate = f"{r['gmacs']:.1f}" if r["gmacs"] else ""
        share = f"{r['microseconds'] / total:.1%}"
        time = f"{r['microseconds']:.1f}"
        rows.append((r["origin"] or "", r["op"], r["way"], time, share, rate))
    for line in aligned(rows, range(3, 6)):
        click.echo(line)
