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
SHARED = "models"  # application of all models, if they share replicas
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
    multiplex: int = 0  # models that a replica keeps, if all share replicas; 0: each has its own
    max_body: int = 64 << 20


def require_ray() -> Any:
    """Ray; BadInput says how to install it."""
    try:
        import ray
        import ray.serve
    except ImportError as e:
        raise BadInput(
            f"Ray Serve needs the Python package '{e.name}'; install it: {install_command('ray')}"
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

    class Model:
        def __init__(self, root: str, name: str, model: ModelSettings, max_body: int):
            self._replica, self._name = ray_replica.start(root, model, max_body), name

        async def reconfigure(self, published: dict[str, Any]) -> None:
            """A version was published: load it beside the one that serves."""
            await self._replica.load(self._name)

        def check_health(self) -> None:
            if not self._replica.repository.models():
                raise RuntimeError(f"no version of '{self._name}' is served")

    Model.__name__ = Model.__qualname__ = name
    deployment = serve.deployment(**_deployed(name, {name: versions(root, name)}, settings))
    made = deployment(serve.ingress(ray_replica.build)(Model))
    return made.bind(str(root), name, model, settings.max_body)


def shared_application(
    root: Path, names: Sequence[str], model: ModelSettings, settings: RaySettings
) -> Any:
    """The Ray Serve application of all models: replicas load those that requests name, and drop
    the one that was not used for longest."""
    from ray import serve

    class Models:
        def __init__(self, root: str, model: ModelSettings, max_body: int):
            self._replica = ray_replica.start(root, model, max_body)
            self._replica.wanted = self.wanted

        @serve.multiplexed(max_num_models_per_replica=settings.multiplex)  # type: ignore[untyped-decorator]
        async def wanted(self, name: str) -> Any:
            return await self._replica.keep(name)

        async def reconfigure(self, published: dict[str, Any]) -> None:
            """Versions were published: load them beside those that serve."""
            await self._replica.renew()

    published = {name: versions(root, name) for name in names}
    deployment = serve.deployment(**_deployed(SHARED, published, settings))
    made = deployment(serve.ingress(ray_replica.build)(Models))
    return made.bind(str(root), model, settings.max_body)


def _deployed(name: str, published: dict[str, list[int]], settings: RaySettings) -> dict[str, Any]:
    """The settings of a deployment."""
    made: dict[str, Any] = {
        "name": name,
        "ray_actor_options": {"num_cpus": settings.cpus},
        "max_ongoing_requests": settings.ongoing,
        "max_queued_requests": settings.queued,
        "graceful_shutdown_timeout_s": STOP_S,
        "health_check_period_s": 1,  # the time until a dead replica is noticed
        "health_check_timeout_s": 10,
        "user_config": {"versions": published},
    }
    if settings.max_replicas > settings.min_replicas:
        made["autoscaling_config"] = {
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.target,
        }
    else:
        made["num_replicas"] = settings.min_replicas
    if settings.spread:
        made["max_replicas_per_node"] = 1
    return made


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
    if settings.multiplex:
        made = shared_application(root, names, model, settings)
        serve.run(made, name=SHARED, route_prefix="/v2/models")
        return [SHARED]
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
    from ray import serve

    own = settings.address is None
    try:
        names = deploy(root, model, settings)
        for number in (signal.SIGTERM, signal.SIGINT):  # Ray has set its own, which abort
            signal.signal(number, lambda n, _: ending.append(n))
        wait_ready(names)
        started(model_names(root))
        while own and not ending:
            time.sleep(POLL_S)
    finally:
        if own and ray.is_initialized():
            serve.shutdown()  # ends the proxies, too; Ray's HAProxy would stay
            ray.shutdown()
