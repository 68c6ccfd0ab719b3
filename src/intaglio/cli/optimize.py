"""`intaglio optimize`: optimise a model and write it as ONNX."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.errors import BadInput, IntaglioError
from intaglio.ir import Array, Graph


@click.command("optimize", cls=options.ModelCommand)
@click.argument("model", type=click.Path())
@click.option("-o", "out", type=click.Path(), help="ONNX file to write [default: only report].")
@click.option(
    "--level",
    default=3,
    show_default=True,
    type=click.IntRange(0, 3),
    help="0 none, 1 exact, 2 may reassociate floats, 3 all.",
)
@click.option(
    "--disable", multiple=True, metavar="RULE", help="Leave out a rewrite rule; may be repeated."
)
@click.option(
    "--explain", is_flag=True, help="Print how often each rule fired and declined, and its time."
)
@click.option(
    "--dump-dir",
    type=click.Path(file_okay=False),
    help="Write the graph as text before and after every pass.",
)
@options.check_options
@click.option(
    "--opset", type=int, help="ONNX opset to write [default: the oldest that needs fewest nodes]."
)
@click.option(
    "--contrib",
    is_flag=True,
    help="Also use onnxruntime's own operators (com.microsoft), for fewer nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@options.model_options
def command(
    model: str,
    out: str | None,
    level: int,
    disable: tuple[str, ...],
    explain: bool,
    dump_dir: str | None,
    check: bool,
    engine: str,
    data: tuple[str, ...],
    seed: int,
    opset: int | None,
    contrib: bool,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Optimise MODEL and write it as ONNX.

    Open dimensions of an ONNX model stay open, unless --dim or --shape binds them.

    \b
    intaglio optimize model.onnx -o small.onnx            all optimisations
    intaglio optimize model.onnx --explain                statistics of each rule
    intaglio optimize model.onnx -o m.onnx --level 1      exact changes only
    intaglio optimize model.onnx -o m.onnx --disable swish
    intaglio optimize model.onnx -o m.onnx --contrib      for onnxruntime only
    """
    from intaglio.analysis.rules import explain as explained
    from intaglio.analysis.rules import table
    from intaglio.open_dimensions import Settings, find_open

    if out and Path(out).suffix == ".itg":
        raise BadInput(
            f"cannot write '{out}': the optimised model is ONNX; give a name that ends in .onnx; "
            "`intaglio compile` writes packages"
        )
    settings = Settings(level, disable, opset, contrib, dump_dir)
    with progress_line.shown():
        progress.report("reading the model")
        arguments = options.load_arguments(**model_options)
        source = find_open(model, arguments)
        work = _Open(source, settings) if source else _Fixed(model, arguments, settings)
        facts = work.facts(model)
        if check:
            with progress.inside("comparing outputs"):
                facts["check"] = work.check(engine, seed, data)
        if out:
            work.save(out)
    reports = explained(work.records)
    if as_json:
        facts["rules"] = [r.to_dict() for r in reports]
        facts["pruned"] = facts["pruned"].to_dict() if facts["pruned"] else None
        click.echo(json.dumps(facts, indent=1))
        return
    if explain:
        fitted.echo(table(reports) + "\n")
    _print(facts)
    if out:
        size = Path(out).stat().st_size / 1e6
        fitted.echo(f"{out}: {size:.2f} MB, opset {facts['opset']}")


class _Fixed:
    """A model whose dimensions are all bound."""

    def __init__(self, model: str, arguments: dict[str, Any], settings: Any):
        import intaglio
        from intaglio.compiler import trace_optimize

        self.settings = settings
        self.graph = intaglio.load(model, **arguments)
        made = trace_optimize(self.graph, settings.level, settings.disable, settings.dump_dir)
        self.small, self.records, self.pruned = made.graph, made.records, made.pruned
        progress.report("writing ONNX")
        self.written = intaglio.to_onnx(self.small, settings.opset, contrib=settings.contrib)

    def facts(self, model: str) -> dict[str, Any]:
        made = _facts(model, self.graph, self.small, self.written)
        return {**made, "pruned": self.pruned}

    def check(self, engine: str, seed: int, data: tuple[str, ...]) -> dict[str, Any]:
        import intaglio

        feeds = options.read_feeds(data, {v.name: v.type for v in self.graph.inputs}, None)
        check = Check(self.graph, self.settings.level, self.settings.disable, engine, seed, feeds)
        return check.of(intaglio.load(self.written), self.records)

    def save(self, out: str) -> None:
        import intaglio

        intaglio.save_onnx(self.small, out, self.settings.opset, contrib=self.settings.contrib)


