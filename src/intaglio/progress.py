"""What is being done, and how far it is: the one channel that every long stage reports into.

    progress.report("calibrating", 3, 12)            # three of twelve samples are done
    for sample in progress.counted("comparing", samples): ...
    with progress.inside("search settings"): ...     # reports within are its details
    with progress.to(listener): ...                  # who listens

Without a listener a report costs nothing. Other threads than the listener's are silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """A piece of work: its name, and how many of its parts are done, if they can be counted."""

    words: str
    done: int = 0
    total: int | None = None
    at_most: bool = False  # the total is an upper bound: a search may end earlier

    def __str__(self) -> str:
        return self.words if self.total is None else f"{self.words} {self.done} of {self.total}"


Stages = tuple[Stage, ...]  # the current stage last, after those that it is a part of
Listener = Callable[[Stages], None]
Progress = Callable[[str, int, int | None], None]  # a caller's function: (words, done, total)

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_around: ContextVar[Stages] = ContextVar("around", default=())


def report(words: str, done: int = 0, total: int | None = None, at_most: bool = False) -> None:
    """Say what is being done now, and how many of `total` parts are done."""
    if listener := _listener.get():
        listener((*_around.get(), Stage(words, done, total, at_most)))


def counted(words: str, items: Sequence[T]) -> Iterator[T]:
    """The items one by one, each reported before the caller works on it."""
    for i, item in enumerate(items):
        report(words, i, len(items))
        yield item


@contextmanager
def inside(words: str, done: int = 0, total: int | None = None) -> Iterator[None]:
    """Report a stage; reports within the block are details of it."""
    report(words, done, total)
    token = _around.set((*_around.get(), Stage(words, done, total)))
    try:
        yield
    finally:
        _around.reset(token)


@contextmanager
def to(listener: Listener | None) -> Iterator[None]:
    """Send the reports of the block to this listener; None leaves them where they go."""
    if listener is None:
        yield
        return
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Drop the reports of the block: its caller reports for it."""
    with to(lambda stages: None):
        yield


def named(callback: Callable[[str], None] | None) -> Listener | None:
    """A listener that calls a function with the words of each stage."""
    return callback and (lambda stages: callback(str(stages[-1])))


def triples(callback: Progress | None) -> Listener | None:
    """A listener that calls a function with the words, the parts done, and all parts."""

    def tell(stages: Stages) -> None:
        assert callback is not None
        callback(stages[-1].words, stages[-1].done, stages[-1].total)

    return callback and tell
