"""Compare predicted with published speeds, and fit the constants of the cycle model.

python -m benchmarks.npu_fit --rows fps-published.csv benchmarks/npu_more.csv [--fit]
                             [--family rknpu] [--chip NAME] [--without NET,...] [--cache FOLDER]

The networks are rebuilt from their public architectures (`npu_nets`), as quantised models; other
rows are skipped. Times come from `vendor.predict`, as those of `intaglio perf --as-vendor` do.
Without --fit the constants of the chip files are used. With --fit they are fitted to all rows, and
once without each network, whose rows are then predicted: this leave-one-network-out error is the
one that counts.
"""

from __future__ import annotations

import argparse
import csv
import math
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks import npu_nets
from intaglio.analysis import vendor_style
from intaglio.npu.own.isa import PROGRAM
from intaglio.npu.predict import vendor
from intaglio.npu.predict.timeline import timeline
from intaglio.targets import chip
from intaglio.targets.chip import Chip

NETS = {  # name in the table -> name in npu_nets
    r"mobilenetv2.*": "mobilenet_v2",
    r"resnet50(-v2-7|V2)": "resnet50_v2",
    r"resnet50_.*": "resnet50",
    r"yolov5s_relu": "yolov5s_relu",
    r"yolov5n": "yolov5n",
    r"yolov5s(_det)?": "yolov5s",
    r"yolov5s_v6.1_3output_.*": "yolov5s_3output",
    r"yolov5s_v6.1_fuse_.*": "yolov5s_fuse",
    r"yolov5s_tpukernel_.*": "yolov5s_tpukernel",
    r"yolov6n": "yolov6n",
    r"yolov8n": "yolov8n",
    r"yolov8s": "yolov8s",
    r"yolov8s_(det|fp.*)": "yolov8s_det",
    r"yolov8s_seg": "yolov8s_seg",
    r"yolov11s_.*": "yolo11s",
    r"yolox_s_.*": "yolox_s",
    r"RetinaFace_mobile320": "retinaface_320",
    r"retinaface_mobilenet0.25_.*": "retinaface_640",
    r"centernet_.*": "centernet",
    r"lprnet_.*": "lprnet",
    r"bert4torch_.*": "bert",
}
MIXED = {  # int8 models of sophon-demo that keep parts in float, by its scripts
    ("sophgo", "yolox_s"): (
        ("yolox_s.first", False),
        ("yolox_s.middle", True),
        ("yolox_s.heads", False),
    )
}
UNCOUNTED_NETS = {  # predicted and printed, but neither fitted nor counted
    "yolov5s_fuse": "its pre- and post-processing on the chip is not rebuilt",
    "yolov5s_tpukernel": "its published speed leaves no time for the transposes that it lacks",
}
UNCOUNTED_ROWS = {  # contradict other rows: printed, but neither fitted nor counted
    ("bm1684", "retinaface_640", "i8"): "int8 takes longer than f32",
    ("bm1684", "yolox_s", "i8"): "it takes less time than its float parts in f32",
}
LEFT_OUT = (  # columns of the table of left-out rows
    *("family", "kind", "chip", "net", "dtype", "batch", "cores"),
    *("published", "fitted", "left_out"),
)
TYPES = {"int8": "i8", "uint8": "i8", "fp16": "f16", "fp32": "f32"}


@dataclass(frozen=True)
class Row:
    """A published speed of a rebuilt network."""

    chip: str
    net: str
    dtype: str
    batch: int
    cores: int
    milliseconds: float  # per sample

    @property
    def label(self) -> str:
        return f"{self.chip:8}{self.net:18}{self.dtype:4} batch {self.batch} cores {self.cores}"


def why_not(row: Row) -> str | None:
    """Why a row is neither fitted nor counted; None: it is."""
    return UNCOUNTED_NETS.get(row.net) or UNCOUNTED_ROWS.get((row.chip, row.net, row.dtype))


def counted(rows: Sequence[Row]) -> list[Row]:
    """The rows that count in the errors."""
    return [r for r in rows if not why_not(r)]


