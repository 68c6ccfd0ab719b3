"""`intaglio split`: where to cut a model between a device and a server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.cli.chip_names import TARGET
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from intaglio.ir import Graph
    from intaglio.split import Machine

GROUPS = {
    "Sides": "--edge --cloud --edge-speed --cloud-speed --threads --cores",
    "Link": "--bandwidth --downlink --rtt --upload-bytes",
    "Samples": "--data --limit",
    "Output": "-o --at --svg --json",
}
SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}


def _rate(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9.]+)([kMG]?)(?:bit/s|bps)?", text.strip())
    try:
        assert found
        return float(found[1]) * SUFFIXES[found[2]]
    except (AssertionError, ValueError):
        raise BadInput(
            f"{parameter.opts[0]} is '{text}'; give bits per second, such as 5M or 800k"
        ) from None


def _time(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(us|ms|s|)", text.strip())
    try:
        assert found
        return float(found[1]) * UNITS[found[2]]
    except (AssertionError, ValueError):
        raise BadInput(f"{parameter.opts[0]} is '{text}'; give a time such as 20ms") from None


@click.command("split", cls=options.ModelCommand, groups=GROUPS)
@click.argument("model", type=click.Path())
@click.option("--edge", type=TARGET, required=True, help="The device: a chip, or cpu.")
@click.option(
    "--cloud", type=TARGET, default="cpu", show_default=True, help="The server: cpu, or a chip."
)
@click.option(
    "--bandwidth",
    required=True,
    callback=_rate,
    metavar="BITS",
    help="Bits per second from the device to the server: 5M, 800k.",
)
@click.option(
    "--downlink", callback=_rate, metavar="BITS", help="And back [default: as --bandwidth]."
)
@click.option("--rtt", required=True, callback=_time, metavar="TIME", help="Round trip: 20ms.")
@click.option(
    "--edge-speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="--edge cpu is X times as fast as this machine.",
)
@click.option(
    "--cloud-speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="--cloud cpu is X times as fast as this machine.",
)
@click.option(
    "--threads",
    default=1,
    show_default=True,
    type=click.IntRange(1, 256),
    help="Threads of a run on a CPU.",
)
@click.option(
    "--cores", default=1, show_default=True, type=click.IntRange(1), help="Cores of a chip."
)
@click.option(
    "--upload-bytes",
    type=click.IntRange(1),
    metavar="N",
    help="The server could take inputs of N bytes, such as JPEG pictures.",
)
@click.option(
    "--data",
    metavar="PATH",
    help="Samples to quantise a float model: a folder of pictures or arrays, .npy or .npz.",
)
@click.option("--limit", type=int, metavar="N", help="Number of samples.")
@click.option("--at", metavar="TENSOR", help="Cut there, not at the best place.")
@click.option("-o", "out", type=click.Path(), metavar="FOLDER", help="Write both parts there.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write the times of all cuts as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@options.model_options
def command(model: str, **given: Any) -> None:
    """Find the fastest cut of MODEL between a device and a server.

    A cut is a tensor that alone connects both parts. It is sent as int8, as the quantised model has
    it, so that the answers are those of the model in one piece. The table has the time of every
    cut, of the whole model on the device, and of the whole model on the server. Times of chips are
    predicted, those of CPUs are measured on this machine.

    A float model is quantised first: with --data, or with random samples, which is enough for
    times. -o writes edge.itg, cloud.itg, and whole.itg for the time when the link is down.

    \b
    intaglio split model.onnx --edge rk3588 --cloud cpu --bandwidth 5M --rtt 20ms
    intaglio split model.onnx --edge cpu --edge-speed 0.1 --bandwidth 50M --rtt 8ms
    intaglio split m.int8.onnx --edge rk3588 --bandwidth 5M --rtt 20ms -o split/
    intaglio split m.onnx --edge k230 --bandwidth 1M --rtt 40ms --upload-bytes 25000
    """
    from intaglio.split import Link, plan_split, write_parts
    from intaglio.split.plot import picture

    own = {name: given.pop(name) for name in list(given) if name in _OWN}
    link = Link(own["bandwidth"], own["rtt"], own["downlink"])
    refuse_unwritable(own["svg"])
    edge = _machine(own["edge"], own["edge_speed"], own, "--edge-speed")
    cloud = _machine(own["cloud"], own["cloud_speed"], own, "--cloud-speed")
    with progress_line.shown():
        graph = _quantized(model, own, options.load_arguments(**given))
        found = plan_split(graph, edge, cloud, link, upload_bytes=own["upload_bytes"], at=own["at"])
        row = found.row(own["at"]) if own["at"] else found.best
        written = []
        if own["out"]:
            with progress.inside("writing the parts"):
                written = write_parts(graph, row, edge, cloud, own["out"])
    if own["svg"]:
        write_atomically(own["svg"], picture(found).encode())
    if own["as_json"]:
        click.echo(json.dumps(found.to_dict() | {"files": [str(p) for p in written]}, indent=1))
        return
    click.echo(str(found))
    if len(found.rows) == 2:
        fitted.echo(
            "no single tensor of one byte an element connects two parts of this model; "
            "only the whole model is compared"
        )
    if written:
        fitted.echo(f"wrote {', '.join(str(p) for p in written)}")


_OWN = {
    "edge", "cloud", "bandwidth", "downlink", "rtt", "edge_speed", "cloud_speed", "threads",
    "cores", "upload_bytes", "data", "limit", "at", "out", "svg", "as_json",
}  # fmt: skip


def _machine(name: str, speed: float, own: dict[str, Any], flag: str) -> Machine:
    from intaglio import targets
    from intaglio.split import Chip, Cpu

    if name == "cpu":
        return Cpu(speed, own["threads"])
    targets.find(name)
    if speed != 1:
        raise BadInput(f"{flag} is for cpu; times of {name} are predicted; leave it out")
    return Chip(name, own["cores"])


def _quantized(model: str, own: dict[str, Any], load: dict[str, Any]) -> Graph:
    """The model in integers, for the device."""
    import intaglio
    from intaglio.cli import model_files
    from intaglio.quant import Options, calibrate

    if model_files.starts_as_package(model):
        raise BadInput(f"{model} is compiled already; give the model file, which can be cut")
    target = own["edge"]
    if own["data"] is not None:
        how = Options(target=target, **({} if own["limit"] is None else {"limit": own["limit"]}))
        return calibrate(model, own["data"], options=how, **load).graph
    graph = intaglio.load(model, **load)
    if any(n.op.startswith(("quantize", "dequantize", "qlinear")) for n in graph.nodes()):
        return graph
    if own["out"]:
        raise BadInput("-o writes parts that compute in int8; a float model needs samples: --data")
    quantized: Graph = model_files.integer_model(model, load).graph_for(target)
    return quantized
