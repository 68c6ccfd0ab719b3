"""Published speeds beside predicted ones, and the constants fitted to them.

python -m benchmarks.npu_fit --rows fps-published.csv [--family rknpu] [--cache FOLDER] [--fit]

The networks are rebuilt from their public architectures (`npu_nets`); rows of others are left out.
Programs run in the order of the vendor's compiler: Rockchip's computes layer by layer, those of
Canaan and Sophgo keep groups of layers in the cores. Without --fit, the constants of the chips'
files predict; with it, they are fitted anew, once for all rows and once without each network, whose
rows are then predicted: that error is the one that counts.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import npu_nets
from intaglio.npu import build
from intaglio.npu.isa import QUEUES, Program
from intaglio.simulate.cycles import USUAL
from intaglio.simulate.timeline import timeline
from intaglio.targets import chip
from intaglio.targets.chip import Chip

NETS = {  # what the table calls a network -> ours
    r"mobilenetv2.*": "mobilenet_v2", r"resnet50-v2-7": "resnet50_v2", r"resnet50_.*": "resnet50",
    r"yolov5s_relu": "yolov5s_relu", r"yolov5n": "yolov5n", r"yolov5s(_det)?": "yolov5s",
    r"yolov5s_v6.1_3output_.*": "yolov5s", r"yolov6n": "yolov6n", r"yolov8n": "yolov8n",
    r"yolov8s": "yolov8s", r"yolov8s_seg": "yolov8s_seg", r"yolox_s_.*": "yolox_s",
    r"RetinaFace_mobile320": "retinaface_320", r"retinaface_mobilenet0.25_.*": "retinaface_640",
    r"centernet_.*": "centernet", r"lprnet_.*": "lprnet", r"bert4torch_.*": "bert",
}  # fmt: skip
TYPES = {"int8": ("i8", 1), "uint8": ("i8", 1), "fp16": ("f16", 2), "fp32": ("f32", 4)}
TOGETHER = {"rknpu": False, "kpu": True, "sophgo": True}  # groups of layers, or one by one


@dataclass(frozen=True)
class Row:
    """A published speed of a network that we can build."""

    chip: str
    net: str
    dtype: str
    batch: int
    cores: int
    milliseconds: float  # for one sample

    @property
    def label(self) -> str:
        return f"{self.chip:8}{self.net:15}{self.dtype:4} batch {self.batch} cores {self.cores}"


def read(path: Path, family: str | None = None) -> list[Row]:
    """The rows of the table whose networks we can build."""
    found = {}
    for line in csv.DictReader(path.open()):
        net = next((n for p, n in NETS.items() if re.fullmatch(p, line["model"])), None)
        dtype = TYPES[line["dtype"]][0]
        if net is None or line["chip"] not in chip.names() or family not in (None, line["family"]):
            continue
        if dtype not in chip.load(line["chip"]).types:
            continue
        row = Row(line["chip"], net, dtype, int(line["batch"]), int(line["cores"]),
                  float(line["ms_per_sample"]))  # fmt: skip
        found[replace(row, milliseconds=0.0)] = row
    return list(found.values())


def narrowed(c: Chip, dtype: str) -> Chip:
    """The chip for elements of `dtype`, as if they were bytes in memories that much smaller."""
    size = next(s for t, s in TYPES.values() if t == dtype)
    if size == 1:
        return c
    units = {}
    for name, u in c.units.items():
        rate = u.rate.get(dtype, u.rate["i8"] / size)
        atoms = {k: {"i8": getattr(u, k)[dtype]} if getattr(u, k) else {}
                 for k in ("in_atom", "out_atom")}  # fmt: skip
        units[name] = replace(u, rate={"i8": rate}, **atoms)
    timing = {**USUAL, **c.timing}
    share = timing.get(f"use.{dtype}", 1.0)
    timing |= {"use.i8": share, "port": timing["port"] / size, "images": 1}
    return replace(
        c, sram=c.sram // size, shared=c.shared // size, align=max(c.align // size, 1),
        ddr=c.ddr / size, burst=max(c.burst // size, 1), c2={"i8": c.c2[dtype]}, units=units,
        timing=timing,
    )  # fmt: skip


def program(row: Row, cache: Path | None) -> np.ndarray:
    """The code of a row's network for its chip."""
    name = f"{row.chip}-{row.net}-{row.dtype}-{row.batch}-{row.cores}.npy"
    if cache and (cache / name).exists():
        return np.load(cache / name)
    c = narrowed(chip.load(row.chip), row.dtype)
    if not TOGETHER[c.family]:
        c = replace(c, shared=0)  # the vendor's runtime does not use it unless asked to
    made = build(npu_nets.MAKERS[row.net](row.batch), c, TOGETHER[c.family], row.cores)
    if not TOGETHER[c.family]:
        apart(made.program)
    code = made.program.encode()
    if cache:
        cache.mkdir(parents=True, exist_ok=True)
        np.save(cache / name, code)
    return code


def apart(made: Program) -> None:
    """Let each layer begin when the one before it has ended, as tasks of the vendor's driver do."""
    done, barrier, now = [0, 0, 0], [0, 0, 0], -1
    for i in made.instructions:
        if i.layer != now:
            now, barrier = i.layer, list(done)
        i.wait = tuple(max(a, b) for a, b in zip(i.wait, barrier, strict=True))  # type: ignore[assignment]
        done[QUEUES.index(i.queue)] += 1


def predict(row: Row, code: np.ndarray, c: Chip) -> float:
    """Milliseconds for one sample, with those of the CPU's steps."""
    calls = npu_nets.HOST.get(row.net, 0) * {**USUAL, **c.timing}["call"] / 1e3
    return (timeline(code, narrowed(c, row.dtype)).milliseconds + calls) / row.batch


