"""Mutated cvimodels: each is refused in a line, or read, printed and run.

    python -m tests.npu.chips.cv18xx.mutants 5000 [FILE.cvimodel ...]

The mutants run in a child process with 2 GB of memory and 10 seconds for each.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.npu.chips.cv18xx import cvimodel, disassembly
from intaglio.npu.chips.cv18xx.simulate import NUMPY, Machine

MOST_BYTES, MOST_SECONDS = 2 << 30, 10


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes or bits changed, in the tables or anywhere; sometimes cut."""
    made = bytearray(data)
    tables = 48 + int.from_bytes(data[8:12], "little")
    commands = max(data.find(bytes((0xA7, 64, 2, 0))), data.find(bytes((0xA8, 64, 2, 0))), 0)
    spans = ((0, tables), (commands, len(made)), (commands, len(made)), (0, len(made)))
    low, high = spans[int(rng.integers(len(spans)))]
    for at in rng.integers(low, high, int(rng.integers(1, 4))):
        if rng.random() < 0.5:
            made[at] ^= 1 << int(rng.integers(8))
        else:
            made[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
    if rng.random() < 0.05:
        del made[int(rng.integers(0, len(made))) :]
    return bytes(made)


def outcome(data: bytes) -> str | None:
    """Why a file is refused; None: it ran."""
    try:
        model = cvimodel.read(data)
        for _ in disassembly.lines(model, words=True):
            pass
        machine = Machine(model)
        machine.run({t.name: np.zeros(t.shape, NUMPY[t.dtype]) for t in machine.inputs})
    except IntaglioError as e:
        return str(e)
    return None


def _child(files: list[bytes], first: int, count: int, pipe: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)
    for seed in range(first, count):
        os.write(pipe, f"{seed} start\n".encode())
        signal.alarm(MOST_SECONDS)
        words = outcome(mutate(files[seed % len(files)], np.random.default_rng(seed)))
        kind = "ran" if words is None else "refused" if "\n" not in words else "LINES"
        os.write(pipe, f"{seed} {kind}\n".encode())
    os._exit(0)


def run(files: list[bytes], count: int) -> tuple[Counter[str], list[str]]:
    """What became of `count` mutants, and those that failed."""
    found: Counter[str] = Counter()
    failed, first = [], 0
    while first < count:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            try:
                _child(files, first, count, write)
            except BaseException as e:
                os.write(write, f"{type(e).__name__}: {e}\n".encode()[:200])
                os._exit(1)
        os.close(write)
        last = ""
        with os.fdopen(read) as lines:
            for line in lines:
                last = line.strip()
                word = last.partition(" ")[2]
                if word in ("ran", "refused", "LINES"):
                    found[word] += 1
                if word == "LINES":
                    failed.append(last)
                if last.split(" ")[0].isdigit():
                    first = int(last.split(" ")[0]) + 1
        status = os.waitpid(child, 0)[1]
        if status:
            failed.append(f"mutant {first - 1}: status {status}: {last}")
    return found, failed


if __name__ == "__main__":
    given = [Path(name).read_bytes() for name in sys.argv[2:]]
    found, failed = run(given, int(sys.argv[1]))
    print(dict(found), f"{len(failed)} failed")
    print("\n".join(failed[:20]))
