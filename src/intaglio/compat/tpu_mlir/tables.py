"""Text tables of tpu-mlir: thresholds of tensors (calibration) and modes of layers (qtable)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import write_atomically

LARGEST = 1 << 26  # bytes of a table
MODES = {  # of a qtable -> precision of the core
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "W8F16": "f16",
    "W8BF16": "bf16",
    "W4F16": "f16",
    "W4BF16": "bf16",
    "INT8": "int8",
}
SAMPLE, METHOD = "# sample: ", "# intaglio method: "  # lines of ours; the vendor skips them
LEAST = 1e-5  # smaller thresholds become this


@dataclass(frozen=True)
class Row:
    """A tensor: values beyond the threshold saturate; min and max were observed."""

    threshold: float
    low: float
    high: float

    @property
    def range(self) -> tuple[float, float]:
        """The observed range, cut at the threshold."""
        return max(self.low, -self.threshold), min(self.high, self.threshold)


@dataclass
class CalibrationTable:
    """Rows by tensor, and what run_calibration noted: its method and the files of its samples."""

    rows: dict[str, Row] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)
    method: str = ""

    def save(self, path: str | Path, mlir: str, title: str) -> None:
        """Write it in the vendor's form; our own lines are comments there."""
        lines = [
            f"# mlir: {mlir}",
            f"# quantization threshold calculation method: {title}",
            f"# sample number: {len(self.samples)}",
            METHOD + self.method,
            *(SAMPLE + s for s in self.samples),
            "###",
            "# op_name    threshold    min    max",
        ]
        for name, row in self.rows.items():
            lines.append(f"{name} {row.threshold:.7f} {row.low:.7f} {row.high:.7f}")
        write_atomically(path, ("\n".join(lines) + "\n").encode())

    @classmethod
    def read(cls, path: str | Path) -> CalibrationTable:
        """A table of ours or of the vendor's; BadFile names the line that is wrong."""
        table = cls()
        for number, line in enumerate(_lines(path, "--calibration_table"), 1):
            if line.startswith(("#int4_th", "#asym_op", "#weight_scale")):
                break  # sections of other kinds follow
            if line.startswith(SAMPLE):
                table.samples.append(line.removeprefix(SAMPLE).strip())
            elif line.startswith(METHOD):
                table.method = line.removeprefix(METHOD).strip()
            elif line.strip() and not line.startswith("#"):
                name, row = _row(line, f"{path}, line {number}")
                table.rows[name] = row
        if not table.rows:
            raise BadFile(f"'{path}' has no tensors; make the table by run_calibration")
        return table


def _row(line: str, where: str) -> tuple[str, Row]:
    words = line.split()
    try:
        name, (threshold, low, high) = " ".join(words[:-3]), (float(w) for w in words[-3:])
    except ValueError:
        raise BadFile(f"{where}: '{line.strip()[:60]}'; write: name threshold min max") from None
    if not name or not all(map(math.isfinite, (threshold, low, high))) or low > high:
        raise BadFile(f"{where}: threshold {threshold}, range {low} to {high}; give finite numbers")
    return name, Row(max(abs(threshold), LEAST), low, high)


def write_qtable(
    path: str | Path, layers: Mapping[str, str], chip: str, samples: int, notes: Sequence[str] = ()
) -> None:
    """Write modes by layer."""
    lines = [f"# sample number: {samples}", f"# chip: {chip}", f"# number of layers: {len(layers)}"]
    lines += [f"# {note}" for note in notes]
    lines += ["###", "# op_name   quantize_mode", *(f"{n} {m}" for n, m in layers.items())]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def read_qtable(path: str | Path) -> dict[str, str]:
    """Precisions of the core by layer; BadInput names a mode that is not supported."""
    found = {}
    for number, line in enumerate(_lines(path, "--quantize_table"), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        if len(words) < 2:
            raise BadFile(
                f"{where}: '{line.strip()[:60]}'; a line is a name and a mode such as F32"
            )
        name, mode = " ".join(words[:-1]), words[-1].upper()
        if mode not in MODES:
            hint = did_you_mean(mode, MODES)
            raise BadInput(f"{where}: the mode is '{mode}'; use one of {', '.join(MODES)}{hint}")
        found[name] = MODES[mode]
    return found


def _lines(path: str | Path, option: str) -> list[str]:
    try:
        if Path(path).stat().st_size > LARGEST:
            raise BadFile(f"{option}: '{path}' is no table: it is too large; check the path")
        return Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadFile(f"{option}: '{path}' is no text; check the path") from None
    except OSError as e:
        raise BadFile(f"{option}: cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
