"""A request on its way through the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from intaglio.ir import Array

Arrays = dict[str, Array]


class State(Protocol):
    """The state of a sequence: a session of its own, or one in another process."""

    def reset(self) -> None: ...

    def close(self) -> None: ...


class Job:
    """The inputs of a request, and then its outputs or its error."""

    __slots__ = (
        "arrived",
        "done",
        "error",
        "future",
        "gone",
        "inputs",
        "outputs",
        "priority",
        "rows",
        "session",
        "started",
        "timer",
    )

    def __init__(
        self,
        inputs: Arrays,
        rows: int = 1,
        priority: int = 0,
        gone: Callable[[], bool] | None = None,
    ):
        self.inputs, self.rows, self.priority, self.gone = inputs, rows, priority, gone
        self.arrived = perf_counter_ns()
        self.started = 0
        self.done = False
        self.outputs: Arrays | None = None
        self.error: BaseException | None = None
        self.future: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.session: State | None = None  # of a sequence

    def finish(self, error: BaseException | None = None) -> None:
        """Wake the caller; later calls do nothing."""
        if self.done:
            return
        self.done, self.error = True, error
        if self.timer is not None:
            self.timer.cancel()
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    async def answer(self) -> Arrays:
        """The outputs, or the error raised."""
        if not self.done:
            self.future = asyncio.get_running_loop().create_future()
            await self.future
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


Runs = Callable[[list[Job], int], Any]
