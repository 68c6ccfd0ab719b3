"""Our streams for CV18xx beside those of another compiler, by Sophgo's own cycle model.

    python -m benchmarks.cv18xx --model PROFILER ours.cvimodel theirs.cvimodel

PROFILER is a program that reads a file of commands and prints a line with "sum MILLISECONDS": a
main() around CV18xxProfiling of tpu-mlir (lib/Backend/CV18xx/CV18xx_profiling.cpp), which compiles
alone. It adds the times of both engines. Without it only commands and bytes of DDR are counted.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.commands import Command, decode

FROM_DDR, TO_DDR, WITHIN_DDR = 0, 1, 2  # directions of a transfer
FILL = 4  # spec_func of a transfer that reads nothing


def moved(c: Command) -> int:
    """Bytes of DDR that a transfer reads and writes."""
    if c.name != "tdma":
        return 0
    size = c.get("src_n") * c.get("src_c") * c.get("src_h") * c.get("src_w")
    if c.get("sys_dtype"):  # a matrix
        size = c.get("src_c") * c.get("src_w")
    if c.get("trans_fmt"):  # a run of bytes
        size = c.get("src_n_stride")
    way = c.get("trans_dir")
    if way == FROM_DDR:
        return 0 if c.get("spec_func") == FILL else size
    return {TO_DDR: size, WITHIN_DDR: 2 * size}.get(way, 0)


def row(path: Path, profiler: str | None) -> str:
    """One line of the table."""
    model = cvimodel.read(path.read_bytes())
    data = b"".join(s.data for s in model.sections if s.kind == cvimodel.CMDBUF)
    commands = decode(data, model.chip)
    total = sum(map(moved, commands))
    words = "-"
    if profiler:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "commands"
            file.write_bytes(data)
            done = subprocess.run([profiler, str(file)], capture_output=True, text=True, check=True)
        words = done.stdout.split("sum")[-1].split()[0]
    return f"{path.name:32} {len(commands):>8} {total:>12} {words:>10}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", help="the profiler")
    given = parser.parse_args()
    print(f"{'file':32} {'commands':>8} {'DDR bytes':>12} {'ms':>10}")
    for path in given.files:
        print(row(path, given.model))


if __name__ == "__main__":
    main()