class _Open:
    """A model whose open dimensions stay open."""

    def __init__(self, source: Any, settings: Any):
        from intaglio.open_dimensions import optimize_open

        self.source, self.settings = source, settings
        self.made = optimize_open(source, settings)
        self.records = self.made.optimized.records
        self.written = self.made.to_onnx()
        self.sizes = self.made.sizes
        self.checked = list(self.sizes.checks(source.model, source.options))

    def _named(self, extents: list[int]) -> str:
        pairs = zip(self.sizes.dims, extents, strict=True)
        return ", ".join(f"{d}={e}" for d, e in pairs)

    def _after(self, extents: list[int]) -> Graph:
        import intaglio

        shapes = {v.name: v.shape for v in self.source.at(self.sizes, extents).inputs}
        return intaglio.load(self.written, shapes=shapes)

    def facts(self, model: str) -> dict[str, Any]:
        size = self.checked[0]
        graph = self.source.at(self.sizes, size)
        made = _facts(model, graph, self._after(size), self.written)
        opened = {
            "dims": [str(d) for d in self.sizes.dims],
            "macs_at": self._named(size),
            "level": self.made.level,
            "left": self.made.kept,
        }
        return {**made, "pruned": self.made.optimized.pruned, "open": opened}

    def check(self, engine: str, seed: int, data: tuple[str, ...]) -> dict[str, Any]:
        """Compare at two sizes, or at that of the data."""
        results = []
        sizes = [self._size_of(data)] if data else self.checked
        for extents in sizes:
            graph = self.source.at(self.sizes, extents)
            feeds = options.read_feeds(data, {v.name: v.type for v in graph.inputs}, None)
            level, disable = self.made.level, self.settings.disable
            check = Check(graph, level, disable, engine, seed, feeds)
            results.append(check.of(self._after(extents), self.records))
        worst = max(results, key=lambda r: max((d["error"] for d in r["outputs"]), default=0))
        words = " and ".join(self._named(extents) for extents in sizes)
        return {**worst, "words": f"at {words}: {worst['words']}"}

    def _size_of(self, data: tuple[str, ...]) -> list[int]:
        types = {v.name: v.type for v in self.source.at(self.sizes, self.checked[0]).inputs}
        feeds = options.read_feeds(data, types, None)
        found = []
        for d in self.sizes.dims:
            name, axis = d.places[0]
            if name not in feeds or feeds[name].ndim <= axis:
                raise BadInput(f"--data has no array for input '{name}', which decides {d}; add it")
            found.append(feeds[name].shape[axis])
        return found

    def save(self, out: str) -> None:
        self.made.save(out)


def _facts(model: str, graph: Graph, small: Graph, written: Any) -> dict[str, Any]:
    from intaglio.analysis import summary
    from intaglio.export.onnx import count_nodes

    before, after = summary.of_graph(graph), summary.of_graph(small)
    return {
        "nodes": [count_nodes(model), count_nodes(written)],
        **{key: [before[key], after[key]] for key in ("parameters", "macs")},
        "opset": written.opset_import[0].version,
    }


def _print(facts: dict[str, Any]) -> None:
    opened = facts.get("open")
    for key, title in (("nodes", "nodes"), ("parameters", "parameters"), ("macs", "MACs")):
        before, after = facts[key]
        at = f" at {opened['macs_at']}" if opened and key == "macs" else ""
        fitted.echo(f"{title:11} {before:,} -> {after:,}{at}")
    if opened:
        _print_open(opened)
    if facts["pruned"]:
        fitted.echo(f"{'pruned':11} {facts['pruned']}")
    if "check" in facts:
        fitted.echo(f"{'checked':11} {facts['check']['words']}")


