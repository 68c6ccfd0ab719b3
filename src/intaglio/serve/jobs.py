"""A request on its way through the queue."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any, Protocol

from intaglio.ir import Array

Arrays = dict[str, Array]


class State(Protocol):
    """The state of a sequence: a session of its own, or one in another process."""

    def reset(self) -> None: ...

    def close(self) -> None: ...


class Client(Protocol):
    """Who sent a request."""

    disconnected: bool
    resume: Callable[[], None] | None  # goes on with a coroutine that is no task


@types.coroutine
def paused() -> Generator[None, None, None]:
    """Wait until somebody calls `resume` of the client."""
    yield


class Job:
    """The inputs of a request, and then its outputs or its error."""

    __slots__ = (
        "arrived",
        "client",
        "done",
        "error",
        "inputs",
        "outputs",
        "priority",
        "rows",
        "session",
        "started",
        "timer",
        "wake",
    )

    def __init__(
        self, inputs: Arrays, rows: int = 1, priority: int = 0, client: Client | None = None
    ):
        self.inputs, self.rows, self.priority, self.client = inputs, rows, priority, client
        self.arrived = perf_counter_ns()
        self.started = 0
        self.done = False
        self.outputs: Arrays | None = None
        self.error: BaseException | None = None
        self.wake: Callable[[], None] | None = None  # tells who waits for the answer
        self.timer: asyncio.TimerHandle | None = None
        self.session: State | None = None  # of a sequence

    def finish(self, error: BaseException | None = None) -> None:
        """Wake the caller; later calls do nothing."""
        if self.done:
            return
        self.done, self.error = True, error
        if self.timer is not None:
            self.timer.cancel()
        if self.wake is not None:
            self.wake()

    async def answer(self) -> Arrays:
        """The outputs, or the error raised."""
        if not self.done:
            client = self.client
            if client is not None and client.resume is not None:
                self.wake = client.resume
                await paused()
            else:
                future = asyncio.get_running_loop().create_future()
                self.wake = lambda: None if future.done() else future.set_result(None)
                await future
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


Runs = Callable[[list[Job], int], Any]
