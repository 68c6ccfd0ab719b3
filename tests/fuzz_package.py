"""Mutated package files against a runtime that is built with sanitizers.

    python -m tests.fuzz_package --count 20000 [--seed 0] [--models]

Files are made from the sample plans and, with --models, from compiled ONNX node tests; then fields,
bytes, attributes and operations are changed, checksums are put right so that the change gets
through, and csrc/test/fuzz_driver.c opens and runs them. A crash, hang or sanitizer report fails,
and the file that caused it is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tests.package.samples import SAMPLES

from intaglio import native
from intaglio.package import format as f
from intaglio.package.read import sections
from intaglio.package.write import assemble

ROOT = Path(__file__).parents[1]
BATCH = 250
RECORDS = {
    "PLAN": f.PLAN,
    "TENS": f.TENSOR,
    "QUNT": f.QUANT,
    "STEP": f.STEP,
    "ARGS": np.dtype([("tensor", "<u4")]),
}
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 16, 63, 64, 255, 256, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1,
           2**46, 2**62, 2**63 - 1, -1, -2, -3, -(2**31), -(2**63)]  # fmt: skip
Parts = dict[str, bytearray]


def fix_checksums(data: bytes | bytearray) -> bytes:
    """The same file with checksums that fit it, as far as its section table can be read."""
    data = bytearray(data)
    if len(data) < f.HEADER.itemsize:
        return bytes(data)
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - 32) // 32)
    for at in range(32, 32 + 32 * count, 32):
        offset, size = struct.unpack_from("<QQ", data, at + 8)
        if offset + size <= len(data):
            struct.pack_into("<I", data, at + 24, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<I", data, 20, 0)
    struct.pack_into("<I", data, 20, zlib.crc32(data[: 32 + 32 * count]))
    return bytes(data)


# ---- mutations: each changes the sections in place ---------------------------------------------
def change_field(rng: random.Random, parts: Parts) -> None:
    filled = [k for k in RECORDS if parts[k]]
    if not filled:
        return change_bytes(rng, parts)
    kind = rng.choice(filled)
    rows = np.frombuffer(parts[kind], RECORDS[kind])
    name = rng.choice(rows.dtype.names)  # type: ignore[arg-type]
    column = rows[name]
    i = rng.randrange(len(rows))
    if column.ndim > 1:
        axes = min(max(int(rows["rank"][i]), 1), 8) if rng.random() < 0.9 else 8
        column = column[:, rng.randrange(axes)]
    old = int(column[i])
    new = rng.choice([
        rng.choice(NUMBERS), old + rng.choice([-64, -8, -1, 1, 8, 64]), int(rng.choice(column)),
        old * 2, old // 2, len(rows) - 1, len(rows), old ^ 1 << rng.randrange(8 * column.itemsize),
    ])  # fmt: skip
    column[i] = np.array(new & (2**64 - 1), "<u8").view("<i8").astype(column.dtype)


def change_attribute(rng: random.Random, parts: Parts) -> None:
    if len(parts["ATTR"]) < 8:
        return change_bytes(rng, parts)
    at = 8 * rng.randrange(len(parts["ATTR"]) // 8)
    if rng.random() < 0.2:
        value = struct.pack("<d", rng.choice([0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5]))
    elif rng.random() < 0.5:
        old = struct.unpack_from("<q", parts["ATTR"], at)[0]
        value = struct.pack("<Q", (old + rng.choice([-2, -1, 1, 2, 8])) & (2**64 - 1))
    else:
        value = struct.pack("<Q", rng.choice(NUMBERS) & (2**64 - 1))
    parts["ATTR"][at : at + 8] = value


def change_bytes(rng: random.Random, parts: Parts) -> None:
    kind = rng.choice([k for k in parts if parts[k]])
    for _ in range(rng.randint(1, 8)):
        parts[kind][rng.randrange(len(parts[kind]))] = rng.choice(
            [0, 1, 127, 128, 255, rng.randrange(256)]
        )


def change_constant(rng: random.Random, parts: Parts) -> None:
    """An index, a shape, a zero point: what kernels must check when they run."""
    if len(parts["CNST"]) < 8:
        return change_bytes(rng, parts)
    at = 8 * rng.randrange(len(parts["CNST"]) // 8)
    parts["CNST"][at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) & (2**64 - 1))


def change_op(rng: random.Random, parts: Parts) -> None:
    """Another operation on the same tensors, with small attributes of the right size."""
    if not parts["STEP"]:
        return change_bytes(rng, parts)
    op = rng.choice(list(native.ops().values()))
    step = np.frombuffer(parts["STEP"], f.STEP)[
        rng.randrange(len(parts["STEP"]) // f.STEP.itemsize) :
    ][:1]
    step["op"] = len(parts["NAME"])
    parts["NAME"] += op.name.encode() + b"\0"
    parts["ATTR"] += bytes(-len(parts["ATTR"]) % 8)
    step["attrs"] = len(parts["ATTR"])
    for field in op.fields:
        for _ in range(field.count):
            small = rng.choice([0, 1, 1, 2, 3]) if rng.random() < 0.9 else rng.choice(NUMBERS)
            raw = struct.pack("<d", small) if field.kind == "f" else struct.pack("<q", small)
            parts["ATTR"] += raw
    step["attrs_size"] = len(parts["ATTR"]) - int(step["attrs"][0])


def change_type(rng: random.Random, parts: Parts) -> None:
    """The element type of everything, so that inference still agrees and other kernels run."""
    rows = np.frombuffer(parts["TENS"], f.TENSOR)
    if not len(rows):
        return change_bytes(rng, parts)
    old, new = int(rng.choice(rows["dtype"])), rng.randint(1, 23)
    rows["dtype"][rows["dtype"] == old] = new


def change_extent(rng: random.Random, parts: Parts) -> None:
    """One extent wherever it occurs, so that inference still agrees."""
    rows = np.frombuffer(parts["TENS"], f.TENSOR)
    extents = rows["shape"][rows["shape"] > 0]
    if not len(extents):
        return change_bytes(rng, parts)
    old, new = int(rng.choice(extents)), rng.choice([0, 1, 2, 3, 5, 9, 33, 100])
    for row in rows:
        shape = row["shape"][: row["rank"]]
        shape[shape == old] = new


def resize_section(rng: random.Random, parts: Parts) -> None:
    kind = rng.choice(list(parts))
    if rng.random() < 0.5:
        parts[kind] += bytes(rng.randrange(256) for _ in range(rng.choice([1, 8, 40, 96, 500])))
    else:
        del parts[kind][rng.randrange(len(parts[kind]) + 1) :]


MUTATIONS: list[tuple[int, Callable[[random.Random, Parts], None]]] = [
    (8, change_field), (4, change_attribute), (3, change_bytes), (2, change_constant),
    (4, change_op), (2, change_type), (2, change_extent), (1, resize_section),
]  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A file that differs from `data` in a few places but has good checksums (mostly)."""
    if rng.random() < 0.05:  # the container itself
        raw = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(min(len(raw), 400))] = rng.choice([0, 1, 64, 255, rng.randrange(256)])
        if rng.random() < 0.3:
            del raw[rng.randrange(len(raw)) :]
        return fix_checksums(raw) if rng.random() < 0.8 else bytes(raw)
    found, isa = sections(data)
    parts = {k: bytearray(v) for k, v in found.items()}
    weights, changes = zip(*MUTATIONS, strict=True)
    for change in rng.choices(changes, weights, k=rng.choice([1, 1, 1, 2, 2, 3, 5])):
        change(rng, parts)
        for kind in ("TENS", "STEP", "PLAN", "QUNT", "ARGS"):  # numpy needs whole records
            size = RECORDS[kind].itemsize
            if len(parts[kind]) % size and rng.random() < 0.95:
                del parts[kind][len(parts[kind]) // size * size :]
        if any(len(parts[k]) % RECORDS[k].itemsize for k in RECORDS):
            break
    if rng.random() < 0.02:
        del parts[rng.choice(list(parts))]
    return assemble({k: bytes(v) for k, v in parts.items()}, isa)


# ---- the driver --------------------------------------------------------------------------------
def build_driver() -> Path:
    """The sanitizer build of the driver, in a build directory of its own."""
    folder = Path(os.environ.get("INTAGLIO_SANITIZE_BUILD", ROOT / "build-sanitize"))
    options = ["-DINTAGLIO_SANITIZE=ON", "-DINTAGLIO_TESTS=ON"]
    subprocess.run(
        [sys.executable, "-m", "cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *options],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "cmake", "--build", folder], check=True, stdout=subprocess.DEVNULL
    )
    return folder / "fuzz_driver"


def run_driver(driver: Path, files: Sequence[bytes]) -> tuple[str, str, int]:
    """What the driver says about `files`: its summary, what went wrong, and at which file."""
    stream = b"".join(struct.pack("<Q", len(d)) + d for d in files)
    options = "allocator_may_return_null=1:detect_leaks=1:malloc_context_size=8"
    env = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([driver], input=stream, capture_output=True, env=env)
    lines = done.stdout.decode().split("\n")
    at = max((int(x) for x in lines if x.isdigit()), default=0)
    summary = next((x for x in lines if x.startswith("files")), "")
    words = done.stderr.decode("utf-8", "replace")
    return summary, "" if done.returncode == 0 else f"exit {done.returncode}\n{words}", at


def corpus(models: bool) -> list[bytes]:
    """Good files to start from."""
    isas = sorted({0, native.machine()})
    files = [make().package(isa=isa).bytes for make in SAMPLES.values() for isa in isas]
    if models:
        files += list(compiled_node_tests())
    return files


def compiled_node_tests() -> Iterator[bytes]:
    """The node tests of ONNX, compiled: nearly every operation with real attributes."""
    from onnx.backend.test.loader import load_model_tests

    import intaglio

    for test in load_model_tests(kind="node"):
        path = Path(test.model_dir) / "model.onnx"
        if path.stat().st_size < 20_000:
            try:
                data = intaglio.compile(path).bytes
            except intaglio.IntaglioError:
                continue
            if len(data) < 200_000:
                yield data


def fuzz(
    count: int, seed: int = 0, models: bool = False, keep: Path | None = None, show: bool = False
) -> list[str]:
    """Send `count` mutated files to the driver; the failures in words."""
    driver, files, rng = build_driver(), corpus(models), random.Random(seed)
    summary, words, at = run_driver(driver, files)
    failures = [f"good file {at}: {words}"] if words else []
    done, start = 0, time.monotonic()
    while done < count:
        batch = [mutate(rng, rng.choice(files)) for _ in range(min(BATCH, count - done))]
        done += len(batch)
        while batch:
            summary, words, at = run_driver(driver, batch)
            if not words:
                break
            where = (keep or ROOT / "build-sanitize") / f"fuzz-{seed}-{done}-{len(batch)}-{at}.itg"
            where.write_bytes(batch[at])
            failures.append(f"{where}: {words}")
            batch = batch[at + 1 :]  # go on after the one that failed
        if show:
            rate = done / (time.monotonic() - start)
            print(f"{done} files, {len(failures)} failures, {rate:.0f} files/s; {summary}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description="mutated package files against the runtime")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", action="store_true", help="also start from ONNX node tests")
    args = parser.parse_args()
    failures = fuzz(args.count, args.seed, args.models, show=True)
    for words in failures:
        print(words)
    print(f"{args.count} mutated files, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
