"""Results of Python operators that become outputs of a run as they are, without a copy.

A session gives each operator memory for its results. If such memory is an output of the model that
nothing reads afterwards, the caller may as well get the array that the operator's body made: for
1 MB, the copy would take longer than everything else around the body.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from intaglio.ir import Array

MIN_BYTES = 64 << 10  # of a result; to copy a smaller one takes less time
_USUAL = 0x501  # bits of numpy's flags.num: C-contiguous, aligned, writeable


class _Expected(threading.local):
    """Results that the runs of this thread would take, by the address of the session's memory."""

    arrays: dict[int, Array] | None = None
    addresses: Collection[int] = ()


_expected = _Expected()


def run_and_take(run: Callable[[], None], addresses: Collection[int]) -> dict[int, Array]:
    """Run, and return arrays that were made instead of writing to some of these addresses."""
    before = _expected.arrays, _expected.addresses  # a body may run another session
    arrays: dict[int, Array] = {}
    _expected.arrays, _expected.addresses = arrays, addresses
    try:
        run()
    finally:
        _expected.arrays, _expected.addresses = before
    return arrays


def hand_over(results: list[Array], i: int, address: int) -> bool:
    """Give result `i` to the run that expects one at this address; False: it must be copied.

    The list has the only references to the results that are left here.
    """
    if _expected.arrays is None or address not in _expected.addresses:
        return False
    usual = type(results[i]) is np.ndarray and results[i].flags.num & _USUAL == _USUAL
    if not usual or not _alone(results, i):
        return False
    _expected.arrays[address] = results[i]
    return True


def _alone(results: list[Array], i: int) -> bool:
    """Whether nobody else has this array, or a view of its memory."""
    return _references(results, i) in (_OWNS_MEMORY, _HAS_BASE)


def _references(results: list[Any], i: int) -> tuple[int, int]:
    """How many references there are to an array, and to its base if it is all of that."""
    base = results[i].base
    if base is None:
        return sys.getrefcount(results[i]), 0
    whole = type(base) is np.ndarray and base.flags.owndata and base.nbytes == results[i].nbytes
    return sys.getrefcount(results[i]), sys.getrefcount(base) if whole else -1


# Counts of arrays that have no other reference, with those that the interpreter itself holds.
_OWNS_MEMORY = _references([np.empty(2)], 0)
_HAS_BASE = _references([np.empty(2).reshape(1, 2)], 0)
