"""Kernels against random invalid calls: each is refused with a message or computed, never a crash.

The calls run in a process of their own; a library built with sanitizers finds more.
"""

from __future__ import annotations

import ctypes
import math
import random
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

from intaglio import dtypes, native
from intaglio.native import CCall, CPreparedCall, CTensor

POINTER = ctypes.POINTER(CTensor)
EXTREMES = [2**63 - 1, -(2**63), 2**62, -(2**62), 2**31, -(2**31), 2**32, 1000, -1000]
SEEDS = range(3)  # another one runs on the sanitized library
SECONDS = 4.0


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_calls(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.test_hostile", str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) > 100, "hardly any call was accepted"


class Draw:
    """Random tensors and attributes, mostly plausible."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        rank = self.random.randint(0, 4) if self.random.random() < 0.9 else 8
        self.shape = [self.random.choice([0, 1, 2, 3, 5, 17, 40]) for _ in range(rank)]
        while math.prod(max(d, 1) for d in self.shape) > 50_000:
            self.shape[self.shape.index(max(self.shape))] = 1
        self.dtype = self.random.choice([1, 1, 1, *dtypes.BY_CODE])

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def integer(self) -> int:
        if self.chance(0.05):
            return self.random.choice(EXTREMES)
        return self.random.randint(-2, 9) if self.chance(0.2) else self.random.randint(0, 3)

    def number(self) -> float:
        odd = [math.nan, math.inf, -math.inf, 1e308, 1e-300, -0.0]
        return self.random.choice(odd) if self.chance(0.2) else self.random.uniform(-3, 3)

    def tensor(self) -> np.ndarray:
        """A tensor of the shared shape and type, of one that broadcasts to it, or of any other."""
        shape = [1 if self.chance(0.2) else d for d in self.shape]
        shape = shape[self.random.randint(0, len(shape)) :] if self.chance(0.2) else shape
        code = self.dtype if self.chance(0.8) else self.random.choice([7, 8, 13, *dtypes.BY_CODE])
        if self.chance(0.1):
            return np.array([self.integer() for _ in range(self.random.randint(0, 5))], np.int64)
        size = math.prod(shape) * dtypes.BY_CODE[code].numpy.itemsize
        data = self.random.randbytes(size) if self.chance(0.5) else bytes(size)
        return np.frombuffer(data, dtypes.BY_CODE[code].numpy).reshape(shape)

    def attributes(self, fields: tuple[native.Field, ...]) -> bytes:
        out = b""
        for f in fields:
            if f.kind == "f":
                out += struct.pack(f"<{f.count}d", *[self.number() for _ in range(f.count)])
                continue
            values = [self.integer() for _ in range(f.count)]
            if f.kind == "e" and self.chance(0.95):
                values = [self.random.randrange(len(f.words)) for _ in range(f.count)]
            elif f.name.startswith("n_") and self.chance(0.8):
                values = [len(self.shape)]
            elif f.name in ("shape", "bound", "stop") and self.chance(0.6):
                values = (self.shape + [0] * f.count)[: f.count]
            elif f.name in ("perm", "axes") and self.chance(0.8):
                values = self.random.sample(range(len(self.shape)), len(self.shape)) + [0] * f.count
                values = sorted(values[: f.count]) if f.name == "axes" else values[: f.count]
            out += struct.pack(f"<{f.count}q", *values)
        return out


def one_call(kernels: list[native.Kernel], draw: Draw) -> bool:
    """Infer one random call; if it is accepted, run it on every ISA and return True."""
    op = kernels[0].op
    arrays = [draw.tensor() for _ in range(draw.random.choice([1, 1, 2, 2, 3, 4, 5]))]
    tensors = [native._tensor(a) for a in arrays]
    given = [POINTER() if draw.chance(0.02) else ctypes.pointer(t) for t in tensors]
    blob = ctypes.create_string_buffer(draw.attributes(op.fields), 8 * 64)
    inferred = (CTensor * 1)()
    call = CPreparedCall(
        CCall(
            (POINTER * len(given))(*given),
            None,
            len(given),
            1,
            ctypes.cast(blob, ctypes.c_void_p),
            None,
        )
    ).call
    if op.infer(ctypes.byref(call), inferred):
        return False
    shape = tuple(inferred[0].shape[: inferred[0].rank])
    item = dtypes.BY_CODE[inferred[0].dtype].numpy
    assert min(shape, default=0) >= 0, f"{op.name}: inferred {shape}"
    if math.prod(shape) * item.itemsize > 1_000_000:
        return True
    for kernel in kernels:
        out = np.zeros(shape, item)
        call.outputs = (POINTER * 1)(ctypes.pointer(native._tensor(out)))
        parts = draw.random.randint(1, 3)
        size = op.scratch(ctypes.byref(call), parts) if op.scratch else 0
        if size > 50_000_000:
            return True
        scratch = np.zeros(size + 64, np.uint8)
        call.scratch = -(-scratch.ctypes.data // 64) * 64
        derived = native.prepare(op.name, call)
        for part in range(parts):
            kernel.run(ctypes.byref(call), part, parts)
        del derived
    return True


def main(seed: int) -> None:
    groups: dict[str, list[native.Kernel]] = {}
    for kernel in native.kernels():
        fits = not kernel.needs & ~native.machine() and kernel.types == "any"
        if fits and not kernel.op.flags & native.CONTROL:
            groups.setdefault(kernel.op.name, []).append(kernel)
    names, accepted, draws = sorted(groups), 0, random.Random(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        name, number = draws.choice(names), draws.getrandbits(64)
        print(name, number, flush=True)  # what to look at if the next call crashes
        accepted += one_call(groups[name], Draw(number))
    print(accepted)


if __name__ == "__main__":
    main(int(sys.argv[1]))
