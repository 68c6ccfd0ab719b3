"""Files that `dump_asm`, `dump_ir` and `dump_quant_error` write."""

from __future__ import annotations

from pathlib import Path

from intaglio.analysis.accuracy import compare
from intaglio.compat.nncase.build import Built
from intaglio.compat.nncase.kmodel import KMODEL
from intaglio.compat.nncase.settings import Settings
from intaglio.files import write_atomically
from intaglio.npu.chips.k210 import disassembly as k210
from intaglio.npu.chips.k210.compile import read
from intaglio.npu.own import disassembly as own
from intaglio.package import plan_text

INFO, CODE, ERRORS = "kmodel_info.txt", "kmodel.asm", "quant_error.csv"
MAX_ERROR_SAMPLES = 4  # that the errors of layers are measured with


def write(built: Built, data: bytes, settings: Settings, folder: Path | None = None) -> None:
    """Inputs and outputs, and the commands of the NPU."""
    place = folder or settings.dump_dir
    place.mkdir(parents=True, exist_ok=True)
    package = built.package
    facts = [f"target {settings.target}, {len(data):,} bytes"]
    for title, types in (("INPUTS", package.inputs), ("OUTPUTS", package.outputs)):
        facts.append(title)
        facts += [f"{i}\t{name}\t{t}" for i, (name, t) in enumerate(types.items())]
    write_atomically(place / INFO, "\n".join([*facts, ""]).encode())
    if settings.dump_asm or folder is not None:
        write_atomically(place / CODE, "\n".join([*_code(built, data), ""]).encode())


def _code(built: Built, data: bytes) -> list[str]:
    if data[:4] == KMODEL:
        return list(k210.lines(read(data)))
    found: list[str] = []
    for plan in built.package.plans:
        for origin, program in own.programs(plan):
            found += own.lines(origin, program)
    return found or [line for line, _ in plan_text.lines(built.package.plans)]


def write_errors(built: Built, folder: Path) -> None:
    """The error of every tensor of a quantised model, against the float model."""
    result = built.quantized
    if result is None or not built.samples:
        return
    folder.mkdir(parents=True, exist_ok=True)
    report = compare(result.float_graph, result.bare_graph, built.samples[:MAX_ERROR_SAMPLES])
    rows = ["name,op,cosine,error"]
    for m in report.layers:
        rows.append(f'"{m.name}",{m.op},{m.accumulated.cosine:.6f},{m.accumulated.error:.6f}')
    write_atomically(folder / ERRORS, "\n".join([*rows, ""]).encode())
