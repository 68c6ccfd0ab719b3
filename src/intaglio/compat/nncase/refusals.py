"""Return conventions of nncase: a mistake of the user is an exception of one line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from intaglio.compat.log import Log
from intaglio.errors import IntaglioError

P = ParamSpec("P")
R = TypeVar("R")
LOG = Log()  # warnings of this facade


class NncaseError(IntaglioError, RuntimeError):
    """What this facade raises: a RuntimeError, as nncase 1.x raises it, with a remedy."""


def refusing(method: Callable[P, R]) -> Callable[P, R]:
    """A method that raises NncaseError with one line where the user made a mistake."""

    owner = method.__qualname__.rpartition(".")[0]
    name = owner if method.__name__ == "__init__" else method.__name__

    @functools.wraps(method)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            with LOG.collecting():
                return method(*args, **keywords)
        except NncaseError:
            raise
        except IntaglioError as e:
            words = f"{name}: {' '.join(str(e).split())}"
        except OSError as e:
            words = f"{name}: {e.filename or ''}: {e.strerror or e}"
        except MemoryError:
            words = f"{name}: out of memory; use a smaller model or fewer samples"
        raise NncaseError(words)

    return call
