"""Compare predicted with published speeds, and fit the constants of the cycle model.

python -m benchmarks.npu_fit [--fit] [--rows benchmarks/npu_published.csv] [--family rknpu]
                             [--chip NAME,...] [--without NET,...] [--single]
                             [--cache FOLDER [--cached]] [--left-out FILE]

The networks are rebuilt as float ONNX models (`npu_zoo`). They go through the same functions as the
model of a user of `intaglio perf --as-vendor`. Without --fit the constants of the chip files are
used. With --fit they are fitted to all rows. With --left-out they are also fitted once without each
family of networks, whose rows are then predicted: this leave-one-family-out error is the one that
counts. These fits start from the constants that are used for all rows.
"""

from __future__ import annotations

import argparse
import csv
import math
import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks import npu_zoo
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.npu.own.isa import PROGRAM
from intaglio.npu.predict import vendor
from intaglio.npu.predict.cycles import constants
from intaglio.npu.predict.timeline import timeline
from intaglio.targets import chip
from intaglio.targets.chip import Chip

ROWS = Path(__file__).with_name("npu_published.csv")
MIXED = "layers stay in float by a list that is not published"  # rows marked `mixed`
UNCOUNTED_ROWS = {  # contradict other rows: printed, but neither fitted nor counted
    ("bm1684", "retinaface_640", "i8"): "int8 takes longer than f32",
    **dict.fromkeys(
        [("cv186x", "scrfd", t) for t in ("i8", "f16", "f32")],
        "twice the time of BM1688's program, whose core is the same",
    ),
}
QUANTISED_FOR = {  # one chip of a family: all of them have the same types
    "rknpu": "rk3588",
    "kpu": "k230",
    "sophgo": "bm1684x",
}
LEFT_OUT = (  # columns of the table of left-out rows
    *("family", "kind", "chip", "net", "dtype", "batch", "cores"),
    *("published", "fitted", "left_out"),
)
TYPES = {"int8": "i8", "fp16": "f16", "fp32": "f32"}
NAMES = {v: k for k, v in TYPES.items()}


@dataclass(frozen=True)
class Row:
    """A published speed of a rebuilt network."""

    chip: str
    net: str
    dtype: str
    batch: int
    cores: int
    milliseconds: float  # per sample
    mixed: bool = False  # parts of it are in another type

    @property
    def label(self) -> str:
        return f"{self.chip:8}{self.net:20}{self.dtype:4} batch {self.batch} cores {self.cores}"

    @property
    def family(self) -> str:
        """The networks of one architecture, which a fit leaves out together."""
        return npu_zoo.family(self.net)


def why_not(row: Row) -> str | None:
    """Why a row is neither fitted nor counted; None: it is."""
    return MIXED if row.mixed else UNCOUNTED_ROWS.get((row.chip, row.net, row.dtype))


def counted(rows: Sequence[Row]) -> list[Row]:
    """The rows that count in the errors."""
    return [r for r in rows if not why_not(r)]


def read(path: Path = ROWS, family: str | None = None) -> list[Row]:
    """The rows of a table whose networks are rebuilt."""
    found = {}
    for line in csv.DictReader(path.open()):
        net, name, dtype = line["net"], line["chip"], TYPES[line["dtype"]]
        if net not in npu_zoo.NETS or family not in (None, line["family"]):
            continue
        if dtype not in chip.load(name).types:
            continue
        sizes = int(line["batch"]), int(line["cores"])
        mixed = line["source"].endswith("mixed")
        row = Row(name, net, dtype, *sizes, float(line["ms_per_sample"]), mixed)
        found[replace(row, milliseconds=0.0)] = row
    return list(found.values())


# ---- programs ------------------------------------------------------------------------------------
@lru_cache(maxsize=2)
def user_model(net: str) -> Model:
    """The network as `intaglio perf --as-vendor` reads it."""
    import onnx

    from intaglio.cli.model_files import integer_model

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{net}.onnx"
        onnx.save(npu_zoo.model(net), path)
        model: Model = integer_model(path, {}, as_vendor=True)
    quantised = model.graph_for
    model.graph_for = lambda target: quantised(QUANTISED_FOR[chip.load(target).family])
    return model


def what_if(row: Row) -> WhatIf:
    """The options of the command for a row."""
    batch = row.batch if row.batch > 1 else None
    return WhatIf(dtype=NAMES[row.dtype], batch=batch, cores=row.cores)


def cache_file(row: Row, folder: Path) -> Path:
    """The file of a row's compiled programs."""
    return folder / f"{row.chip}-{row.net}-{NAMES[row.dtype]}-{row.batch}-{row.cores}.pickle"