def read(path: Path, family: str | None = None) -> list[Row]:
    """The rows of a table whose networks are rebuilt."""
    found = {}
    for line in csv.DictReader(path.open()):
        net = next((n for p, n in NETS.items() if re.fullmatch(p, line["model"])), None)
        dtype = TYPES[line["dtype"]]
        if net is None or line["chip"] not in chip.names() or family not in (None, line["family"]):
            continue
        if dtype not in chip.load(line["chip"]).types:
            continue
        row = Row(
            line["chip"],
            net,
            dtype,
            int(line["batch"]),
            int(line["cores"]),
            float(line["ms_per_sample"]),
        )
        found[replace(row, milliseconds=0.0)] = row
    return list(found.values())


def parts(row: Row) -> list[tuple[str, str]]:
    """The networks that a row's model consists of, with their types."""
    c = chip.load(row.chip)
    mixed = MIXED.get((c.family, row.net)) if row.dtype == "i8" else None
    floats = "f16" if "f16" in c.types else "f32"
    return [(n, "i8" if whole else floats) for n, whole in mixed or ()] or [(row.net, row.dtype)]


def network(row: Row, cached: Path | None = None) -> list[vendor.Part]:
    """A row's model, compiled in the style of the vendor's compiler."""
    return [
        part(Row(row.chip, net, dtype, row.batch, row.cores, 0.0), cached)
        for net, dtype in parts(row)
    ]


@cache
def part(row: Row, cached: Path | None) -> vendor.Part:
    """One network in one type."""
    path = cached and cached / f"{row.chip}-{row.net}-{row.dtype}-{row.batch}-{row.cores}.pickle"
    if path and path.exists():
        found: vendor.Part = pickle.loads(path.read_bytes())
        return found
    graph = npu_nets.model(npu_nets.MAKERS[row.net](row.batch))
    found = vendor_style.part(graph, chip.load(row.chip), row.dtype, row.cores)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(found))
    return found


@dataclass(frozen=True)
class Cycles:
    """What a fit keeps of a timeline."""

    cycles: float


Known = dict[tuple[object, ...], Cycles]


def cycles_of(known: Known) -> Callable[[np.ndarray, Chip, str], Cycles]:
    """The cycles of a program, cached by the constants that it depends on."""

    def run(code: np.ndarray, c: Chip, dtype: str) -> Cycles:
        alone = int(np.frombuffer(code, PROGRAM, 1)["cores"][0]) > 1
        seen = {
            k: v
            for k, v in c.timing.items()
            if k not in ("start", "call", "turn")
            and (not k.startswith("use.") or k == "use.i8")  # that of the type: see `as_bytes`
            and (alone or k != "alone")
        }
        tables = tuple(c.units["lut"].rate.items()) if "lut" in c.units else ()
        key = (id(code), dtype, tables, *sorted(seen.items()))
        if key not in known:
            known[key] = Cycles(timeline(code, c).cycles)
        return known[key]

    return run


def predict(row: Row, made: Sequence[vendor.Part], c: Chip, known: Known | None = None) -> float:
    """Milliseconds per sample."""
    run = cycles_of({} if known is None else known)
    return vendor.predict(made, c, run).milliseconds / row.batch


# ---- fitting -------------------------------------------------------------------------------------
Constants = dict[str, float]
PRIOR: dict[str, Constants] = {  # the start of a fit, and the prior of its regularisation
    "rknpu": {"efficiency": 0.6, "layer": 3000.0, "lut": 1.2},
    "kpu": {"efficiency": 0.7, "use.i8": 0.8, "turn": 30.0, "lut": 1.0},
    "sophgo": {"efficiency": 0.75, "layer": 1000.0, "start": 380.0, "turn": 1.4, "apart": 5.0},
}
SHARES = ("efficiency", "use", "alone")  # at most 1
UNFITTED = ("bert",)  # left out of every fit: much of its exported model is not rebuilt
PRIOR_USE = 0.8  # prior of the share of its rate that a product of a type reaches
STEP, ROUNDS = 1.06, 6  # factor of a finite difference; iterations
PRIOR_WEIGHT = {"rknpu": 1.0, "kpu": 1.0, "sophgo": 7.0}  # relative to one row's error


def fitted(c: Chip, values: Constants) -> Chip:
    """The chip with these constants of [timing] and this rate of lookup tables."""
    units = dict(c.units)
    if "lut" in values:
        rate = dict.fromkeys(units["lut"].rate, values["lut"])
        units["lut"] = replace(units["lut"], rate=rate)
    timing = {**c.timing, **{k: v for k, v in values.items() if k != "lut"}}
    return replace(c, units=units, timing=timing)


