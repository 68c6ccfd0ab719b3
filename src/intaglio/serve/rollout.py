"""Gives a new version a share of the traffic, watches it, and makes it everyone's or takes it back.

The version is a candidate in the repository, which only the canary servers load. If the process
that runs the rollout is killed, the share stays as it is; another rollout goes on from there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput, IntaglioError
from intaglio.serve.gateway import CANARY, FULL_WEIGHT, MODEL_BACKEND, STABLE
from intaglio.serve.guards import Limits, Observed, Side, difference, enough, judged
from intaglio.serve.haproxy_socket import HaproxySocket, ProxyServer, weights_of
from intaglio.serve.publish import decide, newest_candidate, request_load
from intaglio.serve.server_client import ask
from intaglio.serve.statistics import quantile

INTERVAL_S = 1.0
PATIENCE = 10  # times hold_s until enough requests must have come
FAILURES = 3  # observations in a row without an answer before a canary server counts as down


@dataclass(frozen=True)
class Steps:
    """The shares of a rollout, and how long each is watched."""

    shares: Sequence[float] = (10.0,)  # percent of the model's requests
    hold_s: float = 60.0
    shadow_percent: float = 10.0  # of the stable servers' requests, copied and compared
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < p <= 99 for p in self.shares):
            raise BadInput(f"the shares are {list(self.shares)}; give percentages from 1 to 99")
        if self.hold_s <= 0:
            raise BadInput(f"hold_s is {self.hold_s}; give seconds above 0")


@dataclass
class Outcome:
    """How a rollout ended."""

    version: int
    accepted: bool
    reason: str


class Rollout:
    """A rollout of the newest candidate of a model."""

    def __init__(
        self,
        model: str,
        repository: str | Path,
        socket: str | Path,
        steps: Steps,
        token: str | None = None,
        told: Callable[[str], None] = lambda _: None,
    ):
        self.model, self.repository, self.steps = model, Path(repository), steps
        self.proxy, self.backend = HaproxySocket(socket), f"{MODEL_BACKEND}{model}"
        self._token, self._told = token, told
        self._missed: dict[str, int] = {}
        self._last: dict[str, list[int]] = {}  # latency of a server when it last answered

    def run(self) -> Outcome:
        """Go through all shares; the version is accepted or taken back when this returns."""
        with self._alone():
            version = newest_candidate(self.repository, self.model)
            if version is None:
                raise BadInput(f"model '{self.model}' has no candidate; publish a version as one")
            stable, canary = self._servers()
            changed: list[ProxyServer] = list(canary)
            try:
                self._load_candidate(version, canary)
                self._shadow(stable, self.steps.shadow_percent)
                why = self._shares(version, stable, canary)
                if why is None:
                    decide(self.repository, self.model, version, True)
                    for server in stable:
                        changed.append(server)
                        self._load(server)
                    self._shadow(stable, 0)
                    self._weigh(0)
                    return Outcome(version, True, "no guard spoke against it")
            except BaseException as e:
                why = str(e) if isinstance(e, IntaglioError) else "the rollout was interrupted"
                self.take_back(version, changed)
                if not isinstance(e, IntaglioError):
                    raise
                return Outcome(version, False, why)
            self.take_back(version, changed)
            return Outcome(version, False, why)

    def abort(self) -> Outcome:
        """Take back the newest candidate without a rollout, for example after one was killed."""
        with self._alone():
            version = newest_candidate(self.repository, self.model)
            if version is None:
                raise BadInput(f"model '{self.model}' has no candidate; there is nothing to abort")
            self.take_back(version, self._servers()[1])
            return Outcome(version, False, "aborted")

    def take_back(self, version: int, servers: Sequence[ProxyServer]) -> None:
        """No more requests for the version; servers that loaded it load the one before."""
        self._weigh(0)
        with suppress(IntaglioError):
            self._shadow(self._servers()[0], 0)
        for accepted in (self.repository / self.model / str(version), None):
            with suppress(IntaglioError, OSError):
                if accepted is None:
                    decide(self.repository, self.model, version, False)
                elif accepted.exists():
                    os.rename(accepted, f"{accepted}.rejected")
        for server in servers:
            try:
                self._load(server)
            except IntaglioError as e:
                self._told(f"{server.name} does not load the version before: {e}")

    # ---- steps ---------------------------------------------------------------------------------
    def _shares(
        self, version: int, stable: Sequence[ProxyServer], canary: Sequence[ProxyServer]
    ) -> str | None:
        """Why the version is to be taken back; None after all shares."""
        for percent in self.steps.shares:
            before = self._observe(version, stable, canary)
            self._weigh(percent)
            start = time.monotonic()
            while True:
                time.sleep(min(INTERVAL_S, self.steps.hold_s))
                now = self._since(before, version, stable, canary)
                took = time.monotonic() - start
                if (why := judged(now, self.steps.limits)) is not None:
                    return f"at {percent:g} % after {took:.0f} s: {why}"
                self._told(_line(percent, took, now))
                if took < self.steps.hold_s:
                    continue
                silent = any(self._missed.get(s.name) for s in canary)
                if enough(now, self.steps.limits) and not silent:
                    break
                if took > self.steps.hold_s * PATIENCE:
                    return (
                        f"only {now.canary.requests} requests came to the canary, and "
                        f"{now.same + now.different} answers were compared; "
                        f"{self.steps.limits.min_requests} are needed for a verdict"
                    )
        return None

    def _since(self, before: Observed, *where: Any) -> Observed:
        now = self._observe(*where)
        return Observed(
            difference(now.stable, before.stable),
            difference(now.canary, before.canary),
            max(now.same - before.same, 0),
            max(now.different - before.different, 0),
            now.bounds,
        )

    def _observe(
        self, version: int, stable: Sequence[ProxyServer], canary: Sequence[ProxyServer]
    ) -> Observed:
        """All counts as they are now."""
        found = Observed()
        names = {s.name for s in canary}
        for server in self.proxy.servers(self.backend):
            side = found.canary if server.name in names else found.stable
            side.requests += server.requests
            side.errors += server.errors
        for server in stable:
            self._add(found, found.stable, server, None)
            if "agreement" in self.steps.limits.guards:
                counts = self._shadow([server], None)
                found.same += counts.get("same", 0)
                found.different += counts.get("different", 0) + counts.get("failed", 0)
        for server in canary:
            self._add(found, found.canary, server, version)
        return found

    def _add(self, found: Observed, side: Side, server: ProxyServer, version: int | None) -> None:
        """Add the latencies of a server; one that does not answer is as it was."""
        try:
            answer = ask(_url(server), "GET", f"/v2/models/{self.model}/stats", token=self._token)
            rows = {int(m["version"]): m["latency"] for m in answer["model_stats"]}
            row = rows[max(rows) if version is None else version]
            self._last[server.name], self._missed[server.name] = row["counts"], 0
            found.bounds = row["seconds"]
        except (IntaglioError, KeyError, TypeError, ValueError):
            self._missed[server.name] = self._missed.get(server.name, 0) + 1
            if self._missed[server.name] >= FAILURES:
                side.down.append(server.name)
        counts = self._last.get(server.name, [])
        if counts:  # empty: it has never answered
            before = side.latency or [0] * len(counts)
            side.latency = [a + b for a, b in zip(before, counts, strict=True)]

    # ---- servers -------------------------------------------------------------------------------
    def _servers(self) -> tuple[list[ProxyServer], list[ProxyServer]]:
        found = self.proxy.servers(self.backend)
        stable = [s for s in found if s.name.startswith(STABLE) and s.is_up]
        canary = [s for s in found if s.name.startswith(CANARY) and s.is_up]
        for kind, servers in ((STABLE, stable), (CANARY, canary)):
            if not servers:
                raise BadInput(
                    f"backend '{self.backend}' has no {kind} server that is up; start one, and "
                    "name it in the gateway's configuration"
                )
        return stable, canary

    def _weigh(self, percent: float) -> None:
        found = self.proxy.servers(self.backend)
        stable = [s for s in found if s.name.startswith(STABLE)]
        canary = [s for s in found if s.name.startswith(CANARY)]
        weights = (FULL_WEIGHT, 0)
        if percent:
            up = sum(s.is_up for s in stable) or len(stable)
            weights = weights_of(percent, up, sum(s.is_up for s in canary) or len(canary))
        for servers, weight in zip((stable, canary), weights, strict=True):
            for server in servers:
                self.proxy.set_weight(self.backend, server.name, weight)

    def _load_candidate(self, version: int, canary: Sequence[ProxyServer]) -> None:
        for server in canary:
            self._load(server)
            rows = ask(_url(server), "POST", "/v2/repository/index", {}, self._token)
            serves = [r for r in rows if r["name"] == self.model and r["version"] == str(version)]
            if not serves or serves[0]["state"] != "READY":
                raise BadInput(
                    f"{server.name} at {server.address} does not serve candidate {version}; start "
                    "it on the same repository with candidates"
                )

    def _load(self, server: ProxyServer) -> None:
        request_load(_url(server), self.model, self._token)

    def _shadow(self, servers: Sequence[ProxyServer], percent: float | None) -> dict[str, int]:
        """Change the share of copied requests; the counts of the last server."""
        if "agreement" not in self.steps.limits.guards:
            return {}
        counts: dict[str, int] = {}
        body = {} if percent is None else {"percent": percent}
        for server in servers:
            path = f"/v2/repository/models/{self.model}/shadow"
            try:
                counts = ask(_url(server), "POST", path, body, self._token)
            except BadInput as e:
                if percent is None:
                    continue  # it may be back at the next observation
                raise BadInput(f"{server.name} at {server.address}: {e}") from None
        return counts

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One rollout of a model at a time."""
        try:
            fd = os.open(self.repository / self.model, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as e:
            raise BadInput(
                f"{self.repository} has no model '{self.model[:128]}': {e.strerror}"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BadInput(f"another rollout of '{self.model}' is running; wait for it") from None
        finally:
            os.close(fd)


def _url(server: ProxyServer) -> str:
    return f"http://{server.address}"


def _line(percent: float, took: float, now: Observed) -> str:
    def side(s: Side) -> str:
        p99 = quantile(now.bounds, s.latency, 0.99)
        shown = "-" if p99 is None else f"{p99 * 1e3:.3g} ms"
        return f"{s.requests} requests, {s.errors} failed, p99 {shown}"

    compared = now.same + now.different
    agreed = f"; {now.same} of {compared} answers agree" if compared else ""
    both = f"canary: {side(now.canary)}; stable: {side(now.stable)}"
    return f"{percent:g} % {took:.0f} s  {both}{agreed}"
