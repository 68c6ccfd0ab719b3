"""`intaglio inspect`: inputs, outputs, operations and memory of a model or package."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio import progress
from intaglio.cli import (
    fitted,
    key_options,
    model_files,
    options,
    progress_line,
    vendor_files,
    weights,
)
from intaglio.errors import BadInput
from intaglio.open_graph import open_ranges


@click.command("inspect", cls=options.ModelCommand, groups=key_options.GROUP)
@click.argument("file", type=click.Path())
@click.option("--graph", "show_graph", is_flag=True, help="Print the graph or the steps as text.")
@click.option(
    "--choices",
    "show_choices",
    is_flag=True,
    help="Print the chosen implementation of each layer of a package, and measured times.",
)
@click.option("--asm", "show_code", is_flag=True, help="Print a package's NPU programs as text.")
@click.option(
    "--extract",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write the files of the chip that a package holds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@key_options.package_options
@options.model_options
def command(
    file: str,
    show_graph: bool,
    show_choices: bool,
    show_code: bool,
    extract: str | None,
    as_json: bool,
    **model_options: Any,
) -> None:
    """Show the contents of FILE, a model or a package.

    \b
    intaglio inspect model.onnx            inputs, outputs, operations
    intaglio inspect model.onnx --graph    every node with its types
    intaglio inspect model.itg             steps, weights, memory plan
    intaglio inspect model.itg --choices   the implementation of each layer
    intaglio inspect model.itg --asm       NPU programs, one instruction per line
    intaglio inspect model.itg --extract files/    the cvimodels or bmodels in it
    intaglio inspect model.kmodel --asm    the K210's commands and their words
    intaglio inspect model.bmodel --asm    the commands of Sophgo's BM1684X
    intaglio inspect model.cvimodel --asm  the commands of Sophgo's CV18xx
    intaglio inspect model.rkjob --asm     the register commands of Rockchip's NPU
    intaglio inspect vendor.rknn --asm     the commands of a file of RKNN-Toolkit2
    """
    if vendor := vendor_files.find(file):
        if show_graph or show_choices or extract:
            option = "--graph" if show_graph else "--choices" if show_choices else "--extract"
            kind = vendor.name
            raise BadInput(f"{file} is a {kind}; {option} is for models and packages; try --asm")
        vendor.functions().inspect(file, show_code, as_json)
        return
    if model_files.is_package(file):
        if extract:
            _extract(file, extract)
        elif show_code:
            _programs(file, as_json)
        else:
            _package(file, show_graph, show_choices, as_json)
    elif show_choices or show_code or extract:
        option = "--choices" if show_choices else "--asm" if show_code else "--extract"
        raise BadInput(f"{file} is a model; {option} is for packages; compile it first")
    else:
        _model(file, show_graph, as_json, model_options)


def _model(file: str, show_graph: bool, as_json: bool, model_options: dict[str, Any]) -> None:
    facts, graph = _facts(file, options.load_arguments(**model_options))
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    fitted.echo(f"model       {facts['name'] or file}")
    for key, value in facts["metadata"].items():
        fitted.echo(f"            {key}: {' '.join(str(value).split())[:80]}")
    _ports(facts)
    megabytes = facts["parameter_bytes"] / 1e6
    fitted.echo(f"parameters  {facts['parameters']:,} ({megabytes:.2f} MB)")
    _work(facts)
    _ops(facts, f"{facts['nodes']} nodes")
    if show_graph and graph is None:
        raise BadInput(
            f"{file} leaves dimensions open; bind them with --dim or --shape for --graph"
        )
    if show_graph:
        click.echo(f"\n{graph}")


def _facts(file: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The contents of a model, and its graph if it can be imported."""
    import intaglio
    from intaglio.analysis import summary
    from intaglio.open_dimensions import find_open

    with progress_line.shown():
        progress.report("reading the model")
        source = find_open(file, arguments)
        if source is None:
            graph = intaglio.load(file, **arguments)
            return summary.of_graph(graph), graph
        from intaglio.analysis.open_summary import of_open

        return of_open(source)


def _work(facts: dict[str, Any]) -> None:
    if facts["macs"] is None:
        click.echo("work        depends on open dimensions; bind them with --dim or --shape")
        return
    sizes = ", ".join(f"{name}={extent}" for name, extent in facts.get("open", {}).items())
    at = f" at {sizes}" if sizes else ""
    click.echo(f"work        {facts['macs'] / 1e6:,.2f} million multiply-accumulates per run{at}")


