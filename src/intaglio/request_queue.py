"""A bounded queue of requests that worker threads answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from intaglio.after_fork import renew_in_child
from intaglio.errors import BadInput, QueueFull, RunError


class RequestQueue:
    """Worker threads for calls; at most `waiting` calls wait until a worker is free.

    Threads start with the first call. A forked child starts its own; calls that its parent
    submitted are answered in the parent, and fail in the child.
    """

    def __init__(self, workers: int, waiting: int, closed: str):
        self.workers, self.waiting, self._closed_words = workers, waiting, closed
        self._closed = False
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._threads: set[threading.Thread] = set()
        self._places = threading.BoundedSemaphore(self.workers + self.waiting)
        self._pending: set[Future[Any]] = set()

    def submit(self, call: Callable[[], Any], timeout: float | None = None) -> Future[Any]:
        """Let a worker make this call. Waits for a place in the queue, up to `timeout` seconds."""
        places = self._places
        if timeout is not None and not timeout >= 0:
            raise BadInput(f"timeout is {timeout!r}; give seconds of at least 0, or None: no limit")
        if not places.acquire(timeout=timeout):
            raise QueueFull(
                f"the queue is full: {self.waiting} requests wait for {self.workers} sessions; "
                "submit again later, or give a longer timeout"
            )
        try:
            with self._lock:
                if self._closed:
                    raise BadInput(self._closed_words)
                if self._executor is None:
                    started = self._threads  # a thread must not keep the queue alive
                    self._executor = ThreadPoolExecutor(
                        self.workers,
                        "intaglio-run",
                        initializer=lambda: started.add(threading.current_thread()),
                    )
                future = self._executor.submit(call)
                self._pending.add(future)
        except BaseException as e:
            places.release()
            if isinstance(e, RuntimeError):  # the interpreter ends
                raise RunError(f"the request cannot be run any more: {e}") from None
            raise

        def done(answered: Future[Any]) -> None:
            self._pending.discard(answered)
            places.release()

        future.add_done_callback(done)
        return future

    def close(self) -> None:
        """Answer all requests that were submitted, and take no more."""
        with self._lock:
            self._closed, executor = True, self._executor
        if executor is not None:  # a callback of an answer may close the queue
            executor.shutdown(wait=threading.current_thread() not in self._threads)

    def after_fork(self) -> None:
        """Begin anew; the futures of the parent's requests fail here."""
        lost = list(self._pending)
        self._begin()
        for future in lost:
            future.__init__()  # type: ignore[misc]  # its lock may be held by a lost thread
            future.set_exception(
                RunError(
                    "the request was submitted before the process was forked; its answer arrives "
                    "in the parent; submit it again in the child"
                )
            )
