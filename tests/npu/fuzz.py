"""Fuzz test: mutated NPU programs in a runtime built with sanitizers.

    python -m tests.npu.fuzz --count 20000 [--seed 0]

Numbers of the programs are changed by the table of the instruction set, in packages whose checksums
are put right; csrc/test/fuzz_driver.c opens and runs them. A crash, hang or sanitizer report fails.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.fuzz_package import BATCH, build_driver, run_driver
from tests.npu.instruction_builder import everything
from tests.package.mutate import change_code

from intaglio import cpu_isa, native
from intaglio.package import Package
from intaglio.package.read import sections
from intaglio.package.write import assemble


def fuzz(count: int, seed: int = 0, keep: Path | None = None, show: bool = False) -> list[str]:
    """Send `count` mutated programs to the driver; returns a line for each failure."""
    driver, rng, failures, done = build_driver(), random.Random(seed), [], 0
    good = []
    for isa in sorted({0, cpu_isa.BITS["avx2"] & native.machine(), native.machine()}):
        for c2 in (16, 8):
            found, bits = sections(Package.build([everything(c2, c2).plan()], isa=isa).bytes)
            good.append(({k: bytes(v) for k, v in found.items()}, bits))
    while done < count:
        batch = []
        for _ in range(min(BATCH, count - done)):
            whole, bits = rng.choice(good)
            parts = {k: bytearray(v) for k, v in whole.items()}
            change_code(rng, parts)
            batch.append(assemble(parts, bits))
        done += len(batch)
        while batch:
            summary, words, at = run_driver(driver, batch)
            if not words:
                break
            failures.append(f"program {at} of seed {seed}, batch {done // BATCH}: {words}")
            if keep is not None:
                (keep / f"npu-{seed}-{done}-{at}.itg").write_bytes(batch[at])
            batch = batch[at + 1 :]
        if show:
            print(f"{done} programs, {len(failures)} failures; {summary}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description="changed NPU programs against the runtime")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failures = fuzz(args.count, args.seed, show=True)
    for words in failures:
        print(words)
    print(f"{args.count} changed programs, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
