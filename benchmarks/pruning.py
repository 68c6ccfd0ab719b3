"""Prune networks to half of their multiply-accumulates, with the same settings for all.

python -m benchmarks.pruning [NAME ...] [--macs 0.5] [--rounds 9] [--peer]

The networks are those of `benchmarks.zoo`, built by torch and loaded as live modules. For each: the
work that stays, the largest difference between the pruned and the masked model relative
to the largest output, and the latency of both on one thread. The two are measured in turns; the
fastest run of each counts, as CPU time. It fails if a network cannot be pruned or differs from its
masked model.

`--peer` prunes with Torch-Pruning instead (pip install torch-pruning==1.6.1): by the L2 norm, to
multiples of 8 channels, without the last layer, and by the same share for all networks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import intaglio
from benchmarks import zoo
from benchmarks.table import grid
from intaglio.compress import prune
from intaglio.errors import IntaglioError
from intaglio.quant.prepare import prepare

NAMES = (
    "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_lite0", "efficientnet_b0",
    "ghostnet", "squeezenet1_1", "shufflenet_v2", "resnet18", "resnet50", "unet_small",
    "yolov5s_320", "yolov8n_320", "vit_tiny_224",
)  # fmt: skip
LIMIT = 1e-4  # of the largest output


@dataclass
class Row:
    """What became of one network."""

    name: str
    macs: tuple[int, int] = (0, 0)
    difference: float = 0.0
    milliseconds: tuple[float, float] = (0.0, 0.0)
    why: str = ""  # it could not be pruned

    @property
    def ok(self) -> bool:
        return not self.why and self.difference <= LIMIT

    def cells(self) -> list[str]:
        if self.why:
            return [self.name, "", "", "", "", "", self.why]
        (a, b), (before, after) = self.macs, self.milliseconds
        if not before:
            return [self.name, f"{a / 1e6:,.0f}", f"{b / 1e6:,.0f}", "", "", "", ""]
        return [
            self.name, f"{a / 1e6:,.0f}", f"{b / 1e6:,.0f}", f"{self.difference:.1e}",
            f"{before:.2f}", f"{after:.2f}", f"{before / after:.2f} x",
        ]  # fmt: skip


def measure(name: str, share: float, rounds: int) -> Row:
    """Prune a network, compare it with its masked model, and time both."""
    model = zoo.MODELS[name]
    feeds = model.feeds()
    try:
        import torch

        example = tuple(torch.from_numpy(a) for a in feeds.values())
        graph = prepare(intaglio.load(model.build(), inputs=example))
        found = prune(graph, macs=share)
    except IntaglioError as e:
        return Row(name, why=str(e))
    given = {v.name: a for v, a in zip(found.graph.inputs, feeds.values(), strict=True)}
    packages = [  # level 0: the compiler would remove the masked channels, too
        intaglio.compile(found.masked, level=0), intaglio.compile(found.graph),
        intaglio.compile(graph),
    ]  # fmt: skip
    sessions = [intaglio.open(p, 1) for p in packages]
    masked, small = (list(s.run(given).values()) for s in sessions[:2])
    pairs = zip(masked, small, strict=True)
    off = max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-12)) for a, b in pairs)
    best = [np.inf, np.inf]
    for _ in range(rounds):
        for k, session in enumerate((sessions[2], sessions[1])):
            start = time.thread_time()
            session.run(given)
            best[k] = min(best[k], time.thread_time() - start)
    for session in sessions:
        session.close()
    macs = found.before.macs, found.after.macs
    return Row(name, macs, off, (best[0] * 1e3, best[1] * 1e3))


def peer(name: str, share: float) -> Row:
    """Prune a network with Torch-Pruning, and run it."""
    import torch
    import torch_pruning as tp

    model = zoo.MODELS[name]
    net, example = model.build(), tuple(torch.from_numpy(a) for a in model.feeds().values())
    last = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)][-1:]
    try:
        before, _ = tp.utils.count_ops_and_params(net, example)
        pruner = tp.pruner.MagnitudePruner(
            net, example, tp.importance.MagnitudeImportance(p=2), ignored_layers=last,
            pruning_ratio=1 - share**0.5, round_to=8,
        )  # fmt: skip
        pruner.step()
        with torch.no_grad():
            net(*example)
        after, _ = tp.utils.count_ops_and_params(net, example)
    except Exception as e:  # whatever a library raises is its result
        return Row(name, why=f"{type(e).__name__}: {' '.join(str(e).split())[:80]}")
    why = "" if after <= 0.75 * before else f"only {before / 1e6:,.0f} -> {after / 1e6:,.0f} MMACs"
    return Row(name, (int(before), int(after)), why=why)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--macs", type=float, default=0.5, help="share that stays")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each model")
    parser.add_argument("--peer", action="store_true", help="prune with Torch-Pruning instead")
    given = parser.parse_args(arguments)
    rows = []
    for name in given.names:
        rows.append(
            peer(name, given.macs) if given.peer else measure(name, given.macs, given.rounds)
        )
        print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    titles = ["network", "MMACs", "pruned", "difference", "ms", "pruned ms", "faster"]
    print(grid([titles, *(r.cells() for r in rows)]))
    print(f"{sum(r.ok for r in rows)} of {len(rows)} networks")
    return sum(not r.ok for r in rows)


if __name__ == "__main__":
    sys.exit(main())
