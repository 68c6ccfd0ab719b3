"""Which cores of an NPU run a program: the argument `core_mask`, as bits."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from intaglio.arguments import described
from intaglio.errors import BadInput, option

CoreMask = int | str | Iterable[int]
ALL_CORES = 0xFFFF  # ITG_ALL_CORES, and RKNN_NPU_CORE_ALL
MAX_CORES = 16  # ITG_NPU_CORES


def mask_bits(given: CoreMask | None) -> int:
    """A core mask as bits, of which bit i is core i.

    It may be given as bits, as numbers of cores (`(0, 1)` or `"0,1"`), or as `"all"`. 0, None and
    `"auto"` are 0: as many cores as the program was compiled for.
    """
    if given is None or given == "auto":
        return 0
    if given == "all":
        return ALL_CORES
    if isinstance(given, str):
        return _bits_of([_number(word) for word in given.split(",") if word.strip()])
    if isinstance(given, Iterable):
        return _bits_of([_index(core) for core in given])
    bits = _index(given)
    if not 0 <= bits <= ALL_CORES:
        raise _refused(given, f"bits lie from 0 to 0x{ALL_CORES:x}")
    return bits


def chosen_cores(mask: int, compiled: int, chip: str, chip_cores: int) -> tuple[int, ...]:
    """The cores of a chip that share the work of a program for `compiled` cores."""
    if mask == ALL_CORES or not mask:
        return tuple(range(compiled))
    listed = [k for k in range(MAX_CORES) if mask >> k & 1]
    if listed[-1] >= chip_cores:
        raise BadInput(
            f"core_mask 0x{mask:x} has core {listed[-1]}; {chip} has cores 0 to {chip_cores - 1}"
        )
    return tuple(listed[:compiled])


def _bits_of(cores: list[int]) -> int:
    if not cores:
        raise BadInput(f"core_mask names no core; give for example {option('core_mask', '0,1')}")
    for core in cores:
        if not 0 <= core < MAX_CORES:
            raise BadInput(f"core_mask has core {core}; cores are numbered 0 to {MAX_CORES - 1}")
    return sum(1 << core for core in set(cores))


def _number(word: str) -> int:
    if not word.strip().isdecimal() or len(word) > MAX_CORES:
        raise _refused(word, "numbers of cores are separated by commas")
    return int(word)


def _index(value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise _refused(value, "cores are whole numbers")


def _refused(value: Any, rule: str) -> BadInput:
    return BadInput(
        f"core_mask is {described(value)}; {rule}; give for example {option('core_mask', '0,1')}"
    )
