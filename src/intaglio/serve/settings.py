"""The options of `intaglio serve`, and those of one model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from intaglio.arguments import whole_number
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import read_regular

MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")  # no hidden folders
MODEL_FILE = "serve.toml"  # in a model's folder
LABELS_FILE = "labels.txt"  # beside it: a line for each class
MAX_MODEL_FILE, MAX_LABELS_FILE = 64 << 10, 16 << 20
LATEST = re.compile(r"latest(?::([1-9][0-9]{0,3}))?\Z")


@dataclass(frozen=True)
class ModelSettings:
    """How one model is served; `<repository>/<model>/serve.toml` changes the server's."""

    versions: str | Sequence[int] = "latest"  # "latest", "latest:N", "all", or their numbers
    instances: int = 1  # runs at the same time
    isolate: bool = False  # each instance runs in a process of its own
    threads: int = 0  # of one run; 0: one per CPU
    max_queue: int = 256  # requests that may wait
    max_delay_us: int = 0  # time that a request waits for others to join its batch
    preferred: Sequence[int] = ()  # batches that are run at once; others wait for max_delay_us
    deadline_ms: int = 0  # time that a request may wait in the queue; 0: no limit
    sequence_idle_s: int = 60  # after which the state of a sequence is dropped
    max_sequences: int = 256
    labels: Sequence[str] = ()  # names of the classes, in answers with classes

    def __post_init__(self) -> None:
        limits = {"instances": 64, "threads": 256, "max_queue": 1 << 20, "max_sequences": 1 << 16}
        for name in ("instances", "max_queue", "sequence_idle_s", "max_sequences"):
            whole_number(name, getattr(self, name), 1, limits.get(name, 1 << 31))
        for name in ("threads", "max_delay_us", "deadline_ms"):
            whole_number(name, getattr(self, name), 0, limits.get(name, 1 << 31))
        if not isinstance(self.preferred, list | tuple):
            raise BadInput(f"preferred is {self.preferred!r}; give a list of batch sizes")
        for n in self.preferred:
            whole_number("preferred", n, 1)
        if not isinstance(self.labels, list | tuple) or any(
            type(n) is not str for n in self.labels
        ):
            raise BadInput("labels are no list of names; give one for each class")
        chosen_versions(self.versions, [])

    def but(self, changed: Mapping[str, Any], where: str) -> ModelSettings:
        """These settings with those of a file."""
        known = [f.name for f in fields(self)]
        for name in changed:
            if name not in known:
                hint = did_you_mean(name, known)
                raise BadFile(f"{where}: no setting is called '{name[:40]}'{hint}")
        try:
            return replace(self, **changed)
        except BadInput as e:
            raise BadFile(f"{where}: {e}") from None

    def of_folder(self, folder: Path) -> ModelSettings:
        """These settings, or those of the model's own file."""
        path, found = folder / LABELS_FILE, self
        try:
            names = read_regular(path, MAX_LABELS_FILE).decode().splitlines()
            found = replace(self, labels=tuple(names))
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as e:
            raise BadFile(f"{path}: {e}") from None
        path = folder / MODEL_FILE
        try:
            text = read_regular(path, MAX_MODEL_FILE).decode()
            return found.but(tomllib.loads(text), str(path))
        except FileNotFoundError:
            return found
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
            raise BadFile(f"{path}: {e}") from None


@dataclass(frozen=True)
class ServeSettings:
    """How the server listens and what it allows."""

    host: str = "127.0.0.1"
    http_port: int = 8000  # 0: chosen by the system
    grpc_port: int | None = 8001  # 0: chosen by the system; None: no gRPC
    token: str | None = None  # that every request but health checks must bear
    certificate: str | None = None  # PEM file
    private_key: str | None = None  # PEM file
    client_authority: str | None = None  # PEM file: clients must show a certificate that it signed
    control: bool = False  # whether models may be loaded and unloaded by requests
    max_body: int = 64 << 20  # bytes of a request
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: int = 75
    max_connections: int = 1024
    drain_s: float = 0.0  # between "not ready" and the end of listening
    stop_s: float = 15.0  # for requests in flight after that
    log_requests: bool = False
    traces: str | None = None  # URL that takes OpenTelemetry's traces (OTLP over HTTP)
    shadow: str | None = None  # URL of a server that gets copies of requests
    shadow_percent: float = 10.0  # of the requests; a rollout changes it for its model
    model: ModelSettings = field(default_factory=ModelSettings)


def chosen_versions(
    policy: str | Sequence[int], available: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The versions that a policy serves, and those that may stand in; the newest last."""
    if isinstance(policy, str):
        ordered = sorted(available)
        if policy == "all":
            return ordered, []
        if found := LATEST.match(policy):
            count = int(found[1] or 1)
            return ordered[-count:], ordered[:-count]
    elif isinstance(policy, list | tuple) and policy:
        return sorted({whole_number("versions", n, 1) for n in policy}), []
    raise BadInput(
        f'versions is {policy!r}; give "latest", "latest:2", "all", or a list of numbers'
    )


def checked_name(name: str) -> str:
    """A model's name; BadInput if it could leave the repository or a label."""
    if not MODEL_NAME.match(name):
        raise BadInput(
            f"'{name[:40]}' is no name of a model; use letters, digits, '_', '-' and '.', at most "
            "128, the first no '.' or '-'"
        )
    return name
