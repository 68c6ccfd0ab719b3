"""Options of `intaglio serve` that spread a repository over a cluster with Ray Serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from intaglio.cli import fitted
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.serve.settings import ModelSettings

F = TypeVar("F", bound=Callable[..., Any])
GROUP = {"Ray": "--ray --ray-address --replicas --replica-cpus --one-per-node --multiplex"}
NAMES = {"ray", "ray_address", "replicas", "replica_cpus", "one_per_node", "multiplex"}
REFUSED = {  # options that the proxies of Ray have no counterpart for
    "token": "--token", "certificate": "--certificate", "client_ca": "--client-ca",
    "control": "--control", "load": "--load", "name": "--name", "batch": "--batch",
}  # fmt: skip


def _replicas(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    low, dots, high = text.partition("..")
    try:
        found = int(low), int(high) if dots else int(low)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1] <= 1000:
        raise BadInput(f"--replicas is '{text}'; give a number, or a range such as 1..4")
    return found


_OPTIONS = [
    click.option("--ray", is_flag=True, help="Serve the repository on Ray Serve."),
    click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Deploy to this cluster and return: auto, ray://... [default: start one here].",
    ),
    click.option(
        "--replicas",
        default="1",
        show_default=True,
        callback=_replicas,
        metavar="N|1..N",
        help="Replicas of each model; a range scales with the traffic.",
    ),
    click.option(
        "--replica-cpus",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0.01, 256),
        metavar="N",
        help="CPUs that Ray reserves for a replica.",
    ),
    click.option("--one-per-node", is_flag=True, help="No two replicas of a model on a node."),
    click.option(
        "--multiplex",
        default=0,
        type=click.IntRange(0, 1000),
        metavar="N",
        help="All models share the replicas; each keeps the N models used last.",
    ),
]


def ray_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run(source: str, model: ModelSettings, given: dict[str, Any]) -> None:
    """Serve a repository on Ray Serve."""
    from intaglio.serve.ray_serve import RaySettings, require_ray
    from intaglio.serve.ray_serve import run as run_on_ray

    path = Path(source)
    if not path.is_dir():
        raise BadInput(f"--ray serves a repository, not {source}; `intaglio publish` makes one")
    for name, flag in REFUSED.items():
        if given[name]:
            raise BadInput(f"{flag} is not for --ray; set it in a proxy before Ray's")
    require_ray()
    low, high = given["replicas"]
    settings = RaySettings(
        host=given["host"],
        port=given["port"],
        address=given["ray_address"],
        min_replicas=low,
        max_replicas=high,
        cpus=given["replica_cpus"],
        queued=given["max_queue"],
        spread=given["one_per_node"],
        multiplex=given["multiplex"],
        max_body=given["max_body"] << 20,
    )

    def started(names: list[str]) -> None:
        for name in names:
            fitted.echo(f"http://{settings.host}:{settings.port}/v2/models/{name}/infer")

    run_on_ray(path.resolve(), model, settings, started)
