"""A thousand random shapes in a row: memory does not grow after a warm-up.

Every case runs in a Python of its own, so that nothing else allocates.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import onnx
import pytest
from tests.test_ranges import CONVOLUTIONS, PICTURE

import intaglio

MAX_HEAP_GROWTH = 64 << 10  # bytes in use by malloc; one more output array would be above
MAX_RESIDENT_GROWTH = 2 << 20  # bytes; malloc keeps some of what is freed

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33"
)

SCRIPT = """
import ctypes, gc, json, re, sys
import numpy as np
import intaglio

class Heap(ctypes.Structure):  # struct mallinfo2
    _fields_ = [(n, ctypes.c_size_t) for n in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Heap

def measured():
    gc.collect()
    heap = mallinfo2()
    rolled = open("/proc/self/smaps_rollup").read()
    resident = int(re.search(r"Rss: *(\\d+) kB", rolled)[1]) << 10
    return heap.uordblks + heap.hblkhd, resident, sys.getallocatedblocks()

rng = np.random.default_rng(3)
def run(times):
    for _ in range(times):
        n, h, w = rng.integers(1, 5), *rng.integers(3, 65, 2)
        session.run({"x": np.zeros((n, 3, h, w), np.float32)})
OPEN
session.run({"x": np.zeros((4, 3, 64, 64), np.float32)})
run(400)
SETTLE
before = measured()
run(1000)
SETTLE
print(json.dumps([after - b for after, b in zip(measured(), before)]))
"""
CASES = {
    "package": ("session = intaglio.open(sys.argv[1], threads=THREADS)", ""),
    "model file": (
        "session = intaglio.Session(sys.argv[2], threads=THREADS, background=True)",
        "session.wait()",
    ),
    "pool": ("session = intaglio.SessionPool(sys.argv[1], 3, THREADS)", ""),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_random_shapes_do_not_grow(case, threads, tmp_path):
    intaglio.compile(CONVOLUTIONS, dims=PICTURE).save(tmp_path / "m.itg")
    onnx.save(CONVOLUTIONS, tmp_path / "m.onnx")
    opening, settle = CASES[case]
    script = SCRIPT.replace("OPEN", opening).replace("SETTLE", settle)
    done = subprocess.run(
        [sys.executable, "-c", script.replace("THREADS", str(threads)), "m.itg", "m.onnx"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    heap, resident, _ = json.loads(done.stdout)
    assert heap < MAX_HEAP_GROWTH
    assert resident < MAX_RESIDENT_GROWTH
