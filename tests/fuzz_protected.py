"""Mutated encrypted and signed packages against a runtime that is built with sanitizers.

    python -m tests.fuzz_protected --count 20000 [--seed 0]

Encrypted files of every level, signed ones, and files that are both are changed: bits, fields of
their records, their length, parts of other files with the same keys, another order. Checksums are
mostly put right. The runtime has the right keys and must refuse every file that differs in a byte,
without a crash, a hang or a sanitizer report.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.fuzz_package import BATCH, build_driver, run_driver
from tests.package.mutate import NUMBERS, mutate
from tests.package.samples import SAMPLES

from intaglio.package.encryption import LEVELS, encrypt
from intaglio.package.signing import sign

KEY = bytes(range(7, 39))
SIGNER = bytes(range(99, 131))  # an Ed25519 private key
NAMES = ("chain", "two_shapes", "loop", "npu_program")
Change = Callable[[random.Random, bytearray, bytes], None]


@dataclass(frozen=True)
class Form:
    """A kind of protected file: what is done to a package."""

    level: str | None
    signed: bool

    def __str__(self) -> str:
        return f"{self.level or 'plain'}{', signed' if self.signed else ''}"

    def make(self, name: str, salt: int) -> bytes:
        data = np.frombuffer(SAMPLES[name]().package().bytes, np.uint8)
        if self.level:
            data = encrypt(data, self.level, KEY, bytes([salt]) * 32)
        return (sign(data, SIGNER) if self.signed else data).tobytes()

    def options(self, folder: Path) -> list[str]:
        """Options of the driver."""
        key = str(folder / "key") if self.level else "-"
        return ["0", key, str(folder / "public") if self.signed else "-"]


FORMS = [Form(level, signed) for level in LEVELS for signed in (False, True)] + [Form(None, True)]


def write_keys(folder: Path) -> None:
    from intaglio.package.signing import private_key_of

    (folder / "key").write_bytes(KEY)
    public = private_key_of(SIGNER).public_key().public_bytes_raw()
    (folder / "public").write_bytes(public)


def fix(data: bytearray) -> None:
    """Put the checksums of the header and of all sections but BODY right."""
    if len(data) < 32:
        return
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - 32) // 32)
    for at in range(32, 32 + 32 * count, 32):
        offset, size = struct.unpack_from("<QQ", data, at + 8)
        if data[at : at + 4] != b"BODY" and offset + size <= len(data):
            struct.pack_into("<I", data, at + 24, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<I", data, 20, 0)
    struct.pack_into("<I", data, 20, zlib.crc32(data[: 32 + 32 * count]))


def sections(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Offset and size of the sections that lie in the file."""
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - 32) // 32)
    rows = [struct.unpack_from("<QQ", data, 32 + 32 * i + 8) for i in range(count)]
    return [(o, s) for o, s in rows if o + s <= len(data) and s]


# ---- changes, in place --------------------------------------------------------------------------
def flip_bits(rng: random.Random, data: bytearray, other: bytes) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(min(len(data), 512) if rng.random() < 0.5 else len(data))
        data[at] ^= 1 << rng.randrange(8)


