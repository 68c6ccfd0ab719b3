"""A repository on Ray Serve: one application for each model, so that each scales by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput
from intaglio.extras import install_command
from intaglio.serve import ray_replica
from intaglio.serve.repository import version_number
from intaglio.serve.settings import MODEL_NAME, ModelSettings

READY_S = 120.0
POLL_S = 0.2
STOP_S = 20.0  # that a replica gets for requests in flight


@dataclass(frozen=True)
class RaySettings:
    """How models are spread over a cluster."""

    host: str = "127.0.0.1"
    port: int = 8000
    address: str | None = None  # of a running cluster: "auto", "ray://..."; None: start one here
    min_replicas: int = 1
    max_replicas: int = 1
    cpus: float = 1.0  # that Ray reserves for a replica
    ongoing: int = 64  # requests that a replica takes at the same time; its batcher joins them
    target: float = 16.0  # ongoing requests of a replica, on average, that scaling aims for
    queued: int = 256  # requests that wait in a proxy; more get 503
    spread: bool = False  # at most one replica of a model on a node
    max_body: int = 64 << 20


def require_ray() -> Any:
    """Ray; BadInput says how to install it."""
    try:
        import ray
        import ray.serve
    except ImportError as e:
        raise BadInput(
            f"--ray needs the Python package '{e.name}'; install it: {install_command('ray')}"
        ) from None
    return ray


def model_names(root: Path) -> list[str]:
    """The models of a repository that have a version."""
    try:
        folders = sorted(e.name for e in os.scandir(root) if e.is_dir())
    except OSError as e:
        raise BadInput(f"{root}: {e.strerror}; give a repository") from None
    found = [n for n in folders if MODEL_NAME.match(n) and versions(root, n)]
    if not found:
        raise BadInput(f"{root} has no model; `intaglio publish` puts one there")
    return found


def versions(root: Path, name: str) -> list[int]:
    """The version numbers of a model, in order."""
    numbers = (version_number(e.name) for e in os.scandir(root / name))
    return sorted(n for n in numbers if n is not None)


def application(root: Path, name: str, model: ModelSettings, settings: RaySettings) -> Any:
    """The Ray Serve application of one model."""
    from ray import serve

    scaling: dict[str, Any] = {"num_replicas": settings.min_replicas}
    if settings.max_replicas > settings.min_replicas:
        scaling = {
            "autoscaling_config": {
                "min_replicas": settings.min_replicas,
                "max_replicas": settings.max_replicas,
                "target_ongoing_requests": settings.target,
            }
        }
    if settings.spread:
        scaling["max_replicas_per_node"] = 1

    class Model:
        def __init__(self, root: str, name: str, model: ModelSettings, max_body: int):
            self._replica = ray_replica.start(root, name, model, max_body)

        async def reconfigure(self, published: dict[str, Any]) -> None:
            """A version was published: load it beside the one that serves."""
            await self._replica.load()

        def check_health(self) -> None:
            if not self._replica.repository.models():
                raise RuntimeError(f"no version of '{self._replica.name}' is served")

    Model.__name__ = Model.__qualname__ = name
    deployment = serve.deployment(
        name=name,
        ray_actor_options={"num_cpus": settings.cpus},
        max_ongoing_requests=settings.ongoing,
        max_queued_requests=settings.queued,
        graceful_shutdown_timeout_s=STOP_S,
        health_check_period_s=2,
        health_check_timeout_s=10,
        user_config={"versions": versions(root, name)},
        **scaling,
    )(serve.ingress(ray_replica.build)(Model))
    return deployment.bind(str(root), name, model, settings.max_body)


def deploy(root: Path, model: ModelSettings, settings: RaySettings) -> list[str]:
    """Deploy every model of a repository, or the new versions; the names of the applications.

    Models that run already load their new version in place: no request fails.
    """
    ray = require_ray()
    from ray import serve

    names = model_names(root)
    if not ray.is_initialized():
        ray.init(
            address=settings.address, include_dashboard=False, log_to_driver=False,
            configure_logging=False,
        )  # fmt: skip
    serve.start(http_options={"host": settings.host, "port": settings.port})
    for name in names:
        made = application(root, name, model.of_folder(root / name), settings)
        serve.run(made, name=name, route_prefix=f"/v2/models/{name}")
    return names


def wait_ready(names: Sequence[str], limit: float = READY_S) -> None:
    """Return when all applications run; BadInput with Ray's words if one cannot."""
    from ray import serve

    end = time.monotonic() + limit
    while True:
        states = serve.status().applications
        failed = [n for n in names if n in states and states[n].status == "DEPLOY_FAILED"]
        if failed:
            words = " ".join(states[failed[0]].message.split())[-300:]
            raise BadInput(f"Ray Serve does not start '{failed[0]}': {words}")
        if all(n in states and states[n].status == "RUNNING" for n in names):
            return
        if time.monotonic() > end:
            raise BadInput(f"Ray Serve did not start all models in {limit:g} s; see `serve status`")
        time.sleep(POLL_S)


def run(
    root: Path, model: ModelSettings, settings: RaySettings, started: Callable[[list[str]], None]
) -> None:
    """Deploy and, if the cluster is our own, serve until a signal."""
    import signal

    ray = require_ray()
    ending: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: ending.append(n))
    from ray import serve

    own = settings.address is None
    try:
        names = deploy(root, model, settings)
        wait_ready(names)
        started(names)
        while own and not ending:
            time.sleep(POLL_S)
    finally:
        if own:
            serve.shutdown()  # ends the proxies, too; Ray's HAProxy would stay
            ray.shutdown()