def _print_open(opened: dict[str, Any]) -> None:
    fitted.echo(f"{'open':11} {', '.join(opened['dims'])}; these dimensions stay open")
    left = opened["left"]
    if left:
        some = "; ".join(f"{name}: {why}" for name, why in list(left.items())[:3])
        fitted.echo(f"{'left':11} {len(left)} nodes as they are in the file ({some})")
    if opened["level"] < 3:
        fitted.echo(f"{'level':11} {opened['level']}")


class Check:
    """Compares the outputs of the model before and after optimisation."""

    def __init__(
        self,
        graph: Graph,
        level: int,
        disable: tuple[str, ...],
        engine: str,
        seed: int,
        feeds: dict[str, Array],
    ):
        from intaglio.analysis import agreement

        self.graph, self.level, self.disable, self.engine = graph, level, disable, engine
        self.tools, self.limit = agreement, agreement.LIMITS[level]
        self.noise: list[Any] | None = None
        if feeds:
            self.feeds, self.want = feeds, self._run(graph, feeds)
        else:
            self.feeds, self.want = agreement.usable_inputs(graph, seed)
        if engine == "native":
            self.want = self._run(graph, self.feeds)

    def _run(self, graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
        import intaglio

        run = self.tools.run_native if self.engine == "native" else intaglio.interpret
        return run(graph, feeds)

    def of(self, after: Graph, records: list[Any]) -> dict[str, Any]:
        """The result of the comparison; BadInput if outputs differ, with the rule at fault."""
        from intaglio.passes.integer import ROUNDING

        fired = {e.rule for r in records for e in r.events if e.refusal is None}
        every = {r.name for r in ROUNDING}
        rounding = sorted(fired & every)
        if rounding:  # integer rules round differently: compare again without them
            for d in self._differences(after):
                if d.rms > self.tools.ROUNDED:
                    self._refuse(d, fired)
            after = self._optimized(sorted(every))  # one that did not fire may, without another
        found = self._differences(after)
        for d in found:
            if not d.ok:
                self._refuse(d, fired)
        worst = max(found, key=lambda d: d.error, default=None)
        error, limit = (worst.error, worst.limit) if worst else (0.0, self.limit)
        words = f"outputs agree, largest difference {error:.1e} of the range (limit {limit:.0e})"
        if rounding:
            words += "; without the integer rules, which round differently"
        return {"outputs": [asdict(d) for d in found], "rounding": rounding, "words": words}

    def _differences(self, after: Graph) -> list[Any]:
        """Differences by output; the limit grows if the model itself amplifies rounding."""
        got = self._run(after, self.feeds)
        found = self.tools.differences(self.want, got, self.limit)
        if not self.limit or all(d.ok for d in found):
            return found
        if self.noise is None:
            moved = self._run(self.graph, self.tools.nudged(self.feeds))
            self.noise = self.tools.differences(self.want, moved, self.limit)
        pairs = zip(found, self.noise, strict=True)
        return [replace(d, limit=max(d.limit, self.tools.NOISE * n.error)) for d, n in pairs]

    def _optimized(self, without: list[str]) -> Graph:
        import intaglio

        return intaglio.optimize(self.graph, self.level, [*self.disable, *without])

    def _refuse(self, d: Any, fired: set[str]) -> None:
        remedy = "leave out rules with --disable, or skip the comparison with --no-check"
        if culprit := self._culprit(d.output, fired):
            remedy = f"leave out the rule at fault with --disable {culprit}"
        raise BadInput(
            f"output '{d.output}' differs by {d.error:.1e} of its range after optimising, level "
            f"{self.level} allows {d.limit:g}; nothing is written; {remedy}"
        )

    def _culprit(self, output: str, fired: set[str]) -> str | None:
        """The rule at fault: without it the output agrees."""
        for rule in sorted(fired):
            try:
                found = self._differences(self._optimized([rule]))
            except IntaglioError:
                continue
            if all(d.ok for d in found if d.output == output):
                return rule
        return None
