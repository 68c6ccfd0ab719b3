"""One instance of a model: a session for each batch size, which runs joined requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array
from intaglio.serve.jobs import Arrays, Job
from intaglio.serve.refusals import Refused, bad_request
from intaglio.serve.signature import Signature, random_inputs
from intaglio.session import Session
from intaglio.symint import bound

WARM_RUNS = 3
WARM_SECONDS = 1.0  # after which a plan is not run again
MORE_RUNS, MORE_SECONDS = 20, 0.1  # for a truer time of a short run


@dataclass(slots=True)
class Ran:
    """The times of one run, in ns."""

    rows: int
    size: int
    started: int
    input_ns: int
    infer_ns: int
    output_ns: int


class Instance:
    """Runs one batch at a time. Not for several threads at once."""

    alive = True  # one in another process may not be

    def __init__(self, first: Session, signature: Signature):
        self.signature = signature
        internal = InternalMemory(1) if len(signature.plans) > 1 else None  # which plans share
        self._any = first.clone(internal=internal)
        self._sessions: dict[int, Session] = {}
        for size, plan in signature.plans.items():
            self._sessions[size] = (
                self._any if plan is None else first.clone(internal=internal, plan=plan)
            )
        self._buffers: dict[int, Arrays] = {}

    def close(self) -> None:
        for session in {id(s): s for s in (self._any, *self._sessions.values())}.values():
            session.close()

    def warm_up(self) -> dict[int, float]:
        """Run every plan, and return the seconds that each batch size takes, with the time to join
        the inputs of its requests."""
        if not self.signature.plans:
            plans = self._any._native.plan_inputs
            for p in plans:
                largest = {n: tuple(bound(d) for d in t.shape) for n, t in p.items()}
                took = _fastest(self._any, {n: (p[n].dtype, s) for n, s in largest.items()})
            if self.signature.stateful:
                self._any.reset()
            return {0: took}
        times = {}
        for size, session in self._sessions.items():
            if self.signature.plans[size] is None and size not in _ends(self._sessions):
                continue  # one plan for all sizes: the ends are enough
            types = {
                n: (session.inputs[n].dtype, (size, *spec.shape[1:]))
                for n, spec in self.signature.inputs.items()
            }
            times[size] = _fastest(session, types) + (_joining(types) if size > 1 else 0.0)
        return times

    def run(self, jobs: list[Job], size: int) -> Ran:
        """Answer these requests in one run of a plan for `size` rows; 0: a model without batches.

        An error reaches only the request that it belongs to.
        """
        started = perf_counter_ns()
        for job in jobs:
            job.started = started
        first = jobs[0]
        if first.session is not None or not size:
            own = first.session
            times = self._alone(first, own if isinstance(own, Session) else self._any)
        elif len(jobs) == 1 and first.rows == size and _aligned(first.inputs):
            times = self._alone(first, self._sessions[size])
        else:
            times = self._joined(jobs, size)
        rows = sum(job.rows for job in jobs)
        return Ran(rows, size or rows, started, *times)

    def _alone(self, job: Job, session: Session) -> tuple[int, int, int]:
        before = perf_counter_ns()
        inputs = job.inputs
        if not _aligned(inputs):  # tensors behind a JSON header may begin anywhere
            inputs = {n: a.copy() for n, a in inputs.items()}
        try:
            job.outputs = session.run(inputs)
        except BaseException as e:
            job.error = refused(e)
        return 0, perf_counter_ns() - before, 0

    def _joined(self, jobs: list[Job], size: int) -> tuple[int, int, int]:
        before = perf_counter_ns()
        buffers = self._buffers.get(size)
        if buffers is None:
            buffers = self._buffers[size] = {
                n: np.zeros((size, *spec.shape[1:]), spec.dtype)
                for n, spec in self.signature.inputs.items()
            }
        for name, whole in buffers.items():
            at = 0
            for job in jobs:
                whole[at : at + job.rows] = job.inputs[name]
                at += job.rows
            if at < size:
                whole[at:] = 0
        gathered = perf_counter_ns()
        try:
            outputs = self._sessions[size].run(buffers)
        except BaseException as e:
            if len(jobs) == 1:
                jobs[0].error = refused(e)
            else:
                for job in jobs:  # one of them failed: the others get their answers
                    self._joined([job], min(s for s in self._sessions if s >= job.rows))
            return gathered - before, perf_counter_ns() - gathered, 0
        ran = perf_counter_ns()
        at = 0
        for job in jobs:
            job.outputs = {n: a[at : at + job.rows] for n, a in outputs.items()}
            at += job.rows
        return gathered - before, ran - gathered, perf_counter_ns() - ran


def _aligned(inputs: dict[str, Array]) -> bool:
    return all(a.flags.aligned for a in inputs.values())


def _ends(sizes: Sequence[int] | dict[int, Session]) -> tuple[int, int]:
    return min(sizes), max(sizes)


def _fastest(session: Session, types: dict[str, tuple[str, tuple[int, ...]]]) -> float:
    inputs, best, start = random_inputs(types), float("inf"), time.perf_counter()
    for i in range(MORE_RUNS):
        before = time.perf_counter()
        if before - start > (WARM_SECONDS if i < WARM_RUNS else MORE_SECONDS):
            break
        session.run(inputs)
        best = min(best, time.perf_counter() - before)
    return best


def _joining(types: dict[str, tuple[str, tuple[int, ...]]]) -> float:
    pairs = [(a, np.empty_like(a)) for a in random_inputs(types).values()]
    best = float("inf")
    for _ in range(WARM_RUNS):
        before = time.perf_counter()
        for a, b in pairs:
            np.copyto(b, a)
        best = min(best, time.perf_counter() - before)
    return best


def refused(error: BaseException) -> BaseException:
    """What the client is told about an error of a run."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, IntaglioError):
        return bad_request(str(error))
    if isinstance(error, MemoryError):
        return Refused(503, "the server has not enough memory for this request", retry_after=1)
    return error