def network(row: Row, cached: Path | None = None) -> list[vendor.Part]:
    """A row's model, compiled in the style of the vendor's compiler."""
    path = cached and cache_file(row, cached)
    if path and path.exists():
        found: vendor.Part = pickle.loads(path.read_bytes())
        return [found]
    found = user_model(row.net).vendor_part(row.chip, what_if(row))[0]
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(found))
    return [found]


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
            if k not in BESIDE
            and (k.partition(".")[2] in ("", "i8", dtype))  # see `as_bytes`
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
    "rknpu": {"efficiency": 0.6, "layer": 3000.0, "lut": 1.2, "use": 0.9, "call": 30.0}
    | {"turn": 1.0, "exp": 1.0},
    "kpu": {"efficiency": 0.7, "layer": 1000.0, "use.i8": 0.8, "call": 300.0, "turn": 2.0}
    | {"exp": 50.0},  # softmax: nncase #1481 saved 41 % of YOLOv8n's time by a faster one
    "sophgo": {"efficiency": 0.75, "layer": 1000.0, "start": 100.0, "turn": 1.4, "call": 5.0},
}
BESIDE = ("start", "call", "turn", "exp")  # constants that no timeline depends on
SHARES = ("efficiency", "use", "alone")  # at most 1
PRIOR_USE = 0.8  # prior of the share of its rate that a product of a type reaches
PRIOR_APART = 2.0  # prior of the passes over its results
STEP, ROUNDS = 1.06, 8  # factor of a finite difference; iterations
PRIOR_WEIGHT = {"rknpu": 1.0, "kpu": 1.0, "sophgo": 3.0}  # relative to one row's error
LESS = {"turn": 0.1, "exp": 0.1}  # of that weight, for constants of which a prior knows little


def fitted(c: Chip, values: Constants) -> Chip:
    """The chip with these constants of [timing] and this rate of lookup tables."""
    units = dict(c.units)
    if "lut" in values:
        rate = dict.fromkeys(units["lut"].rate, values["lut"])
        units["lut"] = replace(units["lut"], rate=rate)
    timing = {**c.timing, **{k: v for k, v in values.items() if k not in ("lut", "use")}}
    if "use" in values:  # of all types
        timing |= {f"use.{t}": values["use"] for t in units["conv"].rate}
    return replace(c, units=units, timing=timing)


