"""Instructions of a package per inference on an emulated machine, and estimates of its cycles."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOTTEST = 150  # blocks whose cycles are estimated
TURNS = 20  # of a block in llvm-mca
Block = tuple[int, str]  # instructions, bytes


@dataclass(frozen=True)
class Count:
    """What one inference executes: instructions, and how often which block of them."""

    instructions: int
    blocks: Counter[Block]


def plugin(folder: Path) -> Path:
    """Build the qemu plugin."""
    made = folder / "blocks.so"
    source = Path(__file__).with_name("blocks.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


@dataclass(frozen=True)
class Core:
    """A core as llvm-mca knows it."""

    name: str
    triple: str
    features: str
    model: str


def _blocks(command: list[str], so: Path) -> Counter[Block]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "blocks"
        emulator, *rest = command
        subprocess.run(
            [emulator, "-plugin", str(so), *rest],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "BLOCKS": str(file)},
        )
        found: Counter[Block] = Counter()
        for line in file.read_text().splitlines():
            times, instructions, _, code = line.split()
            found[int(instructions), code] += int(times)
    return found


def count(command: Callable[[int], list[str]], so: Path) -> Count:
    """The difference of two inferences and one; `command` has their number."""
    once, twice = (_blocks(command(n), so) for n in (1, 2))
    twice.subtract(once)
    blocks = Counter({block: n for block, n in twice.items() if n > 0})
    return Count(sum(n * instructions for (instructions, _), n in blocks.items()), blocks)


def cycles(counted: Count, core: Core) -> float:
    """Cycles by llvm-mca's model of a core: the hottest blocks, scaled to all instructions."""
    features = [f"-mattr={core.features}"] if core.features else []
    total, covered = 0.0, 0
    hot = sorted(counted.blocks.items(), key=lambda item: -item[0][0] * item[1])
    for (instructions, code), times in hot[:HOTTEST]:
        text = " ".join(f"0x{code[i : i + 2]}" for i in range(0, len(code), 2))
        read = ["llvm-mc-19", "--disassemble", f"-triple={core.triple}", f"-mcpu={core.model}"]
        read += features
        listing = subprocess.run(read, input=text, capture_output=True, text=True).stdout
        body = "\n".join(s for s in listing.splitlines() if not s.strip().startswith("."))
        if core.triple.startswith("riscv"):
            body = f"# LLVM-MCA-RISCV-LMUL M1\n{body}"  # until a vsetvli; else it takes M8
        mca = ["llvm-mca-19", f"-mtriple={core.triple}", f"-mcpu={core.model}", *features]
        # A function that is called is counted by its own blocks; llvm-mca adds 100 cycles for it.
        mca += [f"-iterations={TURNS}", "-skip-unsupported-instructions=any", "-call-latency=1"]
        answer = subprocess.run(mca, input=body, capture_output=True, text=True).stdout
        for line in answer.splitlines():
            if line.startswith("Total Cycles:"):
                total += times * int(line.split()[-1]) / TURNS
                covered += times * instructions
    return total * counted.instructions / max(covered, 1)
