"""Return conventions of vendors: a mistake of the user is a logged line and a return value."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from intaglio.compat.log import Log
from intaglio.errors import IntaglioError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
FACADES = os.path.dirname(os.path.abspath(__file__)) + os.sep
PACKAGE = os.path.dirname(FACADES.rstrip(os.sep)) + os.sep


class HasLog(Protocol):
    """An object whose methods may be guarded."""

    log: Log


def guarded(failed: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A method that logs one line and returns `failed` where the user made a mistake.

    Arguments that it does not have are such mistakes; the line has the nearest name.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            log: Log = args[0].log  # type: ignore[attr-defined]
            name = method.__name__
            try:
                signature.bind(*args, **keywords)
            except TypeError as e:
                log.error(f"{name}: {misfit(signature, e, keywords)}")
                return failed  # type: ignore[no-any-return]
            try:
                return method(*args, **keywords)
            except IntaglioError as e:
                log.error(f"{name}: {' '.join(str(e).split())}")
            except OSError as e:
                log.error(f"{name}: {e.filename or ''}: {e.strerror or e}")
            except (TypeError, ValueError, AttributeError) as e:
                if not _in_facade(e):
                    raise
                words = " ".join(str(e).split())
                log.error(f"{name}: {words}; check the types of the arguments")
            except MemoryError:
                log.error(f"{name}: out of memory; use a smaller model, batch or dataset")
            return failed  # type: ignore[no-any-return]

        return call

    return decorate


def _in_facade(error: BaseException) -> bool:
    """Whether the innermost frame of our own code is a facade's: an argument of a wrong type.

    Errors of the core itself are bugs, and stay visible.
    """
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    own = [f for f in frames if f.startswith(PACKAGE)]
    return bool(own) and own[-1].startswith(FACADES)


def misfit(signature: inspect.Signature, error: TypeError, keywords: dict[str, Any]) -> str:
    """Why arguments do not fit a signature, with the nearest name of an unknown one."""
    known = [n for n in signature.parameters if n != "self"]
    unknown = [n for n in keywords if n not in known]
    if not unknown:
        return f"{error}; it takes {', '.join(known) or 'no arguments'}"
    hint = did_you_mean(unknown[0], known)
    return f"unknown argument '{unknown[0]}'{hint or '; it takes ' + ', '.join(known)}"
