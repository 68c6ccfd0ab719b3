"""The queue of a model: requests wait here until an instance runs them, joined to a batch.

All methods are called by the event loop. A model of a few microseconds runs in the event loop
itself, because handing it to another thread takes longer; others run in a thread of each instance.
"""

from __future__ import annotations

import asyncio
import heapq
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns

from intaglio.serve.instance import Instance, Ran, refused
from intaglio.serve.isolated import IsolatedInstance
from intaglio.serve.jobs import Job, Runs
from intaglio.serve.refusals import Refused
from intaglio.serve.statistics import Statistics

INLINE_SECONDS = 300e-6  # a run that is not longer stays in the event loop
NOTICED = 0.99  # of the known time of a batch size; a run that is not faster changes nothing
MIN_COMPACTED = 64  # entries of the queue that may be refused requests


class BatchSizes:
    """Which compiled batch size runs next, by the measured times."""

    def __init__(self, times: Mapping[int, float], sizes: Sequence[int]):
        self.sizes = sorted(sizes)
        self._measured = dict(times)
        self._estimate()

    def _estimate(self) -> None:
        times, known = self._measured, sorted(self._measured)
        self._times = {}
        for s in self.sizes:  # sizes in between: on the line through the measured ends
            if s in times or len(known) < 2:
                self._times[s] = times.get(s, 1.0)
                continue
            low, high = known[0], known[-1]
            slope = (times[high] - times[low]) / (high - low)
            self._times[s] = max(times[low] + slope * (s - low), 1e-9)
        self._chosen: dict[int, int] = {}

    def ran(self, size: int, seconds: float) -> None:
        """A run took so long. The least time counts: other programs may have slowed the others."""
        if seconds < self._times[size] * NOTICED:
            self._measured[size] = seconds
            self._estimate()

    def choose(self, rows: int) -> int:
        """The size with the most rows a second if `rows` wait; padding where it pays."""
        rows = min(rows, self.sizes[-1])
        found = self._chosen.get(rows)
        if found is None:
            rate = {s: min(rows, s) / self._times[s] for s in self.sizes}
            found = self._chosen[rows] = max(self.sizes, key=lambda s: (rate[s], -s))
        return found

    def holding(self, rows: int) -> int:
        """The smallest size that holds `rows`."""
        return next(s for s in self.sizes if s >= rows)


