"""Objects that threads take and give back; a thread waits while all of them are taken."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from intaglio.after_fork import renew_in_child

T = TypeVar("T")


class IdleStack(Generic[T]):
    """Idle objects, of which the last one given back is the first one taken: it is in the cache.

    Taking an idle object needs no lock, because `list.pop` and `list.append` are atomic.
    """

    def __init__(self, objects: Sequence[T]):
        self.objects = tuple(objects)
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """All objects are idle in a child: the threads that took them are the parent's."""
        self._idle = list(reversed(self.objects))
        self._returned = threading.Condition()
        self._waiting = 0

    def take(self) -> T:
        """An idle object; waits until there is one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._wait()

    def _wait(self) -> T:
        with self._returned:
            self._waiting += 1  # before the look at the list: `give` appends, then reads this
            try:
                while True:
                    try:
                        return self._idle.pop()
                    except IndexError:
                        self._returned.wait()
            finally:
                self._waiting -= 1

    def give(self, one: T) -> None:
        """Give an object back."""
        self._idle.append(one)
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def __len__(self) -> int:
        return len(self._idle)
