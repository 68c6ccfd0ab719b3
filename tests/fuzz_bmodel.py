"""Mutated bmodel files: refused in a line or run, without a crash, a hang or much memory.

    python -m tests.fuzz_bmodel 5000 [file.bmodel ...]

Without files it mutates files that it compiles itself.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from intaglio import targets
from intaglio.errors import IntaglioError
from intaglio.npu.chips.bm1684x import bmodel, disassembly, simulate
from intaglio.npu.chips.bm1684x.compile import compile_bmodel

SLOWEST = 10.0  # seconds


def seeds() -> list[bytes]:
    """Small files to mutate."""
    from tests.npu.chips.bm1684x import networks

    chip = targets.find("bm1684x").chip
    return [compile_bmodel(networks.random_layer(s), chip).data for s in (0, 3, 5, 8)]


def commands_at(data: bytes) -> list[tuple[int, int]]:
    """Where the streams of commands lie in a file."""
    model = bmodel.read(data)
    found = []
    for stage in model.nets[0].stages:
        every = [g for s in stage.subnets for g in (*s.groups, *(g for c in s.cores for g in c))]
        for group in every:
            found += [(data.find(part), len(part)) for part in (group.tiu, group.dma)]
    return found


def mutate(data: bytes, rng: np.random.Generator, streams: list[tuple[int, int]]) -> bytes:
    """A file with a few bytes changed, cut or doubled; half of them in the commands."""
    changed = bytearray(data)
    table = bmodel.HEADER.unpack_from(data)[2] + bmodel.HEADER.size
    for _ in range(rng.integers(1, 6)):
        start, size = streams[rng.integers(len(streams))] if rng.integers(2) else (0, table)
        at = start + int(rng.integers(max(1, size)))
        if at >= len(changed):
            continue
        match rng.integers(8):
            case 0:
                changed[at] ^= 1 << int(rng.integers(8))
            case 1:
                changed[at : at + 4] = b"\xff" * 4
            case 2:
                changed[at : at + 8] = bytes(8)
            case 3 if rng.integers(8) == 0:
                del changed[at:]
            case 4 if rng.integers(8) == 0:
                changed[at:at] = changed[at : at + 16]
            case _:
                changed[at] = int(rng.integers(256))
    return bytes(changed)


def attempt(data: bytes) -> str:
    """What became of a file: `refused` or `ran`; AssertionError where it misbehaves."""
    start = time.perf_counter()
    result, message = "ran", ""
    try:
        model = bmodel.read(data)
        for _ in disassembly.lines(model, words=True):
            pass
        machine = simulate.Machine(model)
        kinds = simulate.DTYPES
        machine.run({t.name: np.ones(t.shape, kinds[t.type]) for t in machine.stage.inputs})
    except IntaglioError as e:
        result, message = "refused", str(e)
    assert "\n" not in message, message
    assert time.perf_counter() - start < SLOWEST, "too slow"
    return result


def fuzz(count: int, files: list[bytes], seed: int = 0) -> Counter[str]:
    """How many of `count` mutated files were refused, and how many ran."""
    rng = np.random.default_rng(seed)
    places = [commands_at(f) for f in files]
    done: Counter[str] = Counter()
    for i in range(count):
        which = int(rng.integers(len(files)))
        changed = mutate(files[which], rng, places[which])
        try:
            done[attempt(changed)] += 1
        except Exception:
            Path("bmodel-crash.bin").write_bytes(changed)
            print(f"mutant {i} of file {which}: see bmodel-crash.bin")
            raise
    return done


if __name__ == "__main__":
    given = [Path(p).read_bytes() for p in sys.argv[2:]]
    print(dict(fuzz(int(sys.argv[1]), given or seeds())))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB of memory at most")