class Batcher:
    """A bounded queue in front of the instances of one model."""

    def __init__(
        self,
        instances: Sequence[Instance | IsolatedInstance],
        times: Mapping[int, float],
        statistics: Statistics,
        *,
        max_queue: int = 256,
        max_delay: float = 0.0,
        preferred: Sequence[int] = (),
        deadline: float = 0.0,
    ):
        sizes = list(instances[0].signature.plans)
        self.sizes = BatchSizes(times, sizes) if sizes else None
        here = all(isinstance(i, Instance) for i in instances)
        self.inline = here and max(times.values()) <= INLINE_SECONDS
        self.statistics = statistics
        self._max_queue, self._max_delay, self._deadline = max_queue, max_delay, deadline
        self._preferred = sorted(set(preferred))
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[int, int, Job]] = []
        self._number = 0
        self.waiting = 0  # jobs in the heap that are not done
        self._pumping = False
        self._wake: asyncio.TimerHandle | None = None
        self._closed = False
        self._drained: asyncio.Future[None] | None = None
        self._instances = list(instances)
        self._idle = [Worker(i, self._loop, self._finish) for i in instances]
        self._busy = 0
        self._rows = 0

    @property
    def alive(self) -> bool:
        """Whether no instance waits for a new process."""
        return all(i.alive for i in self._instances)

    # ---- taking requests -----------------------------------------------------------------------
    def submit(self, job: Job, timeout: float = 0.0) -> None:
        """Put a request into the queue; Refused if that is full."""
        if self._closed:
            raise Refused(503, "the model is being unloaded; send the request again", 1)
        self.refuse_if_full()
        if self.sizes is None and not self.waiting and self._idle:
            self._dispatch([job], 0)
            return
        limit = min(filter(None, (timeout, self._deadline)), default=0.0)
        if limit:
            job.timer = self._loop.call_later(limit, self._expire, job)
        self._number += 1
        heapq.heappush(self._heap, (job.priority, self._number, job))
        self.waiting += 1
        self._rows += job.rows
        self._schedule()

    def refuse_if_full(self) -> None:
        """Refused if no request would be taken now."""
        if self.waiting >= self._max_queue:
            raise Refused(
                429,
                f"the queue is full: {self.waiting} requests wait; send the request again later",
                retry_after=1,
            )

    def _schedule(self) -> None:
        if not self._pumping and self._idle:
            self._pumping = True
            self._loop.call_soon(self._pump)  # after all requests that have arrived by now

    def _expire(self, job: Job) -> None:
        if job.started or job.done:
            return
        self._refuse(job, Refused(504, "the request waited in the queue past its deadline"))

    def _refuse(self, job: Job, error: Refused) -> None:
        self.waiting -= 1
        self._rows -= job.rows
        self.statistics.failed(error.reason, perf_counter_ns() - job.arrived)
        job.finish(error)
        job.inputs = {}
        if len(self._heap) > 2 * self.waiting + MIN_COMPACTED:
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapq.heapify(self._heap)

    def drop(self, job: Job) -> None:
        """Forget a request whose client is gone."""
        if job.done:
            return
        if job.started:  # its run ends; the answer is for nobody
            job.done = True
        else:
            self._refuse(job, Refused(499, "the client is gone"))

    # ---- making batches ------------------------------------------------------------------------
    def _pump(self) -> None:
        self._pumping = False
        while self._idle and self.waiting:
            jobs, size = self._take()
            if not jobs:
                break
            self._dispatch(jobs, size)
        while self._heap and self._heap[0][2].done:
            heapq.heappop(self._heap)
        self._settle()

    def _next(self) -> Job | None:
        """The next request that still wants an answer."""
        while self._heap:
            job = self._heap[0][2]
            if not job.done and job.client is not None and job.client.disconnected:
                self.drop(job)
            if not job.done:
                return job
            heapq.heappop(self._heap)
        return None

    def _take(self) -> tuple[list[Job], int]:
        first = self._next()
        if first is None:
            return [], 0
        if self.sizes is None:
            self._pop()
            return [first], 0
        size = self.sizes.choose(self._rows)
        if first.rows > size:
            size = self.sizes.holding(first.rows)
        if self._should_wait(first, size):
            return [], 0
        jobs, rows = [], 0
        while (job := self._next()) is not None and rows + job.rows <= size:
            self._pop()
            jobs.append(job)
            rows += job.rows
        return jobs, self.sizes.holding(rows)

    def _pop(self) -> None:
        job = heapq.heappop(self._heap)[2]
        self.waiting -= 1
        self._rows -= job.rows

    def _should_wait(self, first: Job, size: int) -> bool:
        """Whether the batch waits for more rows; a timer then ends the wait."""
        assert self.sizes is not None
        if not self._max_delay or self._rows >= self.sizes.sizes[-1] or self._closed:
            return False
        if any(self._rows >= n for n in self._preferred):
            return False
        left = self._max_delay - (perf_counter_ns() - first.arrived) * 1e-9
        if left <= 0:
            return False
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_later(left, self._pump)
        return True

    # ---- running -------------------------------------------------------------------------------
    def _dispatch(self, jobs: list[Job], size: int) -> None:
        if self.inline:
            worker = self._idle[-1]
            try:
                ran = worker.instance.run(jobs, size)
            except Exception as e:
                self._fail(jobs, e)
            else:
                self._record(jobs, ran)
            return
        worker = self._idle.pop()
        self._busy += 1
        for job in jobs:
            job.started = 1  # its deadline no longer counts
        worker.start(jobs, size)

    def _finish(self, worker: Worker, jobs: list[Job], ran: Ran | BaseException) -> None:
        self._idle.append(worker)
        self._busy -= 1
        if isinstance(ran, BaseException):
            self._fail(jobs, ran)
        else:
            self._record(jobs, ran)
        if self.waiting:
            self._pump()
        else:
            self._settle()

    def _fail(self, jobs: list[Job], error: BaseException) -> None:
        """Tell the clients of a batch that could not run."""
        error = refused(error)
        reason = error.reason if isinstance(error, Refused) else "internal"
        for job in jobs:
            self.statistics.failed(reason, perf_counter_ns() - job.arrived)
            job.finish(error)

    def _record(self, jobs: list[Job], ran: Ran) -> None:
        stats = self.statistics
        stats.ran(ran.rows, ran.size, ran.input_ns, ran.infer_ns, ran.output_ns)
        if self.sizes is not None and all(job.error is None for job in jobs):
            self.sizes.ran(ran.size, (ran.input_ns + ran.infer_ns) * 1e-9)
        now = perf_counter_ns()
        for job in jobs:
            if job.done:  # the client went while it ran
                stats.failed("client_gone", now - job.arrived)
                continue
            if job.error is None:
                stats.answered(
                    job.rows,
                    now - job.arrived,
                    ran.started - job.arrived,
                    ran.input_ns,
                    ran.infer_ns,
                    ran.output_ns,
                )
            else:
                reason = job.error.reason if isinstance(job.error, Refused) else "internal"
                stats.failed(reason, now - job.arrived)
            job.finish(job.error)

    # ---- the end -------------------------------------------------------------------------------
    async def close(self) -> None:
        """Answer what waits, take nothing more, and free the sessions."""
        self._closed = True
        if self.waiting or self._busy:
            self._drained = self._loop.create_future()
            self._schedule()
            await self._drained
        if self._wake is not None:
            self._wake.cancel()
        await asyncio.to_thread(self._free)

    def _free(self) -> None:
        for worker in self._idle:
            worker.stop()
        for instance in self._instances:
            instance.close()

    def _settle(self) -> None:
        drained = self._drained
        if drained is not None and not self.waiting and not self._busy and not drained.done():
            drained.set_result(None)


class Worker:
    """The thread of an instance; it starts with the first batch."""

    def __init__(
        self,
        instance: Instance | IsolatedInstance,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Worker, list[Job], Ran | BaseException], None],
    ):
        self.instance, self._loop, self._finished = instance, loop, finished
        self._batches: queue.SimpleQueue[tuple[list[Job], int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, jobs: list[Job], size: int) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="intaglio-serve", daemon=True)
            self._thread.start()
        self._batches.put((jobs, size))

    def stop(self) -> None:
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()

    def _work(self) -> None:
        run: Runs = self.instance.run
        while (batch := self._batches.get()) is not None:
            jobs, size = batch
            try:
                ran = run(jobs, size)
            except BaseException as e:
                ran = e
            self._loop.call_soon_threadsafe(self._finished, self, jobs, ran)
