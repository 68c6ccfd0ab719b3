"""Whether a package with several plans may pad its inputs: found out by running it both ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import dtypes
from intaglio.errors import RunError, Unsupported
from intaglio.ir import Array
from intaglio.open_session import open
from intaglio.package import Package
from intaglio.padding import Links, Padding, Types, pad
from intaglio.session import Session

TOLERANCE = 1e-3  # of an output's range
SEEDS = (0, 1)


def find_links(inputs: Sequence[Types], outputs: Sequence[Types]) -> Links | None:
    """The input axis that each varying output axis follows in all plans; None if one follows none.

    Plans whose inputs differ in rank cannot be padded.
    """
    if any({n: t.rank for n, t in p.items()} != {n: t.rank for n, t in inputs[0].items()}
           for p in inputs):  # fmt: skip
        return None
    extents = {
        (name, axis): [p[name].shape[axis] for p in inputs]
        for name, t in inputs[0].items()
        for axis in range(t.rank)
    }
    links: Links = {}
    for name, t in outputs[0].items():
        for axis in range(t.rank):
            along = [p[name].shape[axis] for p in outputs]
            if len(set(along)) == 1:
                continue
            place = next((k for k, found in extents.items() if found == along), None)
            if place is None:
                return None
            links.setdefault(name, {})[axis] = place
    return links


def samples(types: Types, seed: int) -> dict[str, Array]:
    """Inputs for the comparison: random floats, and ones for integers, which may be masks."""
    rng = np.random.default_rng(seed)
    return {
        n: rng.standard_normal(t.shape, np.float32).astype(dtypes.numpy_of(t.dtype))
        if dtypes.is_float(t.dtype)
        else np.ones(t.shape, dtypes.numpy_of(t.dtype))
        for n, t in types.items()
    }


def close(got: Array, want: Array) -> bool:
    """Whether two outputs agree."""
    if got.shape != want.shape:
        return False
    apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return bool(
        apart.max(initial=0) <= TOLERANCE * (float(np.ptp(want)) if want.size else 1) + 1e-6
    )


def find_padding(package: Package) -> Links | None:
    """The links of a package with several plans if padding gives the same results; else None."""
    sessions: list[Session] = []
    try:
        for i in range(len(package.plans)):
            sessions.append(open(package, threads=1, plan=i))
        inputs, outputs = [s.inputs for s in sessions], [s.outputs for s in sessions]
        fixed = all(t.fixed for p in (*inputs, *outputs) for t in p.values())
        links = find_links(inputs, outputs) if fixed else None
        if links is None:
            return None
        padding = Padding([[t.shape for t in p.values()] for p in inputs], links, list(inputs[0]))
        for small, large, types in zip(sessions, sessions[1:], inputs, strict=False):
            shapes = [t.shape for t in large.inputs.values()]
            if padding.larger([t.shape for t in types.values()]) is None or any(
                x > y
                for t, shape in zip(types.values(), shapes, strict=True)
                for x, y in zip(t.shape, shape, strict=True)
            ):
                continue  # neither plan holds the other
            for seed in SEEDS:
                feeds = samples(types, seed)
                want = small.run(feeds)
                whole = dict(zip(feeds, pad(list(feeds.values()), shapes), strict=True))
                got = padding.crop(large.run(whole), [a.shape for a in feeds.values()])
                if not all(close(got[n], want[n]) for n in want):
                    return None
    except (RunError, Unsupported):
        return None  # the model does not take such inputs, or is for another CPU
    finally:
        for s in sessions:
            s.close()
    return links
