"""`intaglio serve`: serve models over HTTP and gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio.cli import fitted, model_files, options, ray_options
from intaglio.cli.serve_options import CLIENT_CA, MAX_BODY, numbers, read_token
from intaglio.errors import BadInput
from intaglio.extras import install_command

if TYPE_CHECKING:
    from intaglio.serve.repository import Repository
    from intaglio.serve.server import Server
    from intaglio.serve.settings import ModelSettings

GROUPS = {
    "Network": "--host --port --grpc-port --no-grpc --token --certificate --private-key "
    "--client-ca --max-body",
    "Models": "--name --batch --versions --control --load --candidates --threads --instances "
    "--isolate",
    "Shadow": "--shadow --shadow-percent",
    "Observability": "--log-requests --traces",
    "Queue": "--max-queue --max-delay --preferred --deadline --sequence-idle",
    **ray_options.GROUP,
}

OWN = {  # options that are not for reading models
    "host", "port", "grpc_port", "no_grpc", "token", "certificate", "private_key", "client_ca",
    "max_body", "name", "batch", "versions", "control", "threads", "instances", "max_queue",
    "max_delay", "preferred", "deadline", "sequence_idle", "drain", "stop", "log_requests",
    "load", "candidates", "isolate", "traces", "shadow", "shadow_percent",
    *ray_options.NAMES,
}  # fmt: skip


@click.command("serve", cls=options.ModelCommand, groups=GROUPS)
@click.argument("source", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of HTTP; 0: chosen by the system.",
)
@click.option(
    "--grpc-port",
    default=8001,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of gRPC; 0: chosen by the system.",
)
@click.option("--no-grpc", is_flag=True, help="Serve HTTP only.")
@click.option(
    "--token",
    metavar="FILE|env:NAME",
    help="Requests must bear the token in this file or environment variable.",
)
@click.option("--certificate", type=click.Path(), help="Certificate for TLS (PEM).")
@click.option("--private-key", type=click.Path(), help="Private key of the certificate (PEM).")
@CLIENT_CA
@MAX_BODY
@click.option("--name", help="Name of a single model [default: of its file].")
@click.option(
    "--batch",
    callback=options.batch,
    metavar="N|1..N|N,N",
    help="Batches that a model file is compiled for.",
)
@click.option(
    "--versions",
    default="latest",
    show_default=True,
    metavar="POLICY",
    help="Versions that are served: latest, latest:N, all, or numbers: 1,3.",
)
@click.option("--control", is_flag=True, help="Let requests load and unload models.")
@click.option(
    "--load",
    metavar="NAME,NAME",
    help="Models that are loaded at the start; requests load others [default: all].",
)
@click.option("--candidates", is_flag=True, help="Also serve candidates: a server for rollouts.")
@click.option(
    "--shadow", metavar="URL", help="Send copies of requests to this server, and compare."
)
@click.option(
    "--shadow-percent",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Share of requests that are copied; a rollout changes it for its model.",
)
@click.option(
    "--threads",
    default=0,
    type=click.IntRange(0, 256),
    help="Threads of one run [default: one per CPU].",
)
@click.option(
    "--instances",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Runs of a model at the same time.",
)
@click.option(
    "--isolate", is_flag=True, help="Run models in processes of their own; a crash ends only those."
)
@click.option(
    "--max-queue",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    help="Requests of a model that may wait; more get 429.",
)
@click.option(
    "--max-delay",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="US",
    help="Microseconds that a request waits for others to join its batch.",
)
@click.option("--preferred", default="", metavar="N,N", help="Batches that do not wait.")
@click.option(
    "--deadline",
    default=0,
    type=click.IntRange(0),
    metavar="MS",
    help="Milliseconds that a request may wait in the queue [default: no limit].",
)
@click.option(
    "--sequence-idle",
    default=60,
    show_default=True,
    type=click.IntRange(1),
    metavar="S",
    help="Seconds after which an idle sequence loses its state.",
)
@click.option(
    "--drain",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    metavar="S",
    help="Seconds between 'not ready' and the end of listening.",
)
@click.option(
    "--stop",
    default=15.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    metavar="S",
    help="Seconds that requests in flight get after SIGTERM.",
)
@click.option("--log-requests", is_flag=True, help="Log every request.")
@click.option("--traces", metavar="URL", help="Send OpenTelemetry traces there (OTLP over HTTP).")
@ray_options.ray_options
@options.model_options
def command(source: str, **given: Any) -> None:
    """Serve SOURCE over HTTP and gRPC: a repository, a package, or a model that is compiled first.

    A repository is a folder: <repository>/<model>/<number>/model.itg. Clients of the Open Inference
    Protocol and Triton's tritonclient work unchanged.

    \b
    intaglio serve model.itg                     http://127.0.0.1:8000
    intaglio serve model.onnx --batch 1,4,16     joins up to 16 requests
    intaglio serve repository/ --control         models are loaded by request
    intaglio serve repository/ --ray --replicas 1..4        on a cluster
    """
    try:
        from intaglio.serve import server
    except ImportError as e:
        raise BadInput(
            f"serving needs the Python package '{e.name}'; install it: {install_command('serve')}"
        ) from None
    from intaglio.serve.settings import ServeSettings

    model = _model_settings(given)
    if given["ray"]:
        ray_options.run(source, model, given)
        return
    settings = ServeSettings(
        host=given["host"],
        http_port=given["port"],
        grpc_port=None if given["no_grpc"] else given["grpc_port"],
        token=read_token(given["token"]),
        certificate=given["certificate"],
        private_key=given["private_key"],
        client_authority=given["client_ca"],
        control=given["control"],
        max_body=given["max_body"] << 20,
        drain_s=given["drain"],
        stop_s=given["stop"],
        log_requests=given["log_requests"],
        traces=given["traces"],
        shadow=given["shadow"],
        shadow_percent=given["shadow_percent"],
        model=model,
    )
    server.tls_context(settings)
    repository = _repository(source, model, given)
    server.run(repository, settings, _started)


def _model_settings(given: dict[str, Any]) -> ModelSettings:
    from intaglio.serve.settings import ModelSettings

    return ModelSettings(
        versions=_versions(given["versions"]),
        instances=given["instances"],
        isolate=given["isolate"],
        threads=given["threads"],
        max_queue=given["max_queue"],
        max_delay_us=given["max_delay"],
        preferred=numbers("--preferred", given["preferred"]),
        deadline_ms=given["deadline"],
        sequence_idle_s=given["sequence_idle"],
    )


def _repository(source: str, settings: ModelSettings, given: dict[str, Any]) -> Repository:
    import intaglio
    from intaglio.cli import progress_line
    from intaglio.serve.repository import Repository

    path = Path(source)
    arguments = {k: v for k, v in given.items() if k not in OWN}
    if path.is_dir() and not (path / "saved_model.pb").exists():
        if given["name"] or given["batch"] is not None:
            raise BadInput("--name and --batch are for single models; SOURCE is a repository")
        found = Repository(path, settings, given["candidates"])
        if given["load"] is not None:
            found.at_start = [n for n in map(str.strip, given["load"].split(",")) if n]
        return found
    if given["load"] is not None:
        raise BadInput("--load names models of a repository; SOURCE is one model")
    repository = Repository(None, settings)
    name = given["name"] or path.stem
    if model_files.starts_as_package(source) or path.suffix == ".itg":
        if given["batch"] is not None:
            raise BadInput(f"{source} is compiled already; --batch is for model files")
        repository.add(name, path.resolve())
        return repository
    with progress_line.shown():
        batch = {} if given["batch"] is None else {"batch": given["batch"]}
        package = intaglio.compile(source, **batch, **options.load_arguments(**arguments))
    repository.add(name, package)
    return repository


def _started(server: Server) -> None:
    scheme = "http" if server.settings.certificate is None else "https"
    host = server.settings.host
    shown = f"[{host}]" if ":" in host else host
    rows = server.repository.index()
    if not rows and server.repository.root is not None:
        fitted.echo(f"no model yet: `intaglio publish model.itg {server.repository.root}` adds one")
    for row in rows:
        why = f": {row['reason']}" if row["reason"] else ""
        fitted.echo(f"{row['name']} {row['version']}  {row['state']}{why}")
    fitted.echo(f"HTTP  {scheme}://{shown}:{server.http_port}")
    if server.grpc_port:
        fitted.echo(f"gRPC  {shown}:{server.grpc_port}")


def _versions(text: str) -> str | list[int]:
    return numbers("--versions", text) if text[:1].isdigit() else text
