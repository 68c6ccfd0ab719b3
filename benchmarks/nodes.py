"""Node counts of optimised models: Intaglio, onnxslim, onnxsim and onnxruntime.

python -m benchmarks.nodes [NAME ...] [--folder build/zoo]     pip install intaglio[peers]

`ours` is standard ONNX; `contrib` also uses onnxruntime's own operators, as onnxruntime does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import intaglio
from benchmarks import models
from intaglio.analysis.agreement import differences
from intaglio.export.onnx import count_nodes

TOLERANCE = 1e-3  # largest difference of outputs before and after, relative to the range
CPU = ["CPUExecutionProvider"]


# ---- peers ---------------------------------------------------------------------------------------
def onnxslim(path: Path) -> Any:
    import onnxslim

    return onnxslim.slim(onnx.load(path))


def onnxsim(path: Path) -> Any:
    import onnxsim

    return onnxsim.simplify(onnx.load(path))[0]


def ort(path: Path) -> Any:
    """The model as onnxruntime optimises it at its highest level."""
    with tempfile.TemporaryDirectory() as folder:
        options = _options(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        options.optimized_model_filepath = str(Path(folder) / "model.onnx")
        onnxruntime.InferenceSession(path, options, providers=CPU)
        return onnx.load(options.optimized_model_filepath)


PEERS: dict[str, Callable[[Path], Any]] = {"onnxslim": onnxslim, "onnxsim": onnxsim, "ort": ort}


def _options(level: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    return options


# ---- one model -----------------------------------------------------------------------------------
def measure(path: Path, peers: list[str]) -> tuple[dict[str, int | None], float, float]:
    """Node counts by tool, our time in seconds, and the difference of our outputs."""
    counts: dict[str, int | None] = {"file": count_nodes(path)}
    for name in peers:
        try:
            counts[name] = count_nodes(PEERS[name](path))
        except Exception as e:  # a peer that fails has no number
            print(f"{path.stem}: {name} failed: {' '.join(str(e).split())[:100]}", file=sys.stderr)
            counts[name] = None
    graph = intaglio.load(path, dims=models.dims(path))
    start = time.perf_counter()
    small = intaglio.optimize(graph)
    written = {"ours": intaglio.to_onnx(small), "contrib": intaglio.to_onnx(small, contrib=True)}
    seconds = time.perf_counter() - start
    feeds = models.feeds({v.name: v.type for v in graph.inputs})
    want, apart = _run(str(path), feeds), 0.0
    for name, model in written.items():
        counts[name] = count_nodes(model)
        got = _run(model.SerializeToString(), feeds)
        apart = max(apart, *(d.error for d in differences(want, got, TOLERANCE)))
    return counts, seconds, apart


def _run(model: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = _options(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    session = onnxruntime.InferenceSession(model, options, providers=CPU)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models [default: all]")
    parser.add_argument("--folder", type=Path, default=models.ROOT / "build" / "zoo")
    given = parser.parse_args()
    paths = [*models.available(), *sorted(given.folder.glob("*/*.onnx"))]
    paths = [p for p in paths if not given.names or p.stem in given.names]
    peers = [name for name in PEERS if name == "ort" or _installed(name)]
    columns = ["file", *peers, "ours", "contrib"]
    head = "".join(f"{c:>10}" for c in columns)
    print(f"{'model':36}{head}   seconds  max|Δ|")
    lost = 0
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counts, seconds, apart = measure(path, peers)
        least = min(c for name in ("file", *peers) if (c := counts[name]) is not None)
        won = counts["contrib"] <= least and apart <= TOLERANCE  # type: ignore[operator]
        lost += not won
        cells = "".join(f"{'-' if counts[c] is None else counts[c]:>10}" for c in columns)
        name = f"{path.parent.name}/{path.stem}"
        print(
            f"{name:36}{cells}   {seconds:7.2f}  {apart:.0e}{'' if won else '  LOST'}", flush=True
        )
    print(
        f"{len(paths) - lost} of {len(paths)} models have the fewest nodes of all tools, and agree"
    )
    return int(lost > 0)


def _installed(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        print(f"{name} is not installed: pip install intaglio[peers]", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
