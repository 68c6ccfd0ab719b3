"""Several sessions over the same weights, for requests of many threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Self

from intaglio.arguments import default_threads, whole_number
from intaglio.errors import BadInput
from intaglio.idle_stack import IdleStack
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array, Type
from intaglio.request_queue import RequestQueue
from intaglio.session import Session
from intaglio.thread_pool import ThreadPool

MAX_SESSIONS = 4096
MAX_OWN_BYTES = 256 << 10  # for intermediate tensors of a session; above, sessions share them
CLOSED = "the session pool is closed; make a new one"


class SessionPool:
    """Sessions over the same weights that answer requests of many threads at the same time.

    `source` is what `intaglio.Session` takes: a package, a model file, or a session, of which the
    pool makes clones. `sessions` is how many requests are worked on at the same time (default: one
    per CPU). `threads` is how many threads work on one run, with its caller's; sessions share them,
    in one `ThreadPool`, so that `threads=1` (the default) has the highest throughput. `pool` gives
    a ThreadPool of yours instead. Sessions also share the memory for intermediate tensors unless
    it is small: then at most one run per CPU computes at a time. `internal` gives an InternalMemory
    of yours instead.
    `queue` is how many requests of `submit` may wait. Further keywords are those of
    `intaglio.Session`.

    All methods may be called by any thread. An error reaches only the caller whose request failed.
    A model with state needs one session per stream, and is refused.
    """

    def __init__(
        self,
        source: Any,
        sessions: int | None = None,
        threads: int | None = None,
        *,
        queue: int = 64,
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        **keywords: Any,
    ):
        n = default_threads(None) if sessions is None else sessions
        n = whole_number("sessions", n, 1, MAX_SESSIONS)
        waiting = whole_number("queue", queue, 0)
        if pool is None and threads is not None and default_threads(threads) > 1:
            pool = ThreadPool(threads)
        threads = 1 if threads is None and pool is None else threads
        if isinstance(source, Session):
            if keywords:
                raise BadInput(
                    f"{next(iter(keywords))}= is for files; the session is open; give it to "
                    "intaglio.open"
                )
            first = source.clone(threads=threads, pool=pool, internal=internal)
        else:
            first = Session(source, threads, pool=pool, internal=internal, **keywords)
        self._refuse_state(first)
        if n > 1 and _worth_sharing(first):
            alone = first
            first = alone.clone(internal=InternalMemory(min(n, default_threads(None))))
            alone.close()
        self._sessions = [first, *(first.clone() for _ in range(n - 1))]
        self._requests = RequestQueue(n, waiting, CLOSED)
        self._closed = False
        self._idle = IdleStack(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs by name, open dimensions with their names."""
        return self._sessions[0].inputs

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, at the largest shapes."""
        return self._sessions[0].outputs

    @property
    def meta(self) -> dict[str, Any]:
        """The package's metadata."""
        return self._sessions[0].meta

    def run(
        self, inputs: Mapping[str, Array], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run the model in this thread and return its outputs by name, as `Session.run` does.

        While all sessions are running, the call waits.
        """
        session = self._idle.take()
        try:
            if self._closed:
                raise BadInput(CLOSED)
            results = session.run(inputs, out)
            self._refuse_state(session)  # of a model file: known once it is compiled
            return results
        finally:
            self._idle.give(session)

    def submit(
        self,
        inputs: Mapping[str, Array],
        out: Mapping[str, Array] | None = None,
        timeout: float | None = None,
    ) -> Future[dict[str, Array]]:
        """`run` in a thread of the pool: a future of the outputs.

        The arrays must not change until the future is done. While the queue is full, the call
        waits, up to `timeout` seconds; then it raises QueueFull.
        """
        return self._requests.submit(lambda: self.run(inputs, out), timeout)

    def map(self, requests: Iterable[Mapping[str, Array]]) -> Iterator[dict[str, Array]]:
        """The outputs for each of many inputs, in their order.

        Requests are read as answers are taken, so that few of them are in memory. The error of a
        request is raised in its place.
        """
        ahead: deque[Future[dict[str, Array]]] = deque()
        try:
            for inputs in requests:
                ahead.append(self.submit(inputs))
                if len(ahead) > 2 * len(self._sessions):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:  # the caller takes no more
                future.cancel()

    def close(self) -> None:
        """Answer all submitted requests, then free the memory of the sessions."""
        self._requests.close()
        self._closed = True
        for session in self._sessions:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _refuse_state(self, session: Session) -> None:
        if session.stateful:
            raise BadInput(
                "the model keeps state between runs, and any session of a pool answers a request; "
                "make one session per stream: session.clone()"
            )


def _worth_sharing(session: Session) -> bool:
    """Whether clones should share memory that they have not been given: that of a model file is
    not known yet."""
    if session._settings.internal is not None:
        return False
    return session._now is None or session.internal_bytes > MAX_OWN_BYTES