class Fit:
    """The rows of one chip with their programs."""

    def __init__(self, name: str, rows: Sequence[Row], cached: Path | None) -> None:
        self.chip = chip.load(name)
        self.rows = list(rows)
        self.networks = {r: network(r, cached) for r in rows}
        self.known: Known = {}

    def kinds(self) -> dict[Row, str]:
        """The kind of network of each row."""
        return {r: vendor.kind(self.networks[r], r.batch) for r in self.rows}

    def predict(self, row: Row, values: Constants) -> float:
        return predict(row, self.networks[row], fitted(self.chip, values), self.known)

    def off(self, rows: Sequence[Row], values: Constants) -> np.ndarray:
        """log(predicted / published) of each row."""
        return np.array([math.log(self.predict(r, values) / r.milliseconds) for r in rows])

    def fit(self, rows: Sequence[Row], values: Constants) -> Constants:
        """Constants with small errors, by damped Gauss-Newton steps in logarithms.

        A weak regularisation towards the prior keeps constants that the rows do not determine.
        """
        damp, off = 1.0, self.off(rows, values)
        for _ in range(ROUNDS):
            tried = self.moved(rows, values, off, damp)
            found = self.off(rows, tried)
            if _objective(found) < _objective(off):
                values, off = tried, found
            else:
                damp /= 2
        return values

    def moved(
        self, rows: Sequence[Row], values: Constants, off: np.ndarray, damp: float
    ) -> Constants:
        """The constants after one Gauss-Newton step."""
        guess = self.first()
        first = np.log([guess[k] for k in values])
        most = np.array([0.0 if k.partition(".")[0] in SHARES else math.inf for k in values])
        at = np.log(list(values.values()))
        slopes = np.empty((len(rows), len(at)))
        for k, name in enumerate(values):
            step = -math.log(STEP) if at[k] >= most[k] - 0.1 else math.log(STEP)
            tried = {**values, name: math.exp(at[k] + step)}
            slopes[:, k] = (self.off(rows, tried) - off) / step
        pull = math.sqrt(PRIOR_WEIGHT[self.chip.family])
        wanted = _solve(slopes, off - slopes @ at, first, at, most, pull)
        made = at + damp * np.clip(wanted - at, -0.7, 0.7)
        return dict(zip(values, np.exp(made).tolist(), strict=True))

    def first(self) -> Constants:
        """The start and prior of a fit."""
        found = dict(PRIOR[self.chip.family])
        if (
            self.chip.family == "sophgo"
        ):  # transfers between lanes cost a share of the rate, by type
            found |= {f"use.{t}": PRIOR_USE for r in self.rows for _, t in parts(r)}
        if any(r.cores > 1 for r in self.rows):
            found["alone"] = 0.3
        return found

    def left_out(self, values: Constants) -> dict[Row, float]:
        """Each row predicted with constants that were fitted without its network.

        Each fit starts from the prior, so it has seen nothing of the network.
        """
        found = {}
        for net in dict.fromkeys(r.net for r in self.rows):
            others = [r for r in counted(self.rows) if r.net not in (net, *UNFITTED)]
            made = values  # networks outside the fit: the constants have not seen them
            if net not in (*UNCOUNTED_NETS, *UNFITTED):
                made = self.fit(others, self.first()) if others else self.first()
            found |= {r: self.predict(r, made) for r in self.rows if r.net == net}
        return found


def _objective(off: np.ndarray) -> float:
    """The objective: mean absolute error plus half the root mean square."""
    return float(np.abs(off).mean() + 0.5 * np.sqrt((off * off).mean()))


def _solve(
    slopes: np.ndarray,
    base: np.ndarray,
    first: np.ndarray,
    at: np.ndarray,
    most: np.ndarray,
    pull: float,
) -> np.ndarray:
    """Minimise the absolute values of base + slopes x by reweighted least squares, x <= most."""
    x, free = at, np.ones(len(at), bool)
    for _ in range(12):
        weight = 1 / np.sqrt(np.maximum(np.abs(base + slopes @ x), 0.03))
        held = base + slopes[:, ~free] @ x[~free]
        left = np.vstack([slopes[:, free] * weight[:, None], pull * np.eye(free.sum())])
        right = np.concatenate([-held * weight, pull * first[free]])
        x = x.copy()
        x[free] = np.linalg.lstsq(left, right, rcond=None)[0]
        free &= x <= most
        x = np.minimum(x, most)
    return x