def _package(file: str, show_graph: bool, show_choices: bool, as_json: bool) -> None:
    from intaglio.analysis import arena, choices, summary
    from intaglio.package.vendor_files import vendor_files as held_files
    from intaglio.passes.partition_report import Partition

    protection = _protection(file)
    if protection["encrypted"] and "key" not in key_options.given_keys():
        _locked(file, protection, as_json)
        return
    package = model_files.load_package(file)
    plan = package.plans[-1]  # the largest: choices and partition are those of it
    facts = {"target": package.meta.get("target", ""), "isa": package.isa, **protection}
    facts |= summary.of_plan(plan)
    results = choices.of_package(package.meta)
    facts["choices"] = results
    facts["partition"] = package.meta.get("partition")
    facts["weight_files"] = weights.facts(file)
    files = held_files(package.plans)
    facts["vendor_files"] = {n: {"chip": c, "bytes": len(d)} for n, (c, d) in files.items()}
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    fitted.echo(f"package     {file}, for {facts['target']} ({facts['isa']})")
    _show_protection(protection)
    _ports(facts)
    _sizes(package)
    where = "decrypted when it is opened" if protection["encrypted"] else "mapped from the file"
    where = "mapped from weight files" if facts["weight_files"] else where
    fitted.echo(f"weights     {facts['weight_bytes']:,} bytes, packed for the target, {where}")
    if facts["weight_files"]:
        fitted.echo(weights.words(file, ""))
    if facts["code_bytes"]:
        fitted.echo(f"programs    {facts['code_bytes']:,} bytes of instructions; see --asm")
    for i, (name, row) in enumerate(facts["vendor_files"].items()):
        title = "chip files" if i == 0 else ""
        fitted.echo(f"{title:11} {name}  {row['bytes']:,} bytes, for {row['chip']}; see --extract")
    fitted.echo(f"internal    {facts['arena_bytes']:,} bytes; peak at '{facts['peak_step']}'")
    fitted.echo(f"work        {facts['macs'] / 1e6:,.2f} million multiply-accumulates per run")
    _ops(facts, f"{facts['steps']} steps")
    if results:
        measured = sum(bool(c.get("microseconds")) for c in results)
        fitted.echo(f"choices     {measured} measured, {len(results) - measured} estimated")
    if facts["partition"]:
        fitted.echo(f"\n{Partition.from_dict(facts['partition'])}")
    if show_choices:
        fitted.echo("\n" + choices.table(results))
    if show_graph:
        known = choices.labels(results)
        click.echo()
        for i, s in enumerate(plan.steps):
            types = ", ".join(f"{t.name} {t.type}" for t in s.outputs)
            way = choices.label_of(s, known)
            click.echo(f"{i:5}  {s.op:20} {s.origin:32} -> {types}{f'  ({way})' if way else ''}")
    fitted.echo("\nmemory plan")
    fitted.echo(arena.draw(summary.arena_spans(plan), plan.arena, len(plan.steps)))


def _sizes(package: Any) -> None:
    """The open dimensions of a package, and its plans if it has several."""
    for i, (name, symbol) in enumerate(open_ranges(package.inputs.values()).items()):
        fitted.echo(f"{'sizes' if i == 0 else '':11} {name} = {symbol}")
    if len(package.plans) > 1:
        for i, plan in enumerate(package.plans):
            shapes = ", ".join(f"{t.name} {t.type}" for t in plan.inputs if t is not None)
            fitted.echo(f"{'plans' if i == 0 else '':11} {shapes}")
        padded = "padding" in package.meta
        fitted.echo(
            f"            {'other shapes are padded' if padded else 'no other shapes: padding'}"
            f"{' to the next plan' if padded else ' would change the results'}"
        )


def _protection(file: str) -> dict[str, Any]:
    """Whether a package is encrypted and signed, which anybody may read."""
    from intaglio.package import read_bytes
    from intaglio.package.encryption import is_encrypted, level_of
    from intaglio.package.signing import signature_of

    data = read_bytes(file)
    signature = signature_of(data)
    return {
        "encrypted": level_of(data) if is_encrypted(data) else None,
        "signed_by": signature.public_key if signature else None,
        "signature_intact": signature.intact if signature else None,
    }


def _show_protection(protection: dict[str, Any]) -> None:
    if level := protection["encrypted"]:
        fitted.echo(f"encrypted   AES-256-GCM, level {level}")
    if signer := protection["signed_by"]:
        state = "intact" if protection["signature_intact"] else "the file was altered since"
        fitted.echo(f"signed      by the key {signer}; {state}")


def _locked(file: str, protection: dict[str, Any], as_json: bool) -> None:
    """What can be said without the key."""
    if as_json:
        click.echo(json.dumps(protection, indent=1))
        return
    fitted.echo(f"package     {file}")
    _show_protection(protection)
    fitted.echo("contents    need the key; give --key-file FILE or --key-env NAME")


def _extract(file: str, folder: str) -> None:
    from intaglio.package.vendor_files import extract

    for path in extract(model_files.load_package(file).plans, folder):
        fitted.echo(f"{path}: {path.stat().st_size:,} bytes; next: intaglio inspect {path}")


def _programs(file: str, as_json: bool) -> None:
    from intaglio.npu.own import disassembly

    found = disassembly.programs(model_files.load_package(file).plan)
    if as_json:
        click.echo(json.dumps([disassembly.facts(origin, p) for origin, p in found], indent=1))
        return
    if not found:
        raise BadInput(
            f"{file} holds no NPU program of Intaglio's own; compile the model for a chip with an "
            "NPU, or take the chip's files out with --extract DIR"
        )
    for origin, program in found:
        click.echo("\n".join(disassembly.lines(origin, program)))


def _ports(facts: dict[str, Any]) -> None:
    for title in ("inputs", "outputs", "state"):
        for i, (name, t) in enumerate(facts[title].items()):
            dynamic = t.get("dynamic", [])
            named = any(isinstance(d, str) for d in t["shape"])  # a symbol may hold an x
            dims = (", " if named else "x").join(
                ("<=" if k in dynamic else "") + str(d) for k, d in enumerate(t["shape"])
            )
            fitted.echo(f"{title if i == 0 else '':11} {name}  {t['dtype']}[{dims}]")


def _ops(facts: dict[str, Any], title: str) -> None:
    fitted.echo(f"operations  {title}")
    for op, row in facts["ops"].items():
        share = f"  {row['macs'] / facts['macs']:6.1%} of the work" if row["macs"] else ""
        fitted.echo(f"  {row['count']:5}  {op:24}{share}")
