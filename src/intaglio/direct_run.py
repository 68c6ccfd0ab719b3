"""The fast path of `Session.run`: arrays that fit as they are.

A model of a few microseconds takes as long as the Python code around it, so C looks at the arrays
(`numpy_struct`), and this code has no function calls that it can do without.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from intaglio.array_addresses import address_of
from intaglio.custom.handover import run_and_take
from intaglio.ir import Array
from intaglio.native_session import Call, Sized

_empty = np.empty


def run_directly(
    sized: Sized, inputs: dict[str, Any], out: dict[str, Any] | None, lock: threading.Lock
) -> dict[str, Array] | None:
    """The outputs by name, new arrays unless in `out`; None unless every array is just as the plan
    reads or writes it: the caller then finds out what differs."""
    direct = sized.direct
    if direct is None or len(inputs) != len(direct.reads):
        return None
    results: dict[str, Array] = {}
    arrays = []  # alive until the end, even if the caller changes the dict
    objects, large = direct.objects, sized.large
    lock.acquire()  # `with` takes 0.1 us longer
    try:
        for i, name in direct.reads:
            a = inputs.get(name)
            arrays.append(a)
            objects[i] = id(a)
        for i, name, dtype, shape in direct.writes:
            if out and name in out:
                a = out[name]
            else:
                a = sized.new_result(name, dtype, shape) if large else _empty(shape, dtype)
            results[name] = a
            objects[i] = id(a)
        if out and not out.keys() <= results.keys():
            return None
        if sized.unread:
            return _run_plugin(sized, direct.call, results, out)
        return None if sized.native.run_at(sized, direct.call) else results
    finally:
        lock.release()


def _run_plugin(
    sized: Sized, call: Call, results: dict[str, Array], out: dict[str, Any] | None
) -> dict[str, Array] | None:
    """Run, and take results from the plug-in itself where it made arrays for them."""
    names = {address_of(results[n]): n for _, n in sized.unread if not out or n not in out}
    status = [0]

    def run() -> None:
        status[0] = sized.native.run_at(sized, call)

    for at, a in run_and_take(run, names).items():
        results[names[at]] = a
    return None if status[0] else results