def report(fit: Fit, again: bool) -> list[tuple[Row, float, float | None]]:
    """Print a chip's rows; returns them with both predictions: fitted, and left out."""
    values: Constants = {}
    left: dict[Row, float] = {}
    if again:
        values = fit.fit([r for r in counted(fit.rows) if r.net not in UNFITTED], fit.first())
        left = fit.left_out(values)
        words = ", ".join(f"{k} {v:.4g}" for k, v in values.items())
        nets = ", ".join(dict.fromkeys(r.net for r in counted(fit.rows) if r.net not in UNFITTED))
        print(f"\n{fit.chip.name}: fitted to the rows of {nets}: {words}", flush=True)
    else:
        print(f"\n{fit.chip.name}: constants of its file")
    made = []
    for r in fit.rows:
        p = fit.predict(r, values)
        line = (
            f"  {r.label} published {r.milliseconds:9.3f} ms, predicted {p:9.3f} {_off(p, r):+6.1%}"
        )
        if r in left:
            line += f", left out {left[r]:9.3f} {_off(left[r], r):+6.1%}"
        if reason := why_not(r):
            line += f" (not counted: {reason})"
        else:
            made.append((r, p, left.get(r)))
        print(line, flush=True)
    return made


def _off(p: float, row: Row) -> float:
    return p / row.milliseconds - 1


def summary(found: Sequence[tuple[Row, float, float | None]], tables: dict[str, list[Row]]) -> None:
    """Mean and worst error, by chip, by table and of all rows: the table of docs/targets.md."""
    print("| chip | rows | networks | mean error | worst | left out, mean | worst |")
    print("|---|---|---|---|---|---|---|")
    chips = {
        n: [r for r, *_ in found if r.chip == n] for n in dict.fromkeys(r.chip for r, *_ in found)
    }
    for name, rows in {**chips, **tables, "all": [r for r, *_ in found]}.items():
        mine = [x for x in found if x[0] in rows]
        nets = len({x[0].net for x in mine})
        told = [
            f"{words(np.mean(off))} | {words(max(off))}" if off else "- | -"
            for off in (errors(mine, 1), errors(mine, 2))
        ]
        print(f"| {name} | {len(mine)} | {nets} | {told[0]} | {told[1]} |")


def errors(found: Sequence[tuple[Row, float, float | None]], which: int) -> list[float]:
    """Absolute errors of predictions; which: 1 fitted to all rows, 2 with the network left out."""
    return [abs(_off(x[which], x[0])) for x in found if x[which] is not None]  # type: ignore[arg-type]


def words(share: float) -> str:
    return f"{share * 100:.3g} %"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.npu_fit")
    parser.add_argument(
        "--rows", type=Path, nargs="+", required=True, help="tables of published speeds"
    )
    parser.add_argument("--family", choices=sorted(PRIOR), help="only chips of this family")
    parser.add_argument("--chip", help="only this chip")
    parser.add_argument("--without", default="", help="networks to leave out, separated by commas")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    parser.add_argument("--fit", action="store_true", help="fit the constants")
    parser.add_argument("--left-out", type=Path, help="table to write of left-out rows (--fit)")
    args = parser.parse_args()
    tables = {
        t.name: [
            r
            for r in read(t, args.family)
            if args.chip in (None, r.chip) and r.net not in args.without.split(",")
        ]
        for t in args.rows
    }
    rows = [r for table in tables.values() for r in table]
    found = []
    kinds: dict[Row, str] = {}
    for name in dict.fromkeys(r.chip for r in rows):
        fit = Fit(name, [r for r in rows if r.chip == name], args.cache)
        found += report(fit, args.fit)
        kinds |= fit.kinds()
        if args.left_out:
            save(args.left_out, found, kinds)
    print()
    summary(found, tables)
    return 0


def save(
    path: Path, found: Sequence[tuple[Row, float, float | None]], kinds: dict[Row, str]
) -> None:
    """Write the rows with both predictions; benchmarks.npu_bands reads them."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(LEFT_OUT)
        for row, p, left in found:
            if left is not None:
                c = chip.load(row.chip)
                figures = (f"{x:.4g}" for x in (row.milliseconds, p, left))
                table.writerow((c.family, kinds[row], *astuple(row)[:-1], *figures))


if __name__ == "__main__":
    sys.exit(main())
