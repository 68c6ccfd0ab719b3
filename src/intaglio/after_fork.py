"""What a forked child does with the locks and threads of objects that its parent made.

A thread of the parent may have held a lock at that moment, and no thread of the parent is in the
child: the child makes new locks, and starts threads again when it needs them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Renewed(Protocol):
    """An object with locks or threads."""

    def after_fork(self) -> None:
        """Called in a forked child, whose only thread this is."""


_objects: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_in_child(one: Renewed) -> None:
    """Let a forked child call `one.after_fork()`, as long as the object exists."""
    _objects.add(one)


def _renew_all() -> None:
    for one in list(_objects):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class Turn:
    """A lock for objects of which only one may run at a time: `with turn.lock:`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_in_child(self)

    def after_fork(self) -> None:
        self.lock = threading.Lock()
