"""Encrypted packages: the time to open them, the speed of decryption, and what a file shows.

python -m benchmarks.encryption [MODEL.onnx] [--times 40] [--json FILE]

Opens a package in turns plain, encrypted at each level, and signed; the file is in the page cache.
Without a model, the package holds 14 MB of random weights, as many as MobileNetV2 has. Then counts
the entropy of the files, and the names of the model that they show.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import secrets
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks.table import grid
from intaglio import native
from intaglio.ir import Array, Type
from intaglio.package import Package
from intaglio.package.encryption import LEVELS
from intaglio.package.read import sections
from intaglio.plan import Plan, Step, Tensor

WEIGHTS = 14_000_000  # bytes
LIMIT = "2 x plain + 20 ms"
MESSAGE = 4 << 20  # bytes that the speed of decryption is measured with
GCM_BYTES = 4096  # of struct itg_gcm, and more


def random_package() -> Package:
    """A package with nothing but weights: y = x + w."""
    w = np.random.default_rng(0).random(WEIGHTS // 4, np.float32)
    kind = Type("f32", w.shape)
    x, y = Tensor(kind, "input", name="x"), Tensor(kind, "output", name="y")
    step = Step("add", [x, Tensor.const(w, kind, "w")], [y])
    return Package.build([Plan([x], [y], [step])])


def open_times(package: Package, times: int) -> dict[str, list[float]]:
    """Milliseconds to open and close the package in each form, in turns."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, signer = secrets.token_bytes(32), Ed25519PrivateKey.generate()
    forms: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {"plain": ({}, {})}
    forms |= {f"encrypted: {x}": ({"encrypt": x, "key": key}, {"key": key}) for x in LEVELS}
    forms["signed"] = ({"sign": signer}, {"public_key": signer.public_key()})
    found: dict[str, list[float]] = {name: [] for name in forms}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{i}.itg" for i, name in enumerate(forms)}
        for name, (how, _) in forms.items():
            package.save(paths[name], **how)
        for _ in range(times):
            for name, (_, how) in forms.items():
                start = time.perf_counter()
                session = intaglio.open(paths[name], threads=1, **how)
                found[name].append((time.perf_counter() - start) * 1e3)
                session.close()
                del session
    return found


def shown(package: Package) -> list[list[str]]:
    """Bits per byte of each form of the file, and how many of the package's names are in it."""
    parts, _ = sections(package.bytes)
    names = {
        n for k in ("NAME", "ORIG") for n in bytes(parts.get(k, b"")).split(b"\0") if len(n) > 5
    }
    key, rows = secrets.token_bytes(32), []
    for level in (None, *LEVELS):
        data = bytes(package.protected(level, key if level else None))
        counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        share = counts[counts > 0] / len(data)
        bits = -float((share * np.log2(share)).sum())
        found = sum(n in data for n in names)
        rows.append([f"encrypted: {level}" if level else "plain", f"{bits:.5f}", f"{found}"])
    return rows


def gigabytes_per_second(plain: bool, times: int = 5) -> float:
    """The speed of AES-256-GCM on data in the cache: in plain C, or by the CPU's instructions."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    lib, key, nonce = native.library(), secrets.token_bytes(32), bytes(12)
    made = AESGCM(key).encrypt(nonce, bytes(MESSAGE), None)
    room: Array = np.empty(GCM_BYTES + 64, np.uint8)
    gcm = ctypes.c_void_p(room.ctypes.data + -room.ctypes.data % 64)
    lib.itg_gcm_key(gcm, key, ctypes.c_bool(plain))
    out = ctypes.create_string_buffer(MESSAGE)
    size, seconds = ctypes.c_size_t(MESSAGE), []
    lib.itg_gcm_decrypt.restype = ctypes.c_bool
    for _ in range(times):
        start = time.perf_counter()
        good = lib.itg_gcm_decrypt(
            gcm, nonce, None, ctypes.c_size_t(0), made, out, size, made[-16:]
        )
        seconds.append(time.perf_counter() - start)
        assert good
    return MESSAGE / min(seconds) / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description="time to open encrypted packages")
    parser.add_argument("model", nargs="?", help="ONNX file")
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    package = intaglio.compile(args.model) if args.model else random_package()
    found = open_times(package, args.times)
    rows = {n: {"min": min(t), "median": statistics.median(t)} for n, t in found.items()}
    limit = {k: 2 * rows["plain"][k] + 20 for k in ("min", "median")}
    fast = bool(native.library().itg_gcm_is_fast() & 1)
    speeds = {"plain C": gigabytes_per_second(True)}
    if fast:
        speeds["the CPU's instructions"] = gigabytes_per_second(False)
    table = [[n, f"{r['min']:.2f}", f"{r['median']:.2f}"] for n, r in rows.items()]
    table.append([LIMIT, f"{limit['min']:.2f}", f"{limit['median']:.2f}"])
    print(f"{args.model or 'random weights'}: {len(package.bytes) / 1e6:.1f} MB")
    print(grid([["open", "min ms", "median ms"], *table]))
    for name, speed in speeds.items():
        print(f"AES-256-GCM by {name}: {speed:.2f} GB/s")
    print(grid([["file", "bits per byte", "names of the model in it"], *shown(package)]))
    if args.json:
        Path(args.json).write_text(json.dumps({"open": rows, "speed": speeds}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
