"""`intaglio rollout`: give a new version a share of the traffic, and watch it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from intaglio.cli import fitted
from intaglio.cli.serve_options import SOCKET, read_token
from intaglio.errors import BadInput

TAKEN_BACK = 1  # exit code


@click.command("rollout")
@click.argument("model")
@click.argument("repository", type=click.Path(file_okay=False), default=".")
@click.option(
    "--canary",
    default="10",
    show_default=True,
    metavar="PERCENT,...",
    help="Shares of the model's requests, one after the other.",
)
@click.option(
    "--guard",
    default="p99,errors,agreement",
    show_default=True,
    metavar="NAME,...",
    help="What takes the version back.",
)
@click.option(
    "--hold",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.1, 86400),
    metavar="S",
    help="Seconds that each share is watched.",
)
@click.option(
    "--min-requests",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Requests to the canary that a verdict needs.",
)
@click.option(
    "--max-slower",
    default=1.5,
    show_default=True,
    type=float,
    help="Limit of p99, in multiples of the stable servers'.",
)
@click.option(
    "--max-errors",
    default=1.0,
    show_default=True,
    type=float,
    metavar="PERCENT",
    help="Limit of failed requests, above the share of the stable servers.",
)
@click.option(
    "--min-agreement",
    default=99.0,
    show_default=True,
    type=float,
    metavar="PERCENT",
    help="Compared answers that must agree.",
)
@click.option(
    "--shadow",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Requests that are copied to the canary and compared.",
)
@click.option(
    "--package", type=click.Path(), help="Publish this package as the candidate [default: newest]."
)
@click.option("--socket", type=click.Path(), help="HAProxy's socket [default: in the repository].")
@click.option("--token", metavar="FILE|env:NAME", help="Token of the servers.")
@click.option("--abort", is_flag=True, help="Take back the candidate of a rollout that was killed.")
def command(model: str, repository: str, **given: Any) -> None:
    """Roll out the candidate of MODEL in REPOSITORY behind the HAProxy of `intaglio gateway`.

    The canary servers load it and get their share of the requests. If no guard speaks against it,
    it becomes a version that all servers load; else it is taken back, and the exit code is 1.
    Guards: p99 latency, errors, and agreement of answers to copied requests (servers with
    --shadow).

    \b
    intaglio publish new.itg repository --name digits --candidate
    intaglio rollout digits repository --canary 10 --guard p99,errors,agreement
    intaglio rollout digits repository --canary 1,10,50 --hold 300
    """
    from intaglio.serve.guards import Limits
    from intaglio.serve.publish import publish
    from intaglio.serve.rollout import Rollout, Steps

    limits = Limits(
        guards=tuple(part for part in given["guard"].split(",") if part),
        max_slower=given["max_slower"],
        max_errors=given["max_errors"],
        min_agreement=given["min_agreement"],
        min_requests=given["min_requests"],
    )
    steps = Steps(_percentages(given["canary"]), given["hold"], given["shadow"], limits)
    socket = given["socket"] or Path(repository).resolve() / SOCKET
    token = read_token(given["token"])
    rollout = Rollout(model, repository, socket, steps, token, fitted.echo)
    if given["package"] is not None:
        publish(given["package"], repository, model, candidate=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the version is taken back
    outcome = rollout.abort() if given["abort"] else rollout.run()
    state = "is served by all" if outcome.accepted else "is taken back"
    fitted.echo(f"version {outcome.version} of '{model}' {state}: {outcome.reason}")
    if not outcome.accepted and not given["abort"]:
        raise click.exceptions.Exit(TAKEN_BACK)


def _percentages(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError:
        raise BadInput(f"--canary takes percentages such as 1,10,50, not {text!r}") from None
