"""One version of a model that is being served: sessions, queue, statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import intaglio
from intaglio.errors import BadInput
from intaglio.package import Package
from intaglio.serve.batcher import Batcher
from intaglio.serve.instance import Instance
from intaglio.serve.isolated import IsolatedPackage
from intaglio.serve.jobs import Arrays, Client, Job
from intaglio.serve.refusals import bad_request
from intaglio.serve.sequences import Sequences
from intaglio.serve.settings import ModelSettings
from intaglio.serve.signature import Signature
from intaglio.serve.statistics import Statistics
from intaglio.serve.traces import Traced

MAX_PRIORITY = 255  # the lowest
DEFAULT_PRIORITY = 128


class ServedModel:
    """A loaded and warmed version. Requests come in through `infer`."""

    def __init__(
        self, name: str, version: str, settings: ModelSettings, opened: Opened | IsolatedPackage
    ):
        self.name, self.version, self.settings = name, version, settings
        self.signature, self.labels = opened.signature, settings.labels
        self.times = opened.times
        self.statistics = Statistics()
        self._first = opened.first
        self.batcher = Batcher(
            opened.instances,
            opened.times,
            self.statistics,
            max_queue=settings.max_queue,
            max_delay=settings.max_delay_us * 1e-6,
            preferred=settings.preferred,
            deadline=settings.deadline_ms * 1e-3,
        )
        self.sequences = (
            Sequences(opened.first.clone, settings.max_sequences, settings.sequence_idle_s)
            if self.signature.stateful
            else None
        )

    @classmethod
    async def load(
        cls, name: str, version: str, source: Path | Package, settings: ModelSettings
    ) -> ServedModel:
        """Open and warm up in another thread; this one keeps serving."""
        opened: Opened | IsolatedPackage
        if settings.isolate:
            opened = await asyncio.to_thread(IsolatedPackage, source, settings)
        else:
            opened = await asyncio.to_thread(Opened, source, settings)
        return cls(name, version, settings, opened)

    @property
    def alive(self) -> bool:
        """Whether all processes that run the model do."""
        return self.batcher.alive

    async def infer(
        self,
        inputs: Arrays,
        parameters: Mapping[str, Any] | None = None,
        client: Client | None = None,
        traced: Traced | None = None,
    ) -> Arrays:
        """The outputs for checked inputs."""
        job = Job(inputs, self._rows(inputs), DEFAULT_PRIORITY, client)
        if traced is not None:
            traced.model, traced.job = self, job
        given = parameters or {}
        if self.sequences is None and "priority" not in given and "timeout" not in given:
            self.batcher.submit(job)
            return job.outputs if job.outputs is not None else await self._answer(job)
        job.priority = _number(given, "priority", MAX_PRIORITY) or DEFAULT_PRIORITY
        timeout = _number(given, "timeout", 1 << 53) * 1e-6
        if self.sequences is None:
            self.batcher.submit(job, timeout)
            return await self._answer(job)
        job.priority = DEFAULT_PRIORITY  # requests of a sequence stay in order
        key, sequence = self.sequences.begin(dict(given))
        job.session = sequence.session
        try:
            self.batcher.submit(job, timeout)
            return await self._answer(job)
        finally:
            runs = job.started and job.outputs is None and job.error is None  # its client is gone
            self.sequences.end(key, sequence, bool(given.get("sequence_end")) and not runs)

    async def _answer(self, job: Job) -> Arrays:
        try:
            return await job.answer()
        except asyncio.CancelledError:
            self.batcher.drop(job)
            raise

    def _rows(self, inputs: Arrays) -> int:
        if not self.signature.plans:
            return 1
        rows = {a.shape[0] for a in inputs.values()}
        n: int = rows.pop()
        if rows:
            raise bad_request("the inputs have different batch sizes; the first axis is the batch")
        if not n:
            raise bad_request("the batch is empty; give at least one row")
        return n

    async def close(self) -> None:
        """Answer what waits, then free all memory."""
        await self.batcher.close()
        if self.sequences is not None:
            self.sequences.close()
        self._first.close()


class Opened:
    """A package that is open, checked and warm."""

    def __init__(self, source: Path | Package, settings: ModelSettings):
        threads = settings.threads or None
        self.first = intaglio.open(source, threads)  # a Session would compile other files
        self.instances: list[Instance] = []
        try:
            self.signature = Signature.of(self.first)
            if not self.signature.inputs:
                raise BadInput("the model has no inputs; there is nothing to request")
            count = 1 if self.signature.stateful else settings.instances
            for _ in range(count):
                self.instances.append(Instance(self.first, self.signature))
            self.times = self.instances[0].warm_up()
            for other in self.instances[1:]:
                other.warm_up()
        except BaseException:
            for instance in self.instances:
                instance.close()
            self.first.close()
            raise


def _number(parameters: Mapping[str, Any], name: str, most: int) -> int:
    """A parameter that is a whole number; 0 without."""
    given = parameters.get(name, 0)
    if isinstance(given, str) and given.isdecimal() and len(given) < 17:
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise bad_request(f"parameter {name} is {str(given)[:40]!r}; give 0 to {most}")
    return given
