"""Mutated package files against a runtime that is built with sanitizers.

    python -m tests.fuzz_package --count 20000 [--seed 0] [--models]

Files are made from the sample plans and, with --models, from compiled ONNX node tests; then fields,
bytes, attributes and operations are changed, checksums are put right so that the change gets
through, and csrc/test/fuzz_driver.c opens and runs them. Every fourth batch has packages with
weight files, of which either or both are changed. A crash, hang or sanitizer report fails, and the
file that caused it is kept.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.package.mutate import learn, mutate
from tests.package.mutate_weights import Pair, mutate_pair, pairs
from tests.package.samples import SAMPLES

from intaglio import cpu_isa, native

ROOT = Path(__file__).parents[1]
BATCH = 250


# ---- the driver --------------------------------------------------------------------------------
def build_driver() -> Path:
    """The sanitizer build of the driver, in a build directory of its own, with the kernels of every
    instruction set that this machine has."""
    folder = Path(os.environ.get("INTAGLIO_SANITIZE_BUILD", ROOT / "build-sanitize"))
    isas = [name for name, bits in cpu_isa.BITS.items() if bits and not bits & ~native.machine()]
    build(folder, "-DINTAGLIO_SANITIZE=ON", f"-DINTAGLIO_ISAS={';'.join(isas)}")
    return folder / "fuzz_driver"


def build(folder: Path, *options: str, targets: Sequence[str] = ("all",)) -> None:
    """Build the C library and its tests with these options of CMake."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    cmake, ninja = shutil.which("cmake", path=places), shutil.which("ninja", path=places)
    if cmake is None:
        raise RuntimeError("cmake is missing; pip install cmake ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    configure = [cmake, "-S", ROOT, "-B", folder, *generator, "-DINTAGLIO_TESTS=ON", *options]
    folder.mkdir(exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # parallel test runs must not build at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (configure, [cmake, "--build", folder, "--target", *targets]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run_driver(
    driver: Path, files: Sequence[bytes] | Sequence[Pair], *keys: str
) -> tuple[str, str, int]:
    """What the driver says about `files`: its summary, what went wrong, and at which file.

    `keys` are its options: the number of threads (0: its own choice), a key file, a public key. A
    file may be a pair: a package and its weight file.
    """
    with_weights = bool(files) and isinstance(files[0], tuple)
    flat = [d for pair in files for d in pair] if with_weights else files
    stream = b"".join(struct.pack("<Q", len(d)) + d for d in flat)  # type: ignore[arg-type]
    keys = (*keys, *("0", "-", "-")[len(keys) :], "weights") if with_weights else keys
    options = "allocator_may_return_null=1:detect_leaks=1:malloc_context_size=8"
    env = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([driver, *keys], input=stream, capture_output=True, env=env)
    lines = done.stdout.decode().split("\n")
    at = max((int(x) for x in lines if x.isdigit()), default=0)
    summary = next((x for x in lines if x.startswith("files")), "")
    words = done.stderr.decode("utf-8", "replace")
    return summary, "" if done.returncode == 0 else f"exit {done.returncode}\n{words}", at


def corpus(models: bool) -> list[bytes]:
    """Good files to start from."""
    isas = {0, cpu_isa.BITS["avx2"] & native.machine(), native.machine()}
    files = [make().package(isa=isa).bytes for make in SAMPLES.values() for isa in sorted(isas)]
    files += compiled_ranges()
    files += compiled_custom_ops()
    if models:
        files += list(compiled_node_tests())
    return files


def compiled_ranges() -> Iterator[bytes]:
    """Packages with open dimensions, and with several plans."""
    from tests.test_ranges import MODELS

    import intaglio

    for source, sizes, ranges in MODELS.values():
        for isa in ("scalar", None):
            yield intaglio.compile(source, dims=ranges, isa=isa).bytes
        yield intaglio.compile(source, dims={n: [s[n] for s in sizes] for n in ranges}).bytes


def compiled_custom_ops() -> Iterator[bytes]:
    """Packages with operators of the plug-in that the driver has, and with one in Python, which it
    must refuse."""
    from tests.custom.models import PLUGIN, SoftClip, clipped, model, node

    import intaglio
    from intaglio import custom

    custom.register(SoftClip)
    yield intaglio.compile(clipped(limit=0.5)).bytes
    custom.unregister(SoftClip.name)
    if not PLUGIN.exists():
        return
    custom.load(PLUGIN)
    affine = node("sample::affine", ["x", "z"], ["a", "b"], by=[1.0, 2.0], mode="max")
    above = [node("Relu", ["x"], ["a"]), node("sample::above", ["a"], ["y"], threshold=0.5)]
    for isa in ("scalar", None):
        yield intaglio.compile(clipped(limit=0.5), isa=isa).bytes
        yield intaglio.compile(clipped((2, "n")), dims={"n": "1..9"}, isa=isa).bytes
        two = model([affine], {"x": (3, 5), "z": (3, 5)}, ["a", "b"])
        yield intaglio.compile(two, isa=isa).bytes
        yield intaglio.compile(model(above, {"x": (9,)}, ["y"]), isa=isa).bytes
    custom.unregister("sample")


def compiled_node_tests() -> Iterator[bytes]:
    """The node tests of ONNX, compiled: nearly every operation with real attributes."""
    from tests.onnx_conformance import cases, compiled, out_of_scope

    import intaglio

    for case in cases():
        if out_of_scope(case):
            continue
        for isa in ("scalar", None):
            try:
                data = compiled(case, isa).bytes
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
    by_op: dict[bytes, list[bytes]] = {}  # every operation is as likely as any other
    for data in files:
        for name in learn(data):
            by_op.setdefault(name, []).append(data)
    ops, split = sorted(by_op), pairs()
    summary, words, at = run_driver(driver, split)
    if words or not summary.startswith(f"files {len(split)} refused 0 "):
        failures.append(f"good package with weight file {at}: {summary} {words}")
    done, start = 0, time.monotonic()
    while done < count:
        n = min(BATCH, count - done)
        batch: Any = (
            [mutate_pair(rng, rng.choice(split)) for _ in range(n)]
            if done // BATCH % 4 == 3
            else [mutate(rng, rng.choice(by_op[rng.choice(ops)])) for _ in range(n)]
        )
        done += n
        while batch:
            summary, words, at = run_driver(driver, batch)
            if not words:
                break
            where = (keep or driver.parent) / f"fuzz-{seed}-{done}-{len(batch)}-{at}.itg"
            for file, suffix in zip(_files(batch[at]), (".itg", ".weights"), strict=False):
                where.with_suffix(suffix).write_bytes(file)
            failures.append(f"{where}: {words}")
            batch = batch[at + 1 :]  # go on after the one that failed
        if show:
            rate = done / (time.monotonic() - start)
            print(f"{done} files, {len(failures)} failures, {rate:.0f} files/s; {summary}")
    return failures


def _files(case: bytes | Pair) -> Sequence[bytes]:
    return case if isinstance(case, tuple) else (case,)


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
