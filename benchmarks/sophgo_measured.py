"""Our cycles of single commands beside those that tpu-mlir publishes from real chips."""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from intaglio.npu.chips.bm1684x import timing
from intaglio.npu.chips.bm1684x.commands import Command, decode_stream
from intaglio.npu.chips.bm1684x.variants import BM1684X, BM1688, Variant

PROFILES = {  # folder below regression/profile: chip
    "bmprofile_data-1_bm1684x": BM1684X,
    "bmprofile_data-1_bm1688": BM1688,
    ".": BM1688,
}
ENGINES = {"tiu": 0, "dma": 1}
Pairs = Iterator[tuple[Command, float]]


def compare(checkout: Path, python: Path) -> None:
    """Print the table; the vendor's tpu_profile parses the measurements."""
    print(f"{'profile':26} {'command':12} {'count':>6} {'measured':>10} {'ours':>10} {'error':>7}")
    for name, chip in PROFILES.items():
        folder = checkout / "regression" / "profile" / name
        with tempfile.TemporaryDirectory() as out:
            command = [str(python.parent / "tpu_profile"), "--arch", chip.title]
            extra = ["--format", "csv"] if chip is BM1684X else ["--disable_doc"]
            subprocess.run([*command, *extra, str(folder), out], capture_output=True, check=False)
            _print(name, chip, list(_pairs(folder, Path(out), chip)))


def _print(name: str, chip: Variant, pairs: list[tuple[Command, float]]) -> None:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for c, measured in pairs:
        found = timing.cost(c, chip).cycles
        for key in (c.name, f"all of {c.engine}"):
            one = sums[key]
            for i, v in enumerate((1.0, measured, found, abs(found - measured))):
                one[i] += v
    title = f"{chip.title} {name.partition('-1_')[0]}"
    for key, (count, measured, found, apart) in sums.items():
        share = apart / measured if measured else 0.0
        print(f"{title:26} {key:12} {count:>6.0f} {measured:>10.0f} {found:>10.0f} {share:>7.1%}")


def _pairs(folder: Path, out: Path, chip: Variant) -> Pairs:
    """Commands of the first core, with their measured cycles."""
    streams = {e: _stream(folder, e, chip.name) for e in ENGINES}
    if chip is BM1684X:
        with (out / "detail.csv").open() as file:
            for r in csv.DictReader(file):
                engine = {"0-TPU_BD": "tiu", "1-TPU_GDMA": "dma"}.get(r["category"])
                if engine and r["layer_id"] != "-1":
                    number = int(r["func_type"].split("=")[1])
                    yield streams[engine][number], float(r["duration(us)"]) * 1e3
        return
    for engine, file_name in (("tiu", "tiuRegInfo_0.txt"), ("dma", "tdmaRegInfo_0.txt")):
        left = iter(streams[engine])
        for kind, cycles in _records(out / file_name):
            command = next((c for c in left if c.name.removeprefix("s") == kind), None)
            if command is not None:
                yield command, cycles


def _stream(folder: Path, engine: str, form: str) -> list[Command]:
    path = min(folder.glob(f"cmd_*_0_{ENGINES[engine]}.dat"))
    return decode_stream(path.read_bytes(), engine, form)


def _records(path: Path) -> Iterator[tuple[str, float]]:
    """Names and cycles of commands in a file of tpu_profile."""
    kind = ""
    for line in path.read_text().splitlines():
        key, _, value = line.strip().partition(":")
        if key == "Function Type":
            kind = value.strip().removeprefix("s")
        elif key == "Asic Cycle":
            yield kind, float(value)