@dataclass
class Linear:
    """Errors of rows near some constants: off + slopes (log constants - at)."""

    at: np.ndarray
    off: np.ndarray
    slopes: np.ndarray


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
        damp, near = 1.0, self.linear(rows, values)
        for _ in range(ROUNDS):
            wanted = self.solved(near, np.ones(len(rows), bool), list(values))
            at = near.at + damp * np.clip(wanted - near.at, -0.7, 0.7)
            tried = dict(zip(values, np.exp(at).tolist(), strict=True))
            found = self.off(rows, tried)
            if _objective(found) < _objective(near.off) - 1e-4:
                values, near = tried, self.linear(rows, tried, found)
            else:
                damp /= 2
            if damp < 0.2:
                break
        self.near = near
        return values

    def linear(
        self, rows: Sequence[Row], values: Constants, off: np.ndarray | None = None
    ) -> Linear:
        """The errors and their slopes at these constants, by finite differences."""
        off = self.off(rows, values) if off is None else off
        at = np.log(list(values.values()))
        most = _most(values)
        slopes = np.empty((len(rows), len(at)))
        for k, name in enumerate(values):
            step = -math.log(STEP) if at[k] >= most[k] - 0.1 else math.log(STEP)
            tried = {**values, name: math.exp(at[k] + step)}
            slopes[:, k] = (self.off(rows, tried) - off) / step
        return Linear(at, off, slopes)

    def solved(self, near: Linear, which: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Logarithms of the best constants for some of the rows, if errors were linear."""
        first = np.log([self.first()[k] for k in names])
        weight = PRIOR_WEIGHT[self.chip.family]
        pull = np.sqrt([weight * LESS.get(k, 1.0) for k in names])
        slopes, off = near.slopes[which], near.off[which]
        return _solve(slopes, off - slopes @ near.at, first, near.at, _most(names), pull)

    def first(self) -> Constants:
        """The start and prior of a fit."""
        found = dict(PRIOR[self.chip.family])
        if self.chip.family == "sophgo":  # transfers between lanes cost a share of the rate
            found |= {f"use.{r.dtype}": PRIOR_USE for r in self.rows}
            found |= {f"apart.{r.dtype}": PRIOR_APART for r in self.rows}
        if any(r.cores > 1 for r in self.rows):
            found["alone"] = 0.3
        return found

    def now(self) -> Constants:
        """The constants of the chip's file, by the names of a fit."""
        timing, found = constants(self.chip), self.first()
        for k, usual in found.items():
            of_all = timing.get("apart", usual) if k.startswith("apart.") else usual
            first = timing.get("use.i8", 1.0) if k == "use" else timing.get(k, of_all)
            if k == "lut" and k in self.chip.units:
                first = max(self.chip.units[k].rate.values())
            found[k] = first or usual
        return found

    def left_out(self, values: Constants) -> dict[Row, float]:
        """Each row predicted with constants that were fitted without its family of networks.

        These fits solve the errors that were linearised where the fit to all rows ended. The
        predictions themselves are exact.
        """
        rows, found = counted(self.rows), {}
        for family in dict.fromkeys(r.family for r in self.rows):
            others = np.array([r.family != family for r in rows])
            at = self.solved(self.near, others, list(values))
            made = dict(zip(values, np.exp(at).tolist(), strict=True))
            found |= {r: self.predict(r, made) for r in self.rows if r.family == family}
        return found


def _most(names: Sequence[str] | Constants) -> np.ndarray:
    """Upper bounds of the logarithms of constants."""
    return np.array([0.0 if k.partition(".")[0] in SHARES else math.inf for k in names])


def _objective(off: np.ndarray) -> float:
    """The objective: mean absolute error plus half the root mean square."""
    return float(np.abs(off).mean() + 0.5 * np.sqrt((off * off).mean()))


def _solve(
    slopes: np.ndarray,
    base: np.ndarray,
    first: np.ndarray,
    at: np.ndarray,
    most: np.ndarray,
    pull: np.ndarray,
) -> np.ndarray:
    """Minimise the absolute values of base + slopes x by reweighted least squares, x <= most."""
    x, free = at, np.ones(len(at), bool)
    for _ in range(12):
        weight = 1 / np.sqrt(np.maximum(np.abs(base + slopes @ x), 0.03))
        held = base + slopes[:, ~free] @ x[~free]
        left = np.vstack([slopes[:, free] * weight[:, None], np.diag(pull)[free][:, free]])
        right = np.concatenate([-held * weight, pull[free] * first[free]])
        x = x.copy()
        x[free] = np.linalg.lstsq(left, right, rcond=None)[0]
        free &= x <= most
        x = np.minimum(x, most)
    return x


def report(fit: Fit, again: bool, leave_out: bool) -> list[tuple[Row, float, float | None]]:
    """Print a chip's rows; returns them with both predictions: fitted, and left out."""
    values: Constants = {}
    left: dict[Row, float] = {}
    if again:
        values = fit.fit(counted(fit.rows), fit.first())
    if leave_out:
        values = values or fit.now()
        fit.near = fit.linear(counted(fit.rows), values)
        left = fit.left_out(values)
    if again:
        told = ", ".join(f"{k} {v:.4g}" for k, v in values.items())
        print(f"\n{fit.chip.name}: fitted to {len(counted(fit.rows))} rows: {told}", flush=True)
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
    parser.add_argument("--rows", type=Path, nargs="+", default=[ROWS], help="published speeds")
    parser.add_argument("--family", choices=sorted(PRIOR), help="only chips of this family")
    parser.add_argument("--chip", default="", help="only these chips, separated by commas")
    parser.add_argument("--without", default="", help="networks to leave out, separated by commas")
    parser.add_argument("--single", action="store_true", help="only one sample on one core")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    parser.add_argument("--cached", action="store_true", help="only rows whose programs are there")
    parser.add_argument("--fit", action="store_true", help="fit the constants")
    parser.add_argument("--left-out", type=Path, help="table to write of left-out rows")
    args = parser.parse_args()
    tables = {
        t.name: [
            r
            for r in read(t, args.family)
            if (not args.chip or r.chip in args.chip.split(","))
            and r.net not in args.without.split(",")
            and not (args.single and (r.batch, r.cores) != (1, 1))
            and not (args.cached and not cache_file(r, args.cache).exists())
        ]
        for t in args.rows
    }
    rows = [r for table in tables.values() for r in table]
    found = []
    kinds: dict[Row, str] = {}
    for name in dict.fromkeys(r.chip for r in rows):
        fit = Fit(name, [r for r in rows if r.chip == name], args.cache)
        found += report(fit, args.fit, args.fit or args.left_out is not None)
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
                table.writerow((c.family, kinds[row], *astuple(row)[:-2], *figures))


if __name__ == "__main__":
    sys.exit(main())
