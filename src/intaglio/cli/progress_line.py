"""The live line on a terminal: a spinner, the current stage, its clock, and the time left.

It says only what stages report. A count is shown while parts are left: a finished count gives way
to the clock, and one that exceeds its total is shown without the total.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from intaglio import progress
from intaglio.progress import Stage, Stages

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
FRAMES_PER_SECOND = 5
QUIET_SECONDS = 0.3  # a command that is faster shows nothing


@contextmanager
def shown(console: Console | None = None) -> Iterator[None]:
    """Show the stages that the block reports on stderr, if that is a terminal.

    Commands with --json or --quiet show nothing. The block must not print to stdout.
    """
    from rich.console import Console
    from rich.live import Live

    console = console or Console(stderr=True)
    if _asked_for_silence() or not console.is_terminal:
        yield
        return
    line = Line(console.encoding.lower().startswith("utf"))
    live = Live(
        console=console,
        get_renderable=lambda: line.render(console.width),
        transient=True,
        refresh_per_second=FRAMES_PER_SECOND,
        redirect_stdout=False,
    )
    with live, progress.to(line):
        yield


def _asked_for_silence() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and any(context.params.get(n) for n in ("as_json", "quiet"))


@dataclass
class _Shown:
    """A stage, when it began, and when its count last grew."""

    stage: Stage
    start: float
    grew: float


class Line:
    """A listener that renders the reported stages, with a clock that tests can replace."""

    def __init__(self, unicode: bool = True, clock: Callable[[], float] = time.monotonic):
        self.clock, self.spinner = clock, SPINNER if unicode else PLAIN_SPINNER
        self.begun = clock()
        self.stages: list[_Shown] = []

    def __call__(self, stages: Stages) -> None:
        now, kept = self.clock(), []
        same = True  # until one stage differs: stages within another one begin anew
        for i, stage in enumerate(stages):
            old = self.stages[i] if same and i < len(self.stages) else None
            same = old is not None and _continues(old.stage, stage)
            if old is None or not same:
                kept.append(_Shown(stage, now, now))
            else:
                kept.append(_Shown(stage, old.start, now if stage != old.stage else old.grew))
        self.stages = kept

    def render(self, width: int) -> Text:
        """The line at this moment."""
        from rich.text import Text

        return Text(self.text(width), no_wrap=True, overflow="ellipsis")

    def text(self, width: int = 80) -> str:
        """Spinner, clock, and stages from outer to inner; in a narrow terminal without the outer
        ones that count nothing."""
        now, stages = self.clock(), list(self.stages)
        if not stages or now - self.begun < QUIET_SECONDS:
            return ""
        frame = self.spinner[int(now * FRAMES_PER_SECOND) % len(self.spinner)]
        head = f"{frame} {_minutes(now - stages[0].start)}  "
        counted = next((s for s in stages if s.stage.total is not None), None)
        while True:
            words = (_words(s.stage) + (_left(s, now) if s is counted else "") for s in stages)
            text = head + ": ".join(words)
            idle = [s for s in stages[:-1] if s.stage.total is None]
            if len(text) <= width or not idle:
                return text
            stages.remove(idle[0])


def _continues(old: Stage, new: Stage) -> bool:
    return old.words == new.words and old.total == new.total and new.done >= old.done


def _words(s: Stage) -> str:
    if s.total is not None and s.done < s.total:
        most = "at most " * s.at_most
        return f"{s.words} {s.done + 1} of {most}{s.total}"  # the part that is being worked on
    return f"{s.words} {s.done}" if s.done > (s.total or 0) else s.words


def _left(s: _Shown, now: float) -> str:
    """The time that the rest of a counted stage takes at the speed so far; "" if unknown."""
    done, total = s.stage.done, s.stage.total
    if total is None or not 0 < done < total or s.grew == s.start:
        return ""
    left = (s.grew - s.start) / done * total - (now - s.start)
    about = "at most" if s.stage.at_most else "about"
    return f", {about} {_minutes(left)} left" if left >= 1 else ""


def _minutes(seconds: float) -> str:
    whole = math.floor(seconds)
    return f"{whole // 60}:{whole % 60:02}"
