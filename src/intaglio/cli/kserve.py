"""`intaglio kserve`: manifests for KServe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from intaglio.cli import fitted
from intaglio.files import refuse_unwritable, write_atomically


@click.command("kserve")
@click.argument("name")
@click.option(
    "--storage",
    required=True,
    metavar="URI",
    help="Folder with model.itg: pvc://models/digits/3, s3://..., oci://...",
)
@click.option(
    "--image", required=True, help='Container image in which `pip install "intaglio[serve]"` ran.'
)
@click.option("--namespace", help="Namespace of both [default: that of kubectl].")
@click.option("--cpu", default="1", show_default=True, help="CPUs of a replica.")
@click.option("--memory", default="512Mi", show_default=True, help="Memory of a replica.")
@click.option(
    "--min-replicas",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="0: none without requests (needs Knative).",
)
@click.option("--max-replicas", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Scale to N requests at a time for each replica.",
)
@click.option(
    "--canary",
    type=click.IntRange(0, 100),
    metavar="PERCENT",
    help="Traffic of this revision; the one before it gets the rest.",
)
@click.option("--grpc", is_flag=True, help="Serve gRPC, not HTTP.")
@click.option("-o", "out", type=click.Path(dir_okay=False), metavar="FILE", help="[default: print]")
def command(out: str | None, **given: Any) -> None:
    """Write manifests for KServe: a ServingRuntime, and an InferenceService called NAME.

    The storage is a folder with model.itg, such as a version of a repository. The manifests agree
    with KServe's own schemas; no cluster is asked.

    \b
    intaglio kserve digits --storage pvc://models/digits/3 --image me/serve:1
    intaglio kserve digits --storage s3://models/digits/4 --image me/serve:1 \\
        --canary 10 --max-replicas 4 --concurrency 16 -o digits.yaml
    """
    from intaglio.serve.kserve import Service, manifests

    refuse_unwritable(out)
    text = manifests(Service(**given))
    if out is None:
        click.echo(text, nl=False)
        return
    write_atomically(Path(out), text.encode())
    fitted.echo(f"{out}: apply it with kubectl apply -f {out}")