def change_number(rng: random.Random, data: bytearray, other: bytes) -> None:
    """A field of the header, the section table, CRPT or SIGN."""
    width = rng.choice([4, 8])
    limit = min(len(data), 512) - width
    at = rng.randrange(0, limit, 4)
    old = int.from_bytes(data[at : at + width], "little")
    new = rng.choice([rng.choice(NUMBERS), old + rng.choice([-64, -1, 1, 64]), old * 2, old // 2])
    data[at : at + width] = (new & (2 ** (8 * width) - 1)).to_bytes(width, "little")


def resize(rng: random.Random, data: bytearray, other: bytes) -> None:
    if rng.random() < 0.6:
        del data[rng.randrange(len(data)) :]
    else:
        data += rng.randbytes(rng.choice([1, 16, 64, 500])) if rng.random() < 0.5 else bytes(64)
    if len(data) >= 32 and rng.random() < 0.8:
        struct.pack_into("<Q", data, 24, len(data))


def replay(rng: random.Random, data: bytearray, other: bytes) -> None:
    """A section of another file that has the same keys."""
    mine, theirs = sections(data), sections(other)
    if not mine or not theirs:
        return flip_bits(rng, data, other)
    places = range(min(len(mine), len(theirs)))
    for i in rng.choices(places, k=rng.choice([1, 1, 2])):
        (to, room), (start, size) = mine[i], theirs[i]
        n = min(room, size)
        data[to : to + n] = other[start : start + n]


def replay_part(rng: random.Random, data: bytearray, other: bytes) -> None:
    """A few blocks of the same place in another file."""
    start = rng.randrange(0, max(1, len(data) - 16), 16)
    size = rng.choice([16, 32, 64, 256])
    data[start : start + size] = other[start : start + size][: len(data) - start]


def swap(rng: random.Random, data: bytearray, other: bytes) -> None:
    """Two pieces of the file, such as rows of parts or blocks of ciphertext."""
    size = rng.choice([16, 32, 64])
    a, b = (rng.randrange(0, max(1, len(data) - size), 16) for _ in range(2))
    first, second = bytes(data[a : a + size]), bytes(data[b : b + size])
    if len(first) == len(second):
        data[a : a + size], data[b : b + size] = second, first


def relabel(rng: random.Random, data: bytearray, other: bytes) -> None:
    """Flags, kinds and counts: as if the file were not encrypted, or not signed."""
    what = rng.randrange(4)
    if what == 0:
        struct.pack_into("<I", data, 12, rng.choice([0, 1, 2, 3, 0x80000001]))
    elif what == 1:
        struct.pack_into("<I", data, 8, rng.randrange(6))
    else:
        row = 32 + 32 * rng.randrange(3)
        data[row : row + 4] = rng.choice([b"CRPT", b"BODY", b"SIGN", b"CNST", b"META", b"ZZZZ"])


CHANGES: list[tuple[int, Change]] = [
    (6, flip_bits),
    (5, change_number),
    (3, resize),
    (3, replay),
    (3, replay_part),
    (2, swap),
    (2, relabel),
]


def mutated(rng: random.Random, good: list[bytes], form: Form) -> bytes:
    """A file that differs from all good ones; a whole file of another salt is a good one, too."""
    data, other = rng.sample(good, 2)
    if form.level is None and rng.random() < 0.5:
        sensible = mutate(rng, data)  # contents that make sense, with the old signature
        if sensible not in good:
            return sensible
    weights, changes = zip(*CHANGES, strict=True)
    while True:
        changed = bytearray(data)
        for change in rng.choices(changes, weights, k=rng.choice([1, 1, 1, 2, 3])):
            if len(changed) >= 64:
                change(rng, changed, other)
        if rng.random() < 0.8:
            fix(changed)
        if changed not in good:
            return bytes(changed)


def fuzz(count: int, seed: int = 0, keep: Path | None = None, show: bool = False) -> list[str]:
    """Send `count` changed files to the driver; the failures in words."""
    driver, rng = build_driver(), random.Random(seed)
    failures, done, refused, start = list[str](), 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_keys(folder)
        files = {x: [x.make(n, salt) for n in NAMES for salt in (1, 2)] for x in FORMS}
        for form, good in files.items():
            summary, words, at = run_driver(driver, good, *form.options(folder))
            if words or not summary.startswith(f"files {len(good)} refused 0 "):
                failures.append(f"good file {at} ({form}): {summary} {words}")
        while done < count:
            form = FORMS[done // BATCH % len(FORMS)]
            n = min(BATCH, count - done)
            batch = [mutated(rng, files[form], form) for _ in range(n)]
            done += n
            summary, words, at = run_driver(driver, batch, *form.options(folder))
            if words:
                failures.append(f"{_kept(batch[at], seed, done, keep or driver.parent)}: {words}")
            elif summary.startswith(f"files {n} refused {n} "):
                refused += n
            else:
                failures += _accepted(driver, batch, form, folder, seed, done, keep)
            if show:
                rate = done / (time.monotonic() - start)
                print(f"{done} files, {refused} refused, {len(failures)} failures, {rate:.0f}/s")
    return failures


def _accepted(
    driver: Path,
    batch: list[bytes],
    form: Form,
    folder: Path,
    seed: int,
    at: int,
    keep: Path | None,
) -> list[str]:
    """The files of a batch that the runtime opened."""
    found = []
    for data in batch:
        summary, _, _ = run_driver(driver, [data], *form.options(folder))
        if not summary.startswith("files 1 refused 1 "):
            found.append(f"{_kept(data, seed, at, keep or driver.parent)} ({form}) was opened")
    return found


def _kept(data: bytes, seed: int, at: int, folder: Path) -> Path:
    path = folder / f"fuzz-protected-{seed}-{at}-{zlib.crc32(data):08x}.itg"
    path.write_bytes(data)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="mutated encrypted and signed packages")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failures = fuzz(args.count, args.seed, show=True)
    for words in failures:
        print(words)
    print(f"{args.count} mutated files, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
