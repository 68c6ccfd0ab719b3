"""The binding of the C runtime: statuses become exceptions with the runtime's words."""

from __future__ import annotations

import pytest

from intaglio import BadFile, BadInput, RunError, Unsupported
from intaglio.runtime import error_of


@pytest.mark.parametrize(
    ("status", "kind"),
    [(1, BadFile), (2, BadInput), (3, Unsupported), (4, RunError), (5, RunError)],
)
def test_a_status_is_an_exception_with_words(status, kind):
    error = error_of(status, b"the session is busy in another thread")
    assert type(error) is kind
    assert str(error) == "the session is busy in another thread"
    assert str(error_of(status, b"")) == f"the runtime failed with status {status}"


def test_the_path_is_named_once():
    assert str(error_of(1, b"it is truncated", "a.itg")) == "a.itg: it is truncated"
    assert str(error_of(1, b"cannot open a.itg", "a.itg")) == "cannot open a.itg"


def test_a_busy_session_says_what_to_do():
    busy = error_of(6, b"")
    assert isinstance(busy, BadInput)
    assert "session is already running" in str(busy)
    assert "use one session per thread" in str(busy)


def test_a_busy_session_says_so_and_not_the_other_threads_error():
    error = error_of(6, b"an error of the thread that runs")
    assert isinstance(error, BadInput)
    assert "session is already running" in str(error)
    assert "thread that runs" not in str(error)
