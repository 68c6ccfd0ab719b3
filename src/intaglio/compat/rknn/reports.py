"""Tables of `eval_perf` and `eval_memory`: predicted from the package, no board is needed."""

from __future__ import annotations

from typing import Any

from intaglio.analysis.performance import Performance
from intaglio.package import Package

KIB, MIB = 1024, 1024 * 1024
LAYER_COLUMNS = (
    "ID",
    "OpType",
    "DataType",
    "Target",
    "InputShape",
    "OutputShape",
    "DDRCycles",
    "NPUCycles",
    "MaxCycles",
    "Time(us)",
    "MacUsage(%)",
    "RW(KB)",
    "FullName",
)
RANKING_COLUMNS = (
    "OpType",
    "CallNumber",
    "CPUTime(us)",
    "NPUTime(us)",
    "TotalTime(us)",
    "TimeRatio(%)",
)
TYPES = {"i8": "INT8", "u8": "UINT8", "i16": "INT16", "f16": "FLOAT16", "f32": "FLOAT32"}


class Perf(dict[str, Any]):
    """The result of `eval_perf`: a dict of figures whose text is the table."""

    text = ""

    def __str__(self) -> str:
        return self.text


def perf(package: Package, by_layer: bool) -> Perf:
    """The predicted time of one frame; with `by_layer`, of every layer."""
    found: Performance = package.performance()
    result = Perf(found.to_dict())
    result["total_time"] = round(found.milliseconds * 1e3)
    result["fps"] = found.fps
    parts = [*_frequencies(found)]
    if by_layer:
        loads = f"WorkLoad({'/'.join(map(str, range(found.chip_cores)))})"
        columns = (*LAYER_COLUMNS[:-2], loads, *LAYER_COLUMNS[-2:])
        parts += ["Network Layer Information Table", *_table(columns, _layers(found))]
    parts += [
        f"Total Operator Elapsed Per Frame Time(us): {found.milliseconds * 1e3:.0f}",
        f"Total Memory Read/Write Per Frame Size(KB): {found.bytes / KIB:.2f}",
    ]
    if by_layer:
        rows = _ranking(found)
        parts += ["Operator Time Consuming Ranking Table", *_table(RANKING_COLUMNS, rows)]
    parts.append(f"FPS (predicted): {found.fps:.2f}")
    result.text = "\n".join(parts)
    return result


def _frequencies(found: Performance) -> list[str]:
    return [
        "NPU Current Frequency List:",
        f"    - {found.clock * 1e6:.0f}",
        f"DDR bandwidth: {found.ddr:g} GB/s, NPU cores: {found.cores} of {found.chip_cores}",
    ]


def _layers(found: Performance) -> list[list[str]]:
    return [
        [
            str(r.id + 1),
            _op(r.op),
            TYPES.get(r.dtype, r.dtype.upper()),
            r.unit,
            r.inputs,
            r.output,
            f"{r.ddr_cycles:.0f}",
            f"{r.npu_cycles:.0f}",
            f"{r.max_cycles:.0f}",
            f"{r.microseconds:.0f}",
            f"{r.mac_use * 100:.2f}" if r.mac_use else "-",
            "/".join(f"{x * 100:.0f}%" for x in _loads(r.load, found.chip_cores)),
            f"{r.bytes / KIB:.2f}",
            f"{_op(r.op)}:{r.name}",
        ]
        for r in found.layers
    ]


def _loads(load: tuple[float, ...], cores: int) -> tuple[float, ...]:
    return (*load, *[0.0] * (cores - len(load)))


def _ranking(found: Performance) -> list[list[str]]:
    sums: dict[str, list[float]] = {}
    for r in found.layers:
        one = sums.setdefault(_op(r.op), [0, 0.0, 0.0])
        one[0] += 1
        one[1 if r.unit == "CPU" else 2] += r.microseconds
    whole = sum(c + n for _, c, n in sums.values()) or 1.0
    rows = sorted(sums.items(), key=lambda x: -(x[1][1] + x[1][2]))
    return [
        [op, f"{k:.0f}", f"{c:.0f}", f"{n:.0f}", f"{c + n:.0f}", f"{(c + n) / whole * 100:.2f}%"]
        for op, (k, c, n) in rows
    ]


def _op(name: str) -> str:
    """`conv+relu` as ConvRelu."""
    words = name.replace("npu.", "").replace("cpu.", "").replace("_", "+").split("+")
    return "".join(w[:1].upper() + w[1:] for w in words)


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in [list(columns), *rows]) for i in range(len(columns))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
        for r in [list(columns), *rows]
    ]
    rule = "-" * max(map(len, lines))
    return [rule, lines[0], rule, *lines[1:], rule]


# ---- memory --------------------------------------------------------------------------------------
def memory(package: Package) -> dict[str, int]:
    """Bytes of weights, of intermediate tensors, and of all others."""
    weights = sum(t.size for t in _constants(package))
    internal, other = package.plans[-1].arena, 0
    if package.meta.get("npu"):
        report = package.memory()
        weights = report.cpu_weights + sum(m.weights for m in report.modules)
        internal = report.cpu_arena + sum(m.internal - m.shared for m in report.modules)
        other = report.total - weights - internal  # inputs, outputs and commands
    return {
        "weight_memory": int(weights),
        "internal_memory": int(internal),
        "other_memory": int(other),
        "total_memory": int(weights + internal + other),
    }


def _constants(package: Package) -> list[Any]:
    found = {id(t): t for t in package.plan.tensors() if t.fixed and t.data is not None}
    return list(found.values())


def memory_text(found: dict[str, int], size: int) -> str:
    """The printed form of `eval_memory`; `size` is that of the file."""
    rule = "=" * 54
    return "\n".join(
        [
            rule,
            "Memory Profile Info Dump".center(54).rstrip(),
            rule,
            "NPU model memory detail(bytes):",
            f"    Weight Memory: {_bytes(found['weight_memory'])}",
            f"    Internal Tensor Memory: {_bytes(found['internal_memory'])}",
            f"    Other Memory: {_bytes(found['other_memory'])}",
            f"    Total Memory: {_bytes(found['total_memory'])}",
            "",
            f"INFO: the model file takes {_bytes(size)} beside it",
            rule,
        ]
    )


def _bytes(n: int) -> str:
    if n >= MIB:
        return f"{n / MIB:.2f} MiB"
    return f"{n / KIB:.2f} KiB" if n >= KIB else f"{n} B"