# ---- fitting -------------------------------------------------------------------------------------
Constants = dict[str, float]
FITTED = {"rknpu": ("efficiency", "layer", "lut"), "kpu": ("efficiency", "layer", "lut"),
          "sophgo": ("efficiency", "layer")}  # fmt: skip
FIRST = {"efficiency": 0.6, "layer": 3000.0}
UNFITTED = ("lprnet", "bert")  # much of what their exported models do is not rebuilt


def fitted(c: Chip, values: Constants) -> Chip:
    """The chip with these constants: of `[timing]`, and the rate of tables."""
    units = dict(c.units)
    if "lut" in values:
        rate = dict.fromkeys(units["lut"].rate, values["lut"])
        units["lut"] = replace(units["lut"], rate=rate)
    timing = {**c.timing, **{k: v for k, v in values.items() if k != "lut"}}
    return replace(c, units=units, timing=timing)


class Fit:
    """The rows of one chip with their programs."""

    def __init__(self, name: str, rows: Sequence[Row], cache: Path | None) -> None:
        self.chip = chip.load(name)
        self.rows = list(rows)
        self.codes = {r: program(r, cache) for r in rows}

    def predict(self, row: Row, values: Constants) -> float:
        return predict(row, self.codes[row], fitted(self.chip, values))

    def error(self, rows: Sequence[Row], values: Constants) -> float:
        """What is minimised: errors count, and large ones count more."""
        off = np.array([math.log(self.predict(r, values) / r.milliseconds) for r in rows])
        return float(np.abs(off).mean() + 0.5 * np.sqrt((off * off).mean()))

    def fit(self, rows: Sequence[Row], values: Constants,
            steps: Sequence[float] = (1.5, 1.12)) -> Constants:  # fmt: skip
        """Each constant in turn a step up or down, as long as that helps; then smaller steps."""
        best = self.error(rows, values)
        for step in steps:
            moved = True
            while moved:
                moved = False
                for k in values:
                    for factor in (step, 1 / step):
                        most = 1.0 if k == "efficiency" or k.startswith("use") else math.inf
                        tried = {**values, k: min(values[k] * factor, most)}
                        found = self.error(rows, tried)
                        if found < best - 1e-4:
                            best, values, moved = found, tried, True
        return values

    def first(self) -> Constants:
        """Where fitting begins."""
        rate = self.chip.units["lut"].rate["i8"]
        found = {k: FIRST.get(k, rate) for k in FITTED[self.chip.family]}
        if self.chip.family == "sophgo":  # lanes wait for what crosses them, by type
            found |= {f"use.{r.dtype}": 0.5 for r in self.rows}
        return found

    def left_out(self, values: Constants) -> dict[Row, float]:
        """Each row as predicted by constants that were fitted without its network."""
        found = {}
        for net in dict.fromkeys(r.net for r in self.rows):
            others = [r for r in self.rows if r.net not in (net, *UNFITTED)]
            made = self.fit(others, values, (1.12,)) if others else self.first()
            found |= {r: self.predict(r, made) for r in self.rows if r.net == net}
        return found


def report(fit: Fit, again: bool) -> list[tuple[Row, float, float | None]]:
    """Print a chip's rows; returns them with what is predicted, and what without their network."""
    values: Constants = {}
    left: dict[Row, float] = {}
    if again:
        values = fit.fit([r for r in fit.rows if r.net not in UNFITTED], fit.first())
        left = fit.left_out(values)
        words = ", ".join(f"{k} {v:.4g}" for k, v in values.items())
        nets = ", ".join(dict.fromkeys(r.net for r in fit.rows if r.net not in UNFITTED))
        print(f"\n{fit.chip.name}: fitted to the rows of {nets}: {words}", flush=True)
    else:
        print(f"\n{fit.chip.name}: with the constants of its file")
    made = []
    for r in fit.rows:
        p = fit.predict(r, values)
        line = (
            f"  {r.label} published {r.milliseconds:9.3f} ms, predicted {p:9.3f} {_off(p, r):+6.1%}"
        )
        if r in left:
            line += f", left out {left[r]:9.3f} {_off(left[r], r):+6.1%}"
        print(line, flush=True)
        made.append((r, p, left.get(r)))
    return made


def _off(p: float, row: Row) -> float:
    return p / row.milliseconds - 1


def summary(found: Sequence[tuple[Row, float, float | None]]) -> None:
    """Mean and worst error of all rows."""
    for which, title in ((1, "predicted"), (2, "left out ")):
        off = [abs(_off(x[which], x[0])) for x in found if x[which] is not None]  # type: ignore[arg-type]
        if off:
            print(f"{title}: {len(off)} rows, mean error {np.mean(off):.1%}, worst {max(off):.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.npu_fit")
    parser.add_argument("--rows", type=Path, required=True, help="the table of published speeds")
    parser.add_argument("--family", choices=sorted(FITTED), help="only its chips")
    parser.add_argument("--chip", help="only this one")
    parser.add_argument("--without", default="", help="networks to leave out, with commas between")
    parser.add_argument("--cache", type=Path, help="where compiled programs are kept")
    parser.add_argument("--fit", action="store_true", help="fit the constants anew")
    args = parser.parse_args()
    rows = [r for r in read(args.rows, args.family) if args.chip in (None, r.chip)]
    rows = [r for r in rows if r.net not in args.without.split(",")]
    found = []
    for name in dict.fromkeys(r.chip for r in rows):
        found += report(Fit(name, [r for r in rows if r.chip == name], args.cache), args.fit)
    print()
    summary(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
