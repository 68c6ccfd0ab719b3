"""All fuzzers in turn, with new seeds, until the time is over.

    python -m tests.fuzz [--minutes 60] [--seed 7]

Mutated packages go to the runtime with sanitizers (`tests.fuzz_package`), encrypted and signed ones
too, all of which it must refuse (`tests.fuzz_protected`), mutated files of every format to the
importers (`tests.fuzz_frontends`), models changed by their structure to us and to their own runtime
(`tests.fuzz_structure`), and changed requests to a server (`tests.serve.fuzz_requests`). Every
round prints its seed; the command printed with a failure repeats it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence

ROUNDS = (
    ("tests.fuzz_package", "--models", "--count", "20000"),
    ("tests.fuzz_protected", "--count", "5000"),
    ("tests.fuzz_frontends", "--count", "500"),
    ("tests.fuzz_structure", "--count", "300"),
    ("tests.serve.fuzz_requests", "--count", "3000", "--sanitized"),
)


def run(minutes: float, seed: int) -> list[str]:
    """The commands that failed."""
    end, rng, failed = time.monotonic() + 60 * minutes, random.Random(seed), list[str]()
    turn = 0
    while turn < len(ROUNDS) or time.monotonic() < end:  # each fuzzer at least once
        module, *options = ROUNDS[turn % len(ROUNDS)]
        command = ["-m", module, *options, "--seed", str(rng.randrange(1 << 30))]
        words = " ".join(["python", *command])
        print(f"\n{words}", flush=True)
        if subprocess.run([sys.executable, *command]).returncode:
            failed.append(words)
        turn += 1
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="[default: a new one, printed]")
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}: repeat with python -m tests.fuzz --seed {seed}", flush=True)
    failed = run(options.minutes, seed)
    for words in failed:
        print(f"failed: {words}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
