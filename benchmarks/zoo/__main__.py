"""Export models of the zoo to ONNX: `python -m benchmarks.zoo mobilenet_v2 yolov8n_320`.

Files go to build/zoo/EXPORTER-OPSET/NAME.onnx; up-to-date files are kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import intaglio
from benchmarks.zoo import MODELS, macs
from benchmarks.zoo.export import FOLDER, OPSETS, export, is_current, path_of


def show() -> None:
    for name, model in MODELS.items():
        inputs = ", ".join(f"{i.name} {'x'.join(map(str, i.shape))}" for i in model.inputs)
        print(f"{name:20} {f'{model.mmac} MMAC' if model.mmac else '':10} {inputs}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models [default: all]")
    parser.add_argument("--exporter", choices=OPSETS, default="torchscript")
    parser.add_argument("--opset", type=int, default=0, help=f"default: {OPSETS}")
    parser.add_argument("--out", type=Path, default=FOLDER, help="default: build/zoo")
    parser.add_argument(
        "--force", action="store_true", help="export again even if the file is up to date"
    )
    parser.add_argument("--list", action="store_true", help="print the models and stop")
    given = parser.parse_args(arguments)
    if given.list:
        show()
        return 0
    if unknown := [n for n in given.names if n not in MODELS]:
        parser.error(f"unknown model '{unknown[0]}'; --list prints all models")
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        parser.error("exporting needs torch: pip install 'intaglio[zoo]'")
    names, failed = given.names or list(MODELS), 0
    for i, name in enumerate(names, 1):
        print(f"[{i}/{len(names)}] {name:20}", end=" ", flush=True)
        path = path_of(name, given.exporter, given.opset, given.out)
        if is_current(path) and not given.force:
            print(f"is in {path}")
            continue
        start = time.perf_counter()
        try:
            made = export(name, given.exporter, given.opset, given.out)
        except Exception as e:  # exporters raise anything; continue with the other models
            print(f"FAILED: {type(e).__name__}: {str(e).strip().splitlines()[0]}")
            failed += 1
            continue
        print(
            f"{made.nodes:5} nodes, {path.stat().st_size / 1e6:6.1f} MB, {_mmac(name, path)}, "
            f"differs by {made.apart:.0e}, {time.perf_counter() - start:.1f} s"
        )
    return 1 if failed else 0


def _mmac(name: str, path: Path) -> str:
    try:
        counted = macs.count(intaglio.load(path)) / 1e6
    except intaglio.IntaglioError as e:
        return f"? MMAC ({e})"
    wanted = MODELS[name].mmac
    return f"{counted:7.1f} MMAC" + (f" (expected {wanted})" if wanted else "")


if __name__ == "__main__":
    sys.exit(main())
