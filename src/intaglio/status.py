"""The statuses of the C library: itg_status and itg_error as exceptions."""

from __future__ import annotations

import ctypes

from intaglio.errors import BadFile, BadInput, BadKey, IntaglioError, RunError, Unsupported

_ERRORS: dict[int, type[IntaglioError]] = {  # by itg_status
    1: BadFile,
    2: BadInput,
    3: Unsupported,
    4: RunError,
    5: RunError,  # out of memory
    7: BadKey,
    8: Unsupported,  # a plug-in is missing or has changed
}
_BUSY = 6  # ITG_BUSY, the one status without words of the session
BAD_KEY, NO_PLUGIN = 7, 8


class CError(ctypes.Structure):
    """itg_error: the words of a failed call."""

    _fields_ = [("words", ctypes.c_char * 256)]


def error_of(status: int, words: bytes, where: str = "") -> IntaglioError:
    """The exception for a status of the runtime, with the runtime's words."""
    if status == _BUSY:
        return BadInput(
            "session is already running: another thread called it; a session runs once at a time; "
            "use one session per thread"
        )
    message = words.decode("utf-8", "replace") or f"the runtime failed with status {status}"
    prefix = f"{where}: " if where and where not in message else ""
    return _ERRORS[status](prefix + message)
